"""Gains and discounts, DCG, NDCG, and two variants of NDCG."""

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import Gain, check_choice, check_gain, check_k
from ltr.metrics.ordering import at_ranks, ranks_like, real_ranks, running_sums
from ltr.metrics.per_list import BROKEN, broken_lists, nan_below_0, promoted_labels, settle
from ltr.metrics.spec import DISCOUNTS, GAINS, SHORT
from ltr.typing import Labels, Mask, PerList, Scores


def gains(labels: Labels, mask: Mask, *, gain: Gain = "exp2") -> Labels:
    """Return the gain of each item.

    A label that is below 0, or that has no entry in a table of gains, has the gain NaN. There is no
    error, because a check would have to wait for the GPU.

    Args:
        labels: y, ``[batch, list]``, graded relevance >= 0.
        mask: ``[batch, list]``, True where an item exists.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table whose entry ``gain[y]`` is the gain
            of the grade y.

    Returns:
        The gains, ``[batch, list]``, 0 on padding.

    Raises:
        ConfigError: ``gain`` is unknown.
    """
    gain = check_gain(gain, list(GAINS))
    labels = nan_below_0(labels.masked_fill(~mask, 0))
    if isinstance(gain, str):
        return labels.exp2() - 1 if gain == "exp2" else labels
    item_gains = torch.full_like(labels, torch.nan)
    for grade, value in enumerate(gain):
        item_gains = item_gains.masked_fill(labels == grade, value)
    return item_gains.masked_fill(~mask, 0)


def checked_gains(scores: Scores, labels: Labels, mask: Mask, *, gain: Gain) -> Labels:
    """Check the tensors, and return the gains in the dtype of the metric, ``[batch, list]``.

    If ``gain`` is a table, the check of the labels waits for the GPU.

    Raises:
        ConfigError: a tensor is invalid, ``gain`` is unknown, or its table lacks a label.
    """
    gain = check_gain(gain, list(GAINS))
    item_gains = gains(promoted_labels(scores, labels, mask), mask, gain=gain)
    if not isinstance(gain, str) and bool(item_gains.isnan().any()):
        raise ConfigError(
            f"gain={list(gain)} covers the grades 0 to {len(gain) - 1}, but the data have other "
            "labels: write a gain for each grade"
        )
    return item_gains


