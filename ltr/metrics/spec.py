"""Names of metrics such as ``ndcg@10``, and their conventions. This file needs no torch."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ltr.errors import ConfigError, LTRError
from ltr.knobs import (
    Gain,
    check_choice,
    check_empty,
    check_gain,
    check_k,
    check_levels,
    check_positive,
)

GAINS = {"exp2": "2^y-1", "linear": "y"}
DISCOUNTS = {"log2": "1/log2(1+rank)", "letor": "1 at ranks 1 and 2, then 1/log2(rank)"}
TIES = {"file": "ties in file order", "averaged": "ties averaged over their orders"}
SHORT = {"scored": "short lists scored", "zero": "ndcg@k of fewer than k items = 0"}
MAP_OVER = {
    "relevant": "map@k over all relevant items",
    "reachable": "map@k over at most k relevant items",
}


@dataclass(frozen=True)
class Convention:
    """The choices that change the value of a metric; they are printed and stored with the value.

    Attributes:
        empty: the value of an empty list, from 0 to 1, or ``"skip"`` for NaN, which the mean leaves
            out. A list is empty if it has no label of at least ``relevant`` (for map, mrr,
            precision and recall), no label above 0 (for err and ndcg_beta), or no gain above 0 (for
            the other metrics).
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades 0, 1, 2
            and so on.
        discount: ``"log2"`` (1/log2(1+rank)) or ``"letor"`` (as in the LETOR script: 1 at ranks 1
            and 2, then 1/log2(rank)).
        ties: how items with equal scores are ranked. With ``"file"``, they keep their order in the
            file. With ``"averaged"``, the value is the expected value over all their orders, as in
            scikit-learn.
        short: how NDCG@k treats a list of fewer than k items. With ``"scored"``, it is treated like
            any other list. With ``"zero"``, its value is 0.
        relevant: > 0, the smallest label that counts as relevant in map, mrr, precision and recall.
        map_over: the divisor of map@k. ``"relevant"`` means the number of relevant items;
            ``"reachable"`` means this number, but at most k.
        levels: the number of grades in the data, 5 for the labels 0 to 4; only err uses it.

    Raises:
        ConfigError: a value is not allowed.
    """

    empty: float | int | str = 1.0
    gain: Gain = "exp2"
    discount: str = "log2"
    ties: str = "file"
    short: str = "scored"
    relevant: float | int = 1
    map_over: str = "relevant"
    levels: int = 5

    def __post_init__(self) -> None:
        checked = {
            "empty": check_empty(self.empty),
            "gain": check_gain(self.gain, list(GAINS)),  # a table becomes a tuple
            "relevant": check_positive("relevant", self.relevant),
            "levels": check_levels(self.levels),
        }
        check_choice("discount", self.discount, list(DISCOUNTS))
        check_choice("ties", self.ties, list(TIES))
        check_choice("short", self.short, list(SHORT))
        check_choice("map_over", self.map_over, list(MAP_OVER))
        for key, value in checked.items():  # as Python numbers, which files can hold
            object.__setattr__(self, key, value)

    def describe(self, parts: Collection[str] | None = None) -> str:
        """Describe the convention in one line, to be printed next to a value.

        Args:
            parts: the attributes to describe, in a short form; None: all of them, in a longer form.

        >>> Convention().describe(["empty", "gain"])
        'empty list = 1, gain 2^y-1'
        """
        if isinstance(self.gain, str):
            gain = f"gain {GAINS[self.gain]}"
        else:
            gain = f"gains [{', '.join(f'{value:g}' for value in self.gain)}]"
        counts = "empty lists left out" if self.empty == "skip" else f"empty list = {self.empty:g}"
        if parts is None:
            same = isinstance(self.gain, str) or self.gain[0] == 0 < self.gain[1]
            counts += " (no label > 0" if same else " (no gain > 0; err, ndcg_beta: no label > 0"
            counts += "; map, mrr, precision, recall: none relevant)"
        phrases = {
            "empty": counts,
            "gain": gain,
            "discount": f"discount {DISCOUNTS[self.discount]}",
            "ties": TIES[self.ties],
            "short": SHORT[self.short],
            "relevant": f"relevant from label {self.relevant:.9g}",
            "map_over": MAP_OVER[self.map_over],
            "levels": f"{self.levels} grades",
        }
        return ", ".join(text for key, text in phrases.items() if parts is None or key in parts)


if TYPE_CHECKING:
    from ltr.typing import Labels, Mask, PerList, Scores
else:  # ltr.typing imports torch
    Labels = Mask = PerList = Scores = Any

METRICS = {  # name -> module
    **dict.fromkeys(("dcg", "ndcg", "mean_ndcg", "ndcg_beta"), "cumulative_gain"),
    **dict.fromkeys(("map", "mrr", "precision", "recall", "err"), "relevance"),
}

_DOTTED_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
_NAME_AT_K = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:@(?P<k>[1-9][0-9]{0,17}))?", re.ASCII)


@dataclass(frozen=True)
class Metric:
    """A metric at a cutoff; calling it gives one value per list.

    Attributes:
        name: one of ``METRICS``, or ``module.function`` for the user's own function, whose module
            is imported when ``function`` is first used. With ``own``, any other name is allowed.
        k: cutoff rank >= 1, None for the whole list.
        own: the user's function for ``name``, with its settings bound.

    Raises:
        ConfigError: the name is unknown, or ``k`` is not an integer >= 1.
    """

    name: str
    k: int | None = None
    own: Callable[..., PerList] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.own is not None and self.name in METRICS:
            raise ConfigError(
                f"{self.name} is a built-in metric: give your own metric another name"
            )
        if self.name not in METRICS and not self.is_own:
            raise _not_a_metric(str(self))
        object.__setattr__(self, "k", check_k(self.k))

    def __str__(self) -> str:
        """Return the name as it is written in configs, logs and tables, such as ``ndcg@10``."""
        return self.name if self.k is None else f"{self.name}@{self.k}"

    @property
    def is_own(self) -> bool:
        """Whether the metric is the user's own function, and not a built-in one."""
        return self.own is not None or re.fullmatch(_DOTTED_NAME, self.name, re.ASCII) is not None

    @property
    def function(self) -> Callable[..., PerList]:
        """The function that computes the metric; raises ``ConfigError`` if the import fails."""
        if self.own is not None:
            return self.own
        if not self.is_own:
            return resolve_name(f"ltr.metrics.{METRICS[self.name]}:{self.name}")
        try:
            function = resolve_name(self.name)
        except Exception as error:  # a module may raise anything
            raise ConfigError(
                f"metric {self.name} cannot be imported ({_one_line(error)}): put the folder of "
                f"the module on PYTHONPATH, or choose one of {', '.join(METRICS)}"
            ) from error
        if not callable(function):
            raise ConfigError(f"metric {self.name} is not a function: write <module>.<function>")
        return function

    @property
    def parts(self) -> tuple[str, ...]:
        """The attributes of ``Convention`` that the function takes as parameters."""
        return tuple(name for name in _known_parameters(self.function) if name != "k")

    def __call__(
        self, scores: Scores, labels: Labels, mask: Mask, convention: Convention = Convention()
    ) -> PerList:
        """Return the value of each list, ``[batch]``.

        Args:
            scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
            convention: all choices, except the cutoff, on which the value depends.

        Raises:
            ConfigError: the user's function fails, or does not return one value per list.
        """
        function = self.function
        # Every name but ``k`` is an attribute of the convention.
        arguments = {
            name: getattr(convention, name, self.k) for name in _known_parameters(function)
        }
        if not self.is_own:
            return function(scores, labels, mask, **arguments)
        if self.k is not None and "k" not in arguments:
            raise ConfigError(
                f"{self} has a cutoff, but its function has no parameter k: write {self.name}, or "
                "add the parameter"
            )
        try:
            values = function(scores, labels, mask, **arguments)
        except LTRError:
            raise
        except Exception as error:
            raise ConfigError(f"{self} fails ({_one_line(error)}): fix the function") from error
        from ltr.metrics.per_list import check_values, of_own_metric  # imports torch

        check_values(values, mask, whose=str(self))
        return of_own_metric(values, scores, labels, mask)


