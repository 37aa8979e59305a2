"""Compose a config, and say in one line what is wrong with it."""

import pickle
import re
import sys
from collections.abc import Sequence
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_hydra, quoted, with_quotes
from ltr.console.configs import CONFIGS, choices, composed_with, groups_of, hint
from ltr.console.ending import one_line
from ltr.console.folders import register_resolvers
from ltr.console.keys import flat
from ltr.errors import ConfigError, LTRError


def composed(config_name: str, *overrides: str) -> DictConfig:
    """The config that the command of ``configs/<config_name>.yaml`` composes with ``overrides``.

    >>> composed("train", "loss=listnet").loss["_target_"]
    'ltr.losses.listnet_loss'
    """
    return _with_choices(config_name, *overrides)[0]


def _with_choices(config_name: str, *overrides: str) -> tuple[DictConfig, dict[str, str]]:
    """The config and the choice of each group; what Hydra reads from files is kept."""
    groups = groups_of(config_name)
    chosen = [text for text in overrides if text.partition("=")[0] in groups]
    keys = [text for text in overrides if text.partition("=")[0] not in groups]
    if all(map(_KEY.match, keys)):
        try:
            config, found = _read(config_name, chosen)
            for one in OverridesParser.create().parse_overrides(keys):
                if one.is_sweep_override():
                    return _composed(config_name, overrides)
                OmegaConf.update(config, one.key_or_group, one.value())  # as Hydra does
        except (HydraException, OmegaConfBaseException):
            pass  # Hydra says what is wrong
        else:
            return config, found
    return _composed(config_name, overrides)


_KEY = re.compile(r"(?!hydra\b)[A-Za-z_][\w.]*=", re.ASCII)  # no addition, deletion or package
_kept: dict[tuple[str, ...], tuple[list[Any], bytes]] = {}


def _read(config_name: str, chosen: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config with these choices, composed anew where a file of the configs has changed."""
    own = composed_with(config_name)
    files = [path for home in (CONFIGS, own) if home is not None for path in home.rglob("*.yaml")]
    known = [(path, (stat := path.stat()).st_mtime_ns, stat.st_size) for path in files]
    place = (config_name, *chosen)
    before, content = _kept.get(place, ([], b""))
    if before != known:
        content = pickle.dumps(_composed(config_name, chosen))
        _kept[place] = known, content
    config, found = pickle.loads(content)
    return config, found


def _composed(config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
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
    """The choice of each group of a config: ``{"loss": "listnet", ...}``.

    Args:
        hydra_config: the ``hydra`` node of that config.
    """
    return {
        str(group): str(choice)
        for group, choice in hydra_config.runtime.choices.items()
        if choice is not None and not str(group).startswith("hydra")
    }


def typed(config_name: str, arguments: Sequence[str]) -> DictConfig:
    """The config that a command composes from the arguments that a user types.

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
        config, chosen = _with_choices("train", *map(with_quotes, overrides))
        OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, "train", overrides)) from error
    if "name" not in config.dataset:  # tables and searches name their folders by it
        raise ConfigError(
            f"dataset={chosen['dataset']} has no name: write name: {chosen['dataset']} among the "
            "settings of dataset, and give its class the argument name"
        )
    return config, chosen


def values_of(overrides: Sequence[str]) -> dict[str, Any]:
    """The value of each key of ``overrides``.

    Raises:
        ConfigError: one is not of the form ``KEY=VALUE``.

    >>> values_of(["loss=listnet", "optimizer.lr=0.01", "metrics=['ndcg@5',mrr]"])
    {'loss': 'listnet', 'optimizer.lr': 0.01, 'metrics': ['ndcg@5', 'mrr']}
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(explain(error, "train", overrides)) from error
    return {
        str(one.input_line).partition("=")[0]: one.value() for one in parsed if not one.is_delete()
    }


def explain(error: BaseException, config_name: str, overrides: Sequence[str] | None = None) -> str:
    """One line that says what is wrong and what to do, for an error of Hydra or of this project.

    Args:
        error: of the composition.
        config_name: the command.
        overrides: what it was given; None: the arguments of this process.
    """
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
        given = sys.argv[1:] if overrides is None else overrides
        return _explain_key(text.split("'")[1], config_name, given)
    return text if cause is None else f"{text} {' '.join(str(cause).split())}"


def user_error(error: BaseException) -> LTRError | None:
    """The error of this project behind one of Hydra or OmegaConf, if there is one."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, LTRError):
        below = below.__cause__ or below.__context__
    return below


def _explain_key(key: str, config_name: str, given: Sequence[str]) -> str:
    """``key`` is not in the config: name the keys that are, composed with the same choices.

    Where keys of that name stand deeper in it, these alone; inside a group also the numbers.
    ``suggested`` is left out: its values are proposals that other keys read.
    """
    parent, _, last = key.rpartition(".")
    groups = groups_of(config_name)
    names = [] if parent else groups
    values: dict[str, Any] = {}  # in a group, its sizes too
    try:
        chosen = [arg for arg in given if arg.split("=")[0] in groups and "," not in arg]
        cfg = composed(config_name, *chosen)
        node = OmegaConf.select(cfg, parent) if parent else cfg
        if node is None and parent in groups:
            return f"{key}: no {parent} is chosen; add {parent}=CHOICE"
        names += [str(name) for name in node] if isinstance(node, DictConfig) else []
        whole: Any = OmegaConf.to_container(cfg, resolve=True)
        every = {one: value for one, value in flat(whole).items() if "suggested." not in one}
        if deep := [one for one in every if one.endswith(f".{last}")]:
            return f"{key}: no such key (did you mean {' or '.join(deep)}?)"
        values = {name: every.get(f"{parent}.{name}") for name in names}
    except (HydraException, OmegaConfBaseException):
        pass  # the choices themselves are wrong; name what is known
    names = sorted({name for name in names if not name.startswith("_")} - {"suggested"})
    shown = ", ".join(
        f"{name}={value}".replace(" ", "")
        if isinstance(value := values.get(name), list | float) or type(value) is int
        else name
        for name in names
    )
    known = f"; {f'{parent} has' if parent else 'the keys are'} {shown}" if names else ""
    return f"{key}: no such key{known}" + hint(last, names)
