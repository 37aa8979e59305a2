"""How a metric is written, ``ndcg@10``, and the convention of its figure. No torch here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ltr.errors import ConfigError
from ltr.metrics.checks import (
    check_choice,
    check_empty,
    check_gain,
    check_k,
    check_levels,
    check_positive,
)

GAINS = {"exp2": "2^y-1", "linear": "y"}
DISCOUNTS = {
    "log2": "1/log2(1+rank)",
    "letor": "1 at ranks 1 and 2, then 1/log2(rank)",
}
TIES = {"file": "ties in file order", "averaged": "ties averaged over their orders"}
SHORT = {"scored": "short lists scored", "zero": "ndcg@k of fewer than k items = 0"}
MAP_OVER = {
    "relevant": "map@k over all relevant items",
    "reachable": "map@k over at most k relevant items",
}


@dataclass(frozen=True)
class Convention:
    """The conventions of the metrics; every printed or stored figure names them.

    Attributes:
        empty: what a list without a relevant item counts, from 0 to 1, or ``"skip"``: the mean
            leaves it out. Without one are, for map, mrr, precision and recall, a list with no label
            from ``relevant`` on; for the other metrics one with no label above 0.
        gain: ``"exp2"`` (2^y - 1, the industry's DCG), ``"linear"`` (y, the traditional DCG), or a
            table: the gains of the grades 0, 1, 2, ....
        discount: ``"log2"`` (1/log2(1+rank)) or ``"letor"`` (the LETOR script: 1 at ranks 1 and 2,
            1/log2(rank) from rank 3 on).
        ties: ``"file"``: items with equal scores keep the file's order; ``"averaged"``: the
            expected value over all orders of them.
        short: NDCG@k of a list of fewer than k items: ``"scored"`` as any other, or ``"zero"``.
        relevant: the smallest label that map, mrr, precision and recall count as relevant.
        map_over: what map@k divides by: ``"relevant"``, all relevant items, or ``"reachable"``, at
            most k of them.
        levels: number of grades of the data, 5 for the labels 0 to 4; err depends on it.

    Raises:
        ConfigError: a value is not one of these.

    >>> print(Convention(empty=0, gain=[0, 1, 3]).describe())
    empty list = 0 (no label > 0; map, mrr, precision, recall: none relevant), gains [0, 1, 3], \
discount 1/log2(1+rank), ties in file order, short lists scored, relevant from label 1, map@k over \
all relevant items, 5 grades
    """

    empty: float | int | str = 1.0
    gain: str | Sequence[float | int] = "exp2"
    discount: str = "log2"
    ties: str = "file"
    short: str = "scored"
    relevant: float | int = 1
    map_over: str = "relevant"
    levels: int = 5

    def __post_init__(self) -> None:
        """Check the values."""
        check_empty(self.empty)
        check_gain(self.gain, list(GAINS))
        check_choice("discount", self.discount, list(DISCOUNTS))
        check_choice("ties", self.ties, list(TIES))
        check_choice("short", self.short, list(SHORT))
        check_positive("relevant", self.relevant)
        check_choice("map_over", self.map_over, list(MAP_OVER))
        check_levels(self.levels)
        if not isinstance(self.gain, str):  # a list could be changed, and cannot be hashed
            object.__setattr__(self, "gain", tuple(self.gain))

    def describe(self) -> str:
        """All of it in one line, to stand beside a figure."""
        if isinstance(self.gain, str):
            gain = f"gain {GAINS[self.gain]}"
        else:
            gain = f"gains [{', '.join(f'{value:g}' for value in self.gain)}]"
        counts = "empty lists left out" if self.empty == "skip" else f"empty list = {self.empty:g}"
        parts = [
            f"{counts} (no label > 0; map, mrr, precision, recall: none relevant)",
            gain,
            f"discount {DISCOUNTS[self.discount]}",
            TIES[self.ties],
            SHORT[self.short],
            f"relevant from label {self.relevant:.9g}",
            MAP_OVER[self.map_over],
            f"{self.levels} grades",
        ]
        return ", ".join(parts)


if TYPE_CHECKING:
    from ltr.typing import Labels, Mask, PerList, Scores
else:  # ltr.typing imports torch
    Labels = Mask = PerList = Scores = Any

# name: (where its function is, the parts of a convention that the function takes)
METRICS = {
    "dcg": ("ltr.metrics.cumulative_gain:dcg", ("gain", "discount", "ties")),
    "ndcg": (
        "ltr.metrics.cumulative_gain:ndcg",
        ("empty", "gain", "discount", "ties", "short"),
    ),
    "mean_ndcg": ("ltr.metrics.cumulative_gain:mean_ndcg", ("empty", "gain", "discount", "ties")),
    "ndcg_beta": ("ltr.metrics.cumulative_gain:ndcg_beta", ("empty", "ties")),
    "map": ("ltr.metrics.relevance:map", ("empty", "relevant", "map_over", "ties")),
    "mrr": ("ltr.metrics.relevance:mrr", ("empty", "relevant", "ties")),
    "precision": ("ltr.metrics.relevance:precision", ("empty", "relevant", "ties")),
    "recall": ("ltr.metrics.relevance:recall", ("empty", "relevant", "ties")),
    "err": ("ltr.metrics.relevance:err", ("empty", "levels", "ties")),
}

_FORM = re.compile(r"(?P<name>[a-z_]+)(?:@(?P<k>[1-9][0-9]*))?")


@dataclass(frozen=True)
class Metric:
    """A metric at a cutoff; calling it gives one value per list.

    Attributes:
        name: one of ``METRICS``.
        k: cutoff rank >= 1, None for the whole list.

    Raises:
        ConfigError: the name or the cutoff is not one of these.
    """

    name: str
    k: int | None = None

    def __post_init__(self) -> None:
        """Check the name and the cutoff."""
        if self.name not in METRICS:
            raise _not_a_metric(self.name)
        check_k(self.k)

    def __str__(self) -> str:
        """As it is written in configs, logs and tables."""
        return self.name if self.k is None else f"{self.name}@{self.k}"

    def __call__(
        self,
        scores: Scores,
        labels: Labels,
        mask: Mask,
        convention: Convention = Convention(),
    ) -> PerList:
        """The value of each list, ``[batch]``; see the function of the same name."""
        where, parts = METRICS[self.name]
        knobs = {part: getattr(convention, part) for part in parts}
        return resolve_name(where)(scores, labels, mask, k=self.k, **knobs)


def parse_metric(text: str) -> Metric:
    """Read ``"ndcg@5"`` or ``"ndcg"``; ``str`` of the result gives the text back.

    Raises:
        ConfigError: the name is unknown or the cutoff is not an integer >= 1.

    >>> parse_metric("ndcg@5")
    Metric(name='ndcg', k=5)
    >>> str(parse_metric("dcg"))
    'dcg'
    """
    form = _FORM.fullmatch(text)
    if form is None or form["name"] not in METRICS:
        raise _not_a_metric(text)
    return Metric(form["name"], int(form["k"]) if form["k"] else None)


def _not_a_metric(text: str) -> ConfigError:
    return ConfigError(
        f"'{text}' is not a metric: write <name> or <name>@<k> with k >= 1, "
        f"name one of {', '.join(METRICS)}"
    )
