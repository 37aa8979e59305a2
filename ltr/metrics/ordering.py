"""Items in descending order of score; the tie rule of the whole project is here."""

import torch

from ltr.typing import Mask, Ranks, Scores


def order_by_score(scores: Scores, mask: Mask) -> Ranks:
    """For each rank the index of the item that stands there, ``[batch, rank]``.

    Stable: items with equal scores keep the order in which they are given (the file's). Padding
    comes last. An item scored -inf counts as scored with the lowest finite number, so that it
    stays in front of the padding; the place of an item scored NaN is not defined.
    """
    lowest = torch.finfo(scores.dtype).min
    keys = scores.clamp(min=lowest).masked_fill(~mask, -torch.inf)
    return keys.argsort(dim=-1, descending=True, stable=True)


def rank_of_item(scores: Scores, mask: Mask) -> Ranks:
    """The rank of each item, 1 = best, ``[batch, item]``; padding has the ranks after the items.

    >>> rank_of_item(torch.tensor([[0.1, 0.9, 0.1]]), torch.tensor([[True, True, True]]))
    tensor([[2, 1, 3]])
    """
    order = order_by_score(scores, mask)
    ranks = torch.arange(1, scores.shape[-1] + 1, device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, ranks)
