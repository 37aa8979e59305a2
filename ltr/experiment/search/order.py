"""What the user asks of ``scripts/search.py``, read from its ``KEY=VALUE`` arguments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ltr.errors import ConfigError
from ltr.experiment.search.space import is_no_knob

_KEYS = (
    "trials", "name", "space", "workers", "folds", "seeds", "n_startup_trials", "pruner",
    "prune_after", "sampler_seed", "write", "output_dir", "dry_run",
)  # fmt: skip
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


def parse_order(arguments: Sequence[str]) -> Order:
    """The order in ``KEY=VALUE`` arguments; what is not a key of this command is for train.py.

    Raises:
        ConfigError: one is not of that form, or a value is wrong.

    >>> parse_order(["model=mlp", "trials=12", "space.optimizer.lr=[float,1e-4,0.1,log]"]).changes
    {'optimizer.lr': ['float', 0.0001, 0.1, 'log']}
    """
    own: dict[str, str] = {}
    overrides: list[str] = []
    changes: dict[str, Any] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"{argument}: write KEY=VALUE, such as model=mlp or trials=20")
        if key.startswith("space."):
            changes[key.removeprefix("space.")] = _value(key, value)
        elif key in _KEYS:
            own[key] = value
        elif key in ("seed", "dataset.fold") and "," in value:
            many = {"seed": "seeds", "dataset.fold": "folds"}[key]
            raise ConfigError(f"{argument}: for the mean over several write {many}={value}")
        elif key == "resume" or key.startswith(("hydra", "~")):
            raise ConfigError(f"{argument}: a search cannot have it; leave it out")
        elif _is_several(argument):
            raise ConfigError(_one_each(argument, key, value))
        else:
            overrides.append(argument)
    return Order(
        arguments=tuple(arguments),
        overrides=tuple(overrides),
        space=tuple(_words(own["space"])) if "space" in own else (),
        changes=changes,
        trials=_whole("trials", own.get("trials", "50"), least=1),
        name=_name(own["name"]) if "name" in own else None,
        workers=_whole("workers", own.get("workers", "1"), least=1),
        folds="all" if own.get("folds") == "all" else _wholes("folds", own.get("folds"), least=1),
        seeds=_wholes("seeds", own.get("seeds"), least=0),
        n_startup_trials=_whole("n_startup_trials", own.get("n_startup_trials", "10"), least=1),
        pruner=_one_of("pruner", own.get("pruner", "median"), PRUNERS),
        prune_after=(
            None
            if own.get("prune_after", "null") == "null"
            else _whole("prune_after", own["prune_after"], least=0)
        ),
        sampler_seed=_whole("sampler_seed", own.get("sampler_seed", "0"), least=0),
        write=own.get("write"),
        output_dir=own.get("output_dir", "outputs"),
        dry_run=_one_of("dry_run", own.get("dry_run", "false").lower(), ("true", "false"))
        == "true",
    )


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


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.strip("[]").split(",") if word.strip()]


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
        raise ConfigError(f"name={value}: write letters, digits, _, . and - only")
    return value


def _one_of(key: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ConfigError(f"{key}={value}: write {' or '.join(known)}")
    return value


def _wholes(key: str, value: str | None, *, least: int) -> tuple[int, ...]:
    words = _words(value or "")
    if value is not None and not words:
        raise ConfigError(f"{key}={value}: give whole numbers, such as {key}=1,2")
    return tuple(dict.fromkeys(_whole(key, word, least=least) for word in words))


def _whole(key: str, value: str, *, least: int) -> int:
    if not value.isdecimal() or int(value) < least:
        raise ConfigError(f"{key}={value}: give a whole number >= {least}")
    return int(value)


def need_optuna() -> None:
    """Raise ``ConfigError`` where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError("a search needs Optuna: pip install 'ltr-torch[search]'")
