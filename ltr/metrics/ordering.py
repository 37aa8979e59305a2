"""Sort items in descending order of score, with the tie rules of the whole project."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from ltr.knobs import check_choice
from ltr.metrics.spec import TIES
from ltr.typing import Mask, Ranks, Scores

# The ids of scores and mask -> these tensors, and the order that they were sorted into.
_Orders = dict[tuple[int, int], tuple[Tensor, Tensor, Ranks]]
_known_orders: ContextVar[_Orders | None] = ContextVar("known_orders", default=None)


@contextmanager
def sorted_once() -> Iterator[None]:
    """Sort the same tensors of scores and mask only once within this context.

    All metrics and cutoffs of a batch then share one order by score and one ideal order. The
    tensors must not be changed inside the context.
    """
    token = _known_orders.set({})
    try:
        yield
    finally:
        _known_orders.reset(token)


def order_by_score(scores: Scores, mask: Mask) -> Ranks:
    """Return the index of the item at each rank, ``[batch, rank]``.

    The sort is stable: items with equal scores keep the order in which they are given, which is
    that of the file. Padding comes last, and items with the score -inf come just before it. The
    rank of an item with the score NaN is undefined.
    """
    # Calling id() in a compiled graph would compile it again for every tensor.
    known_orders = None if torch.compiler.is_compiling() else _known_orders.get()
    if known_orders is not None and (id(scores), id(mask)) in known_orders:
        return known_orders[id(scores), id(mask)][-1]
    order = _keys(scores, mask).argsort(dim=-1, descending=True, stable=True)
    if known_orders is not None:  # store the tensors too, so that no other tensor gets their ids
        known_orders[id(scores), id(mask)] = scores, mask, order
    return order


def rank_of_item(scores: Scores, mask: Mask) -> Ranks:
    """Return each item's rank, ``[batch, item]``; 1 is the best. Padding gets the last ranks."""
    return at_items(order_by_score(scores, mask))


def at_items(order: Ranks) -> Ranks:
    """Return the rank, ``[batch, item]``, of each item in ``order``; ranks start at 1."""
    return torch.empty_like(order).scatter(-1, order, ranks_like(order).expand_as(order))


def ranks_like(values: Tensor) -> Tensor:
    """Return the ranks 1, 2, ..., ``[rank]``, for the last dimension of ``values``.

    The dtype is that of ``values`` if it is a floating-point type, else int64.
    """
    dtype = values.dtype if values.is_floating_point() else torch.long
    return torch.arange(1, values.shape[-1] + 1, dtype=dtype, device=values.device)


def real_ranks(mask: Mask) -> Mask:
    """Return, for each rank, ``[batch, rank]``, whether the list has an item at it."""
    return ranks_like(mask) <= mask.sum(-1, keepdim=True)


def at_ranks(values: Scores, scores: Scores, mask: Mask, *, ties: str = "file") -> Scores:
    """Return the value of the item at each rank, ``[batch, rank]``.

    Args:
        values: ``[batch, list]``, the value of each item, such as its gain.
        scores, mask: ``[batch, list]``; items are ranked by descending score.
        ties: with ``"file"``, items with equal scores keep the order in which they are given. With
            ``"averaged"``, they all get their mean value, which is the expected value over all
            their orders (McSherry and Najork, 2008, section 2). A weighted sum of the values over
            ranks is then an expected value as well.

    Returns:
        The values in the order of the ranks. An item with the score -inf was not retrieved, and its
        value is 0.

    Raises:
        ConfigError: ``ties`` is unknown.

    >>> values, scores = torch.tensor([[4.0, 1.0, 2.0]]), torch.tensor([[0.5, 0.9, 0.5]])
    >>> at_ranks(values, scores, values > 0, ties="averaged")
    tensor([[1., 3., 3.]])
    """
    check_choice("ties", ties, list(TIES))
    retrieved = values.masked_fill(scores == -torch.inf, 0)
    ordered = retrieved.gather(-1, order_by_score(scores, mask))
    if ties == "file":
        return ordered
    groups = tie_groups(scores, mask)
    return sum_of_group(ordered, groups) / sum_of_group(torch.ones_like(ordered), groups)


def tie_groups(scores: Scores, mask: Mask) -> Ranks:
    """Return the 0-based index of the group of equal scores at each rank, ``[batch, rank]``."""
    keys = _keys(scores, mask).gather(-1, order_by_score(scores, mask))
    differ = torch.zeros_like(keys, dtype=torch.long)
    differ[:, 1:] = (keys[:, 1:] != keys[:, :-1]).long()
    return differ.cumsum(-1)


def sum_of_group(values: Tensor, groups: Ranks) -> Tensor:
    """Return the sum of ``values`` over the group of each rank, ``[batch, rank]``."""
    return torch.zeros_like(values).scatter_add(-1, groups, values).gather(-1, groups)


def running_sums(values: Tensor) -> Tensor:
    """Return the sums of the first 1, 2, ... numbers along the last dimension, ``[..., n]``.

    PyTorch's ``cumsum`` of floats is not deterministic on a GPU. If deterministic algorithms are
    enabled, partial sums over 1, 2, 4, ... neighbours are built there by doubling instead.
    """
    if values.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return values.cumsum(-1)
    return _sums_by_doubling(values)


def _sums_by_doubling(values: Tensor) -> Tensor:
    """Return running sums in log n steps, each of which adds a shifted copy."""
    reach = 1
    while reach < values.shape[-1]:
        values = values + torch.nn.functional.pad(values, (reach, 0))[..., :-reach]
        reach *= 2
    return values


def _keys(scores: Scores, mask: Mask) -> Scores:
    """Return the scores as sort keys: -inf becomes the lowest finite number, padding -inf."""
    scores = scores if scores.is_floating_point() else scores.double()  # integer labels
    lowest = torch.finfo(scores.dtype).min
    return scores.clamp(min=lowest).masked_fill(~mask, -torch.inf)
