"""Precision and recall: how many relevant items stand on top."""

from ltr.metrics.checks import check_k, check_positive
from ltr.metrics.gains import cut
from ltr.metrics.ordering import at_ranks
from ltr.metrics.special_lists import float_type, settle
from ltr.typing import Labels, Mask, PerList, Scores


def relevance(scores: Scores, labels: Labels, mask: Mask, relevant: float | int) -> Scores:
    """1 where an item's label is at least ``relevant``, else 0, ``[batch, list]``; 0 on padding.

    Raises:
        ConfigError: ``relevant`` is not above 0.
    """
    check_positive("relevant", relevant)
    at_least = labels.double() >= relevant  # in float32, 0.50000001 would be 0.5
    return (at_least & mask).to(float_type(scores, labels))


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

    P@k = relevant items among the ranks 1 to k / k, whatever the number of items: a list of fewer
    than k is filled up with items that are not relevant, as trec_eval and the LETOR script do. With
    k = None it is the share of relevant items in the list.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        empty: the value of a list without a relevant item (or without any), from 0 to 1;
            ``"skip"`` gives NaN, which the mean leaves out.
        relevant: the smallest label that counts as relevant, above 0.
        ties: ``file``: items with equal scores keep the order in which they are given;
            ``averaged``: the expected value over all orders of them.

    Raises:
        ConfigError: a knob is out of range.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> precision(scores, labels, mask, k=4).tolist()  # 2 of 4
    [0.5]
    >>> precision(scores, labels, mask, k=4, relevant=2).tolist()  # 1 of 4
    [0.25]
    """
    check_k(k)
    hits = relevance(scores, labels, mask, relevant)
    found = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1)
    value = found / (mask.sum(-1) if k is None else k)
    return settle(value, scores, mask, without=~hits.any(-1), empty=empty)


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
    The knobs, and what an empty list gives, are as for ``precision``.

    Raises:
        ConfigError: a knob is out of range.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]])
    >>> recall(scores, labels, torch.tensor([[True, True, True]]), k=2).tolist()  # 1 of 2
    [0.5]
    """
    hits = relevance(scores, labels, mask, relevant)
    found = cut(at_ranks(hits, scores, mask, ties=ties), k).sum(-1)
    return settle(found / hits.sum(-1), scores, mask, without=~hits.any(-1), empty=empty)
