"""SoftNDCG: the NDCG expected under SoftRank's rank distribution."""

import numpy as np
from torch import Tensor

from ltr.kernels.dispatch import list_sizes, value_op, with_kernel
from ltr.knobs import check_choice, check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ratio
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import ranks_like
from ltr.relaxations import rank_distribution, sinkhorn
from ltr.typing import Labels, Mask, PerList, Scores


def soft_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    sigma: float = 1.0,
    k: int | None = None,
    discount: str = "log2",
    normalise: bool = False,
) -> PerList:
    """Minus SoftNDCG@k of each list, ``[batch]``, from -1 (best) to 0.

    SoftNDCG@k = sum over items j of g_j sum over ranks r <= k of d(r) p_j(r) / maxDCG@k, p_j the
    Rank-Binomial distribution of the rank of an item whose score is Gaussian (Taylor et al., 2008,
    section 4; the SoftNDCG review, eq. 2.7), g = 2^y - 1 (2^y in the slides). It goes to the exact
    NDCG@k as sigma goes to 0. A list without a relevant item gives 0 without gradient.

    On the CPU, without ``normalise``, a list of n items of which m are relevant takes time
    n m min(n, k) and memory of n min(n, k) numbers for each thread; else n^3 time.

    Args:
        sigma: > 0, standard deviation of every score, in units of the scores.
        k: cutoff rank >= 1, None for the whole list.
        discount: d, in maxDCG too: ``log2`` is 1/log2(1 + r); shallower, as in the slides' study,
            are ``sqrt_log2``, its square root, and ``linear``, 1 - (r - 1)/n.
        normalise: scale rows and columns to one first by ``sinkhorn`` (the slides' improvement).

    >>> import torch
    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> soft_ndcg_loss(scores, labels, mask, sigma=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    >>> soft_ndcg_loss(scores, labels, mask, sigma=1e9, discount="linear")  # -(1 + 1/2) / 2
    tensor([-0.7500])
    """
    check_choice("discount", discount, ["log2", "sqrt_log2", "linear"])
    scores, labels = without_padding(scores, labels, mask)
    check_positive("sigma", sigma)
    of_rank = _discounts(mask, scores, k=k, discount=discount)
    gain = gains(labels, mask)
    if normalise:
        soft = sinkhorn(rank_distribution(scores, mask, sigma=sigma), mask)
        found = (gain * (soft * of_rank.unsqueeze(-1)).sum(-2)).sum(-1)
    else:
        found = _expected_dcg(scores, gain, of_rank, mask, sigma, k)
    return negative_ratio(found, (gain.sort(-1, descending=True).values * of_rank).sum(-1))


def _by_loops(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, sigma: float, k: int | None
) -> PerList:
    sizes, k = list_sizes(mask), k or mask.shape[-1]
    costs = sizes**2 * np.minimum(sizes, k)
    loop = "ranks:expected_dcg_lists"
    return value_op(loop, scores, [mask, gain, of_rank], [float(sigma), k], costs)


@with_kernel(_by_loops)
def _expected_dcg(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, sigma: float, k: int | None
) -> PerList:
    """Sum over items j of g_j sum over ranks r of d(r) p_j(r), ``[batch]``."""
    soft = rank_distribution(scores, mask, sigma=sigma)
    return (gain * (soft * of_rank.unsqueeze(-1)).sum(-2)).sum(-1)


def _discounts(mask: Mask, like: Tensor, *, k: int | None, discount: str) -> Tensor:
    """d of the ranks of each list, 0 beyond k, ``[batch, rank]``."""
    of_rank = discounts(mask.shape[-1], like, k=k).expand(mask.shape)
    if discount == "log2":
        return of_rank
    if discount == "sqrt_log2":
        return of_rank.sqrt()
    linear = 1 - (ranks_like(of_rank) - 1) / mask.sum(-1, keepdim=True).clamp(min=1)
    return linear.clamp(min=0).masked_fill(of_rank == 0, 0)
