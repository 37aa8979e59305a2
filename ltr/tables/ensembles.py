"""The rows of a table that are ensembles: which runs they are made of, and making them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.console.progress import say
from ltr.ensembles.combine import Order, make_ensemble
from ltr.errors import LTRError
from ltr.experiment.identity import ensemble_identity, own_metrics
from ltr.experiment.parts import as_list
from ltr.experiment.run_folder import RunFolder, by_identity, lock_run_folder
from ltr.tables.runs import Run, folder_name, named
from ltr.tables.spec import Table
from ltr.training.device import on_threads
from ltr.whole import make_folder


def planned(table: Table, trained: Sequence[Run], output_dir: Path) -> list[Run]:
    """The ensembles of ``table``, row by row.

    Args:
        table: without the rows that cannot run here.
        trained: the runs of its other rows, as ``plan`` has them.
        output_dir: its folder ``runs`` keeps them too.
    """
    runs = {(run.label, run.fold, run.seed): run for run in trained}
    folds = dict.fromkeys(run.fold for run in trained)
    seeds = list(dict.fromkeys(run.seed for run in trained))
    folders = by_identity(output_dir / "runs") if table.ensembles else {}
    found = []
    for label, row in table.ensembles.items():
        together = [seeds] if row.seeds == "all" else [[seed] for seed in seeds]
        for fold in folds:
            for group in together:
                members = tuple(runs[one, fold, seed] for one in row.rows for seed in group)
                first, weights = members[0], row.weights_of(len(group))
                known = ensemble_identity([member.known for member in members], weights)
                folder = output_dir / "runs" / folder_name(label, first.config, known)
                found.append(
                    Run(
                        label, fold, group[0], (), first.config, known,
                        folders.get(known, folder), first.absent, members, weights,
                    )
                )  # fmt: skip
    return found


def make_ensembles(runs: Sequence[Run], threads: int | None) -> dict[Path, str]:
    """Make the ensembles ``runs`` of their finished members; return why one is not done, by folder.

    Args:
        runs: as ``planned`` has them, not done yet.
        threads: of the CPU; None: as PyTorch chooses.
    """
    failures = {}
    with on_threads(threads):
        for run in runs:
            try:
                if left := [member for member in run.members if not member.done]:
                    failures[run.folder] = f"{named(left[0])} is not done, a member of it"
                    continue
                made = _made(run)
                metric = str(made["select_on"])
                say(f"{named(run)}: ensemble, {metric} {made['vali'][metric]:.4f} on vali")
            except LTRError as error:
                failures[run.folder] = str(error)
    return failures


def _made(run: Run) -> Mapping[str, Any]:
    make_folder("output_dir", run.folder)
    with lock_run_folder(run.folder, wait=True):
        if run.done:  # another table's process made it meanwhile
            return RunFolder(run.folder).results
        config = run.config
        return make_ensemble(
            Order(
                runs=tuple(RunFolder(member.folder) for member in run.members),
                weights=run.weights,
                folder=run.folder,
                identity=run.known,
                device=config.device,
                items=config.evaluation_items,
                places={"data_dir": config.data_dir, "cache_dir": config.cache_dir},
                trust=_trust([member.config for member in run.members]),
            )
        )


def _trust(configs: Sequence[DictConfig]) -> tuple[str, ...]:
    """The modules that the table itself has just trained with."""
    names = {name for one in configs for name in [str(one.model["_target_"]), *own_metrics(one)]}
    given = {module for one in configs for module in as_list(one.trust)}
    return tuple(sorted({*given, *({name.partition(".")[0] for name in names} - {"ltr"})}))
