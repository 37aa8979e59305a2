"""The commands ``train`` and ``runs``, and the link ``latest`` to the last run; cheap to import."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.cli.folders import LATEST
from ltr.cli.options import option
from ltr.cli.process import torchrun_rank
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, runs_in

_FILES_OF_START = {".hydra", ".lock", "train.log", "error.txt"}  # they precede training


def train(cfg: DictConfig) -> float:
    """Run the experiment ``cfg``; return ``select_on`` on the validation lists, for sweepers."""
    from ltr.experiment.job import train_job  # imports torch

    node = HydraConfig.get()
    if node.mode == RunMode.MULTIRUN or torchrun_rank() > 0:
        return train_job(cfg)
    with kept_once_begun(Path(node.runtime.output_dir), Path(cfg.output_dir)):
        return train_job(cfg)


@contextmanager
def kept_once_begun(folder: Path, output_dir: Path) -> Iterator[None]:
    """Context of a single run: remove its folder if it ends before training has saved anything.

    If the folder is in ``output_dir``, the link ``latest`` there leads to it, provided that the
    file system has links; if the folder is removed, the link is as before.
    """
    link = output_dir / LATEST
    is_linked = folder.resolve().parent == output_dir.resolve()
    former_target = str(link.readlink()) if is_linked and link.is_symlink() else None
    if is_linked:
        _point_link(link, folder.name)
    try:
        yield
    except BaseException:
        if {path.name for path in folder.iterdir()} <= _FILES_OF_START:
            shutil.rmtree(folder, ignore_errors=True)
            if is_linked:
                _point_link(link, former_target)
        raise


def _point_link(link: Path, name: str | None) -> None:
    """Make ``link`` a link to ``name`` in the same folder (None: remove it).

    A file or folder that is not a link is left alone.
    """
    with suppress(OSError):
        if link.is_symlink():
            link.unlink()
        if name is not None:
            link.symlink_to(name)


@dataclass(frozen=True, kw_only=True)
class ListRunsOptions:
    """List the runs in a folder and in its sweeps, the newest last: date, name, state and
    validation metric.

      ltr runs
      ltr runs outputs/SWEEP

    The metric is the one that chose the epoch of the run (select_on of ltr train). Its value on the
    validation lists is shown for the weights that the run then tested. To find out which runs are
    better, use ltr compare.
    """

    folder: str = option(
        "outputs", help="the folder of the runs; you may leave out the word folder="
    )


def list_runs(options: ListRunsOptions) -> str:
    """Return a table with a line for each run in a folder, sweeps included, newest last.

    ``ConfigError``: there is no such folder, or no run in it.
    """
    folder = Path(options.folder)
    runs = runs_in(folder)
    if not runs:
        raise ConfigError(f"folder={folder}: no run there or below; give a folder that holds runs")
    rows = sorted(_describe_run(run, folder) for run in runs)
    return tabulate(rows, ["date", "run", "state", "vali"], disable_numparse=True)


def _describe_run(run: RunFolder, folder: Path) -> tuple[str, str, str, str]:
    """Return date, name, state and validation metric of a run in ``folder``."""
    date = datetime.fromtimestamp(run.folder.stat().st_mtime)
    state = "failed" if run.error else "unfinished"
    metric = ""
    if run.finished:
        try:
            name = run.results["select_on"]
            date = datetime.fromisoformat(run.results["finished"]).astimezone()
            metric = f"{name} {run.results['vali'][name]:.4f}"
            state = "finished"
        except ValueError:  # a DataError, or a date that is none
            state = "damaged"
    path = folder if run.folder == folder else run.folder.relative_to(folder)
    return f"{date:%Y-%m-%d %H:%M}", str(path), state, metric
