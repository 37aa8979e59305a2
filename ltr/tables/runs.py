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
from ltr.console.arguments import merged, quoted, with_quotes
from ltr.console.cli import through_hydra
from ltr.console.compose import run_config
from ltr.console.keys import as_list, resolved
from ltr.console.process import Finished, is_full, say
from ltr.errors import ConfigError, DataError, LTRError, OutputError, as_started
from ltr.experiment.build import facts_of, with_facts
from ltr.experiment.ensemble import make_ensemble
from ltr.experiment.identity import (
    SHOWN,
    config_identity,
    ensemble_identity,
    identity_without_data,
)
from ltr.experiment.job import train_job
from ltr.experiment.run_folder import RunFolder, by_identity
from ltr.scorers.parts import make_dataset, own_metrics
from ltr.tables.config import Workers
from ltr.tables.spec import Table
from ltr.training.device import on_threads

Place = tuple[str, int | None]  # row and fold; the fold is None if the data have no folds
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Run:
    """One training run of a table, or an ensemble of training runs."""

    label: str  # label of its row
    fold: int | None  # None if the data have no folds
    seed: int  # seed of the training
    overrides: Sequence[str]  # command line for ``ltr train``; empty for an ensemble
    config: DictConfig  # the composed config
    known: str  # its identity, a hash; a placeholder until its teacher is trained
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
        left = RunFolder(self.folder)
        return left.finished and left.identity == self.known and left.damage() is None

    @property
    def trust(self) -> list[str]:
        """The modules that it, or its members, were trained with."""
        modules = set()
        for config in (run.config for run in self.members or [self]):
            names = [str(config.model["_target_"]), *own_metrics(config)]
            modules |= {*as_list(config.trust), *(name.partition(".")[0] for name in names)}
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


def plan(
    table: Table,
    given: Sequence[str],
    seeds: Sequence[int],
    output_dir: Path,
    *,
    absent_ok: bool = False,
    settings: Mapping[Place, Sequence[str]] | None = None,
) -> list[Run]:
    """Return the runs of ``table``: the trainings row by row, then the ensembles.

    The identity of a run that learns from a teacher is known only after the teacher is trained:
    call ``plan`` again then.

    Args:
        table: the table, which has the rows and folds.
        given: overrides by the user; they replace the table's settings, not those of a row.
        seeds: the training seeds, used for every row and fold.
        output_dir: contains the folder ``runs``; finished runs in that folder are reused.
        absent_ok: plan even if the data are missing (otherwise ``DataError``).
        settings: for each row and fold, overrides that replace all but fold, seed and teacher.

    Raises:
        ConfigError: an override is wrong, or the teacher of a row has no run of the same fold.
    """
    runs: dict[tuple[str, int | None, int], Run] = {}
    home = output_dir / "runs"
    folders = by_identity(home)

    def folder_of(label: str, config: DictConfig, known: str) -> Path:
        fold = config.dataset.get("fold")
        words = [label, config.dataset.name, "" if fold is None else f"fold{fold}"]
        name = folder_name(*words, f"seed{config.seed}", known[:SHOWN])
        return folders.setdefault(known, home / name)

    trained = [label for label, row in table.rows.items() if not row.ensemble]
    for label in sorted(trained, key=table.teachers.__contains__):  # teachers first
        of_row = merged(table.settings, given, table.rows[label].settings)
        for fold, seed in product(folds_of(table, run_config(of_row)[0]), seeds):
            teacher = runs.get((table.teachers.get(label, ""), fold, seed))
            if teacher is None and label in table.teachers:
                raise ConfigError(
                    f"{label}: {table.teachers[label]} has no run of fold {fold}, seed {seed} "
                    "to learn from: give both rows one data set"
                )
            here = [] if fold is None else [f"dataset.fold={fold}"]
            here += [] if teacher is None else [f"teacher={teacher.folder}"]
            found = (settings or {}).get((label, fold), ())
            own = merged(of_row, found, [*here, f"seed={seed}"])
            config = run_config(own)[0]
            try:
                waits = teacher is not None and not teacher.done
                dataset = make_dataset(config.dataset)
                dataset.check()
                config, _ = with_facts(config, facts_of(dataset.split("train")))
                known = f"waits for {label} {fold} {seed}"
                if not waits:
                    known = config_identity(resolved(config), dataset)
            except DataError:
                if not absent_ok:
                    raise
                known = identity_without_data(resolved(config))
            folder = folder_of(label, config, known)
            runs[label, fold, seed] = Run(
                label, fold, seed, own, config, known, folder, teacher=teacher
            )
    planned = [run for label in trained for run in runs.values() if run.label == label]
    folds = dict.fromkeys(run.fold for run in planned)
    for label, row in table.ensembles.items():
        groups = [seeds] if row.seeds == "all" else [[seed] for seed in seeds]
        for fold, group in product(folds, groups):
            members = tuple(runs[one, fold, seed] for one in row.ensemble for seed in group)
            config, weights = members[0].config, row.weights
            if not isinstance(weights, str):
                weights = tuple(weight / len(group) for weight in weights for _ in group)
            known = ensemble_identity([member.known for member in members], weights)
            folder = folder_of(label, config, known)
            planned.append(Run(label, fold, group[0], (), config, known, folder, members, weights))
    return planned


def folder_name(*words: str) -> str:
    """Join ``words`` in lower case with hyphens, as the name of a new folder."""
    plain = (re.sub(r"[^a-z0-9]+", "-", str(word).lower()).strip("-") for word in words)
    return "-".join(filter(None, plain))


