"""How a metric is written: ``ndcg@10``, or ``ndcg`` for the whole list. No torch here."""

import re
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ltr.errors import ConfigError
from ltr.metrics.checks import check_k
from ltr.metrics.convention import Convention

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
    "mean_ndcg": ("ltr.metrics.other_gains:mean_ndcg", ("empty", "gain", "discount", "ties")),
    "ndcg_beta": ("ltr.metrics.other_gains:ndcg_beta", ("empty", "ties")),
    "map": ("ltr.metrics.relevant_ranks:map", ("empty", "relevant", "map_over", "ties")),
    "mrr": ("ltr.metrics.relevant_ranks:mrr", ("empty", "relevant", "ties")),
    "precision": ("ltr.metrics.relevant_items:precision", ("empty", "relevant", "ties")),
    "recall": ("ltr.metrics.relevant_items:recall", ("empty", "relevant", "ties")),
    "err": ("ltr.metrics.cascade:err", ("empty", "levels", "ties")),
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
        convention: Convention = Convention(),  # noqa: B008  (frozen)
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