def parse_metric(
    text: str, own: Mapping[str, Callable[..., PerList]] = MappingProxyType({})
) -> Metric:
    """Parse the name of a metric, such as ``"ndcg@5"`` or ``"ndcg"``.

    Args:
        text: ``NAME`` or ``NAME@K``.
        own: the functions of the user's own metrics, by name.

    Returns:
        The metric; its ``str`` is ``text``.

    Raises:
        ConfigError: the name is unknown or the cutoff is not an integer >= 1.

    >>> parse_metric("ndcg@5"), parse_metric("my_metrics.hits").name
    (Metric(name='ndcg', k=5), 'my_metrics.hits')
    """
    match = _NAME_AT_K.fullmatch(text)
    if match is None:
        raise _not_a_metric(text)
    k = int(match["k"]) if match["k"] else None
    return Metric(match["name"], k, own.get(match["name"]))


@functools.cache
def _known_parameters(function: Callable[..., PerList]) -> tuple[str, ...]:
    """Return the unbound parameters of a function that are ``k`` or attributes of a convention."""
    bound = set(getattr(function, "keywords", ()))
    names = {"k", *(key.name for key in fields(Convention))} - bound
    return tuple(name for name in inspect.signature(function).parameters if name in names)


def _one_line(error: Exception) -> str:
    """Return the type and the message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _not_a_metric(text: str) -> ConfigError:
    """Return the error for a ``text`` that does not name a metric."""
    return ConfigError(
        f"'{text}' is not a metric: write <name> or <name>@<k> with k >= 1, where <name> is one of "
        f"{', '.join(METRICS)}, the name of a file in your own configs/metric, or your own "
        "<module>.<function>"
    )
