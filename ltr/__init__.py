"""Learning to rank in PyTorch: losses, metrics, models, and reproducible training runs.

``ltr.Ranker`` is an estimator with scikit-learn's interface. ``ltr.auto`` trains several kinds of
rankers on a DataFrame, and keeps the best. ``ltr.losses``, ``ltr.metrics``, ``ltr.relaxations`` and
``ltr.models`` can be used in your own code. Each of these names is imported when it is first used:

>>> import torch, ltr
>>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[0.0, 1.0]])
>>> mask = torch.tensor([[True, True]])  # True where an item exists
>>> ltr.losses.listnet_loss(scores, labels, mask).shape  # one value per list
torch.Size([1])
>>> ltr.metrics.ndcg(scores, labels, mask, k=1)
tensor([0.])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ltr import losses, metrics, models, relaxations
    from ltr.lab.auto.frame import auto
    from ltr.ranker import Ranker

__version__ = "0.2.0"

__all__ = ["Ranker", "auto", "losses", "metrics", "models", "relaxations"]


def __getattr__(name: str) -> Any:
    """Import a name of ``__all__`` when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "Ranker":
        return import_module("ltr.ranker").Ranker
    if name == "auto":  # the one place where the core imports the lab
        return import_module("ltr.lab.auto.frame").auto
    return import_module(f"ltr.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
