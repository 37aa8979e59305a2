"""The config of a run that goes on: its own, with what the command line may change."""

import hashlib
import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.atomic import atomic_write
from ltr.console.folders import run_folder
from ltr.console.keys import Resumed, keys
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.identity import identity
from ltr.experiment.run_folder import NOTE, RunFolder
from ltr.scorers.parts import PARTS, by_rounds
from ltr.scorers.trust import config_of, trusted
from ltr.training.checkpoint import fitting, load_checkpoint

log = logging.getLogger(__name__)


def resumed(cfg: DictConfig, overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config and choices of the run ``cfg.resume``, with what the command line may change.

    Raises:
        CheckpointError: there is no readable ``last.pt``.
        ConfigError: the command line changes what the run computes, or asks for fewer epochs than
            it has done, or the checkpoint's config names code that is not trusted.
    """
    folder = run_folder(cfg.resume)
    file = folder / "last.pt"
    content = load_checkpoint(file)
    typed = [override.lstrip("+~").split("=")[0] for override in overrides]
    may = keys(Resumed.TYPED, Resumed.OWN)
    if other := [key for key in typed if key not in may]:
        raise ConfigError(
            f"resume goes on with the run's own config, {other[0]} cannot change; leave it out "
            f"(only {', '.join(may)} may differ) or start a new run"
        )
    given: Any = OmegaConf.to_container(cfg, resolve=True)
    with fitting(file):
        done = content["progress"]["epoch"] + (content["progress"]["step"] > 0)
        choices = {str(group): str(choice) for group, choice in content["choices"].items()}
    if "epochs" in typed and isinstance(given["epochs"], int) and 0 <= given["epochs"] < done:
        raise ConfigError(
            f"resume={cfg.resume} epochs={given['epochs']}: epoch {done} is done or begun: give "
            f"epochs={done} or more, or start a new run"
        )
    of_user = keys(Resumed.OWN, Resumed.FOLDER)
    config = config_of(content, file)
    config |= {key: given[key] for key in (*of_user, *typed) if key in given}
    return trusted(config, [*PARTS, "metrics"], cfg.trust), choices


def with_shards(cfg: DictConfig, processes: int) -> DictConfig:
    """``cfg`` for torchrun's processes: a shard of each batch for each, where it sets no number.

    Raises:
        ConfigError: its model or its shards are not for so many processes.
    """
    if by_rounds(cfg.model):
        name = str(cfg.model._target_).rpartition(".")[2]
        raise ConfigError(
            f"torchrun with {processes} processes: one fits {name}, with all threads; start it "
            "without torchrun"
        )
    if cfg.shards is None and cfg.resume is not None:
        raise ConfigError(
            f"resume={cfg.resume}: one process began it with shards=null, and {processes} would "
            "give other numbers; resume it without torchrun, or begin anew with shards=N"
        )
    if cfg.shards is None:
        cfg = cfg.copy()
        cfg.shards = processes
    if cfg.shards < processes:
        raise ConfigError(
            f"shards={cfg.shards} gives {processes} processes no work: set --nproc-per-node lower"
            + (", or shards higher" if cfg.resume is None else "")
        )
    return cfg


def leave_sweep(cfg: DictConfig, folder: Path) -> None:
    """Note in ``folder`` that a sweep's run goes on as another: with other epochs, data or code.

    Begun as one run and ended as another it is neither. Its sweep, given again, runs it anew.
    """
    before, note = RunFolder(folder).identity, folder / NOTE
    if not note.is_file():
        return
    build(cfg)  # a mistake ends here, and changes nothing
    if before != (now := identity(cfg)):
        mixed = hashlib.sha256(f"{before} {now}".encode()).hexdigest()
        atomic_write(note, f"{mixed} resumed\n")
        log.info(
            "%s goes on with other settings, data or code than its sweep began it with: given "
            "again, the sweep runs it anew and keeps this one beside it",
            folder,
        )
