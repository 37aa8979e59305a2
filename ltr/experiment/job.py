"""``train.py``'s job: find the run folder, resume, and keep one failed run from ending a sweep."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ltr.console.ending import is_full, one_line
from ltr.console.keys import Resumed, keys
from ltr.console.resolvers import run_folder
from ltr.errors import ConfigError, OutputError
from ltr.experiment.build import PARTS, build
from ltr.experiment.identity import identity
from ltr.experiment.places import asked_place, elsewhere
from ltr.experiment.run import run
from ltr.experiment.run_folder import NOTE, RunFolder
from ltr.experiment.standing import Standing, adopt, note_resumed, take_up
from ltr.experiment.trust import kept_config, trusted
from ltr.training.checkpoint import load_checkpoint
from ltr.training.interruption import Interrupted, stoppable
from ltr.whole import write_whole

log = logging.getLogger(__name__)


def train_job(cfg: DictConfig) -> float:
    """Run one job of Hydra; return ``select_on`` on vali (nan for a failed run of a sweep).

    A run of a sweep that is finished is not done again, one that was cut off goes on, and one that
    another process is at is waited for.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as the user would type it
    sweep = hydra.mode == RunMode.MULTIRUN
    choices = {
        str(k): str(v)
        for k, v in hydra.runtime.choices.items()
        if v is not None and not str(k).startswith("hydra")
    }
    if cfg.resume is not None:
        if sweep:
            raise ConfigError("resume goes on with one run: leave out -m")
        cfg, choices = resumed(cfg, list(hydra.overrides.task))
    try:
        with stoppable(), _alone(folder, wait=sweep):
            if sweep:
                value = _continued(cfg, folder, choices)
            else:
                if cfg.resume is not None and (folder / NOTE).is_file():
                    _leave_sweep(cfg, folder)
                value = run(cfg, folder, choices)[f"vali_{cfg.select_on}"]
    except Interrupted as stop:
        log.info("stopped by %s; %s", stop, _go_on(folder, sweep))
        raise
    except Exception as error:
        line = one_line(error)
        if is_full(error):  # nothing more can be written, of other runs of a sweep neither
            raise OutputError(f"{line}; then {_go_on(folder, sweep)}") from error
        with suppress(OutputError):
            write_whole(folder / "error.txt", f"{type(error).__name__}: {line or error}\n")
        if not sweep:
            raise
        # The other runs of the sweep go on; the summary names this one.
        log.error("failed: %s", line or error, exc_info=line is None)
        return float("nan")
    with suppress(OSError):
        (folder / "error.txt").unlink(missing_ok=True)  # of an earlier try
    return value


def _go_on(folder: Path, sweep: bool) -> str:
    """What to do after a run ended early."""
    if sweep or not (folder / "last.pt").is_file():
        return "give the same command again"
    return f"go on with: python train.py resume={folder}"


def _continued(cfg: DictConfig, folder: Path, choices: dict[str, str]) -> float:
    """What is left of a sweep's run, and its value."""
    standing = take_up(folder, identity(cfg))
    if standing is Standing.NEW and adopt(
        folder, str(cfg.select), lambda select: identity(_selecting(cfg, select))
    ):
        standing = Standing.CUT_OFF
    if standing is Standing.DONE:
        log.info("%s is done already", folder)
        if note := elsewhere([folder], asked_place(cfg)):
            log.info("%s", note)
        return float(RunFolder(folder).results["vali"][str(cfg.select_on)])
    if standing is Standing.CUT_OFF:
        cfg = cfg.copy()
        cfg.resume = str(folder)
    return run(cfg, folder, choices)[f"vali_{cfg.select_on}"]


def _selecting(cfg: DictConfig, select: str) -> DictConfig:
    cfg = cfg.copy()
    cfg.select = select
    return cfg


def _leave_sweep(cfg: DictConfig, folder: Path) -> None:
    """See that a sweep does not take its run, resumed as another, for the one it asks for."""
    build(cfg)  # a mistake ends here, and changes nothing
    if note_resumed(folder, identity(cfg)):
        log.info(
            "%s goes on with other settings, data or code than its sweep began it with: given "
            "again, the sweep does it anew and keeps this one beside it",
            folder,
        )


@contextmanager
def _alone(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold the run folder, so that the same run is not done twice at once."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise ConfigError(
            f"{folder} is in use: another process is training it; wait for it or stop it"
        ) from None
    try:
        yield
    finally:
        lock.release()


def resumed(cfg: DictConfig, overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config and choices of the run ``cfg.resume``, with what the command line may change.

    Raises:
        CheckpointError: there is no readable ``last.pt``.
        ConfigError: the command line changes what the run computes, or the checkpoint's config
            names code that is not trusted.
    """
    folder = run_folder(cfg.resume)
    kept = load_checkpoint(folder / "last.pt")
    typed = [override.lstrip("+~").split("=")[0] for override in overrides]
    may = keys(Resumed.TYPED, Resumed.OWN)
    other = [key for key in typed if key not in may]
    if other:
        raise ConfigError(
            f"resume goes on with the run's own config, {other[0]} cannot change; leave it out "
            f"(only {', '.join(may)} may differ) or start a new run"
        )
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    of_user = keys(Resumed.OWN, Resumed.FOLDER)
    own = kept_config(kept, folder) | {key: given[key] for key in (*of_user, *typed)}
    choices = {str(group): str(choice) for group, choice in kept["choices"].items()}
    return trusted(own, [*PARTS, "metrics"], cfg.trust), choices
