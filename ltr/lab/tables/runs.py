"""Plan the runs of a table, and train them as sweeps."""

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.atomic import make_folder
from ltr.cli.arguments import merged, with_quotes
from ltr.cli.compose import run_config
from ltr.cli.keys import as_list, resolved
from ltr.cli.process import is_full, say
from ltr.errors import ConfigError, DataError, LTRError, OutputError, as_started
from ltr.experiment.build import facts_of, with_facts
from ltr.experiment.identity import (
    SHOWN,
    config_identity,
    ensemble_identity,
    identity_without_data,
)
from ltr.experiment.job import train_job
from ltr.experiment.run_folder import RunFolder, by_identity
from ltr.lab.ensembles.ensemble import make_ensemble
from ltr.lab.tables.config import Workers
from ltr.lab.tables.launch import Job, launch
from ltr.lab.tables.spec import Table
from ltr.parts.components import build_dataset, user_metrics
from ltr.training.device import on_threads

TableCell = tuple[str, int | None]  # row and fold; the fold is None if the data have none


@dataclass(frozen=True)
class Run:
    """A training run of a table, or an ensemble of training runs."""

    label: str  # the label of its row
    fold: int | None  # None if the data have no folds
    seed: int  # seed of the training
    overrides: Sequence[str]  # the arguments of ``ltr train``; empty for an ensemble
    config: DictConfig  # the composed config
    identity: str  # a hash; a placeholder until the teacher, if any, is trained
    folder: Path  # the run folder; rows that compute the same share it
    members: tuple["Run", ...] = ()  # the runs of an ensemble
    weights: Any = "equal"  # the weights of the members: "equal", "vali" or one number each
    teacher: "Run | None" = None  # another run of the table, from whose scores this one learns

    @property
    def name(self) -> str:
        """A name made of the row, the fold and the seed."""
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.label}{fold}, seed {self.seed}"

    @property
    def waits(self) -> bool:
        """Whether a member or the teacher of this run is not finished yet."""
        return not all(run.done for run in (*self.members, self.teacher) if run is not None)

    @property
    def done(self) -> bool:
        """Whether a run with this identity is finished and its files are undamaged."""
        folder = RunFolder(self.folder)
        return folder.finished and folder.identity == self.identity and folder.damage() is None

    @property
    def trust(self) -> list[str]:
        """The user's own modules with which the run, or its members, were trained."""
        modules = set()
        for config in (run.config for run in self.members or [self]):
            functions = [str(config.model["_target_"]), *user_metrics(config)]
            modules |= {name.partition(".")[0] for name in functions}
            modules |= {*as_list(config.trust)}
        return sorted(modules - {"ltr"})

    def command(self) -> str:
        """Return the command line that makes this run."""
        if not self.members:
            return f"{as_started('train')} {shlex.join(self.overrides)}"
        folders = [os.path.relpath(member.folder) for member in self.members]
        weights = f"weights={','.join(as_list(self.weights))}"
        return f"{as_started('ensemble')} {shlex.join([*folders, weights])}"

    def outcome(self) -> str | None:
        """Return the metric on vali as text, or None if the run is not finished."""
        if not self.done:
            return None
        results = RunFolder(self.folder).results
        metric = str(results["select_on"])
        return f"{metric} {results['vali'][metric]:.4f} on vali"


RunKey = tuple[str, int | None, int]  # row, fold and seed


