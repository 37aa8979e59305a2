"""Plan the runs of a table and execute them as sweeps."""

import math
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder
from ltr.cli.arguments import merged, quoted, with_quotes
from ltr.cli.cli import through_hydra
from ltr.cli.compose import run_config
from ltr.cli.keys import as_list, resolved
from ltr.cli.process import Finished, is_full, say
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
from ltr.lab.tables.spec import Table
from ltr.parts.components import build_dataset, user_metrics
from ltr.training.device import on_threads

TableCell = tuple[str, int | None]  # row and fold; the fold is None if the data have no folds
_POLL_SECONDS = 0.5
_ATTEMPTS = 2  # launches in a row that finish no job, until the others are given up


@dataclass(frozen=True)
class Run:
    """One training run of a table, or an ensemble of training runs."""

    label: str  # label of its row
    fold: int | None  # None if the data have no folds
    seed: int  # seed of the training
    overrides: Sequence[str]  # command line for ``ltr train``; empty for an ensemble
    config: DictConfig  # the composed config
    identity: str  # a hash; a placeholder until its teacher is trained
    folder: Path  # run folder; rows that compute the same thing share it
    members: tuple["Run", ...] = ()  # the runs of an ensemble
    weights: Any = "equal"  # of the members: "equal", "vali" or one number each
    teacher: "Run | None" = None  # another run of the table that this one learns from

    @property
    def name(self) -> str:
        """Row, fold and seed, in words."""
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.label}{fold}, seed {self.seed}"

    @property
    def waits(self) -> bool:
        """Whether its members or its teacher must be trained first."""
        return not all(run.done for run in (*self.members, self.teacher) if run is not None)

    @property
    def done(self) -> bool:
        """Whether the run is finished, with this identity, and its files are undamaged."""
        folder = RunFolder(self.folder)
        return folder.finished and folder.identity == self.identity and folder.damage() is None

    @property
    def trust(self) -> list[str]:
        """The modules that it, or its members, were trained with."""
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
        """Return the metric that it reached on vali, in words; None if it is not finished."""
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
        """Return the folder of a run on ``dataset``, a node of its config.

        Runs with the same identity share it.
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
    """Return the runs of ``table``: the trainings row by row, then the ensembles.

    The identity of a run that learns from a teacher is known only after the teacher is trained:
    call ``plan`` again then.

    Args:
        table: the table, which has the rows and folds.
        overrides: overrides by the user; they replace the table's settings, not those of a row.
        seeds: the training seeds, used for every row and fold.
        output_dir: contains the folder ``runs``; finished runs in that folder are reused.
        absent_ok: plan even if the data are missing (otherwise ``DataError``).
        settings: for each row and fold, overrides that replace all but fold, seed and teacher.

    Raises:
        ConfigError: an override is wrong, or the teacher of a row has no run of the same fold.
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
    """Return the run that a run of the row ``label`` learns from; None if it needs no teacher."""
    if label not in table.teachers:
        return None
    teacher = runs.get((table.teachers[label], fold, seed))
    if teacher is None:
        raise ConfigError(
            f"{label}: {table.teachers[label]} has no run of fold {fold}, seed {seed} "
            "to learn from: give both rows one data set"
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
    """Return the ensembles of the table, row by row."""
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
    """Join ``texts`` in lower case with hyphens, as the name of a new folder."""
    slugs = (re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-") for text in texts)
    return "-".join(filter(None, slugs))


def table_folds(table: Table, fold_count: int | None) -> list[int | None]:
    """Return the folds that ``table`` runs, on data with ``fold_count`` folds; ``[None]`` if the
    data have none.
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
    """Do those of ``runs`` that are missing.

    Args:
        runs: what ``plan_again`` returned.
        plan_again: called when teachers are trained, from which the identities of their students
            follow.
        folder: gets the file with the list of jobs.
        workers: how the runs are trained.
        deadline: the time, as ``time.monotonic()`` gives it, from which on no run begins.

    Returns:
        All runs, and folder -> reason for each one that failed.
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
    """Train ``runs`` as one sweep; no run begins after ``deadline``.

    Return folder -> reason for each run that did not finish.
    """
    jobs = [
        Job(run.name, run.folder, [*map(with_quotes, run.overrides), *workers.extra], run.outcome)
        for run in {run.folder: run for run in runs}.values()
    ]
    quiet = "hydra.callbacks.summary.quiet=true"
    return launch("train", train_job, jobs, file, workers, quiet, deadline=deadline)


def make_ensembles(runs: Sequence[Run], threads: int | None) -> dict[Path, str]:
    """Make the ensembles ``runs``; return folder -> reason for each one that failed."""
    failures = {}
    with on_threads(threads):
        for run in runs:
            try:
                make_folder("output_dir", run.folder)
                with RunFolder(run.folder).locked(wait=True):
                    if not run.done:  # another process may have made it in the meantime
                        _make_ensemble(run)
                say(f"{run.name}: ensemble, {run.outcome() or 'not done'}")
            except LTRError as error:
                if is_full(error):  # the other ensembles could not be written either
                    raise OutputError(f"{error}; then give the same command again") from error
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


class Job(NamedTuple):
    """One job of a sweep. It writes its result, or else ``error.txt``, into ``folder``."""

    name: str
    folder: Path
    arguments: Sequence[str]  # in Hydra's grammar
    outcome: Callable[[], str | None]  # returns the result in words; None if it is not finished

    def describe_end(self) -> str | None:
        """Return its outcome, or the error that ended it; None if it has not ended."""
        error = RunFolder(self.folder).error
        return self.outcome() or (error and f"failed: {error}")


def launch(
    config_name: str,
    function: Callable[[DictConfig], Any],
    jobs: Sequence[Job],
    file: Path,
    workers: Workers,
    *options: str,
    deadline: float = math.inf,
) -> dict[Path, str]:
    """Run ``jobs`` as one sweep; return folder -> reason for each job that did not finish.

    If a process of the launcher is killed, the unfinished jobs are launched again, until two
    launches in a row finish no job.

    Args:
        config_name: the root config that the jobs' arguments are composed with.
        function: runs one job, given its config.
        jobs: at least one unfinished job; their folders have the same parent.
        file: gets the list of jobs, as a record; another process may write it too.
        workers: processes on this machine, or a launcher.
        options: further overrides for Hydra.
        deadline: the time, as ``time.monotonic()`` gives it, from which on no job begins. If there
            is such a time, as many jobs as there are workers are launched together.
    """
    count = min(workers.count, len(jobs))
    arguments = _launch_arguments(jobs[0].folder.parent, workers, count, options)
    make_folder("output_dir", file.parent)
    for job in jobs:
        (job.folder / "error.txt").unlink(missing_ok=True)
    reason = "not finished, or the code or the data changed meanwhile: give the same command again"
    unfinished = list(jobs)
    started: dict[Path, Job] = {}
    attempts = _ATTEMPTS
    with _progress(jobs, deadline):
        while unfinished and attempts and time.monotonic() < deadline:
            batch = unfinished if deadline == math.inf else unfinished[:count]
            started |= {job.folder: job for job in batch}
            error = _launch_batch(config_name, function, batch, file, arguments)
            if error is None:
                unfinished = unfinished[len(batch) :]
                continue
            reason = f"its process ended early: {error}"
            count_before = len(unfinished)
            unfinished = [job for job in unfinished if job.describe_end() is None]
            attempts = _ATTEMPTS if len(unfinished) < count_before else attempts - 1
    return {
        folder: RunFolder(folder).error or reason
        for folder, job in started.items()
        if job.outcome() is None
    }


def _launch_arguments(
    sweep_dir: Path, workers: Workers, count: int, options: Sequence[str]
) -> list[str]:
    """Return the arguments that start a sweep with ``count`` jobs at a time."""
    launcher = workers.launcher
    if not launcher and count > 1:
        launcher = [
            "hydra/launcher=joblib",
            f"hydra.launcher.n_jobs={count}",
            f"hydra.launcher.pre_dispatch={count}",  # queued jobs would outlive this process
        ]
    return [
        "--multirun",
        "hydra/sweeper=jobs",
        f"hydra.sweep.dir={quoted(str(sweep_dir))}",
        "hydra/job_logging=file",
        *options,
        *launcher,  # without one, the jobs run in this process
    ]


def _launch_batch(
    config_name: str,
    function: Callable[[DictConfig], Any],
    batch: Sequence[Job],
    file: Path,
    arguments: Sequence[str],
) -> Exception | None:
    """Launch the jobs of ``batch``; return the error if a process of the launcher was killed."""
    job_arguments = [
        [*job.arguments, f"hydra.sweep.subdir={quoted(job.folder.name)}"] for job in batch
    ]
    atomic_write(file, yaml.safe_dump(job_arguments))
    try:
        through_hydra(config_name, function, arguments, job_arguments)
    except LTRError:
        raise
    except Exception as error:
        return error
    return None


@contextmanager
def _progress(jobs: Sequence[Job], deadline: float) -> Iterator[None]:
    """Print a line as soon as one of ``jobs`` has a result or an error, with any launcher."""
    stop = threading.Event()
    progress = Finished(len(jobs), until=deadline)
    running = list(jobs)

    def watch() -> None:
        stopped = False
        while not stopped:
            stopped = stop.wait(_POLL_SECONDS)
            for job in list(running):
                end = job.describe_end()
                if end:
                    running.remove(job)
                    progress.add(job.name, end)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
