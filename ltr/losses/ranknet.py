"""RankNet: the pairwise logistic loss, every pair with the same weight."""

import torch

from ltr.losses.batch import without_padding
from ltr.losses.pairs import PairWeight, sum_over_pairs
from ltr.typing import Labels, Mask, PerList, Scores


def ranknet_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    sigma: float = 1.0,
    pairs: str = "any",
) -> PerList:
    """RankNet of each list, ``[batch]``, >= 0.

    Sum over the pairs y_i > y_j of log(1 + exp(-sigma (s_i - s_j))): the cross entropy of the
    modelled probability 1 / (1 + exp(-sigma (s_i - s_j))) that i stands above j against 1 (Burges
    et al., 2005, eq. 3; the RankNet note, whose slope alpha is sigma). Natural logarithm, summed,
    not divided by the number of pairs. A list without pairs, such as an empty one, gives 0 without
    gradient. Pairs of equal labels, which the paper gives a target of 1/2, do not count.

    Args:
        k: cutoff rank >= 1, None for all pairs. Ranks of ties follow the order of the items.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        pairs: which pairs count at a cutoff: ``"any"``, at least one item in the current top k, or
            ``"both"``, both, as in the NeuralNDCG paper. Only pairs across the cutoff can lift a
            relevant item into the top k, hence the default.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> ranknet_loss(scores, labels, mask)  # log(1 + exp(2)) + log(1 + exp(1))
    tensor([3.4402])
    >>> ranknet_loss(scores, labels, mask, k=1)  # log(1 + exp(2))
    tensor([2.1269])
    """
    scores, labels = without_padding(scores, labels, mask)
    weight = PairWeight(own=torch.ones_like(scores))
    return sum_over_pairs(scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs)
