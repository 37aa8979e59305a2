"""Metrics of the ranks of relevant items: precision, recall, MAP, MRR and ERR."""

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

_LARGEST = 1023  # power of two in float64


def _hits(scores: Scores, labels: Labels, mask: Mask, relevant: float | int) -> Scores:
    """1 where ``is_relevant``, else 0, ``[batch, list]``, in the dtype of a metric."""
    check_lists(scores, labels, mask)
    return is_relevant(labels, mask, relevant).to(float_type(scores, labels))


def is_relevant(labels: Labels, mask: Mask, relevant: float | int) -> Mask:
    """True where an item's label is at least ``relevant``, ``[batch, list]``; False on padding."""
    check_positive("relevant", relevant)
    return mask & (labels.double() >= threshold(relevant))  # in float32, 0.50000001 would be 0.5


def threshold(relevant: float | int) -> float:
    """The number from which on labels count as ``relevant``, a little below it where need be.

    A label that a file writes as 0.7 is kept in float32, as 0.699999988.

    >>> threshold(0.7) == float(np.float32(0.7)), threshold(0.1), threshold(0.50000001)
    (True, 0.1, 0.50000001)
    """
    kept = np.float32(relevant)
    return min(float(relevant), float(kept)) if float(str(kept)) == relevant else float(relevant)


# As torch.compiler.assume_constant_result does, which would import the whole compiler.
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
    """Precision of each list, from 0 to 1, ``[batch]``.

    P@k = relevant items among the ranks 1 to k / k, also for a list of fewer than k items, as in
    trec_eval and the LETOR script. With k = None it is the share of relevant items in the list.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> precision(scores, labels, labels >= 0, k=4).tolist()  # 2 of 4
    [0.5]
    """
    check_k(k)
    hits = _hits(scores, labels, mask, relevant)
    found = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1)
    value = found / (mask.sum(-1) if k is None else k)
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
    """Recall of each list, from 0 to 1, ``[batch]``.

    R@k = relevant items among the ranks 1 to k / relevant items of the list. With k = None it is 1.

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
    """Average precision of each list, from 0 to 1, ``[batch]``; its mean over lists is MAP.

    AP@k = sum over ranks r <= k with a relevant item of P@r / N, P@r the precision at r and N the
    number of relevant items of the list (Buckley and Voorhees, 2000; trec_eval's map and map_cut)
    or, with ``map_over="reachable"``, at most k (LightGBM). The expected value under ties is that
    of McSherry and Najork, 2008, section 2.4: of n tied items, m of them relevant, the j-th place
    holds a relevant one with probability m/n, and then (j-1)(m-1)/(n-1) tied relevant ones stand
    before it.

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
        chance = at_ranks(of_item, scores, mask, ties=ties)  # m / n, and refuses another rule
        size, inside, ahead, place = _tied(hits, tie_groups(scores, mask))
        before = (place - 1) * (inside - 1).clamp(min=0) / (size - 1).clamp(min=1)
        precisions = chance * (ahead + 1 + before) / ranks
    total = of_item.sum(-1)
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
    """Reciprocal rank of each list, from 0 to 1, ``[batch]``; its mean over lists is MRR.

    RR@k = 1 / rank of the first relevant item; 0 where that is beyond k (Voorhees, 1999). The
    expected value under ties is that of McSherry and Najork, 2008, section 2.3: among n tied items,
    m of them relevant, the first relevant one has place j with probability C(n-j, m-1) / C(n, m).

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> mrr(scores, labels, labels >= 0).tolist()
    [0.5]
    """
    of_item = _hits(scores, labels, mask, relevant)
    hits = at_ranks(of_item, scores, mask)
    first = hits * (running_sums(hits) == 1)
    if ties != "file":
        at_ranks(hits, scores, mask, ties=ties)  # refuses another rule
        size, inside, ahead, place = _tied(hits.double(), tie_groups(scores, mask))
        chance = (_log_choose(size - place, inside - 1) - _log_choose(size, inside)).exp()
        possible = (ahead == 0) & (inside > 0) & (size - place >= inside - 1)
        first = chance.masked_fill(~possible, 0).to(hits.dtype)
    value = cut(first / ranks_like(hits), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=~of_item.any(-1), empty=empty)


def _tied(hits: Scores, groups: Ranks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """At each rank: items and relevant ones of its run of equal scores, those ahead, its place.

    All ``[batch, rank]``; ``ahead`` counts relevant items and the place counts from 1.
    """
    ones = torch.ones_like(hits)
    size, inside = sum_of_group(ones, groups), sum_of_group(hits, groups)
    # the relevant items of each group in order, summed up to but without itself
    of_group = torch.zeros_like(hits).scatter_add(-1, groups, hits)
    ahead = (running_sums(of_group) - of_group).gather(-1, groups)
    items = torch.zeros_like(hits).scatter_add(-1, groups, ones)
    place = ranks_like(hits) - (running_sums(items) - items).gather(-1, groups)
    return size, inside, ahead, place


def _log_choose(n: Tensor, m: Tensor) -> Tensor:
    """log C(n, m); NaN or infinite outside 0 <= m <= n."""
    return (n + 1).lgamma() - (m + 1).lgamma() - (n - m + 1).lgamma()


def first_stop(chances: Tensor) -> Tensor:
    """c_r times the product over q < r of (1 - c_q), c = ``chances``, ``[batch, rank]``."""
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
    """Expected reciprocal rank of each list, from 0 to 1, ``[batch]``.

    ERR@k = sum over ranks r <= k of 1/r R_r prod over i < r of (1 - R_i), with R_r = (2^y_r - 1) /
    2^(levels - 1) the probability that the item at rank r satisfies (Chapelle et al., 2009, eq. 4
    and 7). The best value is below 1. The labels are checked, for which a GPU must wait.

    Raises:
        ConfigError: a label is above ``levels`` - 1, ``ties`` is ``averaged``.

    >>> scores, labels = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> err(scores, labels, labels >= 0, levels=3).tolist()  # 1/4 + 1/2 * 3/4 * (1 - 1/4)
    [0.53125]
    """
    check_levels(levels)
    if ties == "averaged":
        raise ConfigError("err has no averaged ties: leave err out, or set ties to file")
    grades = promoted_labels(scores, labels, mask).masked_fill(~mask, 0)
    if bool((grades > float(levels - 1)).any()):
        raise ConfigError(
            f"levels={levels} means labels up to {levels - 1}, but the data have larger ones: set "
            "levels (convention.levels) to the number of grades of the data"
        )
    wide = grades.double() if levels > 128 else grades  # 2^128 is no float32
    chances = ((wide.exp2() - 1) / 2.0 ** min(levels - 1, _LARGEST)).to(grades.dtype)
    stops = first_stop(at_ranks(chances, scores, mask, ties=ties))
    value = cut(stops / ranks_like(grades), k).sum(-1)
    return settle(value, scores, mask, labels=labels, without=(grades <= 0).all(-1), empty=empty)
