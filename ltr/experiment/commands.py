"""The commands ``train`` and ``runs``, and the link ``latest`` to the last run; cheap to import."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.console.folders import LATEST
from ltr.console.process import rank
from ltr.errors import ConfigError
from ltr.experiment.run_folder import runs_in

_OF_START = {".hydra", ".lock", "train.log", "error.txt"}  # may exist before training begins


def train(cfg: DictConfig) -> float:
    """Run the experiment ``cfg``; return ``select_on`` on the validation lists, for sweepers."""
    from ltr.experiment.job import train_job  # imports torch

    node = HydraConfig.get()
    if node.mode == RunMode.MULTIRUN or rank() > 0:
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
    linked = folder.resolve().parent == output_dir.resolve()
    before = str(link.readlink()) if linked and link.is_symlink() else None
    if linked:
        _point(link, folder.name)
    try:
        yield
    except BaseException:
        if {path.name for path in folder.iterdir()} <= _OF_START:
            shutil.rmtree(folder, ignore_errors=True)
            if linked:
                _point(link, before)
        raise


def _point(link: Path, name: str | None) -> None:
    """Make ``link`` a link to ``name`` in the same folder (None: remove it). A file or folder that
    is not a link is left alone.
    """
    with suppress(OSError):
        if link.is_symlink():
            link.unlink()
        if name is not None:
            link.symlink_to(name)


def list_runs(cfg: DictConfig) -> str:
    """Return a table with a line for each run in ``cfg.folder``, sweeps included, newest last;
    ``ConfigError`` if there is no such folder, or no run in it.
    """
    folder = Path(str(cfg.folder))
    if not (runs := runs_in(folder)):
        raise ConfigError(f"folder={folder}: no run there or below; give a folder that holds runs")
    rows = []
    for run in runs:
        reached, when = "", datetime.fromtimestamp(run.folder.stat().st_mtime)
        state = "failed" if run.error else "unfinished"
        if run.finished:
            try:
                metric = run.results["select_on"]
                when = datetime.fromisoformat(run.results["finished"]).astimezone()
                state, reached = "finished", f"{metric} {run.results['vali'][metric]:.4f}"
            except ValueError:  # a DataError, or a date that is none
                state = "damaged"
        name = str(run.folder.relative_to(folder)) if run.folder != folder else str(folder)
        rows.append((f"{when:%Y-%m-%d %H:%M}", name, state, reached))
    return tabulate(sorted(rows), ["date", "run", "state", "vali"], disable_numparse=True)
