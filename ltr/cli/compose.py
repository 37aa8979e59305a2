"""Compose configs, and explain in one line what is wrong with them."""

import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ltr.cli.arguments import (
    as_hydra,
    as_text,
    check_added,
    quoted,
    upgraded,
    warn_of_former,
    with_quotes,
)
from ltr.cli.command_keys import default_values
from ltr.cli.configs import (
    CONFIGS,
    composed_with,
    groups_of,
    keys_of_other_choices,
    similar_keys,
)
from ltr.cli.folders import register_resolvers
from ltr.cli.keys import FORMER_CONVENTION, Kind, flat, keys
from ltr.cli.process import one_line
from ltr.cli.typed_values import read_typed
from ltr.errors import ConfigError, LTRError, as_started, need

_KEY = re.compile(r"(?!hydra\b)[A-Za-z_][\w.]*=", re.ASCII)  # not +KEY, ~KEY or KEY@PACKAGE
_LAUNCHER = re.compile(r"Could not find 'hydra/launcher/(joblib|submitit)")
_ERRORS = (HydraException, OmegaConfBaseException)


def composed(config_name: str, *overrides: str) -> DictConfig:
    """Compose the config of the command ``config_name`` with ``overrides`` in Hydra's grammar.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    return with_choices(config_name, overrides)[0]


def with_choices(config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Compose the config; return it and the choice of each config group. Results are cached."""
    groups = groups_of(config_name)
    user_folder = composed_with(config_name)
    chosen = tuple(text for text in overrides if text.partition("=")[0] in groups)
    plain_overrides = [text for text in overrides if text.partition("=")[0] not in groups]
    state = user_folder and tuple(
        (str(path), path.stat().st_mtime_ns) for path in user_folder.rglob("*.yaml")
    )
    with suppress(*_ERRORS):  # Hydra reports the errors below
        parsed = OverridesParser.create().parse_overrides(plain_overrides)
        if all(map(_KEY.match, plain_overrides)) and not any(
            override.is_sweep_override() for override in parsed
        ):
            config, choices = pickle.loads(_pickled(config_name, chosen, user_folder, state))
            for override in parsed:
                OmegaConf.update(config, override.key_or_group, override.value())  # as Hydra does
            return config, choices
    return compose_by_hydra(config_name, overrides)


@lru_cache(256)
def _pickled(
    config_name: str, chosen: Sequence[str], user_folder: Path | None, state: Any
) -> bytes:
    """Return the pickled config with the choices ``chosen``; ``state`` changes with user files."""
    return pickle.dumps(compose_by_hydra(config_name, chosen))


def compose_by_hydra(
    config_name: str, overrides: Sequence[str]
) -> tuple[DictConfig, dict[str, str]]:
    """Compose the config without the cache, in about 0.1 s; return it and the choices of groups."""
    register_resolvers()
    if config_name != "train":
        store_root_config(config_name)
    GlobalHydra.instance().clear()
    user_folder = composed_with(config_name)
    search_path = (
        [] if user_folder is None else [f"hydra.searchpath=[{quoted(f'file://{user_folder}')}]"]
    )
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(config_name, [*overrides, *search_path], return_hydra_config=True)
    choices = choices_of(config.hydra)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def choices_of(hydra_config: DictConfig | HydraConf) -> dict[str, str]:
    """Return the choice of each group in a ``hydra`` node, such as ``{"loss": "listnet", ...}``.

    Raises:
        ConfigError: several conventions are chosen.
    """
    for override in hydra_config.overrides.task:
        if override.startswith("convention=["):  # Hydra would merge the conventions
            evaluate = as_started("evaluate")
            raise ConfigError(
                f"{override}: expected one convention for training, got a list: choose one; only "
                f"{evaluate} accepts several"
            )
    choices = {
        str(group): str(choice)
        for group, choice in hydra_config.runtime.choices.items()
        if choice is not None and not str(group).startswith("hydra")
    }
    if choices.pop(FORMER_CONVENTION, None) is not None:  # in one of the user's config files
        warn_of_former("override /metrics_as", "override /convention")
    return choices


@contextmanager
def explained() -> Iterator[None]:
    """Context in which an error of Hydra or OmegaConf becomes a ``ConfigError`` with one line."""
    try:
        yield
    except _ERRORS as error:
        raise ConfigError(explain_error(error)) from error


