"""Two relatives of NDCG: a linear discount, and the mean over all cutoffs."""

from collections.abc import Sequence

import torch

from ltr.metrics.checks import check_k
from ltr.metrics.gains import cut, discounts, gains
from ltr.metrics.ordering import at_ranks
from ltr.metrics.special_lists import float_type, settle
from ltr.typing import Labels, Mask, PerList, Scores


def ndcg_beta(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    ties: str = "file",
) -> PerList:
    """NDCG with a discount linear in the rank, from 0 to 1, ``[batch]``.

    DCG_beta@k = sum over ranks r <= k of y_r (n - r), n the number of items of the list, divided by
    that of the items in descending order of label (RankSVMndcg and RankBoostndcg, eq. 12 of the
    project report, where k = n). The last of n ranks counts nothing, so that a single relevant item
    there has 0; a list of one item, relevant, has only one order, the best: 1.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant; it is the gain.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list whose labels are all 0 (or without items), from 0 to 1;
            ``"skip"`` gives NaN, which the mean leaves out.
        ties: ``file``: items with equal scores keep the order in which they are given;
            ``averaged``: the expected value over all orders of them.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> ndcg_beta(scores, labels, mask).tolist()  # (1 * 1 + 2 * 0) / (2 * 2 + 1 * 1)
    [0.20000000298023224]
    """
    gain = labels.to(float_type(scores, labels)).masked_fill(~mask, 0)
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=gain.dtype, device=gain.device)
    weights = cut((mask.sum(-1, keepdim=True) - ranks).clamp(min=0), k)
    found = (at_ranks(gain, scores, mask, ties=ties) * weights).sum(-1)
    ideal = (at_ranks(gain, labels, mask) * weights).sum(-1)
    value = (found / ideal).masked_fill(ideal <= 0, 1)
    return settle(value, scores, mask, without=(gain <= 0).all(-1), empty=empty)


def mean_ndcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    gain: str | Sequence[float | int] = "exp2",
    discount: str = "log2",
    ties: str = "file",
) -> PerList:
    """The mean of NDCG@1, NDCG@2, ..., NDCG@n of each list of n items, ``[batch]``.

    The LETOR script's MeanNDCG (its ``letor`` discount and ``empty=0`` are those of the convention
    ``letor4``). With ``k`` the mean over the ranks 1 to min(k, n); no list is short here. Until the
    first rank that the ideal order gives a gain, NDCG is 0/0 and counts 0. The knobs are as for
    ``ndcg``.

    Raises:
        ConfigError: a knob is out of range, or a label without a gain.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> mean_ndcg(scores, labels, mask, discount="letor").tolist()  # (1/3 + 4/4) / 2
    [0.6666666865348816]
    """
    check_k(k)
    of_item = gains(labels.to(float_type(scores, labels)), mask, gain=gain)
    discount_of = discounts(scores.shape[-1], of_item, discount=discount)
    found = (at_ranks(of_item, scores, mask, ties=ties) * discount_of).cumsum(-1)
    ideal = (at_ranks(of_item, labels, mask) * discount_of).cumsum(-1)
    at_each = (found / ideal).masked_fill(ideal <= 0, 0).masked_fill(~_first(mask), 0)
    items = mask.sum(-1)
    value = cut(at_each, k).sum(-1) / (items if k is None else items.clamp(max=k))
    return settle(value, scores, mask, without=(of_item <= 0).all(-1), empty=empty)


def _first(mask: Mask) -> Mask:
    """True at the ranks that items have: as many as there are, from the first."""
    ranks = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    return ranks <= mask.sum(-1, keepdim=True)
