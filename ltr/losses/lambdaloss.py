"""LambdaLoss: the pairwise logistic loss with the weights that bound NDCG."""

from ltr.knobs import check_choice, check_positive
from ltr.losses.batch import without_padding
from ltr.losses.pairs import PairWeight, normalised_gains, sum_over_pairs
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import rank_of_item
from ltr.typing import Labels, Mask, PerList, Scores


def lambda_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    variant: str = "ndcg2++",
    k: int | None = None,
    sigma: float = 1.0,
    mu: float = 10.0,
    pairs: str = "any",
) -> PerList:
    """LambdaLoss of each list, ``[batch]``, >= 0.

    Sum over pairs of w_ij log(1 + exp(-sigma (s_i - s_j))) at the current ranks r, with
    G = (2^y - 1) / maxDCG@k and d(r) = 1/log2(1 + r) (Wang et al., 2018, sections 4 and 5):

    - ``ndcg1``: w_ij = G_i d(r_i), over all i != j whatever their labels (NDCG-Loss1, eq. 12). Over
      log 2 it bounds the paper's cost, sum of G_i - sum of G_i d(r_i), as 1/d(r) - 1 <= r - 1 and
      each of the r - 1 items above i costs at least log 2. The paper's i = j, NDCG itself times
      log 2, has no gradient and is left out.
    - ``ndcg2``: w_ij = delta_ij |G_i - G_j|, over the pairs y_i > y_j, with delta_ij =
      |d(|r_i - r_j|) - d(|r_i - r_j| + 1)|.
    - ``ndcg2++``: w_ij = (rho_ij + mu delta_ij) |G_i - G_j|, over the same pairs, with rho_ij =
      |d(r_i) - d(r_j)|: mu = 0 would be LambdaRank.

    The weights are constants, the logarithm is natural (base 2 in the paper) and ranks of ties
    follow the order of the items. An empty list gives 0 without gradient, under ``ndcg2`` and
    ``ndcg2++`` any list without pairs. The paper has no cutoff: here the pairs and maxDCG are those
    of the top k and the discounts are not cut; an item below the top k is paired only with those in
    it that have lower labels, in ``ndcg1`` too.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        mu: > 0, weight of delta in ``ndcg2++`` (10 in the paper).
        pairs: ``"any"`` or ``"both"``, which pairs count at a cutoff; see ``ranknet_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> lambda_loss(scores, labels, mask, variant="ndcg1")  # log(1 + e) / log2(1 + 2)
    tensor([0.8286])
    >>> alike = torch.tensor([[1.0, 1.0]])  # sum G 1.2263 - NDCG 1 = 0.2263, times log 2 is 0.1569
    >>> lambda_loss(scores, alike, mask, variant="ndcg1")
    tensor([0.7001])
    >>> lambda_loss(scores, labels, mask, mu=1.0)  # 2 (1 - 1 / log2(1 + 2)) log(1 + e)
    tensor([0.9694])
    """
    check_choice("variant", variant, ["ndcg1", "ndcg2", "ndcg2++"])
    check_positive("mu", mu)
    scores, labels = without_padding(scores, labels, mask)
    gain, ranks = normalised_gains(labels, mask, k=k), rank_of_item(scores, mask)
    of_rank = discounts(mask.shape[-1] + 1, scores)
    discount, steps = of_rank[ranks - 1], of_rank[:-1] - of_rank[1:]
    if variant == "ndcg1":
        weight = PairWeight(own=gain * discount)
    else:
        factors = (0.0, float(variant == "ndcg2++"), float(mu) if variant == "ndcg2++" else 1.0)
        weight = PairWeight(None, gain, discount, ranks, steps, factors)
    ordered = variant != "ndcg1"
    return sum_over_pairs(
        scores, labels, mask, weight, sigma=sigma, k=k, pairs=pairs, ordered=ordered
    )
