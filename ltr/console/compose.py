"""Compose a config, and say in one line what is wrong with it."""

import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_hydra, quoted, with_quotes
from ltr.console.configs import CONFIGS, composed_with, groups_of, similar_keys
from ltr.console.folders import register_resolvers
from ltr.console.process import one_line
from ltr.errors import ConfigError, LTRError

_KEY = re.compile(r"(?!hydra\b)[A-Za-z_][\w.]*=", re.ASCII)  # no addition, deletion or package
_ERRORS = (HydraException, OmegaConfBaseException)


def composed(config_name: str, *overrides: str) -> DictConfig:
    """The config that the command of ``configs/<config_name>.yaml`` composes with ``overrides``.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    return with_choices(config_name, overrides)[0]


def with_choices(config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config and the choice of each group; a table composes the same choices many times."""
    groups, own = groups_of(config_name), composed_with(config_name)
    chosen = tuple(text for text in overrides if text.partition("=")[0] in groups)
    others = [text for text in overrides if text.partition("=")[0] not in groups]
    state = own and tuple((str(path), path.stat().st_mtime_ns) for path in own.rglob("*.yaml"))
    with suppress(*_ERRORS):  # Hydra says what is wrong
        parsed = OverridesParser.create().parse_overrides(others)
        if all(map(_KEY.match, others)) and not any(one.is_sweep_override() for one in parsed):
            config, found = pickle.loads(_pickled(config_name, chosen, own, state))
            for one in parsed:
                OmegaConf.update(config, one.key_or_group, one.value())  # as Hydra does
            return config, found
    return compose_by_hydra(config_name, overrides)


@lru_cache(256)
def _pickled(config_name: str, chosen: Sequence[str], own: Path | None, state: Any) -> bytes:
    """Compose once for each state of the user's own files."""
    return pickle.dumps(compose_by_hydra(config_name, chosen))


def compose_by_hydra(
    config_name: str, overrides: Sequence[str]
) -> tuple[DictConfig, dict[str, str]]:
    """The config and the choice of each group, a tenth of a second."""
    register_resolvers()
    GlobalHydra.instance().clear()
    own = composed_with(config_name)
    also = [] if own is None else [f"hydra.searchpath=[{quoted(f'file://{own}')}]"]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(config_name, [*overrides, *also], return_hydra_config=True)
    found = choices_of(config.hydra)
    with open_dict(config):
        del config["hydra"]
    return config, found


def choices_of(hydra_config: DictConfig | HydraConf) -> dict[str, str]:
    """The choice of each group, ``{"loss": "listnet", ...}``, in the ``hydra`` node of a config."""
    return {
        str(group): str(choice)
        for group, choice in hydra_config.runtime.choices.items()
        if choice is not None and not str(group).startswith("hydra")
    }


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        raise ConfigError(explain(error)) from error


def typed(config_name: str, arguments: Sequence[str]) -> DictConfig:
    """The config of a command and what a user types; ``ConfigError`` where that is wrong.

    >>> typed("compare", ["outputs/a", "seed=3"]).runs
    ['outputs/a']
    """
    with _explained():
        return composed(config_name, *as_hydra(config_name, arguments))


def run_config(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """``train.py``'s config, all resolved, and the choice of each group; else ``ConfigError``."""
    with _explained():
        config, chosen = with_choices("train", [*map(with_quotes, overrides)])
        OmegaConf.to_container(config, resolve=True)
    if "name" not in config.dataset:  # tables and searches name their folders by it
        name = chosen["dataset"]
        raise ConfigError(f"dataset={name}: write name: {name} there, an argument of its class")
    return config, chosen


def values_of(overrides: Sequence[str]) -> dict[str, Any]:
    """The value of each key of ``overrides``; ``ConfigError`` where one is no ``KEY=VALUE``.

    >>> values_of(["loss=listnet", "optimizer.lr=0.01", "metrics=['ndcg@5',mrr]"])
    {'loss': 'listnet', 'optimizer.lr': 0.01, 'metrics': ['ndcg@5', 'mrr']}
    """
    with _explained():
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    return {
        str(one.input_line).partition("=")[0]: one.value() for one in parsed if not one.is_delete()
    }


def explain(error: BaseException) -> str:
    """One line that says what is wrong, for an error of Hydra or of this project behind it."""
    cause = user_error(error) or error.__cause__
    if cause is not None and (line := one_line(cause)) is not None:
        return line
    text = " ".join(f"{error} {cause or ''}".split()).partition(" Config search path")[0]
    if text.startswith("Could not override"):
        key = text.split("'")[1]
        meant = " or ".join(similar_keys(key))
        text = f"{key}: no such key; {f'did you mean {meant}? ' * bool(meant)}--cfg job prints all"
    return f"{text}; see --help"


def user_error(error: BaseException) -> LTRError | None:
    """The error of this project behind one of Hydra or OmegaConf, if there is one."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, LTRError):
        below = below.__cause__ or below.__context__
    return below
