"""The runs of a table: planned, and finished as a sweep."""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from omegaconf import DictConfig

from ltr.console.arguments import merged, with_quotes
from ltr.console.compose import run_config
from ltr.errors import ConfigError, DataError, as_started
from ltr.experiment.identity import SHOWN, identity, identity_without_data
from ltr.experiment.job import train_job
from ltr.experiment.labels import with_levels
from ltr.experiment.parts import make_dataset
from ltr.experiment.run_folder import RunFolder, by_identity
from ltr.tables.launch import Piece, launch
from ltr.tables.spec import Table

# What each choice of model needs.
_LIBRARIES = {
    "lightgbm": "lightgbm",
    "stumps": "lightgbm",
    "xgboost": "xgboost",
    "catboost": "catboost",
}


def missing_libraries(table: Table, given: Sequence[str]) -> dict[str, str]:
    """The rows that cannot run here, and why.

    Raises:
        ConfigError: an override is wrong.
    """
    found = {}
    for label, row in trained_rows(table):
        choices = run_config(merged(table.settings, given, row))[1]
        library = _LIBRARIES.get(choices["model"])
        if library is not None and find_spec(library) is None:
            found[label] = "needs the extra gbdt"
    for label in table.rows:
        if lacking := [needed for needed in table.needs(label) if needed in found]:
            found[label] = found[lacking[0]]
    return found


def trained_rows(table: Table) -> list[tuple[str, tuple[str, ...]]]:
    """The rows that are trained, with their overrides."""
    return [(label, row) for label, row in table.rows.items() if label not in table.ensembles]


@dataclass(frozen=True)
class Run:
    """One training run of a table, or an ensemble of such."""

    label: str  # of its row
    fold: int | None  # of the data set, None where it has none
    seed: int  # of the training
    overrides: tuple[str, ...]  # its command line for train.py
    config: DictConfig  # the composed config
    known: str  # its identity, by which a finished run is found again whatever its folder
    folder: Path  # of the run; rows that compute the same share it
    absent: str | None = None  # why its data cannot be read, None where they are here
    members: tuple["Run", ...] = ()  # of an ensemble
    weights: str | tuple[float, ...] = "equal"  # of its members
    teacher: "Run | None" = None  # another run of the table that it learns from

    @property
    def waits(self) -> bool:
        """Whether its teacher is to be trained first; planned again then, it has its identity."""
        return self.teacher is not None and not self.teacher.done

    @property
    def done(self) -> bool:
        """Whether its results are there, and as they were left."""
        return RunFolder(self.folder).is_done(self.known)

    @property
    def damaged(self) -> bool:
        """Whether its results are there, but not as they were left."""
        left = RunFolder(self.folder)
        return left.identity == self.known and left.finished and not self.done


def plan(
    table: Table,
    given: Sequence[str],
    seeds: Sequence[int],
    output_dir: Path,
    *,
    absent_ok: bool = False,
    found: Mapping[tuple[str, int | None], Sequence[str]] | None = None,
) -> list[Run]:
    """The trainings of ``table``, row by row.

    Args:
        table: its rows and folds.
        given: overrides of the user; they replace the table's settings, not those of a row.
        seeds: of the training, for every row and fold.
        output_dir: its folder ``runs`` keeps them; finished runs of other tables there are reused.
        absent_ok: plan also for data that are not here.
        found: overrides by row and fold, over all others.

    Raises:
        ConfigError: an override is wrong.
        DataError: the data are not there.
    """
    runs = []
    planned: dict[tuple[str, int | None, int], Run] = {}
    folders = by_identity(output_dir / "runs")
    teachers, trained = table.teachers, trained_rows(table)
    for label, row in sorted(trained, key=lambda one: one[0] in teachers):  # teachers first
        overrides = merged(table.settings, given, row)
        of_row = run_config(overrides)[0]
        for fold, seed in product(folds_of(table, of_row), seeds):
            own, config, absent = overrides, of_row.copy(), None
            if more := (found or {}).get((label, fold)):
                own = merged(overrides, more)
                config = run_config(own)[0]
            own = [*own, f"seed={seed}"]
            config.seed = seed
            if fold is not None:
                own.append(f"dataset.fold={fold}")
                config.dataset.fold = fold
            teacher = planned.get((teachers[label], fold, seed)) if label in teachers else None
            if teacher is not None:
                own = merged(own, [f"teacher={teacher.folder}"])
                config.teacher = str(teacher.folder)
            elif label in teachers:
                raise ConfigError(
                    f"{label}: {teachers[label]} has no run of fold {fold}, seed {seed} to learn "
                    "from: give both rows one data set"
                )
            try:
                known = identity(config) if teacher is None or teacher.done else _waiting(config)
                config = with_levels(config, partial(make_dataset(config.dataset).split, "train"))
            except DataError as error:
                if not absent_ok:
                    raise
                known, absent = identity_without_data(config), str(error)
            folder = output_dir / "runs" / folder_name(label, config, known)
            folder = folders.setdefault(known, folder)
            run = Run(label, fold, seed, tuple(own), config, known, folder, absent, teacher=teacher)
            planned[label, fold, seed] = run
    for label, _ in trained:
        runs += [run for run in planned.values() if run.label == label]
    return runs


