"""RankBoost: the pairwise exponential loss."""

from ltr.losses.batch import without_padding
from ltr.losses.pairs import label_weight, sum_over_pairs
from ltr.typing import Labels, Mask, PerList, Scores


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
    weight = label_weight(labels, mask, pair_weight)
    return sum_over_pairs(scores, labels, mask, weight, cost="exponential")
