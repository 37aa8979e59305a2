"""The weighted pairwise logistic loss that RankNet and LambdaRank are made of."""

from torch import Tensor
from torch.nn.functional import logsigmoid

from ltr.losses.inputs import without_padding
from ltr.metrics.checks import check_positive
from ltr.typing import Labels, Mask, PerList, Scores


def pairwise_logistic(
    scores: Scores, labels: Labels, mask: Mask, weights: Tensor, *, sigma: float = 1.0
) -> PerList:
    """Sum over the pairs y_i > y_j of w_ij log(1 + exp(-sigma (s_i - s_j))), ``[batch]``.

    Natural logarithm, exact at any difference of scores. The sum is not divided by the number of
    pairs. A list without pairs gives 0 without gradient (Burges et al., 2005; C of the RankNet
    note with alpha = sigma).

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance.
        mask: ``[batch, list]``, True where an item exists.
        weights: ``[batch, list, list]``, finite, w_ij of item i over item j; those of other pairs
            are not used.
        sigma: > 0, slope of the logistic, in units of 1 / score.

    Raises:
        ConfigError: ``sigma`` is not above 0.
    """
    check_positive("sigma", sigma)
    scores, labels = without_padding(scores, labels, mask)
    pairs = labels.unsqueeze(-1) > labels.unsqueeze(-2)
    pairs &= mask.unsqueeze(-1) & mask.unsqueeze(-2)
    costs = -logsigmoid(sigma * (scores.unsqueeze(-1) - scores.unsqueeze(-2)))
    return (weights.masked_fill(~pairs, 0) * costs).sum((-2, -1))
