"""DASALC: dense layers with batch norm, combined with self-attention by a latent cross."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.knobs import positive_int
from ltr.models.layers import (
    Dropout,
    Encoder,
    Packing,
    ScoringHead,
    activation_module,
    sizes_tuple,
    xavier_uniform,
)
from ltr.typing import Features, Mask, Ranks, Scores

# The settings of the batch norm have PyTorch's defaults.
_MOMENTUM = 0.1
_EPSILON = 1e-5


class DASALC(nn.Module):
    """Data Augmented Self-Attentive Latent Cross (Qin et al., 2021).

    The paper is "Are Neural Rankers still Outperformed by Gradient Boosted Decision Trees?". Each
    item gets two vectors, ``h`` and ``a``. Dense layers with batch norm compute ``h``;
    self-attention between the items of the list computes ``a``. The score is a linear function of
    ``(1 + a) * h``, the latent cross. The rest of the paper's recipe is set in the config:
    ``transform=log1p`` applies sign(x) log(1 + |x|), and ``augment.noise`` adds Gaussian noise.

    In training, but not in evaluation, the lists of a batch affect each other through the batch
    norm. Its means and variances are taken over the real items. Evaluation uses running means and
    variances, which are saved in checkpoints.

    This implementation differs from the paper: the features are standardised after the logarithm,
    the output of a dense layer is added to its input if both have the same size, and the attention
    is the pre-norm encoder of ``ContextAwareTransformer``.

    Args:
        width: number of features of an item.
        hidden_sizes: sizes of the dense layers; the last is the size of ``h`` and ``a``.
        activation: the activation in each dense layer.
        blocks: number of encoder blocks.
        heads: number of attention heads, which must divide the last of ``hidden_sizes``.
        feed_forward: size of the hidden layer in the feed-forward part of an encoder block.
        dropout: dropout rate in the dense layers and in the encoder blocks.
        output_activation: the activation applied to the score.

    Raises:
        ConfigError: a setting is out of range.
    """

    batch_statistics = True

    def __init__(
        self,
        width: int,
        *,
        hidden_sizes: Sequence[int] = (128, 128, 128),
        activation: str | None = "relu",
        blocks: int = 2,
        heads: int = 2,
        feed_forward: int = 256,
        dropout: float | int = 0.1,
        output_activation: str | None = None,
    ) -> None:
        super().__init__()
        sizes = sizes_tuple("hidden_sizes", hidden_sizes)
        size = sizes[-1]
        input_sizes = [positive_int("width", width), *sizes[:-1]]
        self.layers = nn.ModuleList(
            DenseBlock(size_in, size_out, activation, dropout)
            for size_in, size_out in zip(input_sizes, sizes, strict=True)
        )
        self.entry = nn.Linear(width, size)
        self.encoder = Encoder(
            size, blocks=blocks, heads=heads, feed_forward=feed_forward, dropout=dropout
        )
        self.cross = nn.Linear(size, size)
        self.head = ScoringHead(size, output_activation)
        xavier_uniform(self)

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used."""
        packing = Packing.from_mask(mask)
        items = packing.pack(features)
        hidden = items
        for layer in self.layers:
            hidden = layer(hidden, packing)
        context = self.cross(self.encoder(self.entry(items), packing))
        return self.head((1 + context) * hidden, packing)


class DenseBlock(nn.Module):
    """Linear layer, batch norm, activation, dropout; adds its input if the sizes are equal."""

    def __init__(
        self, size_in: int, size_out: int, activation: str | None, dropout: float | int
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(size_in, size_out, bias=False)  # the norm has a bias
        self.norm = ItemNorm(size_out)
        self.activation = activation_module(activation)
        self.dropout = Dropout(dropout)
        self.residual = size_in == size_out

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """Map ``[items, size_in]`` to ``[items, size_out]``."""
        hidden: Tensor = self.dropout(self.activation(self.norm(self.linear(items), packing)))
        return items + hidden if self.residual else hidden


class ItemNorm(nn.Module):
    """Batch norm (Ioffe and Szegedy, 2015) over the real items of a batch, ignoring padding.

    The running mean and variance are used in evaluation, and in training for a batch with fewer
    than two items.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, items: Tensor, packing: Packing) -> Tensor:
        """Return the normalised ``items``, ``[items, size]``."""
        with torch.autocast(items.device.type, enabled=False):
            items = items.to(self.weight.dtype)
            if self.training:
                mean, variance = self._batch_moments(items, packing)
            else:
                mean = self.mean
                variance = self.variance
            return (items - mean) * ((variance + _EPSILON).rsqrt() * self.weight) + self.bias

    def _batch_moments(self, items: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """Return the mean and variance of the real items; update the running mean and variance.

        If there are fewer than two real items, return the running mean and variance.
        """
        real = packing.pack(packing.mask)[:, None]  # the packed items may include padding
        count = real.sum()
        mean = items.masked_fill(~real, 0).sum(0) / count.clamp(min=1)
        square_sum = (items - mean).masked_fill(~real, 0).square().sum(0)
        variance = square_sum / count.clamp(min=1)
        has_two = count > 1
        with torch.no_grad():
            momentum = _MOMENTUM * has_two
            unbiased = square_sum / (count - 1).clamp(min=1)
            self.mean += momentum * (mean - self.mean)
            self.variance += momentum * (unbiased - self.variance)
        return torch.where(has_two, mean, self.mean), torch.where(has_two, variance, self.variance)
