"""ApproxNDCG: NDCG with each rank counted by sigmoids."""

from functools import partial

from ltr.kernels.dispatch import rank_op, with_kernel
from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg
from ltr.metrics.cumulative_gain import gains
from ltr.typing import Labels, Mask, PerList, Scores


def approx_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    cut_slope: float = 10.0,
) -> PerList:
    """Minus ApproxNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    ApproxNDCG@k = sum over items j of g_j t(r_j) / log2(1 + r_j) / maxDCG@k, g = 2^y - 1, with the
    approximated rank r_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature) and the
    approximated truncation t(r) = sigmoid(cut_slope (k + 1/2 - r)), 1 without k (Qin, Liu and Li,
    2010, sections 4.1 and 4.2; their alpha = 1 / temperature, beta = cut_slope). The paper cuts at
    k; cutting half a rank later lets the value go to the exact NDCG@k as the temperature goes to 0
    and the slope grows. A list without a relevant item gives 0 without gradient.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; smaller is closer to NDCG.
        cut_slope: > 0, steepness of the truncation, in units of 1 / rank; not used without ``k``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> approx_ndcg_loss(scores, labels, mask, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    >>> approx_ndcg_loss(scores, labels, mask, temperature=1e9)  # -1 / log2(1 + 1.5)
    tensor([-0.7565])
    """
    check_positive("temperature", temperature)
    check_positive("cut_slope", cut_slope)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _approximate_ranks(scores, mask, temperature)
    return negative_ndcg_at(ranks, labels, mask, k=k, cut_slope=cut_slope)


@with_kernel(partial(rank_op, laplace=False))
def _approximate_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r of each item, ``[batch, list]``; not defined on padding."""
    above = ((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature).sigmoid()
    # the item itself adds sigmoid(0) = 1/2
    return 0.5 + above.masked_fill(~mask.unsqueeze(-2), 0).sum(-1)


def negative_ndcg_at(
    ranks: Scores, labels: Labels, mask: Mask, *, k: int | None, cut_slope: float
) -> PerList:
    """Minus NDCG@k of each list, ``[batch]``, whose items stand at soft ``ranks``.

    ``ranks`` are ``[batch, list]``, those of padding >= 0; ``labels`` are 0 on padding.
    """
    found = gains(labels, mask) / (1 + ranks).log2()
    if k is not None:
        found = found * (cut_slope * (k + 0.5 - ranks)).sigmoid()
    return negative_ndcg(found.sum(-1), labels, mask, k=k)
