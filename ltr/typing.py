"""Type aliases for tensors with their shapes; only tests check these shapes.

Every loss and every metric takes ``(scores, labels, mask, *, knobs)`` and returns one value per
list. ``scores`` are the output of the model; higher is better. ``labels`` are graded relevance; 0
is not relevant. ``mask`` is True where an item exists. Values where ``mask`` is False are never
read; they may be anything, NaN included. Knobs are the settings, such as the cutoff ``k``.
"""

from collections.abc import Callable

from jaxtyping import Bool, Float, Int
from torch import Tensor

Features = Float[Tensor, "batch list feature"]
Scores = Float[Tensor, "batch list"]
SampledScores = Float[Tensor, "sample batch list"]
Labels = Float[Tensor, "batch list"]
Mask = Bool[Tensor, "batch list"]
Ranks = Int[Tensor, "batch list"]
PerList = Float[Tensor, "batch"]
PerListMask = Bool[Tensor, "batch"]
Matrix = Float[Tensor, "batch rank item"]
Carried = Float[Tensor, "batch list channel"]

Loss = Callable[..., Tensor]  # whether its knobs are bound or not
