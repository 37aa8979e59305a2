"""Encoder blocks of the Transformer over packed lists."""

from torch import Tensor, nn

from ltr.models.attention import attend
from ltr.models.dropout import Dropout
from ltr.models.packing import Packing


class EncoderBlock(nn.Module):
    """Pre-norm self-attention and feed-forward, each added to its input (Vaswani et al., 2017).

    The same as ``torch.nn.TransformerEncoderLayer(norm_first=True)``, but the padding is left out.
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
