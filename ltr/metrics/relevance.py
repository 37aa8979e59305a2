"""Metrics that depend on the ranks of relevant items: precision, recall, MAP, MRR and ERR."""

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
    """Return 1 where ``is_relevant``, else 0, ``[batch, list]``, in the dtype of a metric."""
    check_lists(scores, labels, mask)
    return is_relevant(labels, mask, relevant).to(float_type(scores, labels))


def is_relevant(labels: Labels, mask: Mask, relevant: float | int) -> Mask:
    """Return True where a label is at least ``relevant``, ``[batch, list]``; False on padding."""
    relevant = check_positive("relevant", relevant)
    return mask & (labels.double() >= threshold(relevant))  # in float32, 0.50000001 would be 0.5


def threshold(relevant: float | int) -> float:
    """Return the least label that counts as relevant: ``relevant``, or slightly less.

    A label of 0.7 in a file is stored in float32, as 0.699999988, and must count as 0.7. So the
    float32 value is returned if it is smaller and float32 can represent all digits of ``relevant``.

    >>> threshold(0.7) == float(np.float32(0.7)), threshold(0.1), threshold(0.50000001)
    (True, 0.1, 0.50000001)
    """
    kept = np.float32(relevant)
    return min(float(relevant), float(kept)) if float(str(kept)) == relevant else float(relevant)


# torch.compiler.assume_constant_result does the same, but would import the whole compiler.
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
    """Return the precision of each list, from 0 to 1, ``[batch]``.

    P@k is the number of relevant items at ranks 1 to k, divided by k. As in trec_eval and the LETOR
    script, the divisor is k even for a list of fewer than k items. With k = None the precision is
    the share of relevant items among those with a score above -inf.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> precision(scores, labels, labels >= 0, k=4).tolist()  # 2 of 4
    [0.5]
    """
    k = check_k(k)
    hits = _hits(scores, labels, mask, relevant)
    found = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1)
    value = found / ((mask & (scores > -torch.inf)).sum(-1).clamp(min=1) if k is None else k)
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
    """Return the recall of each list, from 0 to 1, ``[batch]``.

    R@k is the number of relevant items at ranks 1 to k, divided by the number of relevant items of
    the list. With k = None the recall is 1, unless a score is -inf.

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
    """Return the average precision of each list, from 0 to 1, ``[batch]``; its mean is MAP.

    AP@k is the sum of P@r / N over the ranks r <= k that hold a relevant item, where P@r is the
    precision at r. N is the number of relevant items of the list (Buckley and Voorhees, 2000;
    trec_eval's map and map_cut) or, with ``map_over="reachable"``, this number but at most k (as in
    LightGBM).

    With ``ties="averaged"`` the value is the expected AP of McSherry and Najork, 2008, section 2.4.
    Let n items be tied, m of them relevant. The j-th of their ranks holds a relevant item with
    probability m/n. If it does, (j-1)(m-1)/(n-1) relevant items of the tie are expected before it.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1.0, 0.0, 2.0]])
    >>> [map(scores, labels, labels >= 0, k=k).item() for k in (1, 2)]
    [0.5, 0.5]
    """
    check_choice("map_over", map_over, list(MAP_OVER))
    of_item = _hits(scores, labels, mask, relevant)
    hits = at_ranks(of_item, scores, mask)
    ranks = ranks_like(hits)
    if ties == "file":
        precisions = hits * running_sums(hits) / ranks
    else:
        chance = at_ranks(of_item, scores, mask, ties=ties)  # m / n; raises for an unknown rule
        size, inside, ahead, place = _tied(hits, tie_groups(scores, mask))
        before = (place - 1) * (inside - 1).clamp(min=0) / (size - 1).clamp(min=1)
        precisions = chance * (ahead + 1 + before) / ranks
    total = of_item.sum(-1)
    k = check_k(k)
    over = total if k is None or map_over == "relevant" else total.clamp(max=k)
    value = cut(precisions, k).sum(-1) / over
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
    """Return the reciprocal rank of each list, from 0 to 1, ``[batch]``; its mean is MRR.

    RR@k is 1 / rank of the first relevant item, or 0 if that rank is beyond k (Voorhees, 1999).

    With ``ties="averaged"`` the value is the expected RR of McSherry and Najork, 2008, section 2.3.
    Let n items be tied, m of them relevant. The j-th of their ranks holds the first relevant item
    with probability C(n-j, m-1) / C(n, m).

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> mrr(scores, labels, labels >= 0).tolist()
    [0.5]
    """
    of_item = _hits(scores, labels, mask, relevant)
    hits = at_ranks(of_item, scores, mask)
    first = hits * (running_sums(hits) == 1)
    if ties != "file":
        at_ranks(hits, scores, mask, ties=ties)  # raises for an unknown rule
        size, inside, ahead, place = _tied(hits.double(), tie_groups(scores, mask))
        chance = (_log_choose(size - place, inside - 1) - _log_choose(size, inside)).exp()
        possible = (ahead == 0) & (inside > 0) & (size - place >= inside - 1)
        first = chance.masked_fill(~possible, 0).to(hits.dtype)
    value = cut(first / ranks_like(hits), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=~of_item.any(-1), empty=empty)


def _tied(hits: Scores, groups: Ranks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Describe for each rank its group of equal scores, in four tensors ``[batch, rank]``.

    They are the number of items in the group, the number of relevant items in it, the number of
    relevant items ranked before the group, and the place of the rank within the group, from 1.
    """
    ones = torch.ones_like(hits)
    size, inside = sum_of_group(ones, groups), sum_of_group(hits, groups)
    # relevant items per group, then summed over the groups before each
    of_group = torch.zeros_like(hits).scatter_add(-1, groups, hits)
    ahead = (running_sums(of_group) - of_group).gather(-1, groups)
    items = torch.zeros_like(hits).scatter_add(-1, groups, ones)
    place = ranks_like(hits) - (running_sums(items) - items).gather(-1, groups)
    return size, inside, ahead, place


