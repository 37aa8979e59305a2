"""The commands ``train`` and ``runs``, and the link ``latest`` to the last run; cheap to import."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from tabulate import tabulate

from ltr.cli.compose import explained
from ltr.cli.folders import LATEST
from ltr.cli.hydra_app import HydraApp
from ltr.cli.process import torchrun_rank
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, runs_in
from ltr.experiment.sweep import check_folder, plan_sweep, summarise

_FILES_OF_START = {".hydra", ".lock", "train.log", "error.txt"}  # they precede training


def train(app: HydraApp) -> bool:
    """Do one run, or a sweep with its table; return whether every run of the sweep is done."""
    config = app.compose()
    if app.is_sweep(config):
        sweep = plan_sweep(config, app.loader)
        app.sweep(_train_in_sweep, sweep.overrides)
        return summarise(sweep)
    if torchrun_rank() == 0:
        with explained():
            folder = Path(config.hydra.run.dir)
            resume = config.resume
        check_folder(folder, resume, config.hydra.overrides.task)
    app.run(_train_alone)
    return True


def _train_in_sweep(cfg: DictConfig) -> float:
    """Do one run of a sweep; return ``select_on`` on the validation lists, for sweepers."""
    from ltr.experiment.job import train_job  # imports torch

    return train_job(cfg)


def _train_alone(cfg: DictConfig) -> None:
    from ltr.experiment.job import train_job  # imports torch

    if torchrun_rank() > 0:
        train_job(cfg)
        return
    folder = Path(HydraConfig.get().runtime.output_dir)
    with kept_once_begun(folder, Path(cfg.output_dir)):
        train_job(cfg)


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
    """The options of the command ``runs``."""

    folder: str  # contains runs and sweeps at any depth


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
