"""MAP and MRR: the ranks at which relevant items stand; exact also where ties are averaged."""

import torch
from torch import Tensor

from ltr.metrics.checks import check_choice
from ltr.metrics.convention import MAP_OVER
from ltr.metrics.gains import cut
from ltr.metrics.ordering import at_ranks, sum_of_group, tie_groups
from ltr.metrics.relevant_items import relevance
from ltr.metrics.special_lists import settle
from ltr.typing import Labels, Mask, PerList, Ranks, Scores


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
    number of relevant items of the list (Buckley and Voorhees, 2000; trec_eval's map and map_cut).
    The expected value under ties is that of McSherry and Najork, 2008, section 2.4: of n tied items
    behind s others, m and R of them relevant, the j-th place (rank s + j) holds a relevant one with
    probability m/n and then (j-1)(m-1)/(n-1) tied relevant ones stand before it.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item (or without any), from 0 to 1;
            ``"skip"`` gives NaN, which the mean leaves out.
        relevant: the smallest label that counts as relevant, above 0.
        map_over: N: ``relevant``, all relevant items, or ``reachable``, at most k, so that the best
            order has 1 (LightGBM).
        ties: ``file``: items with equal scores keep the order in which they are given;
            ``averaged``: the expected value over all orders of them.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1.0, 0.0, 2.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> map(scores, labels, mask, k=2).tolist(), map(scores, labels, mask, k=1).tolist()
    ([0.5], [0.5])
    >>> map(scores, labels, mask, k=1, map_over="reachable").tolist()  # 1 of the 1 reachable
    [1.0]
    """
    check_choice("map_over", map_over, list(MAP_OVER))
    of_item = relevance(scores, labels, mask, relevant)
    hits = at_ranks(of_item, scores, mask)
    ranks = _ranks(hits)
    if ties == "file":
        precisions = hits * hits.cumsum(-1) / ranks
    else:
        chance = at_ranks(of_item, scores, mask, ties=ties)  # m / n, and refuses another rule
        size, inside, ahead, place = _tied(hits, tie_groups(scores, mask))
        before = (place - 1) * (inside - 1).clamp(min=0) / (size - 1).clamp(min=1)
        precisions = chance * (ahead + 1 + before) / ranks
    total = of_item.sum(-1)
    over = total if k is None or map_over == "relevant" else total.clamp(max=k)
    value = cut(precisions, k).sum(-1) / over
    return settle(value, scores, mask, without=total == 0, empty=empty)


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
    The knobs are as for ``map``.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 2.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> mrr(scores, labels, mask).tolist(), mrr(scores, labels, mask, relevant=2, k=2).tolist()
    ([0.5], [0.0])
    """
    of_item = relevance(scores, labels, mask, relevant)
    hits = at_ranks(of_item, scores, mask)
    first = hits * (hits.cumsum(-1) == 1)
    if ties != "file":
        at_ranks(hits, scores, mask, ties=ties)  # refuses another rule
        size, inside, ahead, place = _tied(hits.double(), tie_groups(scores, mask))
        chance = (_log_choose(size - place, inside - 1) - _log_choose(size, inside)).exp()
        possible = (ahead == 0) & (inside > 0) & (size - place >= inside - 1)
        first = chance.masked_fill(~possible, 0).to(hits.dtype)
    value = cut(first / _ranks(hits), k).sum(-1)
    return settle(value, scores, mask, without=~of_item.any(-1), empty=empty)


def _ranks(like: Tensor) -> Tensor:
    return torch.arange(1, like.shape[-1] + 1, dtype=like.dtype, device=like.device)


def _tied(hits: Scores, groups: Ranks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """At each rank, of its group of equal scores: items, relevant items, those ahead, its place.

    All ``[batch, rank]``; ``ahead`` is the relevant items in front of the group, the place counts
    from 1 inside it.
    """
    ones = torch.ones_like(hits)
    size, inside = sum_of_group(ones, groups), sum_of_group(hits, groups)
    # the groups in their order, each with its relevant items, summed up to but without itself
    of_group = torch.zeros_like(hits).scatter_add(-1, groups, hits)
    ahead = (of_group.cumsum(-1) - of_group).gather(-1, groups)
    items = torch.zeros_like(hits).scatter_add(-1, groups, ones)
    place = _ranks(hits) - (items.cumsum(-1) - items).gather(-1, groups)
    return size, inside, ahead, place


def _log_choose(n: Tensor, m: Tensor) -> Tensor:
    """log C(n, m); NaN or infinite outside 0 <= m <= n."""
    return (n + 1).lgamma() - (m + 1).lgamma() - (n - m + 1).lgamma()
