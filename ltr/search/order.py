"""What to search for, and how: the config of ``configs/search.yaml``, checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import CONFIGS, own_keys
from ltr.console.values import flag, text, texts, whole
from ltr.errors import ConfigError
from ltr.search.space import is_no_knob

PRUNERS = ("median", "none")


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        arguments: as they were given.
        overrides: for ``train.py``, the same in every trial.
        space: names of spaces; empty: those of the model and of the loss.
        changes: key -> the distribution that replaces the one of the space; None takes it out.
        trials: how many are to be finished in all, those of earlier calls included.
        name: of the search; None: made of data set, model and loss.
        workers: trials at a time.
        folds: of the data set; a trial's value is the mean over them. Empty: that of the config.
        seeds: of the training, likewise.
        n_startup_trials: drawn at random before the sampler learns from them.
        pruner: ``median`` ends a trial that is worse than the median of the others, or ``none``.
        prune_after: epochs that every trial has; None: a fifth of them.
        sampler_seed: of the draws.
        write: the file of the best configuration; None: one in ``configs/experiment``.
        output_dir: the search is kept in its ``search/NAME``.
        dry_run: only say what would be searched.
    """

    arguments: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    space: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 50
    name: str | None = None
    workers: int = 1
    folds: tuple[int, ...] | str = ()
    seeds: tuple[int, ...] = ()
    n_startup_trials: int = 10
    pruner: str = "median"
    prune_after: int | None = None
    sampler_seed: int = 0
    write: str | None = None
    output_dir: str = "outputs"
    dry_run: bool = False


def search_order(cfg: DictConfig) -> Order:
    """The order in a config.

    Raises:
        ConfigError: a value is wrong, or is nothing that a search can have.

    >>> from ltr.console.compose import typed
    >>> search_order(typed("search", ["space.optimizer.lr=[float,1e-4,0.1,log]"])).changes
    {'optimizer.lr': ['float', 0.0001, 0.1, 'log']}
    """
    overrides, changes = [], {}
    for override in texts(cfg, "train"):
        key, _, value = override.partition("=")
        if key.startswith("space."):
            changes[key.removeprefix("space.")] = _value(key, value)
        elif key in ("seed", "dataset.fold") and "," in value:
            many = {"seed": "seeds", "dataset.fold": "folds"}[key]
            raise ConfigError(f"{override}: for the mean over several write {many}={value}")
        elif key == "resume" or key.startswith("~"):
            raise ConfigError(f"{override}: a search cannot have it; leave it out")
        elif _is_several(override):
            raise ConfigError(_one_each(override, key, value))
        else:
            overrides.append(override)
    if cfg.pruner not in PRUNERS:
        raise ConfigError(f"pruner={cfg.pruner}: write {' or '.join(PRUNERS)}")
    return Order(
        arguments=_arguments(cfg),
        overrides=tuple(overrides),
        space=texts(cfg, "space"),
        changes=changes,
        trials=whole(cfg, "trials", least=1),
        name=None if cfg.name is None else _name(str(cfg.name)),
        workers=whole(cfg, "workers", least=1),
        folds="all" if texts(cfg, "folds") == ("all",) else _wholes(cfg, "folds", least=1),
        seeds=_wholes(cfg, "seeds", least=0),
        n_startup_trials=whole(cfg, "n_startup_trials", least=1),
        pruner=str(cfg.pruner),
        prune_after=None if cfg.prune_after is None else whole(cfg, "prune_after", least=0),
        sampler_seed=whole(cfg, "sampler_seed", least=0),
        write=text(cfg, "write"),
        output_dir=str(cfg.output_dir),
        dry_run=flag(cfg, "dry_run"),
    )


def _arguments(cfg: DictConfig) -> tuple[str, ...]:
    """What would be typed for ``cfg``: what is not as the file has it."""
    usual: Any = OmegaConf.load(CONFIGS / "search.yaml")
    own = [key for key in own_keys("search") - {"train"} if cfg[key] != usual[key]]
    given = [f"{key}={','.join(texts(cfg, key))}" for key in sorted(own)]
    return (*texts(cfg, "train"), *given)


def _value(key: str, value: str) -> Any:
    """A value as Hydra reads it on a command line."""
    try:
        return OverridesParser.create().parse_override(f"KEY={value}").value()
    except HydraException as error:
        raise ConfigError(
            f"{key}={value}: cannot be read; write it as [float,LOW,HIGH] or [choice,A,B], quoted "
            "where the shell asks for it"
        ) from error


def _is_several(argument: str) -> bool:
    """Whether Hydra would make several runs of it; what it cannot read is said when composing."""
    try:
        return OverridesParser.create().parse_override(argument).is_sweep_override()
    except HydraException:
        return False


def _one_each(argument: str, key: str, value: str) -> str:
    text = f"{argument}: a search has one value of a key: make one search for each"
    # a model and a loss have keys of their own: trials of one could not have those of another
    if is_no_knob(key) or key in ("model", "loss") or re.search(r"[()]", value):
        return text
    return f"{text}, or let the trials differ in it: space.{key}=[choice,{value}]"


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
        raise ConfigError(f"name={value}: write letters, digits, _, . and - only")
    return value


def _wholes(cfg: DictConfig, key: str, *, least: int) -> tuple[int, ...]:
    words = texts(cfg, key)
    for word in words:
        if not word.isdecimal() or int(word) < least:
            raise ConfigError(f"{key}={','.join(words)}: give whole numbers, such as {key}=1,2")
    return tuple(dict.fromkeys(int(word) for word in words))


def need_optuna() -> None:
    """Raise ``ConfigError`` where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError("a search needs Optuna: pip install 'ltr-torch[search]'")