def folds_of(table: Table, config: DictConfig) -> list[int | None]:
    """Return the folds that ``table`` runs; ``[None]`` if the data set of ``config`` has none."""
    count = config.dataset.get("folds")
    if not count:
        return [None]
    return [*range(1, count + 1)] if table.folds == "all" else [*map(int, table.folds)]


def complete(
    runs: list[Run],
    planned: Callable[[], list[Run]],
    folder: Path,
    workers: Workers,
    until: float = math.inf,
) -> tuple[list[Run], dict[Path, str]]:
    """Do those of ``runs`` that are missing; return all runs, and folder -> reason for each one
    that failed.

    Args:
        runs: what ``planned`` returned.
        planned: plans again, once teachers are trained, from which the identities of their students
            follow.
        folder: gets the file with the list of jobs.
        workers: how the runs are trained.
        until: the time, as ``time.monotonic()`` gives it, from which on no run begins.
    """
    failures = dict[Path, str]()
    threads = runs[0].config.threads or workers.threads

    def ready() -> list[Run]:
        return [r for r in runs if not (r.done or r.waits or r.folder in failures)]

    while (todo := ready()) and time.monotonic() < until:
        if trained := [run for run in todo if not run.members]:
            failures |= execute(trained, folder / "jobs.yaml", workers, until)
        failures |= make_ensembles([run for run in todo if run.members], threads)
        if any(run.teacher for run in runs if not run.done):
            runs = planned()
    return runs, failures


def execute(
    runs: Sequence[Run], file: Path, workers: Workers, until: float = math.inf
) -> dict[Path, str]:
    """Train ``runs`` as one sweep; return folder -> reason for each run that did not finish. No run
    begins after ``until``.
    """
    jobs = [
        Job(run.name, run.folder, [*map(with_quotes, run.overrides), *workers.extra], run.outcome)
        for run in {run.folder: run for run in runs}.values()
    ]
    quiet = "hydra.callbacks.summary.quiet=true"
    return launch("train", train_job, jobs, file, workers, quiet, until=until)


def make_ensembles(runs: Sequence[Run], threads: int | None) -> dict[Path, str]:
    """Make the ensembles ``runs``; return folder -> reason for each one that failed."""
    failures = {}
    with on_threads(threads):
        for run in runs:
            try:
                make_folder("output_dir", run.folder)
                with RunFolder(run.folder).locked(wait=True):
                    if not run.done:  # another process may have made it in the meantime
                        _ensemble(run)
                say(f"{run.name}: ensemble, {run.outcome() or 'not done'}")
            except LTRError as error:
                if is_full(error):  # the other ensembles could not be written either
                    raise OutputError(f"{error}; then give the same command again") from error
                failures[run.folder] = str(error)
    return failures


def _ensemble(run: Run) -> None:
    config = run.config.copy()
    config.trust = run.trust
    members = [RunFolder(member.folder) for member in run.members]
    make_ensemble(members, run.weights, run.folder, config, identity=run.known)


class Job(NamedTuple):
    """One job of a sweep. It writes its result, or else ``error.txt``, into ``folder``."""

    name: str
    folder: Path
    arguments: Sequence[str]  # in Hydra's grammar
    outcome: Callable[[], str | None]  # returns the result in words; None if it is not finished

    def end(self) -> str | None:
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
    until: float = math.inf,
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
        until: the time, as ``time.monotonic()`` gives it, from which on no job begins. If there is
            such a time, as many jobs as there are workers are launched together.
    """
    count = min(workers.count, len(jobs))
    local = [
        "hydra/launcher=joblib",
        f"hydra.launcher.n_jobs={count}",
        f"hydra.launcher.pre_dispatch={count}",  # queued jobs would outlive this process
    ]
    arguments = [
        "--multirun",
        "hydra/sweeper=jobs",
        f"hydra.sweep.dir={quoted(str(jobs[0].folder.parent))}",
        "hydra/job_logging=file",
        *options,
        *(workers.launcher or (local if count > 1 else [])),  # otherwise in this process
    ]
    make_folder("output_dir", file.parent)
    for job in jobs:
        (job.folder / "error.txt").unlink(missing_ok=True)
    reason = "not finished, or the code or the data changed meanwhile: give the same command again"
    left, attempts, begun = list(jobs), 2, dict[Path, Job]()
    with _progress(jobs, until):
        while left and attempts and time.monotonic() < until:
            now = left if until == math.inf else left[:count]
            begun |= {job.folder: job for job in now}
            listed = [
                [*job.arguments, f"hydra.sweep.subdir={quoted(job.folder.name)}"] for job in now
            ]
            atomic_write(file, yaml.safe_dump(listed))
            before, killed = len(left), False
            try:
                through_hydra(config_name, function, arguments, listed)
            except LTRError:
                raise
            except Exception as error:
                killed, reason = True, f"its process ended early: {error}"
            if killed:
                left = [job for job in left if job.end() is None]
                attempts = 2 if len(left) < before else attempts - 1
            else:
                left = left[len(now) :]
    return {
        folder: RunFolder(folder).error or reason
        for folder, job in begun.items()
        if job.outcome() is None
    }


@contextmanager
def _progress(jobs: Sequence[Job], until: float) -> Iterator[None]:
    """Print a line as soon as one of ``jobs`` has a result or an error, with any launcher."""
    stop, finished, left = threading.Event(), Finished(len(jobs), until=until), list(jobs)

    def watch() -> None:
        stopped = False
        while not stopped:
            stopped = stop.wait(_POLL_SECONDS)
            for job in list(left):
                if ended := job.end():
                    left.remove(job)
                    finished.add(job.name, ended)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
