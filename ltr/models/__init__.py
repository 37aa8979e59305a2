"""Scoring models: ``forward(features, mask, ranks=None) -> scores``, 0 where mask is False.

Each takes ``width``, the number of features of an item, first, and its settings after it. Padded
features are never read.
"""

from ltr.models.mlp import MLP, Linear
from ltr.models.transformer import ContextAwareTransformer

__all__ = ["MLP", "ContextAwareTransformer", "Linear"]
