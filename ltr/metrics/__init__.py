"""Exact ranking metrics: pure functions of ``(scores, labels, mask)``, one value per list.

The names that need torch are looked up when they are first used, so that a config can be checked
(``parse_metric``, ``Convention``) before torch is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltr.metrics.convention import Convention
from ltr.metrics.spec import Metric, parse_metric

if TYPE_CHECKING:
    from ltr.metrics.cumulative_gain import dcg, ndcg
    from ltr.metrics.mean import mean_over_lists

__all__ = ["Convention", "Metric", "dcg", "mean_over_lists", "ndcg", "parse_metric"]

_WITH_TORCH = {
    "dcg": "ltr.metrics.cumulative_gain",
    "ndcg": "ltr.metrics.cumulative_gain",
    "mean_over_lists": "ltr.metrics.mean",
}


def __getattr__(name: str) -> Any:
    """Import the module behind a name of ``_WITH_TORCH`` (PEP 562)."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)
