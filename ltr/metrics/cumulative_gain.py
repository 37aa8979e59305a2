"""Gains and discounts, DCG and NDCG, and two relatives of NDCG."""

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import Gain, check_choice, check_gain, check_k
from ltr.metrics.ordering import at_ranks, ranks_like, real_ranks, running_sums
from ltr.metrics.per_list import BROKEN, broken_lists, nan_below_0, promoted_labels, settle
from ltr.metrics.spec import DISCOUNTS, GAINS, SHORT
from ltr.typing import Labels, Mask, PerList, Scores


def gains(labels: Labels, mask: Mask, *, gain: Gain = "exp2") -> Labels:
    """Return the gain of each item, ``[batch, list]``, 0 on padding.

    The gain is 2^y - 1 (``exp2``), y (``linear``), or ``gain[y]`` if ``gain`` is a table. A
    label below 0, or without an entry in the table, has the gain NaN: an error would wait for the
    GPU. ``ConfigError``: ``gain`` is unknown.
    """
    gain = check_gain(gain, list(GAINS))
    labels = nan_below_0(labels.masked_fill(~mask, 0))
    if isinstance(gain, str):
        return labels.exp2() - 1 if gain == "exp2" else labels
    found = torch.full_like(labels, torch.nan)
    for grade, value in enumerate(gain):
        found = found.masked_fill(labels == grade, value)
    return found.masked_fill(~mask, 0)


def checked_gains(scores: Scores, labels: Labels, mask: Mask, *, gain: Gain) -> Labels:
    """Check the tensors and return the gains in the dtype of the metric; wait for the GPU if
    ``gain`` is a table, and raise ``ConfigError`` if it has no entry for a label.
    """
    gain = check_gain(gain, list(GAINS))
    found = gains(promoted_labels(scores, labels, mask), mask, gain=gain)
    if not isinstance(gain, str) and bool(found.isnan().any()):
        raise ConfigError(
            f"gain={list(gain)} has the grades 0 to {len(gain) - 1}, but other labels are in the "
            "data: write a gain for each grade"
        )
    return found


def ideal_dcg(gain: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Return maxDCG@k, ``[batch]``: the DCG@k of items with these gains in the best order."""
    return (at_ranks(gain, gain, mask) * discounts(gain.shape[-1], gain, k=k)).sum(-1)


def discounts(size: int, like: Tensor, *, k: int | None = None, discount: str = "log2") -> Tensor:
    """Return the discounts of the ranks 1 to ``size``, ``[size]``, 0 beyond ``k``.

    ``log2`` is 1/log2(1 + rank). ``letor`` is 1 at ranks 1 and 2, and 1/log2(rank) from rank 3 on.
    The dtype and device are those of ``like``.
    """
    check_choice("discount", discount, list(DISCOUNTS))
    ranks = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    values = 1 / (ranks + 1 if discount == "log2" else ranks.clamp(min=2)).log2()
    return cut(values, k)


def cut(values: Tensor, k: int | None) -> Tensor:
    """Set ``values``, ``[..., rank]``, to 0 beyond rank ``k``; None keeps them all."""
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
    """Return the discounted cumulative gain of each list, ``[batch]``.

    DCG@k = sum over ranks r <= k of g(y_r) d(r), where g is the gain, d the discount, and y_r the
    label at rank r in descending order of score (Järvelin and Kekäläinen, 2002; Pobrotyn and
    Bialobrzeski, 2021, eq. 1). A list of no items gives 0.

    >>> scores, labels = torch.tensor([[0.2, 0.1, 0.9]]), torch.tensor([[3.0, 1.0, 2.0]])
    >>> dcg(scores, labels, labels > 1, discount="letor").tolist()  # 2**2 - 1 + 2**3 - 1
    [10.0]
    """
    of_item = checked_gains(scores, labels, mask, gain=gain)
    of_rank = at_ranks(of_item, scores, mask, ties=ties)
    value = (of_rank * discounts(scores.shape[-1], of_rank, k=k, discount=discount)).sum(-1)
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
    """Return the normalised discounted cumulative gain of each list, from 0 to 1, ``[batch]``.

    NDCG@k = DCG@k / maxDCG@k, where maxDCG@k is the DCG@k of the items in descending order of label
    (Pobrotyn and Bialobrzeski, 2021, eq. 2). With ``short="zero"`` a list of fewer than k items
    gives 0, unless it is empty.

    >>> scores, labels = torch.tensor([[0.9, 0.2]]), torch.tensor([[1.0, 2.0]])
    >>> ndcg(scores, labels, labels > 0, k=1)  # (2**1 - 1) / (2**2 - 1)
    tensor([0.3333])
    """
    check_choice("short", short, list(SHORT))
    k = check_k(k)
    of_item = checked_gains(scores, labels, mask, gain=gain)
    discount_of = discounts(scores.shape[-1], of_item, k=k, discount=discount)
    found = (at_ranks(of_item, scores, mask, ties=ties) * discount_of).sum(-1)
    ideal = (at_ranks(of_item, labels, mask) * discount_of).sum(-1)
    value = found / ideal
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
    """Return NDCG with a discount that is linear in the rank, from 0 to 1, ``[batch]``.

    DCG_beta@k = sum over ranks r <= k of y_r (n - r), where n is the number of items of the list
    and y_r the label at rank r. The value is DCG_beta@k divided by the DCG_beta@k of the items in
    descending order of label (Jin et al., 2018; Team Macrohard, n.d., eq. 12, where k = n). The
    last rank has weight 0, so that a list whose only relevant item is last gives 0. A list of one
    item gives 1 if the item is relevant.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> ndcg_beta(scores, labels, labels >= 0)  # (1 * 1 + 2 * 0) / (2 * 2 + 1 * 1)
    tensor([0.2000])
    """
    gain = promoted_labels(scores, labels, mask).masked_fill(~mask, 0)
    weights = cut((mask.sum(-1, keepdim=True) - ranks_like(gain)).clamp(min=0), k)
    found = (at_ranks(gain, scores, mask, ties=ties) * weights).sum(-1)
    ideal = (at_ranks(gain, labels, mask) * weights).sum(-1)
    value = (found / ideal).masked_fill(ideal <= 0, 1)
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
    """Return the mean of NDCG@1, NDCG@2, ..., NDCG@n of each list of n items, ``[batch]``.

    Under the convention ``letor4`` this is MeanNDCG of the LETOR script. With ``k`` the mean is
    taken over the cutoffs 1 to min(k, n). An NDCG of 0/0, before the first rank at which the ideal
    order has a gain, counts as 0.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> mean_ndcg(scores, labels, labels > 0, discount="letor")  # (1/3 + 4/4) / 2
    tensor([0.6667])
    """
    k = check_k(k)
    of_item = checked_gains(scores, labels, mask, gain=gain)
    discount_of = discounts(scores.shape[-1], of_item, discount=discount)
    found = running_sums(at_ranks(of_item, scores, mask, ties=ties) * discount_of)
    ideal = running_sums(at_ranks(of_item, labels, mask) * discount_of)
    at_each = (found / ideal).masked_fill(ideal <= 0, 0).masked_fill(~real_ranks(mask), 0)
    items = mask.sum(-1)
    value = cut(at_each, k).sum(-1) / (items if k is None else items.clamp(max=k))
    without = (of_item <= 0).all(-1)
    return settle(value, scores, mask, labels=labels, without=without, empty=empty)
