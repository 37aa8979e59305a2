"""Sort items in descending order of score, with the tie rules that the whole project uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from ltr.knobs import check_choice
from ltr.metrics.spec import TIES
from ltr.typing import Mask, Ranks, Scores

_Sorted = tuple[Tensor, Tensor, Ranks]
_kept: ContextVar[dict[tuple[int, int], _Sorted] | None] = ContextVar("kept", default=None)


@contextmanager
def sorted_once() -> Iterator[None]:
    """Context manager in which the same tensors of scores and mask are sorted only once.

    All metrics and cutoffs of a batch then share one order by score and one ideal order. The
    tensors must not be changed inside the context.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def order_by_score(scores: Scores, mask: Mask) -> Ranks:
    """Return the index of the item at each rank, ``[batch, rank]``.

    The sort is stable: items with equal scores keep their given order, the order of the file.
    Padding comes last, and before it the items with the score -inf. The rank of an item with the
    score NaN is undefined.
    """
    # Calling id() in a compiled graph would compile it again for every tensor.
    kept = None if torch.compiler.is_compiling() else _kept.get()
    if kept is not None and (id(scores), id(mask)) in kept:
        return kept[id(scores), id(mask)][-1]
    order = _keys(scores, mask).argsort(dim=-1, descending=True, stable=True)
    if kept is not None:  # keep the tensors alive, so that no other tensor gets the same id
        kept[id(scores), id(mask)] = scores, mask, order
    return order


def rank_of_item(scores: Scores, mask: Mask) -> Ranks:
    """Return the rank of each item, 1 = best, ``[batch, item]``; padding gets the last ranks."""
    return at_items(order_by_score(scores, mask))


def at_items(order: Ranks) -> Ranks:
    """Return the rank of each item in ``order``, 1 = first, ``[batch, item]``."""
    return torch.empty_like(order).scatter(-1, order, ranks_like(order).expand_as(order))


def ranks_like(values: Tensor) -> Tensor:
    """Return the ranks 1, 2, ... for the last dimension of ``values``, ``[rank]``.

    The dtype is that of ``values`` if it is floating, else int64.
    """
    dtype = values.dtype if values.is_floating_point() else torch.long
    return torch.arange(1, values.shape[-1] + 1, dtype=dtype, device=values.device)


def real_ranks(mask: Mask) -> Mask:
    """Return True at the ranks 1 to n of a list of n items, ``[batch, rank]``."""
    return ranks_like(mask) <= mask.sum(-1, keepdim=True)


def at_ranks(values: Scores, scores: Scores, mask: Mask, *, ties: str = "file") -> Scores:
    """Return the value of the item at each rank, ``[batch, rank]``.

    The value is 0 where the item has the score -inf: it was not retrieved. With
    ``ties="averaged"``, items with equal scores all get their mean value, which is the expected
    value over all their orders (McSherry and Najork, 2008, section 2). A weighted sum of the values
    over ranks is then an expected value as well.

    >>> values, scores = torch.tensor([[4.0, 1.0, 2.0]]), torch.tensor([[0.5, 0.9, 0.5]])
    >>> at_ranks(values, scores, values > 0, ties="averaged")
    tensor([[1., 3., 3.]])
    """
    check_choice("ties", ties, list(TIES))
    found = values.masked_fill(scores == -torch.inf, 0)
    ordered = found.gather(-1, order_by_score(scores, mask))
    if ties == "file":
        return ordered
    groups = tie_groups(scores, mask)
    return sum_of_group(ordered, groups) / sum_of_group(torch.ones_like(ordered), groups)


def tie_groups(scores: Scores, mask: Mask) -> Ranks:
    """Return for each rank the index of its group of equal scores, from 0, ``[batch, rank]``."""
    keys = _keys(scores, mask).gather(-1, order_by_score(scores, mask))
    differ = torch.zeros_like(keys, dtype=torch.long)
    differ[:, 1:] = (keys[:, 1:] != keys[:, :-1]).long()
    return differ.cumsum(-1)


def sum_of_group(values: Tensor, groups: Ranks) -> Tensor:
    """Return for each rank the sum of ``values`` over its group, ``[batch, rank]``."""
    return torch.zeros_like(values).scatter_add(-1, groups, values).gather(-1, groups)


def running_sums(values: Tensor) -> Tensor:
    """Return the sums of the first 1, 2, ... numbers along the last dimension, ``[..., n]``.

    PyTorch's ``cumsum`` of floats is not deterministic on a GPU. If deterministic algorithms are
    enabled there, sums of 1, 2, 4 and more neighbours are added instead.
    """
    if values.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return values.cumsum(-1)
    return _sums_by_doubling(values)


def _sums_by_doubling(values: Tensor) -> Tensor:
    reach = 1
    while reach < values.shape[-1]:
        values = values + torch.nn.functional.pad(values, (reach, 0))[..., :-reach]
        reach *= 2
    return values


def _keys(scores: Scores, mask: Mask) -> Scores:
    scores = scores if scores.is_floating_point() else scores.double()  # integer labels
    lowest = torch.finfo(scores.dtype).min
    return scores.clamp(min=lowest).masked_fill(~mask, -torch.inf)
