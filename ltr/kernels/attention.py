"""Attention over lists of packed items, and the draws of dropout, for the CPU.

PyTorch's own attention takes padded lists, and its dropout draws one value at a time there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_LEVELS = 1 << 16  # 16 random bits decide whether a value is kept


def attend_packed(projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
    """softmax(Q K' / sqrt(d)) V of every list by itself, ``[items, size]``.

    Args:
        projected: ``[items, 3 * size]`` in float32 or float64, Q, K and V side by side.
        lengths: items of each list.
        heads: divides ``size``.
        rate: of dropout on the attention weights.
    """
    if rate or (torch.is_grad_enabled() and projected.requires_grad):
        attended: Tensor = _PackedAttention.apply(projected, lengths, heads, rate)
        return attended
    # without dropout and gradients no n x n matrix is kept
    out = projected.new_empty(len(projected), projected.shape[1] // 3)
    for rows, result in zip(projected.split(lengths), out.split(lengths), strict=True):
        query, key, value = _heads(rows, heads).unsqueeze(1)
        one = functional.scaled_dot_product_attention(query, key, value)
        result.copy_(one[0].transpose(0, 1).flatten(1))
    return out


def _heads(rows: Tensor, heads: int) -> Tensor:
    """``[n, 3 * size]`` as ``[3, heads, n, size / heads]``, without a copy."""
    return rows.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)


class _PackedAttention(torch.autograd.Function):
    """Attention of each list with dropout, and its gradient; many lists cost one autograd node."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
        size = projected.shape[1] // 3
        scale = (size // heads) ** -0.5
        weights = projected.new_empty(heads * sum(n * n for n in lengths))
        keep = keep_factors(weights.shape, rate).to(weights.dtype) if rate else None
        out = projected.new_empty(len(projected), size)
        for rows, result, place in _lists(projected, out, lengths, heads):
            query, key, value = _heads(rows, heads)
            shape = (heads, len(rows), len(rows))
            weight = torch.bmm(query, key.mT, out=weights[place].view(shape)).mul_(scale)
            torch.softmax(weight, -1, out=weight)
            if keep is not None:
                weight = weight * keep[place].view(shape)
            torch.bmm(weight, value, out=result.unflatten(1, (heads, -1)).transpose(0, 1))
        ctx.save_for_backward(projected, weights, keep)
        ctx.lengths, ctx.heads, ctx.scale = lengths, heads, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # by create_graph=True; what follows would be constants
            raise NotImplementedError(
                "attention has no second derivative: take the first alone, without "
                "create_graph=True, or a model without attention, such as model=mlp"
            )
        projected, weights, keep = ctx.saved_tensors
        heads, lengths = ctx.heads, ctx.lengths
        found = torch.empty_like(projected)
        slopes = found.split(lengths)
        lists = _lists(projected, grad, lengths, heads)
        for slope, (rows, upper, place) in zip(slopes, lists, strict=True):
            query, key, value = _heads(rows, heads)
            upper = upper.unflatten(1, (heads, -1)).transpose(0, 1)
            weight = weights[place].view(heads, len(rows), len(rows))
            of_weight, kept = torch.bmm(upper, value.mT), weight
            if keep is not None:
                factors = keep[place].view_as(weight)
                of_weight.mul_(factors)
                kept = weight * factors
            of_query, of_key, of_value = _heads(slope, heads)
            torch.bmm(kept.mT, upper, out=of_value)
            # of a softmax: w * (g - sum of w g)
            of_weight.mul_(weight)
            of_logit = of_weight.sub_(weight * of_weight.sum(-1, keepdim=True)).mul_(ctx.scale)
            torch.bmm(of_logit, key, out=of_query)
            torch.bmm(of_logit.mT, query, out=of_key)
        return found, None, None, None


def _lists(
    projected: Tensor, items: Tensor, lengths: list[int], heads: int
) -> list[tuple[Tensor, Tensor, slice]]:
    """For each list its rows of both tensors and the place of its attention weights."""
    ends = torch.tensor([heads * n * n for n in lengths]).cumsum(0).tolist()
    places = [slice(end - heads * n * n, end) for end, n in zip(ends, lengths, strict=True)]
    return list(zip(projected.split(lengths), items.split(lengths), places, strict=True))


def keep_factors(shape: Sequence[int], rate: float) -> Tensor:
    """0 with probability ``rate``, else 1 / (1 - rate), independently, float32 on the CPU.

    ``rate`` is rounded to a multiple of 2**-16, in the scale too, so that the expected factor is 1.
    A number from torch's global generator seeds NumPy's, so that ``torch.manual_seed`` and
    checkpoints govern the draws.

    >>> keep_factors((2, 3), 0.0)
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    count = int(np.prod(shape))
    bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    draws = bits.random_raw(-(-count // 4)).view(np.uint16)[:count]  # four of each 64 bits
    keep = torch.from_numpy(draws >= dropped).float().mul_(_LEVELS / (_LEVELS - dropped))
    return keep.view(tuple(shape))
