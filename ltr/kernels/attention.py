"""Attention over lists of packed items, and the random factors of dropout, for the CPU.

PyTorch's own attention needs padded lists, and on the CPU its dropout draws one value at a time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_LEVELS = 1 << 16  # 16 random bits decide whether a value is kept


def attend_packed(projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
    """Compute softmax(Q K' / sqrt(d)) V within each list, ``[items, size]``.

    Args:
        projected: ``[items, 3 * size]`` in float32 or float64, Q, K and V side by side.
        lengths: number of items of each list.
        heads: number of attention heads; must divide ``size``.
        rate: dropout rate of the attention weights.
    """
    if rate or (torch.is_grad_enabled() and projected.requires_grad):
        attended: Tensor = _PackedAttention.apply(projected, lengths, heads, rate)
        return attended
    # without dropout and gradient no n x n matrix has to be stored
    out = projected.new_empty(len(projected), projected.shape[1] // 3)
    for rows, result in zip(projected.split(lengths), out.split(lengths), strict=True):
        query, key, value = _heads(rows, heads).unsqueeze(1)
        one = functional.scaled_dot_product_attention(query, key, value)
        result.copy_(one[0].transpose(0, 1).flatten(1))
    return out


def _heads(rows: Tensor, heads: int) -> Tensor:
    """View ``[n, 3 * size]`` as ``[3, heads, n, size / heads]``, without a copy."""
    return rows.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)


class _PackedAttention(torch.autograd.Function):
    """Attention of each list with dropout, and its gradient, as one autograd node for all lists."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
        size, squares = projected.shape[1] // 3, [heads * n * n for n in lengths]
        scale = (size // heads) ** -0.5
        weights = projected.new_empty(sum(squares))
        keep = keep_factors(weights.shape, rate).to(weights.dtype) if rate else None
        out = projected.new_empty(len(projected), size)
        for rows, result, flat, kept in _of_lists(projected, out, lengths, weights, keep, squares):
            query, key, value = _heads(rows, heads)
            weight = flat.view(heads, len(rows), len(rows))
            torch.bmm(query, key.mT, out=weight).mul_(scale)
            torch.softmax(weight, -1, out=weight)
            if kept is not None:
                weight = weight * kept.view_as(weight)
            torch.bmm(weight, value, out=result.unflatten(1, (heads, -1)).transpose(0, 1))
        ctx.save_for_backward(projected, weights, keep)
        ctx.lengths, ctx.heads, ctx.scale, ctx.squares = lengths, heads, scale, squares
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True: the result would be a constant
            raise NotImplementedError(
                "attention has no second derivative: take the first alone, without "
                "create_graph=True, or a model without attention, such as model=mlp"
            )
        projected, weights, keep = ctx.saved_tensors
        found = torch.empty_like(projected)
        slopes, squares = found.split(ctx.lengths), ctx.squares
        lists = _of_lists(projected, grad, ctx.lengths, weights, keep, squares)
        for slope, (rows, upper, flat, factors) in zip(slopes, lists, strict=True):
            query, key, value = _heads(rows, ctx.heads)
            upper = upper.unflatten(1, (ctx.heads, -1)).transpose(0, 1)
            weight = flat.view(ctx.heads, len(rows), len(rows))
            of_weight, kept = torch.bmm(upper, value.mT), weight
            if factors is not None:
                of_weight.mul_(factors.view_as(weight))
                kept = weight * factors.view_as(weight)
            of_query, of_key, of_value = _heads(slope, ctx.heads)
            torch.bmm(kept.mT, upper, out=of_value)
            # gradient of a softmax: w * (g - sum of w g)
            of_weight.mul_(weight)
            of_logit = of_weight.sub_(weight * of_weight.sum(-1, keepdim=True)).mul_(ctx.scale)
            torch.bmm(of_logit, key, out=of_query)
            torch.bmm(of_logit.mT, query, out=of_key)
        return found, None, None, None


def _of_lists(
    projected: Tensor, items: Tensor, lengths: Any, weights: Tensor, keep: Any, squares: Any
) -> Any:
    """Yield for each list its rows of both tensors, its attention weights and dropout factors."""
    kept = [None] * len(lengths) if keep is None else keep.split(squares)
    parts = projected.split(lengths), items.split(lengths), weights.split(squares), kept
    return zip(*parts, strict=True)


def keep_factors(shape: Sequence[int], rate: float) -> Tensor:
    """Draw independent dropout factors: 0 with probability ``rate``, else 1 / (1 - rate).

    The factors are float32 on the CPU. ``rate`` is rounded to a multiple of 2**-16, also in
    1 / (1 - rate), so that the expected factor is 1. NumPy's generator draws them, seeded with a
    number from torch's global generator.
    """
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    count = int(np.prod(shape))
    bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    draws = bits.random_raw(-(-count // 4)).view(np.uint16)[:count]  # four in each 64 bits
    keep = np.multiply(draws >= dropped, _LEVELS / (_LEVELS - dropped), dtype=np.float32)
    return torch.from_numpy(keep).view(tuple(shape))