def _waiting(config: DictConfig) -> str:
    """What stands for the identity of a run whose teacher is not trained; that of no run."""
    whole = config.copy()
    whole.teacher = None
    named = f"{identity_without_data(whole)} {config.teacher}"
    return hashlib.sha256(named.encode()).hexdigest()


def folder_name(label: str, config: DictConfig, known: str) -> str:
    """The name of a new run's folder."""
    words = [re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-"), str(config.dataset.name)]
    if (fold := config.dataset.get("fold")) is not None:
        words.append(f"fold{fold}")
    return "-".join([*words, f"seed{config.seed}", known[:SHOWN]])


def folds_of(table: Table, config: DictConfig) -> list[int | None]:
    """The folds that ``table`` runs on the data set of ``config``; None where it has none."""
    count = config.dataset.get("folds") or 0
    if not count:
        return [None]
    return list(range(1, count + 1)) if table.folds == "all" else list(map(int, table.folds))


def describe(run: Run) -> str:
    """The command as one would type it."""
    if run.members:
        weights = run.weights if isinstance(run.weights, str) else ",".join(map(str, run.weights))
        folders = [os.path.relpath(member.folder) for member in run.members]
        return f"{as_started('ensemble')} {shlex.join([*folders, f'weights={weights}'])}"
    return f"{as_started('train')} {shlex.join(run.overrides)}"


def execute(
    runs: Sequence[Run], jobs: Path, launcher: Sequence[str], extra: Sequence[str] = ()
) -> dict[Path, str]:
    """Finish ``runs`` as one sweep of ``train.py``; return why a run is not done, by folder.

    Args:
        runs: at least one, not done yet, in folders side by side.
        jobs, launcher: as for ``launch``.
        extra: overrides for all runs that change no result, such as ``threads=1``.
    """
    pieces = [
        Piece(
            folder=run.folder,
            name=named(run),
            job=(*map(with_quotes, run.overrides), *extra),
            outcome=partial(_outcome, run),
        )
        for run in {run.folder: run for run in runs}.values()
    ]
    options = ["hydra.callbacks.summary.quiet=true", *launcher]
    reasons = launch("train", train_job, pieces, jobs, options)
    planned = {run.folder: run for run in runs}
    return {folder: _reason(planned[folder]) or reason for folder, reason in reasons.items()}


def _reason(run: Run) -> str | None:
    left = RunFolder(run.folder)
    if not left.error and left.finished and left.identity != run.known:
        return "the code or the data changed after it was planned: give the same command again"
    return None


def named(run: Run) -> str:
    """Its row, fold and seed."""
    fold = "" if run.fold is None else f", fold {run.fold}"
    return f"{run.label}{fold}, seed {run.seed}"


def _outcome(run: Run) -> tuple[str, float] | None:
    """What ``run`` has reached, and after how many seconds; None while it is not done."""
    if not run.done:
        return None
    results = RunFolder(run.folder).results
    metric = str(results["select_on"])
    value = results["vali"][metric]
    return f"{metric} {value:.4f} on vali", float(results["wall_seconds"])
