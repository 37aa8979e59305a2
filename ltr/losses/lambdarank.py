"""LambdaRank: the pairwise logistic loss, each pair weighted by what its swap changes in NDCG."""

from ltr.losses.batch import without_padding
from ltr.losses.pairs import PairWeight, normalised_gains, sum_over_pairs
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import rank_of_item
from ltr.typing import Labels, Mask, PerList, Scores


def lambdarank_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    sigma: float = 1.0,
    pairs: str = "any",
) -> PerList:
    """LambdaRank of each list, ``[batch]``, >= 0.

    Sum over the pairs y_i > y_j of |delta NDCG@k|_ij log(1 + exp(-sigma (s_i - s_j))), with
    |delta NDCG@k|_ij = |g_i - g_j| |d(r_i) - d(r_j)| / maxDCG@k the change of NDCG@k when i and j
    swap places at the current ranks r; g = 2^y - 1, d(r) = 1/log2(1 + r) and 0 beyond k. The
    weights are constants: the gradient is the sum of the lambdas (Burges et al., 2006, and the
    overview of 2010, section 4.1). Ranks of ties follow the order of the items. The logarithm is
    natural. A list without pairs, such as an empty one, gives 0 without gradient.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        pairs: ``"any"`` or ``"both"``, which pairs count at a cutoff; see ``ranknet_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> lambdarank_loss(scores, labels, mask, k=1)  # |1 - 0| * log(1 + exp(2)), one pair
    tensor([2.1269])
    >>> lambdarank_loss(scores, labels, mask, k=1, pairs="both")  # no pair
    tensor([0.])
    """
    scores, labels = without_padding(scores, labels, mask)
    gain = normalised_gains(labels, mask, k=k)
    discount = discounts(mask.shape[-1], scores, k=k)[rank_of_item(scores, mask) - 1]
    weight = PairWeight(gain=gain, discount=discount, factors=(0.0, 1.0, 0.0))
    return sum_over_pairs(scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs)
