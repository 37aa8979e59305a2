"""Scoring models: ``forward(features, mask, ranks=None) -> scores``, 0 where mask is False.

Each takes ``width``, the number of features of an item, and settings by name; a setting that is out
of range raises ``ConfigError``. Activations are names of ``ltr.models.layers``. Weight matrices
start from Xavier's uniform distribution. Padded features are never read. ``pointwise`` is True
where the score of an item depends on that item alone; a model that does not say so may read the
whole list. A model that averages several members may have ``member_scores``, with the arguments of
``forward``, for their scores ``[members, batch, list]``: training takes the mean of their losses.
``batch_statistics`` is True where the lists of a batch see each other in training, by batch norm.
"""

from ltr.models.dasalc import DASALC
from ltr.models.mlp import MLP, Linear
from ltr.models.tabm import TabM
from ltr.models.transformer import ContextAwareTransformer

__all__ = ["DASALC", "MLP", "ContextAwareTransformer", "Linear", "TabM"]