def typed(command: str, arguments: Sequence[str]) -> DictConfig:
    """Return the config of a command with the typed ``arguments``.

    Raises:
        ConfigError: an argument is invalid.

    >>> typed("compare", ["outputs/a", "seed=3"]).runs
    ['outputs/a']
    """
    with explained():
        if command == "train":
            return composed("train", *as_hydra(arguments))
        values, group_overrides = read_typed(command, arguments)
        if group_overrides:
            config = composed(command, *group_overrides)
        else:
            config = OmegaConf.create(default_values(command))
        for key, value in values.items():
            OmegaConf.update(config, key, value)
            OmegaConf.select(config, key)  # raises an error for a wrong interpolation
    return config


def search_overrides(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``ltr search`` in Hydra's grammar.

    A job that a Hydra launcher starts is given its arguments in this form.

    >>> search_overrides(["model=mlp", "trials=5"])
    ['trials=5', "train=['model=mlp']"]
    """
    return [
        f"{key}={as_text(value)}" for key, value in read_typed("search", arguments).values.items()
    ]


def store_root_config(command: str) -> None:
    """Register the defaults and config groups of a command with Hydra, as a root config."""
    defaults = ["_self_", *({group: None} for group in groups_of(command))]
    values = {
        key: value
        for key, value in default_values(command).items()
        if key not in groups_of(command)
    }
    node = {
        "defaults": [*defaults, {"override hydra/hydra_logging": "none"}],
        **values,
        "hydra": {"output_subdir": None, "job": {"chdir": False}},
    }
    ConfigStore.instance().store(command, node)


def run_config(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Compose and resolve the config of ``ltr train``; return it and the choice of each group.

    Raises:
        ConfigError: an override is invalid, or the data set has no name.
    """
    overrides = upgraded(overrides)
    check_added(overrides)
    with explained():
        config, choices = with_choices("train", [*map(with_quotes, overrides)])
        OmegaConf.to_container(config, resolve=True)
    if "name" not in config.dataset:  # tables and searches need it for the names of folders
        name = choices["dataset"]
        raise ConfigError(
            f"dataset={name}: the config file of this data set has no name: add the line "
            f"'name: {name}' (the class of the data set must accept this argument)"
        )
    return config, choices


def values_of(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the parsed value of each key; raise ``ConfigError`` if one is not ``KEY=VALUE``.

    >>> values_of(["loss=listnet", "optimizer.lr=0.01", "metrics=['ndcg@5',mrr]"])
    {'loss': 'listnet', 'optimizer.lr': 0.01, 'metrics': ['ndcg@5', 'mrr']}
    """
    with explained():
        parsed = OverridesParser.create().parse_overrides([*map(with_quotes, overrides)])
    return {
        str(override.input_line).partition("=")[0]: override.value()
        for override in parsed
        if not override.is_delete()
    }


def explain_error(error: BaseException) -> str:
    """Return one line about an error from Hydra, or about the ``LTRError`` that caused it.

    Raises:
        ConfigError: a launcher was chosen that is not installed.
    """
    cause = user_error(error) or error.__cause__
    if cause is not None and (line := one_line(cause)) is not None:
        return line
    text = " ".join(f"{error} {cause or ''}".split()).partition(" Config search path")[0]
    if launcher := _LAUNCHER.search(text):
        need(
            f"hydra_plugins.hydra_{launcher[1]}_launcher",
            {"joblib": "sweep", "submitit": "cluster"}[launcher[1]],
        )
    if text.startswith("Could not override"):
        key = text.split("'")[1]
        suggestions = " or ".join(similar_keys(key, _keys_around(error)))
        remedy = ""
        if suggestions:
            remedy = f"did you mean {suggestions}? "
        elif other_keys := keys_of_other_choices(key):
            group = other_keys[0].partition(".")[0]
            remedy = f"{other_keys[0]} exists if you make a different choice of {group}; "
        text = f"{key}: no such key; {remedy}--cfg job lists all keys"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        typed = error.missing_cfg_file.rpartition("/")[2]
        if close := get_close_matches(typed, error.options or (), 1):
            return f"{text}; did you mean {close[0]}? see --help"
    return f"{text}; see --help"


def _keys_around(error: BaseException) -> set[str] | None:
    """Return all keys of the config in which Hydra did not find a key; None if it is unknown."""
    node = getattr(error.__cause__, "parent_node", None)
    if node is None:
        return None
    config: Any = OmegaConf.to_container(node._get_root())
    config.pop("hydra", None)
    existing_keys = {*config, *flat(config)}
    return {key for key in existing_keys if key.partition(".")[0] not in keys(Kind.PROPOSAL)}


def user_error(error: BaseException) -> LTRError | None:
    """Return the error of this project that caused ``error``, or None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, LTRError):
        cause = cause.__cause__ or cause.__context__
    return cause
