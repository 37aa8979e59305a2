"""What the user asks of ``scripts/compare.py``, read from its arguments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ltr.errors import ConfigError

_KEYS = ("metric", "margin", "alpha", "baseline", "published", "seed", "samples", "write")


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        paths: run folders, folders that hold runs, or patterns of either.
        metric: a column of ``queries.csv``; None: the metric that the runs were selected on.
        margin: the largest difference that does not matter.
        alpha: of every test.
        baseline: name of the system that the others are compared with, or a part of it.
        published: a number to set the systems beside.
        seed: of all draws.
        samples: of the bootstrap and the randomisation test.
        write: the folder of tables and plot; None: only print.
    """

    paths: tuple[str, ...]
    metric: str | None = None
    margin: float = 0.005
    alpha: float = 0.05
    baseline: str | None = None
    published: float | None = None
    seed: int = 0
    samples: int = 10_000
    write: str | None = None


def parse_order(arguments: Sequence[str]) -> Order:
    """The order in paths and ``KEY=VALUE`` arguments; what has no known key is a path.

    Raises:
        ConfigError: there is no path, or a value is wrong.

    >>> parse_order(["outputs/a", "outputs/b", "margin=0.01"]).margin
    0.01
    """
    own: dict[str, str] = {}
    paths = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in _KEYS:
            own[key] = value
        elif equals and key.isidentifier():
            raise ConfigError(
                f"{argument}: no such key; the keys are {', '.join(_KEYS)} (a path that looks like "
                f"this is ./{argument})"
            )
        else:
            paths.append(argument)
    if not paths:
        raise ConfigError("give run folders, or folders that hold runs, such as outputs/<sweep>")
    return Order(
        paths=tuple(paths),
        metric=own.get("metric"),
        margin=_number("margin", own.get("margin", "0.005")),
        alpha=_number("alpha", own.get("alpha", "0.05")),
        baseline=own.get("baseline"),
        published=_number("published", own["published"]) if "published" in own else None,
        seed=_whole("seed", own.get("seed", "0")),
        samples=_whole("samples", own.get("samples", "10000")),
        write=own.get("write"),
    )


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{key}={value}: give a number, such as 0.05")
    return number


def _whole(key: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"{key}={value}: give a whole number >= 0")
    return int(value)
