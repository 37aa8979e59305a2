"""Differentiable sorting networks: fixed sequences of comparators, which swap values softly."""

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
    r"""Return the matrix S of a soft sorting network.

    Each comparator connects two wires, and replaces their values a and b:

    .. math::
        (a, b) \leftarrow (p \, a + (1 - p) \, b, \; (1 - p) \, a + p \, b), \qquad
        p = f\left(\frac{a - b}{\mathrm{temperature}}\right)

    S is the product of all comparators. As the temperature goes to 0, S becomes the permutation
    matrix.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        order: the item that enters each wire, ``[batch, list]``, padding last. If None, the items
            enter in descending order of score, so S does not depend on the order in which they are
            given. S may then jump where two scores cross, because tied items do not share their
            ranks equally.
        network: ``bitonic`` has m (m + 1) / 2 layers for a list of n items, where m is log2(n),
            rounded up; ``odd_even`` has n layers.
        distribution: the function f, with f(x) + f(-x) = 1. ``cauchy`` is 1/2 + arctan(x) / pi, and
            ``reciprocal`` is 1/2 + x / (1 + 2 |x|). ``optimal`` is 1/2 + x for |x| <= 1/4, and
            1 - 1 / (16 x) for larger x. With these three functions, no sorted score (S s)_r
            decreases when a score increases. With ``logistic``, the sigmoid of the 2021 paper, a
            sorted score may decrease.
        temperature: > 0, in units of the scores.

    Returns:
        S, ``[batch, rank, item]``, doubly stochastic.

    Raises:
        ConfigError: a keyword argument is unknown or out of range.

    Source: Petersen et al. (2021); the functions f are from Petersen et al. (2022).

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
    """Return S times ``values`` without forming S.

    Args:
        values: ``[batch, item, channel]``, 0 on padding.
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        order: the item that enters each wire, ``[batch, list]``, padding last.
        network, distribution, temperature: as for ``network_sort``.

    Returns:
        The softly sorted values, ``[batch, rank, channel]``.
    """
    temperature = check_positive("temperature", temperature)
    check_choice("network", network, list(_NETWORKS))
    check_choice("distribution", distribution, list(_DISTRIBUTIONS))
    f = _DISTRIBUTIONS[distribution]
    scores = promoted(scores).masked_fill(~mask, 0)
    center = scores.detach().sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    keys = ((scores - center) / temperature).masked_fill(~mask, 0)  # fewer digits are lost near 0
    # [wire, channel, list]: the keys are the first channel, and wires are exchanged as a whole
    carried = torch.cat([keys.unsqueeze(-1), values.to(keys.dtype)], -1)
    carried = carried.gather(1, order.unsqueeze(-1).expand_as(carried)).permute(1, 2, 0)
    wires = torch.arange(mask.shape[-1], device=mask.device)
    sizes = mask.sum(-1)
    for partner, longer_than in _NETWORKS[network](wires):
        of_partner = carried.index_select(0, partner)
        # A comparator applies to lists that reach its last wire and are long enough for the layer.
        last_wire = torch.maximum(wires, partner).clamp(min=longer_than).unsqueeze(-1)
        sign = torch.where(wires < partner, 1.0, -1.0).unsqueeze(-1)  # 1: gets the larger key
        share = f(sign * (carried[:, 0] - of_partner[:, 0])).where(last_wire < sizes, 1.0)
        carried = torch.lerp(of_partner, carried, share.unsqueeze(1))
    return carried[:, 1:].permute(2, 0, 1)


def _bitonic(wires: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield each layer: the partner of each wire, and the length above which lists use the layer.

    Sorted blocks are merged, two at a time. The first layer of a merge compares the two outermost
    wires, the next two wires inside them, and so on. The following layers compare wires at a
    distance of half a block, a quarter of a block, and so on. A wire without a partner is its own
    partner.
    """
    half = 1
    while half < len(wires):
        for gap in (2 * half - 1, *(half >> m for m in range(1, half.bit_length()))):
            partner = wires ^ gap
            yield partner.where(partner < len(wires), wires), half
        half *= 2


def _odd_even(wires: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield each layer, as ``_bitonic`` does.

    The layers alternate: one compares the wires 0 and 1, 2 and 3, and so on; the next compares the
    wires 1 and 2, 3 and 4, and so on.
    """
    for layer in range(len(wires)):
        odd = layer % 2
        yield (((wires + odd) ^ 1) - odd).clamp(0, len(wires) - 1), layer


def _optimal(x: Tensor) -> Tensor:
    """Return 1/2 + x near 0, and 1 - 1 / (16 x) or its mirror image elsewhere."""
    distance = x.abs()
    far = x.sign() * (0.5 - 1 / (16 * distance.clamp(min=0.25)))
    return 0.5 + x.where(distance <= 0.25, far)


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