def ideal_dcg(gain: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Return maxDCG@k, ``[batch]``: the DCG@k of items with these gains in the best order."""
    return (at_ranks(gain, gain, mask) * discounts(gain.shape[-1], gain, k=k)).sum(-1)


def discounts(size: int, like: Tensor, *, k: int | None = None, discount: str = "log2") -> Tensor:
    """Return the discounts of the ranks 1 to ``size``.

    Args:
        size: the number of ranks.
        like: a tensor with the dtype and the device of the result.
        k: cutoff rank >= 1, None for no cutoff.
        discount: ``"log2"`` is 1/log2(1 + rank); ``"letor"`` is 1 at ranks 1 and 2, and
            1/log2(rank) from rank 3 on.

    Returns:
        The discounts, ``[size]``, 0 beyond rank ``k``.

    Raises:
        ConfigError: ``discount`` is unknown, or ``k`` is not an integer >= 1.
    """
    check_choice("discount", discount, list(DISCOUNTS))
    ranks = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    values = 1 / (ranks + 1 if discount == "log2" else ranks.clamp(min=2)).log2()
    return cut(values, k)


def cut(values: Tensor, k: int | None) -> Tensor:
    """Return ``values``, ``[..., rank]``, with 0 beyond rank ``k``; unchanged if ``k`` is None."""
    k = check_k(k)
    return values if k is None else values.masked_fill(ranks_like(values) > k, 0)


def dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    discount: str = "log2",
    ties: str = "file",
) -> PerList:
    r"""Return the discounted cumulative gain of each list.

    .. math::
        \mathrm{DCG}@k = \sum_{r \le k} g(y_r) \, d(r)

    where g is the gain, d the discount, and y_r the label at rank r in descending order of score.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        gain, discount, ties: as in ``Convention``.

    Returns:
        DCG@k of each list, ``[batch]``, >= 0; 0 for a list without items.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid, or a table of gains lacks a label.

    Source: Järvelin and Kekäläinen (2002); Pobrotyn and Bialobrzeski (2021), eq. 1.

    >>> scores, labels = torch.tensor([[0.2, 0.1, 0.9]]), torch.tensor([[3.0, 1.0, 2.0]])
    >>> dcg(scores, labels, labels > 1, discount="letor").tolist()  # 2**2 - 1 + 2**3 - 1
    [10.0]
    """
    item_gains = checked_gains(scores, labels, mask, gain=gain)
    rank_gains = at_ranks(item_gains, scores, mask, ties=ties)
    rank_discounts = discounts(scores.shape[-1], rank_gains, k=k, discount=discount)
    value = (rank_gains * rank_discounts).sum(-1)
    return value.masked_fill(broken_lists(scores, labels, mask), BROKEN)


def ndcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    gain: Gain = "exp2",
    discount: str = "log2",
    ties: str = "file",
    short: str = "scored",
) -> PerList:
    r"""Return the normalised discounted cumulative gain of each list.

    .. math::
        \mathrm{NDCG}@k = \frac{\mathrm{DCG}@k}{\mathrm{maxDCG}@k}

    where maxDCG@k is the DCG@k of the items in descending order of label.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a gain above 0, from 0 to 1, or ``"skip"`` for NaN.
        gain, discount, ties: as in ``Convention``.
        short: with ``"zero"``, a list of fewer than k items gives 0, unless it has no gain above 0
            (see ``empty``); ``"scored"`` treats it like any other list.

    Returns:
        NDCG@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid, or a table of gains lacks a label.

    Source: Järvelin and Kekäläinen (2002); Pobrotyn and Bialobrzeski (2021), eq. 2.

    >>> scores, labels = torch.tensor([[0.9, 0.2]]), torch.tensor([[1.0, 2.0]])
    >>> ndcg(scores, labels, labels > 0, k=1)  # (2**1 - 1) / (2**2 - 1)
    tensor([0.3333])
    """
    check_choice("short", short, list(SHORT))
    k = check_k(k)
    item_gains = checked_gains(scores, labels, mask, gain=gain)
    rank_discounts = discounts(scores.shape[-1], item_gains, k=k, discount=discount)
    list_dcg = (at_ranks(item_gains, scores, mask, ties=ties) * rank_discounts).sum(-1)
    ideal = (at_ranks(item_gains, labels, mask) * rank_discounts).sum(-1)
    value = list_dcg / ideal
    if short == "zero" and k is not None:
        value = value.masked_fill(mask.sum(-1) < k, 0)
    return settle(value, scores, mask, labels=labels, without=ideal <= 0, empty=empty)


def ndcg_beta(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    ties: str = "file",
) -> PerList:
    r"""Return the NDCG of each list with a discount that is linear in the rank.

    .. math::
        \mathrm{DCG}_\beta@k = \sum_{r \le k} y_r (n - r), \qquad
        \mathrm{NDCG}_\beta@k = \frac{\mathrm{DCG}_\beta@k}{\mathrm{maxDCG}_\beta@k}

    where n is the number of items of the list, y_r the label at rank r, and maxDCG the DCG of the
    items in descending order of label. The last rank has the weight 0, so a list whose only
    relevant item is ranked last gives 0. A list of one item gives 1 if the item is relevant.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a label above 0, from 0 to 1, or ``"skip"`` for NaN.
        ties: as in ``Convention``.

    Returns:
        NDCG_beta@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Jin et al. (2018); Team Macrohard (n.d.), eq. 12, where k = n.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> ndcg_beta(scores, labels, labels >= 0)  # (1 * 1 + 2 * 0) / (2 * 2 + 1 * 1)
    tensor([0.2000])
    """
    gain = promoted_labels(scores, labels, mask).masked_fill(~mask, 0)
    weights = cut((mask.sum(-1, keepdim=True) - ranks_like(gain)).clamp(min=0), k)
    list_dcg = (at_ranks(gain, scores, mask, ties=ties) * weights).sum(-1)
    ideal = (at_ranks(gain, labels, mask) * weights).sum(-1)
    value = (list_dcg / ideal).masked_fill(ideal <= 0, 1)
    return settle(value, scores, mask, labels=labels, without=(gain <= 0).all(-1), empty=empty)


def mean_ndcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    gain: Gain = "exp2",
    discount: str = "log2",
    ties: str = "file",
) -> PerList:
    r"""Return the mean of NDCG@1, NDCG@2, ..., NDCG@n of each list, where n is its number of items.

    .. math::
        \mathrm{MeanNDCG}@k = \frac{1}{\min(k, n)} \sum_{c = 1}^{\min(k, n)} \mathrm{NDCG}@c

    If the c items with the highest labels all have the gain 0, as a table of gains allows, NDCG@c
    is 0/0 and counts as 0.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: the largest cutoff in the mean, >= 1; None: n, the number of items.
        empty: the value of a list without a gain above 0, from 0 to 1, or ``"skip"`` for NaN.
        gain, discount, ties: as in ``Convention``.

    Returns:
        The mean of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid, or a table of gains lacks a label.

    Source: MeanNDCG of the LETOR script. Under the convention ``letor4`` the values are the same.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> mean_ndcg(scores, labels, labels > 0, discount="letor")  # (1/3 + 4/4) / 2
    tensor([0.6667])
    """
    k = check_k(k)
    item_gains = checked_gains(scores, labels, mask, gain=gain)
    rank_discounts = discounts(scores.shape[-1], item_gains, discount=discount)
    dcg_at = running_sums(at_ranks(item_gains, scores, mask, ties=ties) * rank_discounts)
    ideal_at = running_sums(at_ranks(item_gains, labels, mask) * rank_discounts)
    ndcg_at = (dcg_at / ideal_at).masked_fill(ideal_at <= 0, 0).masked_fill(~real_ranks(mask), 0)
    sizes = mask.sum(-1)
    value = cut(ndcg_at, k).sum(-1) / (sizes if k is None else sizes.clamp(max=k))
    without = (item_gains <= 0).all(-1)
    return settle(value, scores, mask, labels=labels, without=without, empty=empty)
