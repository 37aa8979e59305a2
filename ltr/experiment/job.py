"""``train.py``'s job: find the run folder, resume, and keep one failed run from ending a sweep."""

import logging
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ltr.errors import ConfigError, LTRError
from ltr.experiment.build import check_targets
from ltr.experiment.cli import run_folder
from ltr.experiment.run import run
from ltr.training.checkpoint import load_checkpoint
from ltr.training.interruption import Interrupted

log = logging.getLogger(__name__)

# What may differ when a run goes on: how long and where it runs, not what it computes.
_MAY_CHANGE = (
    "resume",
    "trust",
    "epochs",
    "patience",
    "device",
    "threads",
    "data_dir",
    "cache_dir",
    "evaluation_items",
    "checkpoint_minutes",
)


def train_job(cfg: DictConfig) -> float:
    """Run one job of Hydra; return ``select_on`` on vali (nan for a failed run of a sweep)."""
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as the user would type it
    sweep = hydra.mode == RunMode.MULTIRUN
    choices = {k: str(v) for k, v in hydra.runtime.choices.items() if "hydra" not in str(k)}
    if cfg.resume is not None:
        if sweep:
            raise ConfigError("resume goes on with one run: leave out -m")
        cfg, choices = resumed(cfg, list(hydra.overrides.task))
    try:
        metrics = run(cfg, folder, choices)
    except Interrupted as stop:
        log.info("stopped by %s; go on with: python train.py resume=%s", stop, folder)
        raise
    except Exception as error:
        (folder / "error.txt").write_text(f"{type(error).__name__}: {error}\n")
        if not sweep:
            raise
        # The other runs of the sweep go on; the summary names this one.
        log.error("failed: %s", error, exc_info=not isinstance(error, LTRError))
        return float("nan")
    return metrics[f"vali_{cfg.select_on}"]


def resumed(cfg: DictConfig, overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config and choices of the run ``cfg.resume``, with what the command line may change.

    Raises:
        CheckpointError: there is no readable ``last.pt``.
        ConfigError: the command line changes what the run computes, or the checkpoint's config
            names code that is not trusted.
    """
    kept = load_checkpoint(run_folder(cfg.resume) / "last.pt")
    keys = [override.lstrip("+~").split("=")[0] for override in overrides]
    other = [key for key in keys if key not in _MAY_CHANGE]
    if other:
        raise ConfigError(
            f"resume goes on with the run's own config, {other[0]} cannot change; leave it out "
            f"(only {', '.join(_MAY_CHANGE[2:])} may differ) or start a new run"
        )
    check_targets(kept["config"], cfg.trust)
    own: Any = OmegaConf.create(kept["config"])
    for key in keys:
        OmegaConf.update(own, key, cfg[key])
    return own, dict(kept["choices"])
