"""RankSVM: the pairwise hinge loss."""

from ltr.losses.batch import without_padding
from ltr.losses.pairs import label_weight, sum_over_pairs
from ltr.typing import Labels, Mask, PerList, Scores


def ranksvm_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    squared: bool = False,
    pair_weight: str | None = None,
) -> PerList:
    """RankSVM of each list, ``[batch]``, >= 0.

    Sum over the pairs y_i > y_j of w_ij max(0, 1 - (s_i - s_j)), or of its square (Joachims, 2002;
    Chapelle and Keerthi, 2010). With ``ndcg_beta``, w_ij = (y_i - y_j) / DCG_beta makes it
    RankSVMndcg, an upper bound of 1 - NDCG_beta (the RankNet report, eq. 18 to 20; its K is the
    number of lists, by which the reduction divides). With a linear model and the trainer's ``l2``
    or ``l1`` it is the support vector machine. A list without pairs, such as an empty one, gives 0
    without gradient.

    Args:
        scores: ``[batch, list]``, higher is better; the margin is 1 in their units.
        squared: the squared hinge.
        pair_weight: None, every pair counts 1, or ``"ndcg_beta"``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 2.0, 0.5]]), torch.tensor([[2.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> ranksvm_loss(scores, labels, mask)  # (1 + 2) + (1 + 0.5)
    tensor([4.5000])
    >>> ranksvm_loss(scores, labels, mask, squared=True)  # (1 + 2)**2 + (1 + 0.5)**2
    tensor([11.2500])
    >>> ranksvm_loss(scores, labels, mask, pair_weight="ndcg_beta")  # each pair 2 / (2 (3 - 1))
    tensor([2.2500])
    """
    scores, labels = without_padding(scores, labels, mask)
    weight = label_weight(labels, mask, pair_weight)
    return sum_over_pairs(
        scores, labels, mask, weight, cost="squared_hinge" if squared else "hinge"
    )
