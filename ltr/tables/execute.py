"""Runs what is missing of a table: the jobs of a sweep, by any of Hydra's launchers."""

import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from tqdm import tqdm

from ltr.console.arguments import quoted, with_quotes
from ltr.console.cli import through_hydra
from ltr.errors import ConfigError, LTRError
from ltr.experiment.job import train_job
from ltr.experiment.run_folder import RunFolder
from ltr.tables.plan import Run
from ltr.whole import make_folder, write_whole

_POLL_SECONDS = 0.5


def describe(run: Run) -> str:
    """The command as a person would type it."""
    return shlex.join(["python", "train.py", *run.overrides])


def local_launcher(workers: int) -> list[str]:
    """Overrides that run ``workers`` at a time on this machine.

    Raises:
        ConfigError: what that takes is not installed.
    """
    if workers == 1:
        return []
    if find_spec("hydra_plugins.hydra_joblib_launcher") is None:
        raise ConfigError(
            f"workers={workers}: needs pip install 'ltr-torch[parallel]'; workers=1 does without"
        )
    return [
        "hydra/launcher=joblib",
        f"hydra.launcher.n_jobs={workers}",
        f"hydra.launcher.pre_dispatch={workers}",  # what waits outlives this process
    ]


def execute(
    runs: Sequence[Run], jobs: Path, launcher: Sequence[str], extra: Sequence[str] = ()
) -> dict[Path, str]:
    """Finish ``runs`` as one sweep; return why a run is not done, by folder.

    The launcher decides where and how many at a time. Where a process of it is killed, what is left
    is launched again, until twice in a row that has finished nothing.

    Args:
        runs: at least one, not done yet, in folders side by side.
        jobs: the file that lists them for the launcher.
        launcher: overrides of ``hydra/launcher``.
        extra: overrides for all of them that change no result, such as ``threads=1``.
    """
    left = {run.folder: run for run in runs}
    for folder in left:
        (folder / "error.txt").unlink(missing_ok=True)
    broken: Exception | None = None
    launches = 2
    with _progress(list(left)):
        while left and launches:
            try:
                _launch(list(left.values()), jobs, launcher, extra)
                broken, launches = None, 0
            except LTRError:
                raise
            except Exception as error:
                broken = error
            before = len(left)
            left = {f: run for f, run in left.items() if not (run.done or RunFolder(f).error)}
            if broken is not None:
                launches = 2 if len(left) < before else launches - 1
    return {
        run.folder: _reason(run, broken)
        for run in {run.folder: run for run in runs}.values()
        if not run.done
    }


def _launch(runs: Sequence[Run], jobs: Path, launcher: Sequence[str], extra: Sequence[str]) -> None:
    make_folder("output_dir", jobs.parent)
    listed = [
        [*map(with_quotes, run.overrides), *extra, f"hydra.sweep.subdir={quoted(run.folder.name)}"]
        for run in runs
    ]
    write_whole(jobs, yaml.safe_dump(listed))
    through_hydra(
        "train",
        train_job,
        [
            "--multirun",
            "hydra/sweeper=jobs",
            f"hydra.sweeper.jobs={quoted(str(jobs))}",
            f"hydra.sweep.dir={quoted(str(runs[0].folder.parent))}",
            "hydra.callbacks.summary.quiet=true",
            "hydra/job_logging=file",
            *launcher,
        ],
    )


def _reason(run: Run, broken: Exception | None) -> str:
    left = RunFolder(run.folder)
    if left.error:
        return left.error
    if left.finished and left.identity != run.known:
        return "the code or the data changed after it was planned: give the same command again"
    return "not finished" if broken is None else f"its process ended early: {broken}"


@contextmanager
def _progress(folders: Sequence[Path]) -> Iterator[None]:
    """Show, whatever the launcher, how many of ``folders`` have a result or an error."""
    ended = threading.Event()
    bar = tqdm(total=len(folders), desc="runs", unit="run", disable=None)

    def look() -> None:
        while not ended.wait(_POLL_SECONDS):
            bar.n = sum(RunFolder(f).finished or bool(RunFolder(f).error) for f in folders)
            bar.refresh()

    watch = threading.Thread(target=look, daemon=True)
    try:
        if not bar.disable:
            watch.start()
        yield
    finally:
        ended.set()
        bar.close()
