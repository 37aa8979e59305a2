"""Pointwise models: the score of an item depends on that item alone."""

from collections.abc import Sequence

from torch import nn

from ltr.models.embeddings import EmbeddingSettings, number_embedding
from ltr.models.layers import (
    Packing,
    ScoringHead,
    dense_layers,
    sizes_tuple,
    xavier_uniform,
)
from ltr.typing import Features, Mask, Ranks, Scores


class MLP(nn.Module):
    """Fully connected layers, then a linear layer that gives the score.

    With hidden sizes 64 and 32, ReLU, and a sigmoid on the output, it is the model of Team
    Macrohard (n.d., section 5; after Burges et al., 2005).

    Args:
        width: number of features of an item.
        hidden_sizes: sizes of the hidden layers.
        activation: the activation after each hidden layer.
        dropout: dropout rate after each hidden layer.
        input_norm: apply a layer norm to the input.
        embedding: settings of the ``NumberEmbedding`` of the features, or its ``kind``.
        output_activation: the activation applied to the score.

    Raises:
        ConfigError: a setting is out of range.
    """

    pointwise = True
    embeds_numbers = True

    def __init__(
        self,
        width: int,
        *,
        hidden_sizes: Sequence[int] = (64, 32),
        activation: str | None = "relu",
        dropout: float | int = 0.0,
        input_norm: bool = False,
        embedding: EmbeddingSettings = None,
        output_activation: str | None = None,
    ) -> None:
        super().__init__()
        number_inputs = number_embedding(width, embedding)
        sizes = sizes_tuple("hidden_sizes", hidden_sizes, least=0)
        self.layers = dense_layers(
            number_inputs.outputs,
            sizes,
            activation=activation,
            dropout=dropout,
            input_norm=input_norm,
        )
        self.head = ScoringHead((number_inputs.outputs, *sizes)[-1], output_activation)
        xavier_uniform(self)
        self.embedding = number_inputs  # set after xavier_uniform, to keep its own initialisation

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used."""
        packing = Packing.from_mask(mask)
        return self.head(self.layers(self.embedding(packing.pack(features))), packing)


class Linear(MLP):
    """One weight per feature and a bias, as in RankSVM; ``MLP`` explains the arguments."""

    embeds_numbers = False

    def __init__(self, width: int, *, output_activation: str | None = None) -> None:
        super().__init__(width, hidden_sizes=(), output_activation=output_activation)
