"""The Context-Aware Ranker: self-attention between the items of a list."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.errors import ConfigError
from ltr.knobs import check_choice, positive_int
from ltr.models.embeddings import EmbeddingSettings, number_embedding
from ltr.models.layers import (
    Encoder,
    Packing,
    ScoringHead,
    dense_layers,
    sizes_tuple,
    xavier_uniform,
)
from ltr.typing import Features, Mask, Ranks, Scores


class FixedPosition(nn.Module):
    """Sines and cosines of the rank, for any rank (Vaswani et al., 2017, section 3.5)."""

    rates: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        if size % 2:
            raise ConfigError(
                f"position=fixed pairs sines with cosines, so the hidden size {size} must be even: "
                "make the last of fc_sizes even, or write position=learned"
            )
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, ranks: Tensor) -> Tensor:
        """Map ``ranks``, ``[...]``, which start at 1, to their encodings, ``[..., size]``."""
        angles = (ranks - 1).unsqueeze(-1) * self.rates
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class LearnedPosition(nn.Module):
    """One learned vector per rank; ranks beyond ``max_rank`` share the vector of ``max_rank``."""

    def __init__(self, size: int, max_rank: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_rank, size)

    def forward(self, ranks: Tensor) -> Tensor:
        """Map ``ranks``, ``[...]``, which start at 1, to their vectors, ``[..., size]``."""
        return self.table(ranks.clamp(1, self.table.num_embeddings) - 1)


class ContextAwareTransformer(nn.Module):
    """Input layers, pre-norm encoder blocks with a final norm, and a linear layer for the score.

    This is the model of Pobrotyn et al. (2020), "Context-Aware Learning to Rank with
    Self-Attention", with ReLU in the feed-forward part. The defaults are the settings of Pobrotyn
    and Bialobrzeski (2021) for Web30K. If ``position`` is None, the scores do not depend on the
    order of the items.

    Args:
        width: number of features of an item.
        fc_sizes: sizes of the input layers. The last of them, or the number of inputs if there are
            no input layers, is the hidden size of the blocks.
        input_norm: apply a layer norm to the input.
        fc_activation, fc_dropout: activation and dropout rate after each input layer.
        blocks: number of encoder blocks.
        heads: number of attention heads, which must divide the hidden size.
        feed_forward: size of the hidden layer in the feed-forward part of a block.
        dropout: dropout rate in the blocks, which also applies to the attention weights.
        position: the encoding of an item's initial rank, which is added to the input of the blocks:
            ``"fixed"`` (sines and cosines), ``"learned"`` (one vector per rank) or None.
        max_rank: number of vectors for ``"learned"``; all larger ranks share the last vector.
        embedding: settings of the ``NumberEmbedding`` of the features, or its ``kind``.
        output_activation: the activation applied to the score. Pobrotyn and Bialobrzeski
            (2021) use Tanh with NeuralNDCG and no activation with the other losses.

    Raises:
        ConfigError: a setting is out of range. ``forward`` raises it if ``position`` is set but
            ``ranks`` is None.
    """

    embeds_numbers = True

    def __init__(
        self,
        width: int,
        *,
        fc_sizes: Sequence[int] = (96,),
        input_norm: bool = False,
        fc_activation: str | None = None,
        fc_dropout: float | int = 0.0,
        blocks: int = 2,
        heads: int = 1,
        feed_forward: int = 384,
        dropout: float | int = 0.1,
        position: str | None = None,
        max_rank: int = 240,
        embedding: EmbeddingSettings = None,
        output_activation: str | None = None,
    ) -> None:
        super().__init__()
        number_inputs = number_embedding(width, embedding)
        sizes = sizes_tuple("fc_sizes", fc_sizes, least=0)
        size = (number_inputs.outputs, *sizes)[-1]
        self.layers = dense_layers(
            number_inputs.outputs,
            sizes,
            activation=fc_activation,
            dropout=fc_dropout,
            input_norm=input_norm,
        )
        if position is not None:
            check_choice("position", position, ("fixed", "learned"))
        self.position: nn.Module | None = None
        if position == "fixed":
            self.position = FixedPosition(size)
        elif position == "learned":
            self.position = LearnedPosition(size, positive_int("max_rank", max_rank))
        self.encoder = Encoder(
            size, blocks=blocks, heads=heads, feed_forward=feed_forward, dropout=dropout
        )
        self.head = ScoringHead(size, output_activation)
        xavier_uniform(self)
        self.embedding = number_inputs  # set after xavier_uniform, to keep its own initialisation

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return scores ``[batch, list]``, 0 where ``mask`` is False.

        ``ranks`` start at 1 and may be anything on padding; they are used only if ``position`` is
        set.
        """
        packing = Packing.from_mask(mask)
        hidden = self.layers(self.embedding(packing.pack(features)))
        if self.position is not None:
            if ranks is None:
                raise ConfigError(
                    "position needs the rank of each item, but ranks is None: "
                    "pass ranks, or write position=null"
                )
            hidden = hidden + self.position(packing.pack(ranks))
        return self.head(self.encoder(hidden, packing), packing)
