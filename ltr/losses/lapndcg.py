"""LapNDCG: NDCG with each rank counted by a Laplace kernel, in the time of one sort."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.kernels.dispatch import rank_op, with_kernel
from ltr.knobs import check_positive
from ltr.losses.approxndcg import negative_ndcg_at
from ltr.losses.batch import without_padding
from ltr.metrics.ordering import order_by_score, ranks_like
from ltr.typing import Labels, Mask, PerList, Scores


def lap_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    cut_slope: float = 10.0,
) -> PerList:
    """Minus LapNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    LapNDCG@k = sum over items j of g_j t(r_j) / log2(1 + r_j) / maxDCG@k, g = 2^y - 1, with the
    soft rank r_j = 1 + sum over i != j of Phi((s_i - s_j) / temperature), where Phi(x) is 1/2 e^x
    up to 0 and 1 - 1/2 e^-x from there on: the distribution function of the Laplace distribution.
    Such a sum is the Lap-Sum of Struski et al. (2025, "LapSum - One Method to Differentiate Them
    All: Ranking, Sorting and Top-k Selection"), who train classifiers by it. NDCG of these ranks is
    built here as ``approx_ndcg_loss`` is, t(r) its truncation. It goes to the exact NDCG@k as the
    temperature goes to 0. A list without a relevant item gives 0 without gradient. A list of n
    items takes n log n time, for one sort, and memory in proportion to n.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; smaller is closer to NDCG.
        cut_slope: > 0, steepness of the truncation, in units of 1 / rank; not used without ``k``.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> lap_ndcg_loss(scores, labels, mask, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    >>> lap_ndcg_loss(scores, labels, mask, temperature=1e9)  # -1 / log2(1 + 1.5)
    tensor([-0.7565])
    """
    check_positive("temperature", temperature)
    check_positive("cut_slope", cut_slope)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _laplace_ranks(scores, mask, temperature)
    return negative_ndcg_at(ranks, labels, mask, k=k, cut_slope=cut_slope)


@with_kernel(partial(rank_op, laplace=True))
def _laplace_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r of each item, ``[batch, list]``; not defined on padding."""
    order = order_by_score(scores.detach(), mask)
    ranked = scores.gather(-1, order)
    gaps = (ranked[:, 1:] - ranked[:, :-1]) / temperature
    near = gaps.masked_fill(~mask.gather(-1, order)[:, 1:], -torch.inf).exp()
    near = pad(near, (1, 0))[:, : mask.shape[-1]]  # no place: no ratio either
    in_front = _running(near)
    behind = _running(_later(near.flip(-1), 1)).flip(-1)
    ranks = ranks_like(ranked) + (behind - in_front) / 2
    return torch.zeros_like(scores).scatter(-1, order, ranks)


def _running(ratios: Tensor) -> Tensor:
    """x_i = ratio_i (1 + x_(i - 1)) along the last dimension, in log n steps of whole tensors."""
    sums, step = ratios, 1
    while step < ratios.shape[-1]:
        sums = sums + ratios * _later(sums, step)
        ratios = ratios * _later(ratios, step)
        step *= 2
    return sums


def _later(values: Tensor, step: int) -> Tensor:
    """``values`` moved ``step`` places to the right, 0 before them."""
    return pad(values, (step, 0))[..., : values.shape[-1]]
