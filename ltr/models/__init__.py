"""Scoring models: ``forward(features, mask, ranks=None) -> scores``, 0 where mask is False.

Each model takes ``width``, the number of features of an item, and settings as keyword arguments. It
raises ``ConfigError`` if a setting is out of range. The name of an activation is a key of
``ltr.models.layers.ACTIVATIONS``. Weight matrices are initialised from Xavier's uniform
distribution. Features of padding are never read.

A model may also have these attributes:

- ``pointwise``: True if the score of an item depends on that item alone. A model without this
  attribute may read the whole list.
- ``member_scores``: a method with the arguments of ``forward``, for a model that averages the
  scores of several networks, its members. It returns the scores of each member, ``[members, batch,
  list]``, and training minimises the mean of the members' losses.
- ``batch_statistics``: True if the lists of a batch affect each other in training, through batch
  norm.
"""

from ltr.models.dasalc import DASALC
from ltr.models.mlp import MLP, Linear
from ltr.models.tabm import TabM
from ltr.models.transformer import ContextAwareTransformer

__all__ = ["DASALC", "MLP", "ContextAwareTransformer", "Linear", "TabM"]
