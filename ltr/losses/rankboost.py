"""RankBoost: the pairwise exponential loss."""

from ltr.losses.batch import without_padding
from ltr.losses.fused import kernels_apply, sum_over_pairs
from ltr.losses.pairs import differences, pair_factors, pair_weights
from ltr.relaxations.second_derivatives import twice
from ltr.typing import Labels, Mask, PerList, Scores

LINEAR_FROM = 30.0  # exp(30) = 1e13; float32 ends at exp(88)


@twice
def rankboost_loss(
    scores: Scores, labels: Labels, mask: Mask, *, pair_weight: str | None = None
) -> PerList:
    """RankBoost of each list, ``[batch]``, >= 0.

    Sum over the pairs y_i > y_j of w_ij exp(-(s_i - s_j)) (Freund et al., 2003, section 3, by
    gradient descent instead of boosting). With ``ndcg_beta``, w_ij = (y_i - y_j) / DCG_beta makes
    it RankBoostndcg, an upper bound of 1 - NDCG_beta (the RankNet report, eq. 18 and 19; its K is
    the number of lists, by which the reduction divides). Where s_j - s_i > 30 the exponential goes
    on as its tangent, so that float32 and bfloat16 stay finite; the gradient of float16 scores does
    so up to s_j - s_i = 11. A list without pairs, such as an empty one, gives 0 without gradient.

    Args:
        pair_weight: None, every pair counts 1, or ``"ndcg_beta"``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[2.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> rankboost_loss(scores, labels, mask)  # exp(2) + exp(0)
    tensor([8.3891])
    >>> rankboost_loss(scores, labels, mask, pair_weight="ndcg_beta")  # each pair 2 / (2 (3 - 1))
    tensor([4.1945])
    """
    scores, labels = without_padding(scores, labels, mask)
    if kernels_apply(scores):
        return sum_over_pairs(
            scores, labels, mask, cost="exponential", linear_from=LINEAR_FROM,
            **pair_factors(labels, mask, pair_weight),
        )  # fmt: skip
    weights = pair_weights(labels, mask, pair_weight)
    wrong_by = -differences(scores).masked_fill(weights == 0, 0)  # their costs may be infinite
    costs = wrong_by.clamp(max=LINEAR_FROM).exp() * (1 + (wrong_by - LINEAR_FROM).clamp(min=0))
    return (weights * costs).sum((-2, -1))
