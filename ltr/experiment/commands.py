"""The commands ``train`` and ``runs``, and the link ``latest`` to the last run.

Importing this module is cheap.
"""

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

from ltr.cli.compose import explained
from ltr.cli.folders import LATEST
from ltr.cli.hydra_app import HydraApp
from ltr.cli.options import option
from ltr.cli.process import torchrun_rank
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, runs_in
from ltr.experiment.sweep import check_folder, plan_sweep, summarise

_FILES_OF_START = {".hydra", ".lock", "train.log", "error.txt"}  # written before training


def train(app: HydraApp) -> bool:
    """Train one run, or train a sweep and print its table; return False if a run of it failed."""
    config = app.compose()
    if app.multirun or config.hydra.mode == RunMode.MULTIRUN:
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
    """Train one run of a sweep; return its ``select_on`` metric on vali for Hydra's sweepers."""
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
    """Context of a single run; if the run fails before anything is saved, ``folder`` is removed.

    If ``folder`` is directly in ``output_dir`` and the file system supports links, the link
    ``latest`` in ``output_dir`` is pointed to ``folder``. If ``folder`` is removed, the link gets
    its old target back.
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
    """Make ``link`` a link to ``name`` in the same folder; if ``name`` is None, remove the link.

    If ``link`` is a file or folder and not a link, nothing changes.
    """
    with suppress(OSError):
        if link.is_symlink():
            link.unlink()
        if name is not None:
            link.symlink_to(name)


@dataclass(frozen=True, kw_only=True)
class ListRunsOptions:
    """List the runs in a folder and in its sweeps with their dates, names, states and validation
    metrics. The newest run is last.

      ltr runs
      ltr runs outputs/SWEEP

    The validation metric of a run is the one by which its epoch was chosen (select_on= of ltr
    train), computed with the selected weights. To find out which runs are better, use ltr compare.
    """

    folder: str = option(
        "outputs", help="the folder that contains the runs; the prefix folder= is optional"
    )


def list_runs(options: ListRunsOptions) -> str:
    """Return a table with a line for each run in a folder and its sweeps; the newest run is last.

    Raises ``ConfigError`` if there is no such folder, or if it contains no run.
    """
    folder = Path(options.folder)
    runs = runs_in(folder)
    if not runs:
        raise ConfigError(
            f"folder={folder}: expected a folder that contains runs at any depth, found none"
        )
    rows = sorted(_describe_run(run, folder) for run in runs)
    return tabulate(rows, ["date", "run", "state", "vali"], disable_numparse=True)


def _describe_run(run: RunFolder, folder: Path) -> tuple[str, str, str, str]:
    """Return the date, name, state and validation metric of a run in ``folder``."""
    date = datetime.fromtimestamp(run.folder.stat().st_mtime)
    state = "failed" if run.error else "unfinished"
    metric = ""
    if run.finished:
        try:
            name = run.results["select_on"]
            date = datetime.fromisoformat(run.results["finished"]).astimezone()
            metric = f"{name} {run.results['vali'][name]:.4f}"
            state = "finished"
        except ValueError:  # a DataError, or an invalid date
            state = "damaged"
    path = folder if run.folder == folder else run.folder.relative_to(folder)
    return f"{date:%Y-%m-%d %H:%M}", str(path), state, metric