def _log_choose(n: Tensor, m: Tensor) -> Tensor:
    """Return log C(n, m); NaN or infinite outside 0 <= m <= n."""
    return (n + 1).lgamma() - (m + 1).lgamma() - (n - m + 1).lgamma()


def first_stop(chances: Tensor) -> Tensor:
    """Return c_r times the product over q < r of (1 - c_q), ``[batch, rank]``.

    c is ``chances``. The result is the probability that a user who reads down the ranks stops at r.
    """
    going_on = torch.nn.functional.pad(1 - chances, (1, 0), value=1)[..., :-1].cumprod(-1)
    return chances * going_on


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
    """Return the expected reciprocal rank of each list, from 0 to 1, ``[batch]``.

    ERR@k = sum over ranks r <= k of 1/r R_r times the product over i < r of (1 - R_i). Here R_r =
    (2^y_r - 1) / 2^(levels - 1) is the probability that the item at rank r satisfies the user
    (Chapelle et al., 2009, eq. 4 and 7). Even the best order gives less than 1. The labels are
    checked, which forces a wait for the GPU.

    Raises:
        ConfigError: a label is above ``levels`` - 1, or ``ties`` is ``"averaged"``.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> err(scores, labels, labels >= 0, levels=3).tolist()  # 1/4 + 1/2 * 3/4 * (1 - 1/4)
    [0.53125]
    """
    levels = check_levels(levels)
    if ties == "averaged":
        raise ConfigError("err has no averaged ties: leave err out, or set ties to file")
    grades = promoted_labels(scores, labels, mask).masked_fill(~mask, 0)
    if bool((grades > float(levels - 1)).any()):
        raise ConfigError(
            f"levels={levels} means labels up to {levels - 1}, but the data have larger ones: set "
            "levels (convention.levels) to the number of grades of the data"
        )
    wide = grades.double() if levels > 128 else grades  # float32 cannot hold 2^128
    chances = ((wide.exp2() - 1) / 2.0 ** min(levels - 1, _LARGEST)).to(grades.dtype)
    stops = first_stop(at_ranks(chances, scores, mask, ties=ties))
    value = cut(stops / ranks_like(grades), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=(grades <= 0).all(-1), empty=empty)
