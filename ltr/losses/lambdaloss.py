"""LambdaLoss: the pairwise logistic loss with the weights that bound NDCG."""

from torch import Tensor

from ltr.losses.batch import without_padding
from ltr.losses.fused import kernels_apply, sum_over_pairs
from ltr.losses.pairs import (
    all_pairs,
    normalised_gains,
    ordered_pairs,
    pairs_at_cutoff,
    pairwise_logistic,
)
from ltr.metrics.checks import check_choice, check_positive
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import rank_of_item
from ltr.typing import Labels, Mask, PerList, Scores

FACTORS = {
    "ndcg1": lambda mu: (0.0, 0.0, 0.0),
    "ndcg2": lambda mu: (0.0, 0.0, 1.0),
    "ndcg2++": lambda mu: (0.0, 1.0, float(mu)),
}


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

    - ``ndcg1``: w_ij = G_i d(r_i), over all i != j whatever their labels (NDCG-Loss1, eq. 12).
      Divided by log 2 it bounds the paper's cost, sum of G_i - sum of G_i d(r_i): 1/d(r) - 1 <=
      r - 1, and each of the r - 1 items above i costs at least log 2. Over y_i > y_j alone it does
      not. The paper's i = j, NDCG itself times log 2, has no gradient and is left out.
    - ``ndcg2``: w_ij = delta_ij |G_i - G_j|, over the pairs y_i > y_j as all that follow, with
      delta_ij = |d(|r_i - r_j|) - d(|r_i - r_j| + 1)|.
    - ``ndcg2++``: w_ij = (rho_ij + mu delta_ij) |G_i - G_j|, rho_ij = |d(r_i) - d(r_j)|: mu = 0
      would be LambdaRank.

    The weights are constants and the logarithm is natural (base 2 in the paper, a factor). An empty
    list gives 0 without gradient, under ``ndcg2`` and ``ndcg2++`` any list without pairs. The paper
    has no cutoff: here the pairs and maxDCG are those of the top k and the discounts are not cut;
    an item below the top k is set against those in it with lower labels only, in ``ndcg1`` too.

    Args:
        scores: ``[batch, list]``, higher is better. Ranks of ties follow the order of the items.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        variant: one of the three above.
        k: cutoff rank >= 1, None for the whole list.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        mu: > 0, weight of delta in ``ndcg2++`` (10 in the paper).
        pairs: ``"any"`` or ``"both"``, which pairs count at a cutoff; see ``lambdarank_loss``.

    Raises:
        ConfigError: a knob is out of range.

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
    gain = normalised_gains(labels, mask, k=k)
    ranks = rank_of_item(scores, mask)
    discount = discounts(mask.shape[-1] + 1, scores)
    of_item = discount[ranks - 1]
    if kernels_apply(scores):
        first = variant == "ndcg1"
        return sum_over_pairs(
            scores, labels, mask, cost="logistic", sigma=sigma,
            own=gain * of_item if first else None, gain=gain, discount=of_item,
            steps=discount[:-1] - discount[1:], factors=FACTORS[variant](mu), ranks=ranks, k=k,
            pairs=pairs, ordered=not first,
        )  # fmt: skip
    if variant == "ndcg1":
        weights = (gain * of_item).unsqueeze(-1).expand(-1, -1, mask.shape[-1])
    else:
        distances = (ranks.unsqueeze(-1) - ranks.unsqueeze(-2)).abs()
        weights = _step(discount, distances)
        if variant == "ndcg2++":
            weights = (of_item.unsqueeze(-1) - of_item.unsqueeze(-2)).abs() + mu * weights
        weights = weights * (gain.unsqueeze(-1) - gain.unsqueeze(-2)).abs()
    weights = weights * pairs_at_cutoff(scores, mask, k=k, pairs=pairs)
    summed = ordered_pairs(labels, mask)
    if variant == "ndcg1":
        summed = summed | (all_pairs(mask) & (ranks <= (k or mask.shape[-1])).unsqueeze(-1))
    return pairwise_logistic(scores, labels, mask, weights, sigma=sigma, pairs=summed)


def _step(discount: Tensor, distances: Tensor) -> Tensor:
    """|d(m) - d(m + 1)| at each distance m; an item's distance to itself, 0, belongs to no pair."""
    steps = discount[:-1] - discount[1:]
    return steps[(distances - 1).clamp(min=0)]
