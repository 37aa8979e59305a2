"""Rows that name other rows: ensembles are made of their runs, students learn from them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ltr.analysis.values import align
from ltr.analysis.verdicts import BETTER, draw
from ltr.atomic import make_folder
from ltr.console.process import say
from ltr.errors import DataError, LTRError
from ltr.experiment.ensemble import make_ensemble
from ltr.experiment.run_folder import RunFolder
from ltr.scorers.parts import as_list, own_metrics
from ltr.tables.results import ALPHA, Results, Verdicts
from ltr.tables.runs import Run
from ltr.training.device import on_threads

_SAMPLES = 10_000


def make_ensembles(runs: Sequence[Run], threads: int | None) -> dict[Path, str]:
    """Make the ensembles ``runs`` of their finished members; return why one is not done, by folder.

    ``threads`` are of the CPU; None: as PyTorch chooses.
    """
    failures = {}
    with on_threads(threads):
        for run in runs:
            try:
                make_folder("output_dir", run.folder)
                with RunFolder(run.folder).locked(wait=True):
                    if not run.done:  # another table's process may have made it meanwhile
                        _make(run)
                say(f"{run.name}: ensemble, {(run.outcome() or ['not done'])[0]}")
            except LTRError as error:
                failures[run.folder] = str(error)
    return failures


def _make(run: Run) -> None:
    config = run.config
    trusted = set()  # the modules that the table itself has just trained with
    for one in (member.config for member in run.members):
        names = [str(one.model["_target_"]), *own_metrics(one)]
        trusted |= {*as_list(one.trust), *({name.partition(".")[0] for name in names} - {"ltr"})}
    make_ensemble(
        [RunFolder(member.folder) for member in run.members],
        run.weights,
        run.folder,
        identity=run.known,
        device=config.device,
        items=config.evaluation_items,
        places={"data_dir": config.data_dir, "cache_dir": config.cache_dir},
        trust=sorted(trusted),
    )


def kept_gains(results: Results) -> list[tuple[str, str]]:
    """A fact for each metric: (row - baseline) / (teacher - baseline) of the rows with a teacher.

    The interval is that of the ratio over samples of the queries, which all three rows share. Where
    the teacher is not better than the baseline there is no gain to keep.
    """
    baseline = results.baseline
    facts = []
    for metric, judged in results.verdicts.items():
        parts = [
            _kept_gain(judged, row, teacher, baseline)
            for row, teacher in results.table.teachers.items()
            if {row, teacher, baseline} <= judged.systems.keys() and row != baseline
        ]
        facts += [(f"kept gain, {metric}", "; ".join(parts))] * bool(parts)
    return facts


def _kept_gain(judged: Verdicts, row: str, teacher: str, baseline: str) -> str:
    against = judged.against.get(teacher)
    if teacher == baseline or against is None or against.word != BETTER:
        return f"{row}: {teacher} is not better than {baseline}, no gain to keep"
    try:
        aligned = align({name: judged.systems[name] for name in (row, teacher, baseline)})
    except DataError:
        return f"{row}: no query has a value in all three rows"
    means = np.vstack([aligned.means, aligned.means + draw(aligned, samples=_SAMPLES)])
    shares = (means[:, 0] - means[:, 2]) / (means[:, 1] - means[:, 2])
    low, high = np.quantile(shares[1:], [ALPHA / 2, 1 - ALPHA / 2])
    return (
        f"{row} keeps {shares[0]:.0%} of what {teacher} gains over {baseline} "
        f"({low:.0%} to {high:.0%} over queries)"
    )
