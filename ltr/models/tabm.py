"""TabM: many multilayer perceptrons that share their weight matrices."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.knobs import positive_int
from ltr.models.embeddings import EmbeddingSettings, number_embedding
from ltr.models.layers import (
    Dropout,
    Packing,
    activation_module,
    sizes_tuple,
    split_rows,
    xavier_uniform,
)
from ltr.typing import Features, Mask, Ranks, Scores

_MAX_ROWS = 1 << 16  # pairs of an item and a member that ``forward`` scores at once


class TabM(nn.Module):
    """``members`` networks that share the weight matrix of each layer (Gorishniy et al., 2025).

    The paper is "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling". A
    network is called a member. In each layer, member i computes ``s_i * (W (r_i * x)) + b_i``
    (BatchEnsemble; Wen et al., 2020). Each member has its own head. In the first layer ``r`` is
    initialised with random signs, 1 or -1, or, if there is an embedding, with draws from a normal
    distribution. All other scalings are initialised with 1. If ``mini`` (TabM-mini in the paper),
    the members share everything but this first ``r`` and the heads. The paper's TabM-packed, where
    the members share nothing, is the average of several runs of an ``MLP``.

    The score of an item is the mean of the members' scores. Training minimises the mean of the
    members' losses: each member learns to rank by itself, and that is why averaging helps.

    Args:
        width: number of features of an item.
        members: number of networks.
        mini: share everything but the first scaling and the heads.
        hidden_sizes: sizes of the hidden layers, at least one.
        activation: the activation after each hidden layer.
        dropout: dropout rate after each hidden layer.
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
        members: int = 32,
        mini: bool = False,
        hidden_sizes: Sequence[int] = (128, 128),
        activation: str | None = "relu",
        dropout: float | int = 0.1,
        embedding: EmbeddingSettings = None,
        output_activation: str | None = None,
    ) -> None:
        super().__init__()
        number_inputs = number_embedding(width, embedding)
        sizes = sizes_tuple("hidden_sizes", hidden_sizes)
        self.members = positive_int("members", members)
        first_scaling = Scaling(members, number_inputs.outputs)
        layers: list[nn.Module] = [first_scaling]
        input_sizes = [number_inputs.outputs, *sizes[:-1]]
        for size_in, size_out in zip(input_sizes, sizes, strict=True):
            if mini:
                layers.append(nn.Linear(size_in, size_out))
            else:
                if len(layers) > 1:
                    layers.append(Scaling(members, size_in))
                layers.append(SharedLinear(members, size_in, size_out))
            layers += [activation_module(activation), Dropout(dropout)]
        self.layers = nn.Sequential(*layers)
        xavier_uniform(self)
        self.heads = Heads(members, sizes[-1], output_activation)
        self.embedding = number_inputs  # set late, like the heads, to keep its initialisation
        with torch.no_grad():
            first_scaling.scale.copy_(self._draw_first_scale(width).flatten())

    def _draw_first_scale(self, width: int) -> Tensor:
        """Return the initial ``r`` of the first layer, ``[members, inputs]``."""
        embedding = self.embedding
        if not embedding.numbers:
            return 2.0 * torch.randint(0, 2, (self.members, embedding.outputs)) - 1
        embedded = torch.randn(self.members, embedding.numbers)  # one factor for each feature
        unchanged = torch.randn(self.members, width - embedding.numbers)
        return torch.cat([embedded.repeat_interleave(embedding.size, 1), unchanged], 1)

    def member_scores(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Tensor:
        """Return each member's scores, ``[members, batch, list]``, 0 where ``mask`` is False."""
        packing = Packing.from_mask(mask)
        return self._unpack(self._scores(packing.pack(features)), packing)

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used."""
        packing = Packing.from_mask(mask)
        items = packing.pack(features)
        chunks = split_rows(items, _MAX_ROWS // self.members)
        means = torch.cat([self._scores(chunk).mean(0, keepdim=True) for chunk in chunks], -1)
        return self._unpack(means, packing)[0]

    def _scores(self, items: Tensor) -> Tensor:
        """Return the members' scores, ``[members, items]``, of packed items ``[items, width]``."""
        inputs = self.embedding(items).expand(self.members, -1, -1)
        scores: Tensor = self.heads(self.layers(inputs))
        return scores

    def _unpack(self, scores: Tensor, packing: Packing) -> Tensor:
        padded = packing.unpack(scores.T).permute(2, 0, 1)
        return padded.masked_fill(~packing.mask, 0)


class Scaling(nn.Module):
    """Multiplies ``[members, items, size]`` by one learned vector per member."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.members = members
        self.scale = nn.Parameter(torch.ones(members * size))  # flat: l1 and l2 skip it

    def forward(self, items: Tensor) -> Tensor:
        return items * self.scale.view(self.members, 1, -1)


class SharedLinear(nn.Module):
    """Computes ``s_i * (W x) + b_i`` for each member i; x is ``[members, items, size]``."""

    def __init__(self, members: int, size_in: int, size_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size_in, size_out, bias=False)
        self.scaling = Scaling(members, size_out)
        bound = size_in**-0.5  # as in PyTorch's linear layer; equal for all members
        self.bias = nn.Parameter(torch.empty(size_out).uniform_(-bound, bound).repeat(members))

    def forward(self, items: Tensor) -> Tensor:
        scaled: Tensor = self.scaling(self.linear(items))
        return scaled + self.bias.view(len(items), 1, -1)


class Heads(nn.Module):
    """For each member, a linear layer with one output, then the activation."""

    def __init__(self, members: int, size: int, output_activation: str | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, size))
        self.bias = nn.Parameter(torch.zeros(members))
        self.activation = activation_module(output_activation)
        bound = (6 / (size + 1)) ** 0.5  # as in Xavier's initialisation
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, items: Tensor) -> Tensor:
        """Map ``[members, items, size]`` to scores ``[members, items]``."""
        with torch.autocast(items.device.type, enabled=False):  # 8-bit mantissas would tie items
            wide = items.to(self.weight.dtype)
            bias = self.bias[:, None, None]
            scores: Tensor = torch.baddbmm(bias, wide, self.weight[..., None])
            return self.activation(scores.squeeze(-1))
