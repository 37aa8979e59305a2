"""NDCG with soft ranks (ApproxNDCG, LapNDCG, SoDeep-NDCG) or distributions of ranks (SoftNDCG).

For a list without a relevant item (an item with a gain above 0), the value and its gradient are 0.
ApproxNDCG, LapNDCG and SoDeep-NDCG differ only in the soft ranks r_j of the items j.

As ``temperature`` (``sigma`` in SoftNDCG) goes to 0, items with different scores get their exact
ranks, and SoftNDCG goes to minus the exact NDCG@k. ApproxNDCG and LapNDCG do the same if there is
no cutoff k. If there is one, their ``cut_slope`` must grow too: at ``cut_slope=10``, an item at
rank k keeps only the fraction sigmoid(5) = 0.993 of its gain. SoDeep-NDCG has no temperature.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.kernels.dispatch import (
    accelerated,
    accelerated_by_item,
    item_values,
    list_sizes,
    on_cpu_or_copied,
    value_and_grad,
)
from ltr.kernels.operators import item_operator, list_operator
from ltr.knobs import Gain, check_choice, check_k, check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg, negative_ratio
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score, ranks_like
from ltr.relaxations import learned_ranks, rank_distribution, sinkhorn
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


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
    r"""Return minus ApproxNDCG@k of each list.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_j \frac{g_j \, t(r_j)}{\log_2(1 + r_j)}, \qquad
        r_j = 1 + \sum_{i \ne j} \operatorname{sigmoid}
        \left(\frac{s_i - s_j}{\mathrm{temperature}}\right)

    where g are the gains. If k is None, t = 1; otherwise t(r) = sigmoid(cut_slope (k + 1/2 - r)) is
    a smooth cutoff.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to NDCG.
        cut_slope: > 0, steepness of the cutoff t, in units of 1 / rank; not used if ``k`` is None.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Qin, Liu and Li (2010), sections 4.1 and 4.2, with alpha = 1 / temperature and beta =
    cut_slope. The paper centres the cutoff at k instead of k + 1/2; then the value does not go to
    the exact NDCG@k, however large cut_slope is.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> approx_ndcg_loss(scores, labels, labels >= 0, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    """
    temperature = check_positive("temperature", temperature)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _sigmoid_ranks(scores, mask, temperature)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


@item_operator("sigmoid_ranks")
def _sigmoid_ranks_by_loop(
    scores: Tensor, weights: Tensor | None, mask: Tensor, temperature: float
) -> Tensor:
    """Return the ranks or, given ``weights``, the gradient of the sum of weights times ranks."""
    from ltr.kernels.ranks import soft_rank_lists

    knobs = [float(temperature), False]
    costs = list_sizes(mask) ** 2
    return item_values(soft_rank_lists, scores, weights, mask, knobs, costs, fill=1)


@accelerated_by_item(_sigmoid_ranks_by_loop)
def _sigmoid_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """Return the soft rank of each item, ``[batch, list]``; undefined on padding."""
    above = ((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature).sigmoid()
    # The item itself adds sigmoid(0) = 1/2.
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
    r"""Return minus LapNDCG@k of each list.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_j \frac{g_j \, t(r_j)}{\log_2(1 + r_j)}, \qquad
        r_j = 1 + \sum_{i \ne j} \Phi\left(\frac{s_i - s_j}{\mathrm{temperature}}\right)

    where g are the gains. If k is None, t = 1; otherwise t(r) = sigmoid(cut_slope (k + 1/2 - r)) is
    a smooth cutoff. Phi(x) is 1/2 e^x for x <= 0 and 1 - 1/2 e^-x for x > 0. The loss takes
    about as long as one sort of each list.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to NDCG.
        cut_slope: > 0, steepness of the cutoff t, in units of 1 / rank; not used if ``k`` is None.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: the soft ranks are a LapSum, from Struski et al. (2025, "LapSum - One Method to
    Differentiate Them All: Ranking, Sorting and Top-k Selection"). The paper uses it
    to train classifiers.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> lap_ndcg_loss(scores, labels, labels >= 0, temperature=0.1)  # -1 / log2(1 + 2)
    tensor([-0.6309])
    """
    temperature = check_positive("temperature", temperature)
    scores, labels = without_padding(scores, labels, mask)
    ranks = _laplace_ranks(scores, mask, temperature)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


@item_operator("laplace_ranks")
def _laplace_ranks_by_loop(
    scores: Tensor, weights: Tensor | None, mask: Tensor, temperature: float
) -> Tensor:
    """Return the ranks or, given ``weights``, the gradient of the sum of weights times ranks."""
    from ltr.kernels.ranks import soft_rank_lists

    knobs = [float(temperature), True]
    costs = list_sizes(mask) * 64
    return item_values(soft_rank_lists, scores, weights, mask, knobs, costs, fill=1)


@accelerated_by_item(_laplace_ranks_by_loop)
def _laplace_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """Return the soft rank of each item, ``[batch, list]``; undefined on padding."""
    order = order_by_score(scores.detach(), mask)
    ranked = scores.gather(-1, order)
    gaps = (ranked[:, 1:] - ranked[:, :-1]) / temperature
    near = gaps.masked_fill(~mask.gather(-1, order)[:, 1:], -torch.inf).exp()
    near = pad(near, (1, 0))[:, : mask.shape[-1]]  # also right for length 0
    above = _running(near)
    below = _running(_shift(near.flip(-1), 1)).flip(-1)
    ranks = ranks_like(ranked) + (below - above) / 2
    return torch.zeros_like(scores).scatter(-1, order, ranks)


def _running(ratios: Tensor) -> Tensor:
    """Return x with x_i = ratio_i (1 + x_(i - 1)) along the last dimension, in log n steps."""
    sums = ratios
    step = 1
    while step < ratios.shape[-1]:
        sums = sums + ratios * _shift(sums, step)
        ratios = ratios * _shift(ratios, step)
        step *= 2
    return sums


def _shift(values: Tensor, step: int) -> Tensor:
    """Return ``values`` shifted by ``step`` to the right, with 0 before them."""
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
    r"""Return minus NDCG@k of each list with learned soft ranks.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_j \frac{g_j \, t(r_j)}{\log_2(1 + r_j)}

    where r = learned_ranks(s), and g are the gains. If k is None, t = 1; otherwise t(r) =
    sigmoid(cut_slope (k + 1/2 - r)) is a smooth cutoff. ``learned_ranks`` uses a network that was
    trained to sort. Scaling or shifting the scores does not change the value. There is no
    temperature, so the value cannot be brought arbitrarily close to minus the exact NDCG@k.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        cut_slope: > 0, steepness of the cutoff t, in units of 1 / rank; not used if ``k`` is None.
        sorter: a file written by ``examples/teach_sorter.py``; None: the network in this package.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid, or the file cannot be read.

    Source: Engilberge et al. (2019), section 3. The paper uses learned ranks for other metrics.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> sodeep_loss(scores, labels, labels >= 0).round(decimals=1)  # -(3/2 + 1) / (3 + 1 / log2(3))
    tensor([-0.7000])
    """
    scores, labels = without_padding(scores, labels, mask)
    ranks = learned_ranks(scores, mask, sorter=sorter)
    return _negative_ndcg_at(ranks, gains(labels, mask, gain=gain), mask, k, cut_slope)


def _negative_ndcg_at(
    ranks: Scores, item_gains: Labels, mask: Mask, k: int | None, cut_slope: float
) -> PerList:
    """Return minus NDCG@k, ``[batch]``, of items at soft ``ranks``.

    On padding, ``ranks`` must be >= 0 and ``item_gains`` 0.
    """
    cut_slope = check_positive("cut_slope", cut_slope)
    k = check_k(k)
    discounted = item_gains / (1 + ranks).log2()
    if k is not None:
        discounted = discounted * (cut_slope * (k + 0.5 - ranks)).sigmoid()
    return negative_ndcg(discounted.sum(-1), item_gains, mask, k=k)


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
    r"""Return minus SoftNDCG@k of each list.

    .. math::
        \mathrm{SoftNDCG}@k = \frac{1}{\mathrm{maxDCG}@k}
        \sum_j g_j \sum_{r \le k} d(r) \, p_j(r)

    where g are the gains, and p_j is the Rank-Binomial distribution of the rank of item j under
    Gaussian scores.

    Let a list have n items, m of them relevant. Without ``normalise``, a compiled loop on the CPU
    is used, even for tensors on a GPU. It takes O(n m min(n, k)) time, and each thread needs memory
    for n min(n, k) / 15 numbers. If the loop cannot be used, the loss takes O(n^3) time.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        sigma: > 0, standard deviation of every score, in units of the scores; as it goes to 0, the
            value goes to minus the exact NDCG@k.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        discount: the discount d, also used in maxDCG. ``"log2"`` is 1/log2(1 + r). The slides of
            Taylor et al. (2008) also study two flatter discounts: ``"sqrt_log2"`` is the square
            root of this, and ``"linear"`` is 1 - (r - 1)/n.
        normalise: first scale the distributions with ``sinkhorn`` to make rows and columns sum to
            one. The same slides propose this as an improvement.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Taylor et al. (2008), section 4; their slides use the gain 2^y. Lee (2022), eq. 2.7.

    >>> scores, labels = torch.tensor([[0.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    >>> soft_ndcg_loss(scores, labels, labels >= 0, sigma=1e9, discount="linear")  # -(1 + 1/2) / 2
    tensor([-0.7500])
    """
    check_choice("discount", discount, ["log2", "sqrt_log2", "linear"])
    scores, labels = without_padding(scores, labels, mask)
    sigma = check_positive("sigma", sigma)
    k = check_k(k)
    rank_discounts = _soft_ndcg_discounts(scores, mask, k, discount)
    item_gains = gains(labels, mask, gain=gain)
    if normalise:
        soft = sinkhorn(rank_distribution(scores, mask, sigma=sigma), mask)
        dcg = _dcg_of_distribution(soft, item_gains, rank_discounts)
    else:
        dcg = _expected_dcg(scores, item_gains, rank_discounts, mask, sigma, k)
    ideal = (item_gains.sort(-1, descending=True).values * rank_discounts).sum(-1)
    return negative_ratio(dcg, ideal)


def _soft_ndcg_discounts(scores: Scores, mask: Mask, k: int | None, discount: str) -> Scores:
    """Return the discount of each rank, ``[batch, rank]``, 0 beyond ``k``."""
    rank_discounts = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    if discount == "sqrt_log2":
        return rank_discounts.sqrt()
    if discount == "linear":
        sizes = mask.sum(-1, keepdim=True).clamp(min=1)
        linear = 1 - (ranks_like(rank_discounts) - 1) / sizes
        return linear.clamp(min=0).masked_fill(rank_discounts == 0, 0)
    return rank_discounts


@list_operator("expected_dcg")
def _expected_dcg_by_loop(
    scores: Tensor,
    need_grad: bool,
    item_gains: Tensor,
    rank_discounts: Tensor,
    mask: Tensor,
    sigma: float,
    k: int | None,
) -> tuple[Tensor, Tensor]:
    """Return the values of ``_expected_dcg`` and their gradient."""
    from ltr.kernels.ranks import expected_dcg_lists

    sizes = list_sizes(mask)
    k = k or mask.shape[-1]
    costs = sizes**2 * np.minimum(sizes, k)
    arrays = [mask, item_gains, rank_discounts]
    knobs = [float(sigma), k]
    return value_and_grad(expected_dcg_lists, scores, arrays, knobs, costs, need_grad=need_grad)


@accelerated(_expected_dcg_by_loop, applies=on_cpu_or_copied)
def _expected_dcg(
    scores: Scores,
    item_gains: Scores,
    rank_discounts: Scores,
    mask: Mask,
    sigma: float,
    k: int | None,
) -> PerList:
    """Return the expected DCG, ``[batch]``, under the distributions of the ranks."""
    soft = rank_distribution(scores, mask, sigma=sigma)
    return _dcg_of_distribution(soft, item_gains, rank_discounts)


def _dcg_of_distribution(soft: Matrix, item_gains: Scores, rank_discounts: Scores) -> PerList:
    """Return the sum over items j of g_j times the sum over ranks r of d(r) p_j(r), ``[batch]``."""
    return (item_gains * (soft * rank_discounts.unsqueeze(-1)).sum(-2)).sum(-1)
