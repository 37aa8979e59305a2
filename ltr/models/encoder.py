"""Self-attention inside each list, padded or packed, and the encoder blocks around it."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.errors import ConfigError
from ltr.kernels.attention import attend_packed
from ltr.knobs import positive_int
from ltr.models.layers import Dropout, Packing, dropout_rate


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
    if packing.lengths is not None:
        wide = projected if projected.dtype == torch.float64 else projected.float()
        with torch.autocast(projected.device.type, enabled=False):
            return attend_packed(wide, packing.lengths, heads, rate)
    mask = packing.mask
    padded = packing.unpack(projected)  # [batch, list, 3 * size]
    query, key, value = padded.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    # A list of no items attends to its padding: attention over nothing could be NaN.
    seen = mask | ~mask.any(-1, keepdim=True)
    attended = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=seen[:, None, None, :], dropout_p=rate
    )
    return attended.transpose(1, 2).flatten(-2).flatten(0, 1)


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
    """A stack of blocks with a final layer norm; ``ConfigError``: a setting is out of range."""

    def __init__(
        self, size: int, *, blocks: int, heads: int, feed_forward: int, dropout: float | int
    ) -> None:
        super().__init__()
        positive_int("blocks", blocks), positive_int("feed_forward", feed_forward)
        dropout = dropout_rate("dropout", dropout)
        if size % positive_int("heads", heads):
            raise ConfigError(
                f"heads={heads} does not divide the hidden size {size}: change heads or the last "
                "of the sizes before the blocks"
            )
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
