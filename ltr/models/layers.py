"""Layers for the items of padded lists: packing, dense layers, self-attention, scoring head."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.errors import ConfigError
from ltr.kernels.attention import attend_packed, keep_factors
from ltr.knobs import is_number, positive_int
from ltr.typing import Mask, Scores


class Packing(NamedTuple):
    """How to pack the items of padded lists ``[batch, list]`` into one dimension ``[items]``.

    On the CPU only the real items are packed, because most of a padded batch can be padding. On a
    GPU the padding is packed too, because finding the real items would mean waiting for the GPU. A
    compiled model also packs the padding, because its shapes are fixed. The scores of the real
    items are the same either way.

    Attributes:
        mask: ``[batch, list]``, True where an item exists.
        indices: ``[items]``, index of each packed item in the flattened batch; None if the padding
            is packed too.
        lengths: ``[batch]``, number of packed items of each list; None if the padding is packed
            too.
    """

    mask: Mask
    indices: Tensor | None = None
    lengths: list[int] | None = None

    @classmethod
    def from_mask(cls, mask: Mask) -> "Packing":
        """Return the packing for the lists of ``mask``."""
        if mask.is_cuda or torch.compiler.is_compiling():
            return cls(mask)
        return cls(mask, mask.flatten().nonzero().squeeze(-1), mask.sum(-1).tolist())

    def pack(self, padded: Tensor) -> Tensor:
        """Map ``[batch, list, ...]`` to ``[items, ...]``; packed padding becomes 0."""
        flat = padded.flatten(0, 1)
        if self.indices is not None:
            return flat[self.indices]
        is_padding = ~self.mask.flatten()
        return flat.masked_fill(is_padding[(..., *[None] * (flat.dim() - 1))], 0)

    def unpack(self, items: Tensor) -> Tensor:
        """Map ``[items, ...]`` to ``[batch, list, ...]``; padding that was not packed is 0."""
        shape = (*self.mask.shape, *items.shape[1:])
        if self.indices is None:
            return items.view(shape)
        flat = items.new_zeros(self.mask.numel(), *items.shape[1:])
        return flat.index_copy(0, self.indices, items).view(shape)


def split_rows(items: Tensor, rows: int) -> Sequence[Tensor]:
    """Split ``items`` into chunks of at most ``rows`` rows; during an export, do not split them."""
    is_exporting = getattr(torch.compiler, "is_exporting", None)  # torch 2.6 does not have it
    if is_exporting and is_exporting():
        return [items]
    return items.split(max(1, rows))


def sizes_tuple(setting: str, sizes: Iterable[int], *, least: int = 1) -> tuple[int, ...]:
    """Check layer sizes, and return them as a tuple.

    Args:
        setting: the name of the setting, for messages.
        sizes: the layer sizes.
        least: the minimum number of sizes.

    Raises:
        ConfigError: there are fewer than ``least`` sizes, or one is not an integer >= 1.
    """
    if isinstance(sizes, str) or is_number(sizes):
        raise ConfigError(f"{setting}={sizes} is not a list: write '{setting}=[{sizes}]'")
    sizes = list(sizes)
    if len(sizes) < least:
        raise ConfigError(
            f"{setting}=[] has no layer: write at least one size, or use model=linear"
        )
    return tuple(positive_int(f"{setting}[{i}]", size) for i, size in enumerate(sizes))


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}


def activation_module(name: str | None) -> nn.Module:
    """Return a new module for the activation ``name``; None gives the identity.

    Raises:
        ConfigError: the name is unknown.

    >>> activation_module("tanh"), activation_module(None)
    (Tanh(), Identity())
    """
    if (name or "none") not in ACTIVATIONS:
        raise ConfigError(f"'{name}' is not an activation: choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name or "none"]()


class Dropout(nn.Module):
    """In training, sets values to 0 with probability ``rate`` and scales the others up.

    Outside training it is the identity. On the CPU PyTorch's own dropout draws one value at a time,
    which can take a quarter of a training step. Therefore ``keep_factors`` draws the values on
    the CPU; PyTorch draws them on a GPU and in a compiled model.
    """

    def __init__(self, rate: float | int, *, inplace: bool = False) -> None:
        """Set the rate; ``inplace`` overwrites the input, so nothing else may need its values.

        Raises ``ConfigError`` if ``rate`` is not in [0, 1).
        """
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"dropout={rate} is out of range: write a number in [0, 1)")
        self.rate = float(rate)
        self.inplace = inplace

    def forward(self, values: Tensor) -> Tensor:
        """Apply dropout to ``values`` of any shape."""
        if not self.training or self.rate == 0:
            return values
        if values.device.type != "cpu" or torch.compiler.is_compiling():
            return functional.dropout(values, self.rate)  # one kernel; dropout in place takes three
        factors = keep_factors(values.shape, self.rate).to(values.dtype)
        return values.mul_(factors) if self.inplace else values * factors


def dense_layers(
    width: int,
    sizes: Sequence[int],
    *,
    activation: str | None,
    dropout: float | int,
    input_norm: bool,
) -> nn.Sequential:
    """Return a linear layer, an activation and dropout for each size.

    If ``input_norm``, a layer norm comes first.
    """
    layers: list[nn.Module] = [nn.LayerNorm(width)] if input_norm else []
    input_sizes = [width, *sizes][:-1]
    for size_in, size_out in zip(input_sizes, sizes, strict=True):
        layers += [nn.Linear(size_in, size_out), activation_module(activation), Dropout(dropout)]
    return nn.Sequential(*layers)


def attend(projected: Tensor, packing: Packing, *, heads: int, rate: float) -> Tensor:
    """Compute softmax(Q K' / sqrt(d)) V, ``[items, size]``, in each list (Vaswani et al., 2017).

    If only real items are packed, each list is computed separately, so time and memory grow with
    the sum of the squared lengths. If padding is packed too, PyTorch's own attention computes the
    same values.

    Args:
        projected: ``[items, 3 * size]``, Q, K and V side by side.
        packing: the packing of the items.
        heads: number of attention heads.
        rate: dropout rate of the attention weights.
    """
    if packing.lengths is not None:
        wide = projected if projected.dtype == torch.float64 else projected.float()
        with torch.autocast(projected.device.type, enabled=False):
            return attend_packed(wide, packing.lengths, heads, rate)
    mask = packing.mask
    padded = packing.unpack(projected)  # [batch, list, 3 * size]
    query, key, value = padded.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    # A list without items attends to its padding, because attention over nothing could be NaN.
    attended_items = mask | ~mask.any(-1, keepdim=True)
    attended = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attended_items[:, None, None, :], dropout_p=rate
    )
    return attended.transpose(1, 2).flatten(-2).flatten(0, 1)


class EncoderBlock(nn.Module):
    """Pre-norm self-attention, then feed-forward layers (Vaswani et al., 2017).

    The output of each of the two parts is added to its input. The block computes what
    ``torch.nn.TransformerEncoderLayer(norm_first=True)`` computes, but only for packed items. On
    the CPU it therefore spends no time on padding. ``heads`` must divide ``size``. ``dropout`` is
    applied to the attention weights too.
    """

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float | int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(size)
        self.in_proj = nn.Linear(size, 3 * size)
        self.out_proj = nn.Linear(size, size)
        self.norm2 = nn.LayerNorm(size)
        self.linear1 = nn.Linear(size, feed_forward)
        self.linear2 = nn.Linear(feed_forward, size)
        self.dropout = Dropout(dropout, inplace=True)  # its input is always a linear layer's output
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """Map ``[items, size]`` to ``[items, size]``; an item attends to its list's real items."""
        rate = self.dropout.rate if self.training else 0.0
        projected = self.in_proj(self.norm1(items))
        attended = self.out_proj(attend(projected, packing, heads=self.heads, rate=rate))
        items = items + self.dropout(attended)
        # Dropout before ReLU gives the same values, and both can overwrite the output of linear1.
        hidden = self.dropout(self.linear1(self.norm2(items))).relu_()
        return items + self.dropout(self.linear2(hidden))


class Encoder(nn.Module):
    """A stack of encoder blocks, then a layer norm.

    Raises ``ConfigError`` if a setting is out of range.
    """

    def __init__(
        self, size: int, *, blocks: int, heads: int, feed_forward: int, dropout: float | int
    ) -> None:
        super().__init__()
        positive_int("blocks", blocks)
        positive_int("feed_forward", feed_forward)
        if size % positive_int("heads", heads):
            raise ConfigError(
                f"heads={heads} does not divide the hidden size {size}: change heads, or the last "
                "of the layer sizes before the blocks"
            )
        self.blocks = nn.ModuleList(
            EncoderBlock(size, heads, feed_forward, dropout) for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(size)

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """Map ``[items, size]`` to ``[items, size]``."""
        for block in self.blocks:
            items = block(items, packing)
        normed: Tensor = self.norm(items)
        return normed


class ScoringHead(nn.Module):
    """A linear layer with one output, then an activation; the scores are 0 on padding."""

    def __init__(self, size: int, output_activation: str | None) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 1)
        self.activation = activation_module(output_activation)

    def forward(self, items: Tensor, packing: Packing) -> Scores:
        """Map packed hidden vectors ``[items, size]`` to scores ``[batch, list]``."""
        with torch.autocast(items.device.type, enabled=False):  # 8-bit mantissas would tie items
            scores: Tensor = self.activation(self.linear(items.to(self.linear.weight.dtype)))
        return packing.unpack(scores.squeeze(-1)).masked_fill(~packing.mask, 0)


@torch.no_grad()
def xavier_uniform(model: nn.Module) -> None:
    """Initialise every weight matrix of ``model`` from Xavier's uniform distribution.

    PyTorch's global generator draws the values. Stacked query, key and value matrices are drawn one
    by one. Biases and norms keep PyTorch's initialisation.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            matrices = parameter.chunk(3) if name.endswith("in_proj.weight") else (parameter,)
            for matrix in matrices:
                nn.init.xavier_uniform_(matrix)
