"""Launch the jobs of a table, a search or ``ltr auto`` with the launcher that the user chose."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder
from ltr.cli.arguments import quoted
from ltr.cli.hydra_app import HydraApp
from ltr.cli.process import Finished
from ltr.errors import LTRError
from ltr.experiment.run_folder import RunFolder
from ltr.lab.tables.config import Workers

_POLL_SECONDS = 0.5
_ATTEMPTS = 2  # give up after this many launches in a row that finish no job


class Job(NamedTuple):
    """A job of a sweep. It writes its result or, after an error, ``error.txt`` to ``folder``."""

    name: str
    folder: Path
    arguments: Sequence[str]  # in Hydra's grammar
    outcome: Callable[[], str | None]  # returns the result as text, None if not finished

    def describe_end(self) -> str | None:
        """Return the outcome of the job, or the error that ended it; None if it has not ended."""
        error = RunFolder(self.folder).error
        return self.outcome() or (error and f"failed: {error}")


def launch(
    config_name: str,
    function: Callable[[DictConfig], Any],
    jobs: Sequence[Job],
    file: Path,
    workers: Workers,
    deadline: float = math.inf,
) -> dict[Path, str]:
    """Run ``jobs`` as one sweep; return a dict with the reason for each job that did not finish.

    If a process of the launcher is killed, the unfinished jobs are launched again, until two
    launches in a row have finished no job.

    Args:
        config_name: the name of the root config of the jobs.
        function: runs a job, given its config.
        jobs: at least one unfinished job; their folders have the same parent.
        file: the file to which the list of jobs is written, as a record; another process may write
            it too.
        workers: the number of processes on this machine, or a launcher.
        deadline: no job starts after this value of ``time.monotonic()``. If it is finite, at
            most one job per worker is launched at a time.

    Returns:
        A dict that contains the reason for each job that did not finish, by the job's folder.
    """
    count = min(workers.count, len(jobs))
    arguments = _launch_arguments(jobs[0].folder.parent, workers, count)
    make_folder("output_dir", file.parent)
    for job in jobs:
        (job.folder / "error.txt").unlink(missing_ok=True)
    reason = "the job did not finish, or the code or data changed while it ran: repeat the command"
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


def _launch_arguments(sweep_dir: Path, workers: Workers, count: int) -> list[str]:
    """Return the arguments that start a sweep in which ``count`` jobs run at a time."""
    launcher = workers.launcher
    if not launcher and count > 1:
        launcher = [
            "hydra/launcher=joblib",
            f"hydra.launcher.n_jobs={count}",
            f"hydra.launcher.pre_dispatch={count}",  # jobs in a queue would outlive this process
        ]
    return [
        "hydra/sweeper=jobs",
        f"hydra.sweep.dir={quoted(str(sweep_dir))}",
        "hydra/job_logging=file",
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
    text = yaml.safe_dump(job_arguments)
    atomic_write(file, text)
    with TemporaryDirectory() as folder:
        own_file = Path(folder) / "jobs.yaml"  # another process may write ``file`` meanwhile
        own_file.write_text(text)
        app = HydraApp(config_name, [*arguments, f"hydra.sweeper.jobs={quoted(str(own_file))}"])
        try:
            app.sweep(function)
        except LTRError:
            raise
        except Exception as error:
            return error
    return None


@contextmanager
def _progress(jobs: Sequence[Job], deadline: float) -> Iterator[None]:
    """Print a line as soon as one of ``jobs`` has a result or an error.

    This works with any launcher.
    """
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
