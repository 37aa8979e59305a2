"""A config composed outside Hydra's own entry, for code that runs experiments by itself."""

import hydra
from omegaconf import DictConfig

from ltr.experiment.cli import CONFIGS, register_resolvers


def composed(config_name: str, *overrides: str) -> DictConfig:
    """The config that the command of ``configs/<config_name>.yaml`` composes with ``overrides``.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    register_resolvers()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, list(overrides))
