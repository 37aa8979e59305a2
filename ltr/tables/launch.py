"""Finish pieces of work, each in a folder of its own, as the jobs of a Hydra sweep."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig
from tqdm import tqdm

from ltr.console.arguments import quoted
from ltr.console.cli import through_hydra
from ltr.console.progress import Finished
from ltr.errors import LTRError
from ltr.experiment.run_folder import RunFolder
from ltr.whole import make_folder, write_whole

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Piece:
    """One job of a sweep.

    Attributes:
        folder: it leaves its result there, or ``error.txt``.
        name: of what it does.
        job: its arguments, as Hydra takes them.
        outcome: what it has reached, and after how many seconds; None while it is not done.
    """

    folder: Path
    name: str
    job: tuple[str, ...]
    outcome: Callable[[], tuple[str, float | None] | None]

    @property
    def error(self) -> str | None:
        """The error that ended it, in one line."""
        return RunFolder(self.folder).error


def local_launcher(workers: int) -> list[str]:
    """Overrides that run ``workers`` at a time on this machine."""
    if workers == 1:
        return []  # in this process
    return [
        "hydra/launcher=joblib",
        f"hydra.launcher.n_jobs={workers}",
        f"hydra.launcher.pre_dispatch={workers}",  # what waits outlives this process
    ]


def launch(
    config_name: str,
    function: Callable[[DictConfig], Any],
    pieces: Sequence[Piece],
    jobs: Path,
    options: Sequence[str],
    names: tuple[str, str] = ("run", "runs"),
) -> dict[Path, str]:
    """Finish ``pieces`` as one sweep; return why a piece is not done, by folder.

    The launcher decides where they run and how many at a time. When one of its processes is killed,
    the missing pieces are launched again, until two launches in a row finish none.

    Args:
        config_name: of the root config.
        function: does a job.
        pieces: at least one, not done yet, in folders side by side.
        jobs: the file that lists them for the launcher; it is written.
        options: overrides of ``hydra/launcher`` and the like.
        names: what one piece is called, and several.
    """
    left = list(pieces)
    for piece in left:
        (piece.folder / "error.txt").unlink(missing_ok=True)
    broken: Exception | None = None
    launches = 2
    with _progress(pieces, *names):
        while left and launches:
            try:
                _launch(config_name, function, left, jobs, options)
                broken, launches = None, 0
            except LTRError:
                raise
            except Exception as error:
                broken = error
            before = len(left)
            left = [piece for piece in left if piece.outcome() is None and not piece.error]
            if broken is not None:
                launches = 2 if len(left) < before else launches - 1
    ended = "not finished" if broken is None else f"its process ended early: {broken}"
    return {piece.folder: piece.error or ended for piece in pieces if piece.outcome() is None}


def _launch(
    config_name: str,
    function: Callable[[DictConfig], Any],
    pieces: Sequence[Piece],
    jobs: Path,
    options: Sequence[str],
) -> None:
    make_folder("output_dir", jobs.parent)
    listed = [[*piece.job, f"hydra.sweep.subdir={quoted(piece.folder.name)}"] for piece in pieces]
    write_whole(jobs, yaml.safe_dump(listed))
    through_hydra(
        config_name,
        function,
        [
            "--multirun",
            "hydra/sweeper=jobs",
            f"hydra.sweeper.jobs={quoted(str(jobs))}",
            f"hydra.sweep.dir={quoted(str(pieces[0].folder.parent))}",
            "hydra/job_logging=file",
            *options,
        ],
    )


@contextmanager
def _progress(pieces: Sequence[Piece], unit: str, units: str) -> Iterator[None]:
    """Say a line for each of ``pieces`` that has a result or an error, under any launcher."""
    ended, finished = threading.Event(), Finished(len(pieces))
    left = list(pieces)
    bar = tqdm(total=len(pieces), desc=units, unit=unit, disable=None)

    def look() -> None:
        for piece in list(left):
            reached, error = piece.outcome(), piece.error
            if reached is None and error is not None:
                reached = f"failed: {error}", None
            if reached is not None:
                left.remove(piece)
                finished.add(piece.name, *reached)
        bar.n = finished.done
        bar.refresh()

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        look()
        bar.close()
