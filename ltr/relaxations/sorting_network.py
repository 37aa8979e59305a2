"""Differentiable sorting networks: a fixed sequence of comparators, each of them a soft swap."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ltr.knobs import check_choice, check_positive
from ltr.metrics.ordering import order_by_score
from ltr.metrics.per_list import promoted
from ltr.typing import Carried, Mask, Matrix, Ranks, Scores


def network_sort(
    scores: Scores,
    mask: Mask,
    *,
    order: Ranks | None = None,
    network: str = "bitonic",
    distribution: str = "cauchy",
    temperature: float = 0.1,
) -> Matrix:
    """Return the matrix S of a soft sorting network, ``[batch, rank, item]``.

    A comparator of two wires with the values a and b puts f a + (1 - f) b on the first and
    (1 - f) a + f b on the second, with f = f((a - b) / temperature) (Petersen et al., 2021). S is
    the product of all comparators, and doubly stochastic. As the temperature goes to 0, S becomes
    the permutation matrix.

    Args:
        order: the item that enters each wire, padding last, ``[batch, list]``; None: by descending
            score, so that S does not depend on the order in which the items are given. S may then
            jump where two scores cross, as tied items do not share their ranks equally.
        network: ``bitonic`` has log2(n) (log2(n) + 1) / 2 layers for a list of n items, log2(n)
            rounded up; ``odd_even`` has n.
        distribution: the function f, with f(x) + f(-x) = 1 (Petersen et al., 2022). ``cauchy`` is
            1/2 + arctan(x) / pi, ``reciprocal`` 1/2 + x / (1 + 2 |x|). ``optimal`` is 1/2 + x for
            |x| <= 1/4, 1 - 1 / (16 x) for larger x. With these three, no sorted score, (S s)_r,
            falls where a score rises. With ``logistic``, the sigmoid of 2021, some do.
        temperature: > 0, in units of the scores.

    >>> scores = torch.tensor([[1.0, 3.0, 9.0]])
    >>> network_sort(scores, scores < 9, temperature=1.0)[0, 0]  # 1/2 - arctan(2) / pi and the rest
    tensor([0.1476, 0.8524, 0.0000])
    """
    items = torch.eye(mask.shape[-1], device=mask.device).expand(*mask.shape, -1)
    items = items.masked_fill(~mask.unsqueeze(-1), 0)
    order = order_by_score(promoted(scores), mask) if order is None else order
    return soft_sorted(items, scores, mask, order, network, distribution, temperature)


def soft_sorted(
    values: Carried,
    scores: Scores,
    mask: Mask,
    order: Ranks,
    network: str,
    distribution: str,
    temperature: float,
) -> Carried:
    """Return S times ``values``, ``[batch, rank, channel]``, without S; knobs as ``network_sort``.

    ``values``, ``[batch, item, channel]``, are 0 on padding.
    """
    temperature = check_positive("temperature", temperature)
    check_choice("network", network, list(_NETWORKS))
    check_choice("distribution", distribution, list(_DISTRIBUTIONS))
    scores, f = promoted(scores).masked_fill(~mask, 0), _DISTRIBUTIONS[distribution]
    center = scores.detach().sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    keys = ((scores - center) / temperature).masked_fill(~mask, 0)  # near 0 they lose no digits
    # [wire, channel, list]: the keys are the first channel, and wires are exchanged as a whole
    carried = torch.cat([keys.unsqueeze(-1), values.to(keys.dtype)], -1)
    carried = carried.gather(1, order.unsqueeze(-1).expand_as(carried)).permute(1, 2, 0)
    wires, sizes = torch.arange(mask.shape[-1], device=mask.device), mask.sum(-1)
    for partner, longer in _NETWORKS[network](wires):
        other = carried.index_select(0, partner)
        last = torch.maximum(wires, partner).clamp(min=longer).unsqueeze(-1)
        turn = torch.where(wires < partner, 1.0, -1.0).unsqueeze(-1)  # 1: gets the larger key
        share = f(turn * (carried[:, 0] - other[:, 0])).where(last < sizes, 1.0)
        carried = torch.lerp(other, carried, share.unsqueeze(1))
    return carried[:, 1:].permute(2, 0, 1)


def _bitonic(wires: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield each layer: the partner of each wire, and the size above which a list has the layer.

    Sorted blocks are merged, two at a time. The first layer of a merger compares the wires from
    outside to inside, the next ones at distances of half the block, a quarter and so on. The
    partner of a wire without one is the wire itself.
    """
    half = 1
    while half < len(wires):
        for gap in (2 * half - 1, *(half >> m for m in range(1, half.bit_length()))):
            partner = wires ^ gap
            yield partner.where(partner < len(wires), wires), half
        half *= 2


def _odd_even(wires: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield each layer as ``_bitonic``: neighbours are compared, from wire 0 or 1 on in turn."""
    for layer in range(len(wires)):
        odd = layer % 2
        yield (((wires + odd) ^ 1) - odd).clamp(0, len(wires) - 1), layer


def _optimal(x: Tensor) -> Tensor:
    size = x.abs()
    far = x.sign() * (0.5 - 1 / (16 * size.clamp(min=0.25)))
    return 0.5 + x.where(size <= 0.25, far)


_NETWORKS: dict[str, Callable[[Tensor], Iterator[tuple[Tensor, int]]]] = {
    "bitonic": _bitonic,
    "odd_even": _odd_even,
}
_DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cauchy": lambda x: 0.5 + x.atan() / math.pi,
    "reciprocal": lambda x: 0.5 + x / (1 + 2 * x.abs()),
    "optimal": _optimal,
    "logistic": torch.sigmoid,
}
