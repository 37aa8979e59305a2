"""Scoring models: ``forward(features, mask, ranks=None) -> scores``, 0 where mask is False.

Each takes ``width``, the number of features of an item, and settings by name; a setting that is out
of range raises ``ConfigError``. Activations are names of ``ltr.models.layers``. Weight matrices
start from Xavier's uniform distribution. Padded features are never read. ``pointwise`` is True
where the score of an item depends on that item alone; a model that does not say so may read the
whole list.
"""

from ltr.models.mlp import MLP, Linear
from ltr.models.transformer import ContextAwareTransformer

__all__ = ["MLP", "ContextAwareTransformer", "Linear"]
