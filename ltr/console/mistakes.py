"""One line that says what is wrong and what to do, for errors of Hydra and OmegaConf."""

import sys
from collections.abc import Sequence

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_hydra, with_quotes
from ltr.console.compose import composed, with_choices
from ltr.console.configs import choices, groups_of, hint
from ltr.console.ending import one_line
from ltr.errors import ConfigError, LTRError


def explain(error: BaseException, config_name: str) -> str:
    """One line that says what is wrong and what to do, for an error of Hydra or of this project."""
    if isinstance(error, MissingConfigException):
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        options = sorted(error.options or choices(group))
        if group and options:
            return (
                f"{group}={choice}: no such choice; {group} is one of {', '.join(options)}"
                + hint(choice, options)
            )
    mistake = user_error(error)
    if mistake is not None:
        return str(mistake)
    text = " ".join(str(error).split())
    cause = error.__cause__
    if cause is not None and (line := one_line(cause)) is not None:
        return line
    if text.startswith("Could not override '"):
        key = text.split("'")[1]
        return _explain_key(key, config_name)
    if cause is not None:
        text = f"{text} {' '.join(str(cause).split())}"
    return text


def user_error(error: BaseException) -> LTRError | None:
    """The error of this project behind one of Hydra or OmegaConf, if there is one."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, LTRError):
        below = below.__cause__ or below.__context__
    return below


def _explain_key(key: str, config_name: str) -> str:
    """``key`` is not in the config: name the keys that are, composed with the same choices."""
    parent, _, last = key.rpartition(".")
    names: list[str] = []
    try:
        cfg = composed(config_name, *_group_choices(config_name))
        node = OmegaConf.select(cfg, parent) if parent else cfg
        if node is None and parent in groups_of(config_name):
            return f"{key}: no {parent} is chosen; add {parent}=CHOICE"
        names = [str(name) for name in node] if isinstance(node, DictConfig) else []
    except (HydraException, OmegaConfBaseException):
        pass  # the choices themselves are wrong; say what is known
    names = [name for name in names if not name.startswith("_")]
    place = f"{parent} has" if parent else "the keys are"
    known = f"; {place} {', '.join(sorted(names))}" if names else ""
    return f"{key}: no such key{known}" + hint(last, names)


def _group_choices(config_name: str) -> list[str]:
    groups = groups_of(config_name)
    return [arg for arg in sys.argv[1:] if arg.split("=")[0] in groups and "," not in arg]


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


def run_config(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config of ``train.py`` with ``overrides``, all resolved, and the choice of each group.

    Raises:
        ConfigError: one of them is wrong.
    """
    try:
        config, chosen = with_choices("train", *map(with_quotes, overrides))
        OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, "train")) from error
    return config, chosen
