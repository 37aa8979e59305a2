"""Self-attention inside each list, padded or packed, and the encoder blocks around it."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.models.layers import Dropout, Packing, keep_factors


def attend(projected: Tensor, packing: Packing, *, heads: int, rate: float) -> Tensor:
    """softmax(Q K' / sqrt(d)) V of every list by itself, ``[items, size]`` (Vaswani et al., 2017).

    Packed items are attended list by list, so that time and memory grow with the sum of the squared
    lengths; padded ones by PyTorch's own attention. Both give the same values.

    Args:
        projected: ``[items, 3 * size]``, Q, K and V side by side; each is ``heads`` vectors.
        packing: of the items.
        heads: divides ``size``.
        rate: of dropout on the attention weights, 0 outside training.
    """
    if packing.lengths is None:
        return _attend_padded(projected, packing, heads, rate)
    wide = projected if projected.dtype == torch.float64 else projected.float()
    with torch.autocast(projected.device.type, enabled=False):
        if rate or (torch.is_grad_enabled() and wide.requires_grad):
            attended: Tensor = _PackedAttention.apply(wide, packing.lengths, heads, rate)
            return attended
        return _attend_packed(wide, packing.lengths, heads)


def _attend_padded(projected: Tensor, packing: Packing, heads: int, rate: float) -> Tensor:
    mask = packing.mask
    padded = packing.unpack(projected)  # [batch, list, 3 * size]
    query, key, value = padded.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    # A list of no items attends to its padding: attention over nothing could be NaN.
    seen = mask | ~mask.any(-1, keepdim=True)
    attended = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=seen[:, None, None, :], dropout_p=rate
    )
    return attended.transpose(1, 2).flatten(-2).flatten(0, 1)


def _attend_packed(projected: Tensor, lengths: list[int], heads: int) -> Tensor:
    """Attention without dropout and gradients, which keeps no n x n matrix."""
    out = projected.new_empty(len(projected), projected.shape[1] // 3)
    for rows, result in zip(projected.split(lengths), out.split(lengths), strict=True):
        query, key, value = _heads(rows, heads).unsqueeze(1)
        attended = functional.scaled_dot_product_attention(query, key, value)
        result.copy_(attended[0].transpose(0, 1).flatten(1))
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


class EncoderBlock(nn.Module):
    """Pre-norm self-attention and feed-forward, each added to its input (Vaswani et al., 2017).

    ``torch.nn.TransformerEncoderLayer(norm_first=True)`` without padding; ``heads`` divides
    ``size``, and ``dropout`` is on attention weights too.
    """

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.norm1 = nn.LayerNorm(size)
        self.in_proj = nn.Linear(size, 3 * size)
        self.out_proj = nn.Linear(size, size)
        self.norm2 = nn.LayerNorm(size)
        self.linear1 = nn.Linear(size, feed_forward)
        self.linear2 = nn.Linear(feed_forward, size)
        self.dropout = Dropout(dropout, inplace=True)  # of what a linear layer gave
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """``[items, size]`` to ``[items, size]``; an item sees the real items of its own list."""
        rate = self.rate if self.training else 0.0
        projected = self.in_proj(self.norm1(items))
        attended = self.out_proj(attend(projected, packing, heads=self.heads, rate=rate))
        items = items + self.dropout(attended)
        # Dropout before ReLU: the same values, and both can overwrite what linear1 gave.
        hidden = self.dropout(self.linear1(self.norm2(items))).relu_()
        return items + self.dropout(self.linear2(hidden))


class Encoder(nn.Module):
    """A stack of blocks with a final layer norm."""

    def __init__(
        self, size: int, *, blocks: int, heads: int, feed_forward: int, dropout: float
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            EncoderBlock(size, heads, feed_forward, dropout) for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(size)

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """``[items, size]`` to ``[items, size]``."""
        for block in self.blocks:
            items = block(items, packing)
        normed: Tensor = self.norm(items)
        return normed

    def bytes_needed(self, items: int, *, training: bool) -> int:
        """About the memory of one list of ``items`` on a CPU, in bytes, without the features.

        Attention without gradients keeps no matrix of items by items. With gradients it keeps one
        for each head of each block, with dropout two, and needs two or three more at work.
        """
        first = cast(EncoderBlock, self.blocks[0])
        size, wide = first.in_proj.in_features, first.linear1.out_features
        vectors = items * (7 * size + 2 * wide)
        if not training:
            return 4 * vectors
        blocks = len(self.blocks)
        matrices = blocks * 2 + 3 if first.rate else blocks + 2
        return 4 * (blocks * vectors + matrices * first.heads * items**2)
