"""The config of a resumed run: the config of its checkpoint, with new values for some keys."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.cli.folders import run_folder
from ltr.cli.keys import Resumed, keys, upgrade_choices
from ltr.errors import ConfigError
from ltr.parts.components import PARTS
from ltr.parts.trust import config_of, trusted
from ltr.training.checkpoint import checkpoint_errors, load_checkpoint


def resumed_config(cfg: DictConfig, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return the config of the run ``cfg.resume``, and its choice of each config group.

    Args:
        cfg: the composed config of the command.
        overrides: the overrides on the command line; their values replace those of the checkpoint.

    Raises:
        CheckpointError: there is no readable ``last.pt``.
        ConfigError: an override sets a key that cannot change, or the config names code that is
            not trusted.
    """
    file = run_folder(cfg.resume) / "last.pt"
    checkpoint = load_checkpoint(file)
    typed = [override.lstrip("+~").split("=")[0] for override in overrides]
    changeable = keys(Resumed.TYPED, Resumed.OWN)
    for key in typed:
        if key not in changeable:
            raise ConfigError(
                f"{key} cannot change when a run is resumed; only {', '.join(changeable)} can: "
                f"leave out {key}, or start a new run"
            )
    values: Any = OmegaConf.to_container(cfg, resolve=True)
    with checkpoint_errors(file):
        stored_choices = checkpoint["choices"].items()
        choices = upgrade_choices({str(group): str(choice) for group, choice in stored_choices})
    replaced = (*keys(Resumed.OWN, Resumed.FOLDER), *typed)
    config = config_of(checkpoint, file) | {key: values[key] for key in replaced if key in values}
    return trusted(config, [*PARTS, "metrics"], cfg.trust), choices