class _RunFolders:
    """Find the folder of a run by its identity, or name a new one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._by_identity = by_identity(home)

    def find(self, label: str, dataset: DictConfig, seed: int, run_identity: str) -> Path:
        """Return the folder of the run with this identity.

        ``dataset`` is the node of the data set in its config. Runs with the same identity share a
        folder.
        """
        fold = dataset.get("fold")
        fold_name = "" if fold is None else f"fold{fold}"
        name = folder_name(label, dataset.name, fold_name, f"seed{seed}", run_identity[:SHOWN])
        return self._by_identity.setdefault(run_identity, self._home / name)


def plan(
    table: Table,
    overrides: Sequence[str],
    seeds: Sequence[int],
    output_dir: Path,
    *,
    absent_ok: bool = False,
    settings: Mapping[TableCell, Sequence[str]] | None = None,
) -> list[Run]:
    """Return the runs of ``table``: first the training runs, row by row, then the ensembles.

    The identity of a run that learns from a teacher is known only after the teacher is trained, so
    call ``plan`` again then.

    Args:
        table: the table; it says which rows and folds there are.
        overrides: the user's overrides, which replace the settings of the table, but not those of a
            row.
        seeds: the training seeds, used for every row and fold.
        output_dir: the folder that contains ``runs``; finished runs in ``runs`` are reused.
        absent_ok: whether to plan even if the data are missing.
        settings: for each row and fold, overrides that replace all other settings, but not the
            fold, the seed and the teacher.

    Raises:
        ConfigError: an override is invalid, or the teacher of a row has no run for the same fold.
        DataError: the data are missing, and ``absent_ok`` is false.
    """
    folders = _RunFolders(output_dir / "runs")
    runs: dict[RunKey, Run] = {}
    trained = [label for label, row in table.rows.items() if not row.ensemble]
    for label in sorted(trained, key=table.teachers.__contains__):  # teachers first
        row_overrides = merged(table.settings, overrides, table.rows[label].settings)
        fold_count = run_config(row_overrides)[0].dataset.get("folds")
        for fold, seed in product(table_folds(table, fold_count), seeds):
            teacher = _teacher_of(table, label, fold, seed, runs)
            fixed = [] if fold is None else [f"dataset.fold={fold}"]
            if teacher is not None:
                fixed.append(f"teacher={teacher.folder}")
            fixed.append(f"seed={seed}")
            found_settings = (settings or {}).get((label, fold), ())
            run_overrides = merged(row_overrides, found_settings, fixed)
            key = (label, fold, seed)
            runs[key] = _plan_training(key, run_overrides, teacher, folders, absent_ok=absent_ok)
    trainings = [run for label in trained for run in runs.values() if run.label == label]
    return [*trainings, *_plan_ensembles(table, runs, trainings, seeds, folders)]


def _teacher_of(
    table: Table, label: str, fold: int | None, seed: int, runs: Mapping[RunKey, Run]
) -> Run | None:
    """Return the run that teaches a run of the row ``label``; None if it needs no teacher."""
    if label not in table.teachers:
        return None
    teacher = runs.get((table.teachers[label], fold, seed))
    if teacher is None:
        where = "without a fold" if fold is None else f"for fold {fold}"
        raise ConfigError(
            f"{label} learns from the row {table.teachers[label]}, which has no run {where} with "
            f"seed {seed}: use the same data set in both rows"
        )
    return teacher


def _plan_training(
    key: RunKey,
    overrides: Sequence[str],
    teacher: Run | None,
    folders: _RunFolders,
    *,
    absent_ok: bool,
) -> Run:
    """Return the training run with ``overrides``."""
    label, fold, seed = key
    config, choices = run_config(overrides)
    try:
        waits = teacher is not None and not teacher.done
        dataset = build_dataset(config.dataset)
        dataset.check()
        config, _ = with_facts(config, facts_of(dataset.split("train")))
        run_identity = f"waits for {label} {fold} {seed}"
        if not waits:
            run_identity = config_identity(resolved(config), choices, dataset)
    except DataError:
        if not absent_ok:
            raise
        run_identity = identity_without_data(resolved(config), choices)
    return Run(
        label=label,
        fold=fold,
        seed=seed,
        overrides=overrides,
        config=config,
        identity=run_identity,
        folder=folders.find(label, config.dataset, config.seed, run_identity),
        teacher=teacher,
    )


def _plan_ensembles(
    table: Table,
    runs: Mapping[RunKey, Run],
    trainings: Sequence[Run],
    seeds: Sequence[int],
    folders: _RunFolders,
) -> list[Run]:
    """Return the ensembles of ``table``, row by row."""
    folds = dict.fromkeys(run.fold for run in trainings)
    ensembles = []
    for label, row in table.ensembles.items():
        seed_groups = [seeds] if row.seeds == "all" else [[seed] for seed in seeds]
        for fold, group in product(folds, seed_groups):
            members = tuple(runs[member, fold, seed] for member in row.ensemble for seed in group)
            weights = row.weights
            if not isinstance(weights, str):
                weights = tuple(weight / len(group) for weight in weights for _ in group)
            config = members[0].config
            run_identity = ensemble_identity([member.identity for member in members], weights)
            ensemble = Run(
                label=label,
                fold=fold,
                seed=group[0],
                overrides=(),
                config=config,
                identity=run_identity,
                folder=folders.find(label, config.dataset, config.seed, run_identity),
                members=members,
                weights=weights,
            )
            ensembles.append(ensemble)
    return ensembles


def folder_name(*texts: str) -> str:
    """Return ``texts`` in lower case, joined by hyphens, as the name of a new folder."""
    slugs = (re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-") for text in texts)
    return "-".join(filter(None, slugs))


def table_folds(table: Table, fold_count: int | None) -> list[int | None]:
    """Return the folds on which ``table`` trains, if the data have ``fold_count`` folds.

    If the data have no folds, return ``[None]``.
    """
    if not fold_count:
        return [None]
    return [*range(1, fold_count + 1)] if table.folds == "all" else [*map(int, table.folds)]


def complete(
    runs: list[Run],
    plan_again: Callable[[], list[Run]],
    folder: Path,
    workers: Workers,
    deadline: float = math.inf,
) -> tuple[list[Run], dict[Path, str]]:
    """Train those of ``runs`` that are not finished.

    Args:
        runs: the runs that ``plan_again`` returned.
        plan_again: returns the planned runs. It is called again after teachers have been trained,
            because the identities of their students depend on them.
        folder: the folder to which the list of jobs is written.
        workers: the processes that train the runs.
        deadline: no run starts after this value of ``time.monotonic()``.

    Returns:
        All runs, and a dict from the folder of each failed run to the reason.
    """
    failures = dict[Path, str]()
    threads = runs[0].config.threads or workers.threads
    while time.monotonic() < deadline:
        ready = [run for run in runs if not (run.done or run.waits or run.folder in failures)]
        if not ready:
            break
        trainings = [run for run in ready if not run.members]
        if trainings:
            failures |= execute(trainings, folder / "jobs.yaml", workers, deadline)
        failures |= make_ensembles([run for run in ready if run.members], threads)
        if any(run.teacher for run in runs if not run.done):
            runs = plan_again()
    return runs, failures


def execute(
    runs: Sequence[Run], file: Path, workers: Workers, deadline: float = math.inf
) -> dict[Path, str]:
    """Train ``runs`` as one sweep, and start none after ``deadline``.

    Return a dict that contains the reason for each run that did not finish, by the run's folder.
    """
    jobs = [
        Job(run.name, run.folder, [*map(with_quotes, run.overrides), *workers.extra], run.outcome)
        for run in {run.folder: run for run in runs}.values()
    ]
    return launch("train", train_job, jobs, file, workers, deadline)


def make_ensembles(runs: Sequence[Run], threads: int | None) -> dict[Path, str]:
    """Make the ensembles ``runs``; return the reason for each that failed, by run folder."""
    failures = {}
    with on_threads(threads):
        for run in runs:
            try:
                make_folder("output_dir", run.folder)
                with RunFolder(run.folder).locked(wait=True):
                    if not run.done:  # another process may have made it in the meantime
                        _make_ensemble(run)
                say(f"{run.name}: ensemble, {run.outcome() or 'not finished'}")
            except LTRError as error:
                if is_full(error):  # the other ensembles could not be written either
                    raise OutputError(f"{error}; then repeat the command") from error
                failures[run.folder] = str(error)
    return failures


def _make_ensemble(run: Run) -> None:
    members = [RunFolder(member.folder) for member in run.members]
    make_ensemble(
        members,
        run.weights,
        run.folder,
        device=run.config.device,
        items=run.config.evaluation_items,
        data_dir=run.config.data_dir,
        cache_dir=run.config.cache_dir,
        trust=run.trust,
        identity=run.identity,
    )
