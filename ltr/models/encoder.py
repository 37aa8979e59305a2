"""Encoder blocks of the Transformer over packed lists."""

from torch import Tensor, nn
from torch.nn import functional

from ltr.models.packing import Packing


class EncoderBlock(nn.Module):
    """Pre-norm self-attention and feed-forward, each added to its input (Vaswani et al., 2017).

    The same as ``torch.nn.TransformerEncoderLayer(norm_first=True)``, on PyTorch's own attention,
    but all that works item by item leaves the padding out.
    """

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        """``heads`` divides ``size``; ``dropout`` is on attention weights too."""
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.norm1 = nn.LayerNorm(size)
        self.in_proj = nn.Linear(size, 3 * size)
        self.out_proj = nn.Linear(size, size)
        self.norm2 = nn.LayerNorm(size)
        self.linear1 = nn.Linear(size, feed_forward)
        self.linear2 = nn.Linear(feed_forward, size)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """``[items, size]`` to ``[items, size]``; an item sees the real items of its own list."""
        items = items + self.dropout(self._attention(self.norm1(items), packing))
        hidden = self.dropout(self.linear1(self.norm2(items)).relu())
        return items + self.dropout(self.linear2(hidden))

    def _attention(self, items: Tensor, packing: Packing) -> Tensor:
        mask = packing.mask
        projected = packing.unpack(self.in_proj(items))  # [batch, list, 3 * size]
        query, key, value = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        # A list of no items attends to its padding: attention over nothing could be NaN.
        seen = mask | ~mask.any(-1, keepdim=True)
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=seen[:, None, None, :],
            dropout_p=self.rate if self.training else 0.0,
        )
        merged = attended.transpose(1, 2).flatten(-2)
        flat = merged.flatten(0, 1)
        kept = flat if packing.places is None else flat[packing.places]
        return self.out_proj(kept)


class Encoder(nn.Module):
    """A stack of blocks with a final layer norm."""

    def __init__(
        self, size: int, *, blocks: int, heads: int, feed_forward: int, dropout: float
    ) -> None:
        """See ``EncoderBlock``."""
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
