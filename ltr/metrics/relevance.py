"""Metrics that depend on the ranks of relevant items: precision, recall, MAP, MRR and ERR."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_choice, check_k, check_levels, check_positive
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import at_ranks, ranks_like, running_sums, sum_of_group, tie_groups
from ltr.metrics.per_list import check_lists, float_type, promoted_labels, settle
from ltr.metrics.spec import MAP_OVER
from ltr.typing import Labels, Mask, PerList, Ranks, Scores

_LARGEST = 1023  # largest power of two in float64


def _hits(scores: Scores, labels: Labels, mask: Mask, relevant: float | int) -> Scores:
    """Return 1 for a relevant item, else 0, ``[batch, list]``, in the dtype of a metric."""
    check_lists(scores, labels, mask)
    return is_relevant(labels, mask, relevant).to(float_type(scores, labels))


def is_relevant(labels: Labels, mask: Mask, relevant: float | int) -> Mask:
    """Return, for each item, ``[batch, list]``, whether its label is at least ``relevant``.

    The result is False on padding.
    """
    relevant = check_positive("relevant", relevant)
    return mask & (labels.double() >= threshold(relevant))  # in float32, 0.50000001 would be 0.5


def threshold(relevant: float | int) -> float:
    """Return the smallest label that counts as relevant: ``relevant``, or slightly less.

    A label of 0.7 in a file is stored in float32 as 0.699999988, and must count as 0.7. So this
    returns the float32 value if it is smaller and float32 preserves all digits of ``relevant``.

    >>> threshold(0.7) == float(np.float32(0.7)), threshold(0.1), threshold(0.50000001)
    (True, 0.1, 0.50000001)
    """
    single = np.float32(relevant)
    if float(str(single)) != relevant:
        return float(relevant)
    return min(float(relevant), float(single))


# As torch.compiler.assume_constant_result does, without importing the whole compiler.
threshold._dynamo_marked_constant = True  # type: ignore[attr-defined]


def precision(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    relevant: float | int = 1,
    ties: str = "file",
) -> PerList:
    r"""Return the precision of each list.

    .. math::
        \mathrm{P}@k = \frac{1}{k} \sum_{r \le k} h_r

    where h_r is 1 if the item at rank r is relevant, else 0. As in trec_eval and the LETOR script,
    the divisor is k even for a list of fewer than k items. If k is None, the precision is the share
    of relevant items among the items with a score above -inf.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item, from 0 to 1, or ``"skip"`` for NaN.
        relevant: > 0, the smallest label that counts as relevant.
        ties: as in ``Convention``.

    Returns:
        P@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> precision(scores, labels, labels >= 0, k=4).tolist()  # 2 of 4
    [0.5]
    """
    k = check_k(k)
    hits = _hits(scores, labels, mask, relevant)
    hits_in_top = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1)
    retrieved = (mask & (scores > -torch.inf)).sum(-1)
    value = hits_in_top / (retrieved.clamp(min=1) if k is None else k)
    return settle(value, scores, mask, labels=labels, without=~hits.any(-1), empty=empty)


def recall(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    relevant: float | int = 1,
    ties: str = "file",
) -> PerList:
    r"""Return the recall of each list.

    .. math::
        \mathrm{R}@k = \frac{1}{R} \sum_{r \le k} h_r

    where h_r is 1 if the item at rank r is relevant, else 0, and R is the number of relevant items
    of the list. If k is None, the recall is 1, unless a relevant item has the score -inf.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item, from 0 to 1, or ``"skip"`` for NaN.
        relevant: > 0, the smallest label that counts as relevant.
        ties: as in ``Convention``.

    Returns:
        R@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> recall(scores, labels, labels >= 0, k=2).tolist()  # 1 of 2
    [0.5]
    """
    hits = _hits(scores, labels, mask, relevant)
    value = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1) / hits.sum(-1)
    return settle(value, scores, mask, labels=labels, without=~hits.any(-1), empty=empty)


def map(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    relevant: float | int = 1,
    map_over: str = "relevant",
    ties: str = "file",
) -> PerList:
    r"""Return the average precision of each list, whose mean over lists is MAP.

    .. math::
        \mathrm{AP}@k = \frac{1}{N} \sum_{r \le k} h_r \, \mathrm{P}@r

    where h_r is 1 if the item at rank r is relevant, else 0, P@r is the precision at r, and N is
    the number of relevant items of the list.

    With ``ties="averaged"`` the value is the expected AP. Let n items be tied, m of them relevant.
    The j-th of their ranks holds a relevant item with probability m/n. If it does, (j-1)(m-1)/(n-1)
    relevant items of the tie are expected before it.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item, from 0 to 1, or ``"skip"`` for NaN.
        relevant: > 0, the smallest label that counts as relevant.
        map_over: the divisor N. ``"relevant"`` means the number of relevant items (as in
            trec_eval's map and map_cut); ``"reachable"`` means this number, but at most k (as in
            LightGBM).
        ties: as in ``Convention``.

    Returns:
        AP@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Buckley and Voorhees (2000); for averaged ties McSherry and Najork (2008), section 2.4.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1.0, 0.0, 2.0]])
    >>> [map(scores, labels, labels >= 0, k=k).item() for k in (1, 2)]
    [0.5, 0.5]
    """
    check_choice("map_over", map_over, list(MAP_OVER))
    item_hits = _hits(scores, labels, mask, relevant)
    rank_hits = at_ranks(item_hits, scores, mask)
    ranks = ranks_like(rank_hits)
    if ties == "file":
        precisions = rank_hits * running_sums(rank_hits) / ranks
    else:
        # m / n; raises for an unknown rule
        probability = at_ranks(item_hits, scores, mask, ties=ties)
        tie = _tie_at_ranks(rank_hits, tie_groups(scores, mask))
        expected_before = (
            (tie.position - 1) * (tie.relevant - 1).clamp(min=0) / (tie.size - 1).clamp(min=1)
        )
        precisions = probability * (tie.relevant_above + 1 + expected_before) / ranks
    total = item_hits.sum(-1)
    k = check_k(k)
    divisor = total if k is None or map_over == "relevant" else total.clamp(max=k)
    value = cut(precisions, k).sum(-1) / divisor
    return settle(value, scores, mask, labels=labels, without=total == 0, empty=empty)


def mrr(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    relevant: float | int = 1,
    ties: str = "file",
) -> PerList:
    r"""Return the reciprocal rank of each list, whose mean over lists is MRR.

    .. math::
        \mathrm{RR}@k = \begin{cases} 1 / r_1 & r_1 \le k \\ 0 & r_1 > k \end{cases}

    where r_1 is the rank of the first relevant item.

    With ``ties="averaged"`` the value is the expected RR. Let n items be tied, m of them relevant.
    The j-th of their ranks holds the first relevant item with probability C(n-j, m-1) / C(n, m).

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item, from 0 to 1, or ``"skip"`` for NaN.
        relevant: > 0, the smallest label that counts as relevant.
        ties: as in ``Convention``.

    Returns:
        RR@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Voorhees (1999); for averaged ties McSherry and Najork (2008), section 2.3.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> mrr(scores, labels, labels >= 0).tolist()
    [0.5]
    """
    item_hits = _hits(scores, labels, mask, relevant)
    rank_hits = at_ranks(item_hits, scores, mask)
    is_first = rank_hits * (running_sums(rank_hits) == 1)
    if ties != "file":
        at_ranks(rank_hits, scores, mask, ties=ties)  # raises for an unknown rule
        tie = _tie_at_ranks(rank_hits.double(), tie_groups(scores, mask))
        below = tie.size - tie.position
        later_relevant = tie.relevant - 1
        logs = _log_choose(below, later_relevant) - _log_choose(tie.size, tie.relevant)
        possible = (tie.relevant_above == 0) & (tie.relevant > 0) & (below >= later_relevant)
        is_first = logs.exp().masked_fill(~possible, 0).to(rank_hits.dtype)
    value = cut(is_first / ranks_like(rank_hits), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=~item_hits.any(-1), empty=empty)


class _Tie(NamedTuple):
    """The group of equal scores at each rank, ``[batch, rank]``.

    Attributes:
        size: the number of items in the group.
        relevant: the number of relevant items in the group.
        relevant_above: the number of relevant items ranked above the group.
        position: the position of the rank within the group, starting at 1.
    """

    size: Tensor
    relevant: Tensor
    relevant_above: Tensor
    position: Tensor


def _tie_at_ranks(hits: Scores, groups: Ranks) -> _Tie:
    """Return the tie at each rank; ``hits``, ``[batch, rank]``, are 1 for relevant items."""
    ones = torch.ones_like(hits)
    # Both sums are first per group, and then over all groups above it.
    relevant_of_group = torch.zeros_like(hits).scatter_add(-1, groups, hits)
    items_of_group = torch.zeros_like(hits).scatter_add(-1, groups, ones)
    relevant_above = (running_sums(relevant_of_group) - relevant_of_group).gather(-1, groups)
    items_above = (running_sums(items_of_group) - items_of_group).gather(-1, groups)
    return _Tie(
        size=sum_of_group(ones, groups),
        relevant=sum_of_group(hits, groups),
        relevant_above=relevant_above,
        position=ranks_like(hits) - items_above,
    )


def _log_choose(n: Tensor, m: Tensor) -> Tensor:
    """Return log C(n, m); the result is NaN or infinite outside 0 <= m <= n."""
    return (n + 1).lgamma() - (m + 1).lgamma() - (n - m + 1).lgamma()


def first_stop(chances: Tensor) -> Tensor:
    """Return c_r times the product over q < r of (1 - c_q), ``[batch, rank]``.

    c_r, from ``chances``, is the probability that the item at rank r satisfies the user. The result
    is the probability that a user who reads the ranks in order stops at r.
    """
    reaching = torch.nn.functional.pad(1 - chances, (1, 0), value=1)[..., :-1].cumprod(-1)
    return chances * reaching


def err(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    empty: float | int | str = 1.0,
    levels: int = 5,
    ties: str = "file",
) -> PerList:
    r"""Return the expected reciprocal rank of each list.

    .. math::
        \mathrm{ERR}@k = \sum_{r \le k} \frac{1}{r} R_r \prod_{i < r} (1 - R_i), \qquad
        R_r = \frac{2^{y_r} - 1}{2^{\mathrm{levels} - 1}}

    where R_r is the probability that the item at rank r satisfies the user, and y_r is its label.
    Even the best order gives less than 1. The check of the labels waits for the GPU.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.metrics``.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a label above 0, from 0 to 1, or ``"skip"`` for NaN.
        levels: the number of grades, >= 2; 5 for the labels 0 to 4.
        ties: must be ``"file"``; ERR does not support averaged ties.

    Returns:
        ERR@k of each list, ``[batch]``, from 0 to 1.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid, a label is above ``levels`` - 1, or
            ``ties`` is ``"averaged"``.

    Source: Chapelle et al. (2009), eq. 4 and 7.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> err(scores, labels, labels >= 0, levels=3).tolist()  # 1/4 + 1/2 * 3/4 * (1 - 1/4)
    [0.53125]
    """
    levels = check_levels(levels)
    if ties == "averaged":
        raise ConfigError("err does not support averaged ties: leave err out, or set ties=file")
    grades = promoted_labels(scores, labels, mask).masked_fill(~mask, 0)
    if bool((grades > float(levels - 1)).any()):
        raise ConfigError(
            f"levels={levels} means labels up to {levels - 1}, but the data have larger labels: "
            "set levels (convention.levels) to the number of grades in the data"
        )
    wide = grades.double() if levels > 128 else grades  # float32 cannot hold 2^128
    chances = ((wide.exp2() - 1) / 2.0 ** min(levels - 1, _LARGEST)).to(grades.dtype)
    stops = first_stop(at_ranks(chances, scores, mask, ties=ties))
    value = cut(stops / ranks_like(grades), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=(grades <= 0).all(-1), empty=empty)
