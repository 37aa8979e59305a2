"""Attention over lists of packed items, and the random factors of dropout, for the CPU.

PyTorch's own attention needs padded lists, and its dropout on the CPU draws one value at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_LEVELS = 1 << 16  # 16 random bits decide whether a value is kept


def attend_packed(projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
    """Return softmax(Q K' / sqrt(size / heads)) V, ``[items, size]``, within each list.

    Args:
        projected: Q, K and V side by side, ``[items, 3 * size]``, in float32 or float64.
        lengths: the number of items of each list.
        heads: the number of attention heads; it must divide ``size``.
        rate: the dropout rate of the attention weights.
    """
    if rate or (torch.is_grad_enabled() and projected.requires_grad):
        attended: Tensor = _PackedAttention.apply(projected, lengths, heads, rate)
        return attended
    # without dropout and gradient no n x n matrix has to be stored
    attended = projected.new_empty(len(projected), projected.shape[1] // 3)
    for rows, output in zip(projected.split(lengths), attended.split(lengths), strict=True):
        query, key, value = _split_heads(rows, heads).unsqueeze(1)
        by_head = functional.scaled_dot_product_attention(query, key, value)[0]
        output.copy_(by_head.transpose(0, 1).flatten(1))
    return attended


def _split_heads(rows: Tensor, heads: int) -> Tensor:
    """View ``[n, 3 * size]`` as ``[3, heads, n, size / heads]``, without a copy."""
    return rows.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)


class _PackedAttention(torch.autograd.Function):
    """Attention of each list with dropout, and its gradient, as one autograd node for all lists."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, lengths: list[int], heads: int, rate: float) -> Tensor:
        size = projected.shape[1] // 3
        scale = (size // heads) ** -0.5
        weight_counts = [heads * n * n for n in lengths]
        weights = projected.new_empty(sum(weight_counts))
        factors = keep_factors(weights.shape, rate).to(weights.dtype) if rate else None
        attended = projected.new_empty(len(projected), size)
        lists = _split_lists(projected, attended, lengths, weights, factors, weight_counts)
        for rows, output, flat_weight, flat_factor in lists:
            query, key, value = _split_heads(rows, heads)
            weight = flat_weight.view(heads, len(rows), len(rows))
            torch.bmm(query, key.mT, out=weight).mul_(scale)
            torch.softmax(weight, -1, out=weight)
            if flat_factor is not None:
                weight = weight * flat_factor.view_as(weight)
            torch.bmm(weight, value, out=output.unflatten(1, (heads, -1)).transpose(0, 1))
        ctx.save_for_backward(projected, weights, factors)
        ctx.lengths = lengths
        ctx.heads = heads
        ctx.scale = scale
        ctx.weight_counts = weight_counts
        return attended

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True: the result would be a constant
            raise NotImplementedError(
                "the second derivative of attention is not implemented: compute only the first "
                "derivative, without create_graph=True, or use a model without attention, such as "
                "model=mlp"
            )
        projected, weights, factors = ctx.saved_tensors
        grad_projected = torch.empty_like(projected)
        lists = _split_lists(projected, grad, ctx.lengths, weights, factors, ctx.weight_counts)
        grad_rows = grad_projected.split(ctx.lengths)
        for grad_row, (rows, upstream, flat_weight, flat_factor) in zip(
            grad_rows, lists, strict=True
        ):
            query, key, value = _split_heads(rows, ctx.heads)
            upstream = upstream.unflatten(1, (ctx.heads, -1)).transpose(0, 1)
            weight = flat_weight.view(ctx.heads, len(rows), len(rows))
            grad_weight = torch.bmm(upstream, value.mT)
            dropped = weight
            if flat_factor is not None:
                grad_weight.mul_(flat_factor.view_as(weight))
                dropped = weight * flat_factor.view_as(weight)
            grad_query, grad_key, grad_value = _split_heads(grad_row, ctx.heads)
            torch.bmm(dropped.mT, upstream, out=grad_value)
            # gradient of a softmax: w * (g - sum of w g)
            grad_weight.mul_(weight)
            row_sums = grad_weight.sum(-1, keepdim=True)
            grad_logit = grad_weight.sub_(weight * row_sums).mul_(ctx.scale)
            torch.bmm(grad_logit, key, out=grad_query)
            torch.bmm(grad_logit.mT, query, out=grad_key)
        return grad_projected, None, None, None


def _split_lists(
    projected: Tensor,
    items: Tensor,
    lengths: list[int],
    weights: Tensor,
    factors: Tensor | None,
    weight_counts: list[int],
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """Yield, for each list, its rows of ``projected`` and of ``items``, its weights and factors."""
    list_factors: Sequence[Tensor | None] = [None] * len(lengths)
    if factors is not None:
        list_factors = factors.split(weight_counts)
    return zip(
        projected.split(lengths),
        items.split(lengths),
        weights.split(weight_counts),
        list_factors,
        strict=True,
    )


def keep_factors(shape: Sequence[int], rate: float) -> Tensor:
    """Draw independent dropout factors: 0 with probability ``rate``, else 1 / (1 - rate).

    The factors are float32 on the CPU. ``rate`` is first rounded to a multiple of 2**-16. Both the
    probability and the factor use the rounded rate, so the expected factor is 1. A NumPy generator
    draws the factors; its seed is a random number from torch's global generator.
    """
    dropped_levels = min(round(rate * _LEVELS), _LEVELS - 1)
    count = int(np.prod(shape))
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    draws = generator.random_raw(-(-count // 4)).view(np.uint16)[:count]  # four in each 64 bits
    factor = _LEVELS / (_LEVELS - dropped_levels)
    factors = np.multiply(draws >= dropped_levels, factor, dtype=np.float32)
    return torch.from_numpy(factors).view(tuple(shape))
