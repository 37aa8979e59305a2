"""A loss of one's own: logistic loss of pairs, each weighted by the difference of its gains."""

from torch import Tensor
from torch.nn.functional import softplus

from ltr.losses.batch import without_padding


def gain_pairs_loss(scores: Tensor, labels: Tensor, mask: Tensor, *, base: float = 2.0) -> Tensor:
    """The mean over pairs of (base^y_i - base^y_j) log(1 + e^-(s_i - s_j)) where y_i > y_j.

    Args:
        scores, labels: ``[batch, list]``.
        mask: ``[batch, list]``, True where an item exists.
        base: of the gain.

    Returns:
        One value per list, ``[batch]``; 0 for a list without such a pair.
    """
    scores, labels = without_padding(scores, labels, mask)
    gains = base**labels
    difference = (gains[:, :, None] - gains[:, None, :]).clamp(min=0)
    difference = difference.masked_fill(~(mask[:, :, None] & mask[:, None, :]), 0)
    losses = difference * softplus(scores[:, None, :] - scores[:, :, None])
    return losses.sum((1, 2)) / difference.count_nonzero((1, 2)).clamp(min=1)
