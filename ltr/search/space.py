"""What a search varies: spaces as data in ``configs/search``, changed on the command line."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from ltr.console.configs import files_of, hint
from ltr.console.keys import Kind, keys
from ltr.errors import ConfigError

FORMS = (
    "write [float,LOW,HIGH] or [int,LOW,HIGH], these with ,log] at the end for LOW > 0, "
    "[choice,A,B,...], or null to leave it out"
)
# What decides how good a trial is said to be, and where it runs, is no knob of it.
_NO_KNOBS = (
    "dataset", "experiment", "hydra",
    *keys(Kind.SELECTION, Kind.REPEAT, Kind.MEASUREMENT, Kind.PLACE, Kind.PROPOSAL),
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; ``log``: even in the logarithm."""

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def tried(self) -> tuple[str, ...]:
        """Values that must be possible, as on a command line."""
        return as_text(self.low), as_text(self.high)

    def holds(self, value: Any) -> bool:
        """Whether ``value``, from a config, is one of it."""
        numbers = int if self.whole else (int, float)
        return _is_number(value, numbers) and bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        """As it is written on the command line."""
        kind, log = "int" if self.whole else "float", ",log" if self.log else ""
        return f"[{kind},{as_text(self.low)},{as_text(self.high)}{log}]"


@dataclass(frozen=True)
class Choice:
    """One of ``options``, each as it is written on the command line: ``relu``, ``[64,32]``."""

    options: tuple[str, ...]

    @property
    def tried(self) -> tuple[str, ...]:
        """Values that must be possible, as on a command line."""
        return self.options

    def holds(self, value: Any) -> bool:
        """Whether ``value``, from a config, is one of it."""
        return as_text(value) in self.options

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"[choice,{','.join(self.options)}]"


Distribution = Range | Choice
Space = dict[str, Distribution]


def chosen_space(
    choices: Mapping[str, str],
    names: Sequence[str],
    changes: Mapping[str, Any],
    fixed: Iterable[str],
) -> Space:
    """The space of a search.

    Args:
        choices: of the groups; without ``names``, those of its model and its loss are put together.
        names: of spaces; a key of a later one replaces that of an earlier one.
        changes: key -> what the command line says in place of its distribution; None takes it out.
        fixed: keys that the command line sets, and so are not searched.

    Raises:
        ConfigError: a space or a distribution is wrong, or nothing is left.
    """
    space = named_space(choices, names)
    for key in fixed:
        space.pop(key, None)
    for key, value in changes.items():
        if value is None and key not in space:
            raise ConfigError(f"space.{key}=null: it is not searched; leave this out")
        before = space.pop(key, None)
        if value is not None:
            space[key] = distribution(f"space.{key}", value, before)
    for key in space:
        if is_no_knob(key):
            raise ConfigError(
                f"space.{key}: trials must differ in knobs, not in data, seed, place or how they "
                "are measured; set it without space."
            )
    if not space:
        raise ConfigError(
            f"there is nothing to search for model={choices['model']}: give "
            f"'space.KEY=[float,LOW,HIGH]', or space=NAME of {', '.join(files_of('space'))}"
        )
    return space


def named_space(choices: Mapping[str, str], names: Sequence[str]) -> Space:
    """The spaces ``names`` together, or those of the model and the loss in ``choices``."""
    known = files_of("space")
    space: Space = {}
    for name in list(names) or [choices["model"], f"loss/{choices.get('loss')}"]:
        if names or name in known:
            space |= read_space(name)
    return space


def read_space(name: str) -> Space:
    """The space in ``configs/search/<name>.yaml``: a line ``KEY: [float, LOW, HIGH]`` for a key."""
    files = files_of("space")
    if name not in files:
        raise ConfigError(
            f"space={name}: no such space; it is one of {', '.join(files)}" + hint(name, files)
        )
    where = f"configs/search/{name}.yaml"
    try:
        raw: Any = OmegaConf.to_container(OmegaConf.create(files[name].read_text()))
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{where} is not YAML: {' '.join(str(error).split())}; mend it"
        ) from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: write a line KEY: [float, LOW, HIGH] for each key")
    return {str(key): distribution(f"{where}: {key}", value) for key, value in raw.items()}


def sets_what_is_searched(space: Space, override: str) -> bool:
    """Whether ``override``, which a file holds, gives a key of ``space`` a value of its kind."""
    key, _, value = override.partition("=")
    known = space.get(key)
    if isinstance(known, Choice):
        return value in known.options
    return known is not None and re.fullmatch(r"[-+.\deE]+", value) is not None


def is_no_knob(key: str) -> bool:
    """Whether ``key`` decides how good a trial is said to be, or where it runs."""
    return re.split(r"[.@]", key.lstrip("+"))[0] in _NO_KNOBS


def distribution(where: str, value: Any, before: Distribution | None = None) -> Distribution:
    """The distribution that a list such as ``[float, 0, 1]`` stands for.

    Args:
        where: names it in errors.
        value: as read from YAML or the command line.
        before: what it replaces; ``[LOW,HIGH]`` without a kind is of the same kind.

    >>> str(distribution("optimizer.lr", ["float", 1e-4, 0.1, "log"]))
    '[float,0.0001,0.1,log]'
    """
    kind, *rest = value if isinstance(value, list) and value else [None]
    if isinstance(before, Range) and _is_number(kind, (int, float)):
        kind, rest = "int" if before.whole else "float", list(value)
    if kind == "choice":
        options = tuple(dict.fromkeys(map(as_text, rest)))
        if len(options) > 1:
            return Choice(options)
    if kind in ("float", "int"):
        numbers, log = int if kind == "int" else (int, float), rest[2:] == ["log"]
        bounds = rest[:2] if log else rest
        if len(bounds) == 2 and all(_is_number(bound, numbers) for bound in bounds):
            low, high = map(int if kind == "int" else float, bounds)
            if low < high and (low > 0 or not log):
                return Range(low, high, log=log, whole=kind == "int")
    raise ConfigError(f"{where}={as_text(value)}: {FORMS}")


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def as_text(value: Any) -> str:
    """``value`` as it is written behind ``KEY=`` on a command line.

    >>> as_text([64, None, True, 1e-5, "relu", "two words"])
    "[64,null,true,1e-05,relu,'two words']"
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(as_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (int, float)):
        return repr(value)
    words = ("null", "true", "false", "nan", "inf")
    if re.fullmatch(r"[A-Za-z_][\w./+-]*", str(value)) and str(value).lower() not in words:
        return str(value)
    return "'{}'".format(str(value).replace("\\", "\\\\").replace("'", "\\'"))
