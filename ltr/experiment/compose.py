"""A config composed outside Hydra's own entry, for code that runs experiments by itself."""

from collections.abc import Sequence

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ltr.errors import ConfigError
from ltr.experiment.arguments import as_hydra
from ltr.experiment.configs import CONFIGS
from ltr.experiment.mistakes import explain
from ltr.experiment.resolvers import register_resolvers


def composed(config_name: str, *overrides: str) -> DictConfig:
    """The config that the command of ``configs/<config_name>.yaml`` composes with ``overrides``.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    register_resolvers()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, list(overrides))


def typed(config_name: str, arguments: Sequence[str]) -> DictConfig:
    """The config that a command composes from what a user types.

    Raises:
        ConfigError: one of the arguments is wrong.

    >>> typed("compare", ["outputs/a", "seed=3"]).runs
    ['outputs/a']
    """
    try:
        return composed(config_name, *as_hydra(config_name, arguments))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, config_name)) from error
