"""A config composed outside Hydra's own entry, for code that runs experiments by itself."""

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, open_dict

from ltr.console.arguments import quoted
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.resolvers import register_resolvers


def composed(config_name: str, *overrides: str) -> DictConfig:
    """The config that the command of ``configs/<config_name>.yaml`` composes with ``overrides``.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    return with_choices(config_name, *overrides)[0]


def with_choices(config_name: str, *overrides: str) -> tuple[DictConfig, dict[str, str]]:
    """The same, and what was chosen for each group: ``{"loss": "listnet", ...}``."""
    register_resolvers()
    GlobalHydra.instance().clear()
    own = own_configs()
    also = [] if own is None else [f"hydra.searchpath=[{quoted(f'file://{own}')}]"]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(config_name, [*overrides, *also], return_hydra_config=True)
    choices = {
        str(group): str(choice)
        for group, choice in config.hydra.runtime.choices.items()
        if choice is not None and not str(group).startswith("hydra")
    }
    with open_dict(config):
        del config["hydra"]
    return config, choices
