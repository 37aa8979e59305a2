"""Type aliases for tensors with their shapes. Tests check them; in production they cost nothing.

Every loss and every metric is ``(scores, labels, mask, *, knobs) -> one value per list``.
``scores`` are the model's output, higher is better; ``labels`` are graded relevance, 0 = not
relevant; ``mask`` is True where an item exists. Values where ``mask`` is False are never read and
may be anything, NaN included.
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

Loss = Callable[..., Tensor]  # with its knobs bound or not
