"""Exact ranking metrics: pure functions of ``(scores, labels, mask)`` that return a value per list.

``scores`` (higher is better), ``labels`` (relevance grades; 0 means not relevant) and ``mask``
(True where an item exists) are ``[batch, list]``; numbers on padding are never read. The values,
``[batch]``, are float64 if the scores or the labels are float64, otherwise float32.

``k`` is a cutoff rank >= 1, None for the whole list. The other keyword arguments are attributes of
``Convention``, with the same meaning and defaults. A value that is unknown or out of range raises
``ConfigError``.

If a real item of a list has the score NaN, or a label that is NaN or below 0, the value of the list
is NaN. There is no error, because a check would have to wait for the GPU. The result of
``mean_over_lists`` is then NaN too, even if it leaves out empty lists.

An item with the score -inf was not retrieved: it has no rank, but its label counts in the ideal
order and in the number of relevant items.

Names that need torch are imported when they are first used. So ``parse_metric`` and ``Convention``
can check a config without torch.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ltr.metrics.spec import METRICS, Convention, Metric, parse_metric

if TYPE_CHECKING:
    from ltr.metrics.cumulative_gain import dcg, mean_ndcg, ndcg, ndcg_beta
    from ltr.metrics.per_list import mean_over_lists
    from ltr.metrics.relevance import err, map, mrr, precision, recall

__all__ = [
    "Convention",
    "Metric",
    "dcg",
    "err",
    "map",
    "mean_ndcg",
    "mean_over_lists",
    "mrr",
    "ndcg",
    "ndcg_beta",
    "parse_metric",
    "precision",
    "recall",
]

_WITH_TORCH = {"mean_over_lists": "per_list"} | METRICS  # name -> module


def __getattr__(name: str) -> Any:
    """Import the module behind a name of ``_WITH_TORCH`` (PEP 562)."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_WITH_TORCH[name]}:{name}")
