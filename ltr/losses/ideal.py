"""The ideal order of a list: by label, equal ones by score."""

import torch

from ltr.metrics.ordering import order_by_score
from ltr.typing import Labels, Mask, Ranks, Scores


def ideal_order(scores: Scores, labels: Labels, mask: Mask) -> Ranks:
    """The index of the item at each rank, ``[batch, rank]``; padding comes last.

    In descending order of label, items with equal labels in that of score, equal ones of these as
    they are given.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[1.0, 0.0, 1.0]])
    >>> ideal_order(scores, labels, torch.tensor([[True, True, True]]))
    tensor([[2, 0, 1]])
    """
    order = order_by_score(scores.detach(), mask)
    keys = labels.masked_fill(~mask, -torch.inf).gather(-1, order)
    return order.gather(-1, keys.argsort(dim=-1, descending=True, stable=True))
