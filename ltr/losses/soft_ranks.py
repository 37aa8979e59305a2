"""NDCG with soft ranks (ApproxNDCG, LapNDCG, SoDeep-NDCG) or distributions of ranks (SoftNDCG).

Each loss returns minus NDCG@k with soft ranks, ``[batch]``, between about -1 (best) and 0. A list
without a relevant item (of gain > 0) gives 0 without gradient. ``k`` is a cutoff rank >= 1, None
for the whole list. ``gain`` is that of the metric: g(y) = 2^y - 1 (``"exp2"``), y (``"linear"``),
or a table of the gains of the grades 0, 1, 2 and so on.

ApproxNDCG, LapNDCG and SoDeep-NDCG differ in the soft ranks r_j of the items j. The value of each
is minus the sum over j of

    g_j t(r_j) / log2(1 + r_j) / maxDCG@k

where g are the gains. Without k, t = 1. With k, t(r) = sigmoid(cut_slope (k + 1/2 - r)) is a smooth
cutoff.

``temperature`` (``sigma`` of SoftNDCG) is > 0, in units of the scores. As it goes to 0, items with
different scores get their exact ranks. Then SoftNDCG goes to minus the exact NDCG@k, and so do
ApproxNDCG and LapNDCG without k. With k, their ``cut_slope`` must grow too: at 10, an item at rank
k keeps the share sigmoid(5) = 0.993 of its gain. SoDeep-NDCG has no temperature.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.kernels.dispatch import Work, list_sizes, value_op, vector_op, with_kernel
from ltr.knobs import Gain, check_choice, check_k, check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg, negative_ratio
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score, ranks_like
from ltr.relaxations import learned_ranks, rank_distribution, sinkhorn
from ltr.typing import Labels, Mask, PerList, Scores


def _ranks_by_loops(scores: Scores, mask: Mask, temperature: float, *, laplace: bool) -> Work:
    costs = list_sizes(mask) * 64 if laplace else list_sizes(mask) ** 2
    knobs = [float(temperature), laplace]
    return vector_op("ranks:soft_rank_lists", mask, knobs, costs=costs, fill=1)


def approx_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 1.0,
    cut_slope: float = 10.0,
) -> PerList:
    """Return minus ApproxNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    The value is NDCG@k with the soft ranks
    r_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature) and the cutoff
    t(r) = sigmoid(cut_slope (k + 1/2 - r)) (Qin, Liu and Li, 2010, sections 4.1 and 4.2; in the
    paper alpha = 1 / temperature and beta = cut_slope). The paper centres the cutoff at k instead
    of k + 1/2; then the value would not go to the exact NDCG@k, however large cut_slope is.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.
        temperature: > 0, in units of the scores; smaller is closer to NDCG.
        cut_slope: > 0, steepness of the cutoff t, in units of 1 / rank; not used without ``k``.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> approx_ndcg_loss(scores, labels, labels >= 0, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    """
    temperature = check_positive("temperature", temperature)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _sigmoid_ranks(scores, mask, temperature)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


@with_kernel(partial(_ranks_by_loops, laplace=False))
def _sigmoid_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """Return the soft rank of each item, ``[batch, list]``; undefined on padding."""
    above = ((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature).sigmoid()
    # the item itself adds sigmoid(0) = 1/2
    return 0.5 + above.masked_fill(~mask.unsqueeze(-2), 0).sum(-1)


def lap_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 1.0,
    cut_slope: float = 10.0,
) -> PerList:
    """Return minus LapNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    The soft ranks are r_j = 1 + sum over i != j of Phi((s_i - s_j) / temperature), with Phi(x) =
    1/2 e^x for x <= 0 and 1 - 1/2 e^-x for x > 0. They are a Lap-Sum of Struski et al. (2025,
    "LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k Selection"), who
    train classifiers with it. A list takes only the time of one sort.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.
        temperature: > 0, in units of the scores; smaller is closer to NDCG.
        cut_slope: > 0, steepness of the cutoff t(r) = sigmoid(cut_slope (k + 1/2 - r)), in units of
            1 / rank; not used without ``k``.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> lap_ndcg_loss(scores, labels, labels >= 0, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    """
    temperature = check_positive("temperature", temperature)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _laplace_ranks(scores, mask, temperature)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


@with_kernel(partial(_ranks_by_loops, laplace=True))
def _laplace_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """Return the soft rank of each item, ``[batch, list]``; undefined on padding."""
    order = order_by_score(scores.detach(), mask)
    ranked = scores.gather(-1, order)
    gaps = (ranked[:, 1:] - ranked[:, :-1]) / temperature
    near = gaps.masked_fill(~mask.gather(-1, order)[:, 1:], -torch.inf).exp()
    near = pad(near, (1, 0))[:, : mask.shape[-1]]  # also right for length 0
    in_front = _running(near)
    behind = _running(_later(near.flip(-1), 1)).flip(-1)
    ranks = ranks_like(ranked) + (behind - in_front) / 2
    return torch.zeros_like(scores).scatter(-1, order, ranks)


def _running(ratios: Tensor) -> Tensor:
    """Return x with x_i = ratio_i (1 + x_(i - 1)) along the last dimension, in log n steps."""
    sums, step = ratios, 1
    while step < ratios.shape[-1]:
        sums = sums + ratios * _later(sums, step)
        ratios = ratios * _later(ratios, step)
        step *= 2
    return sums


def _later(values: Tensor, step: int) -> Tensor:
    """Shift ``values`` by ``step`` places to the right, with 0 before them."""
    return pad(values, (step, 0))[..., : values.shape[-1]]


def sodeep_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    cut_slope: float = 10.0,
    sorter: str | None = None,
) -> PerList:
    """Return minus NDCG@k of each list with learned soft ranks, ``[batch]``, about -1 (best) to 0.

    The soft ranks are those of ``learned_ranks``, a network that was taught to sort (Engilberge et
    al., 2019, section 3, who use it for other metrics). Neither the unit nor a shift of the scores
    matters. There is no temperature with which the value goes to the exact NDCG@k.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.
        cut_slope: > 0, steepness of the cutoff t(r) = sigmoid(cut_slope (k + 1/2 - r)), in units of
            1 / rank; not used without ``k``.
        sorter: a file written by ``examples/teach_sorter.py``; None: the network in this package.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> sodeep_loss(scores, labels, labels >= 0).round(decimals=1)  # -(3/2 + 1) / (3 + 1 / log2(3))
    tensor([-0.7000])
    """
    scores, labels = without_padding(scores, labels, mask)
    ranks = learned_ranks(scores, mask, sorter=sorter)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


def _negative_ndcg_at(
    ranks: Scores, of_item: Labels, mask: Mask, k: int | None, cut_slope: float
) -> PerList:
    """Return minus NDCG@k at soft ``ranks``.

    On padding, ``ranks`` must be >= 0 and the gains ``of_item`` 0.
    """
    cut_slope = check_positive("cut_slope", cut_slope)
    k = check_k(k)
    found = of_item / (1 + ranks).log2()
    if k is not None:
        found = found * (cut_slope * (k + 0.5 - ranks)).sigmoid()
    return negative_ndcg(found.sum(-1), of_item, mask, k=k)


def soft_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    sigma: float = 1.0,
    k: int | None = None,
    gain: Gain = "exp2",
    discount: str = "log2",
    normalise: bool = False,
) -> PerList:
    """Return minus SoftNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    SoftNDCG@k = sum over items j of g_j times the sum over ranks r <= k of d(r) p_j(r) / maxDCG@k.
    p_j is the Rank-Binomial distribution of the rank of item j if scores are Gaussian (Taylor et
    al., 2008, section 4; Lee, 2022, eq. 2.7), and g are the gains (2^y in the slides of Taylor et
    al., 2008). A list without a relevant item gives 0 without gradient.

    Without ``normalise``, the loops of the CPU, which a GPU uses too, take n m min(n, k) time for a
    list of n items, m of them relevant, and memory for n min(n, k) / 15 numbers per thread.
    Otherwise it takes n^3 time.

    Args:
        sigma: > 0, standard deviation of every score, in units of the scores; as it goes to 0, the
            value goes to minus the exact NDCG@k.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.
        discount: d, which maxDCG uses too: ``"log2"`` is 1/log2(1 + r). The slides of Taylor et al.
            (2008) also study two flatter discounts: ``"sqrt_log2"``, the square root of this, and
            ``"linear"``, 1 - (r - 1)/n.
        normalise: first scale rows and columns to sum to one with ``sinkhorn`` (the improvement
            proposed in the same slides).

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> soft_ndcg_loss(scores, labels, labels >= 0, sigma=1e9, discount="linear")  # -(1 + 1/2) / 2
    tensor([-0.7500])
    """
    check_choice("discount", discount, ["log2", "sqrt_log2", "linear"])
    scores, labels = without_padding(scores, labels, mask)
    sigma = check_positive("sigma", sigma)
    k = check_k(k)
    of_rank = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    if discount == "sqrt_log2":
        of_rank = of_rank.sqrt()
    elif discount == "linear":
        linear = 1 - (ranks_like(of_rank) - 1) / mask.sum(-1, keepdim=True).clamp(min=1)
        of_rank = linear.clamp(min=0).masked_fill(of_rank == 0, 0)
    of_item = gains(labels, mask, gain=gain)
    if normalise:
        soft = sinkhorn(rank_distribution(scores, mask, sigma=sigma), mask)
        found = (of_item * (soft * of_rank.unsqueeze(-1)).sum(-2)).sum(-1)
    else:
        found = _expected_dcg(scores, of_item, of_rank, mask, sigma, k)
    return negative_ratio(found, (of_item.sort(-1, descending=True).values * of_rank).sum(-1))


def _by_loops(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, sigma: float, k: int | None
) -> Work:
    sizes, k = list_sizes(mask), k or mask.shape[-1]
    costs = sizes**2 * np.minimum(sizes, k)
    knobs = [float(sigma), k]
    return value_op("ranks:expected_dcg_lists", [mask, gain, of_rank], knobs, costs)


@with_kernel(_by_loops, copied=True)
def _expected_dcg(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, sigma: float, k: int | None
) -> PerList:
    """Return the sum over items j of g_j times the sum over ranks r of d(r) p_j(r), ``[batch]``."""
    soft = rank_distribution(scores, mask, sigma=sigma)
    return (gain * (soft * of_rank.unsqueeze(-1)).sum(-2)).sum(-1)
