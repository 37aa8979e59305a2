"""Embeddings of input features: numbers and categories as vectors."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.knobs import check_choice, check_positive, positive_int
from ltr.models.layers import split_rows
from ltr.typing import Features, Mask, Ranks, Scores

_SAMPLE = 1 << 17  # bin edges are quantiles of at most this many items, sampled evenly
_MAX_ROWS = 1 << 12  # items embedded at once; their encodings are larger than their vectors
_MAX_SIZE = 50  # the largest size of the vector of a category

# Settings of a ``NumberEmbedding``. A string is its ``kind``; None leaves the features unchanged.
EmbeddingSettings = Mapping[str, Any] | str | None


class NumberEmbedding(nn.Module):
    """Turns each number x into a vector ReLU(linear(encoding(x))), after Gorishniy et al. (2022).

    The paper is "On Embeddings for Numerical Features in Tabular Deep Learning". There are two
    encodings. ``periodic`` is cos and sin of 2 pi c x, where the frequencies c are learned (PLR in
    the paper). ``piecewise`` is the position of x, from 0 to 1, in each bin between two quantiles
    of the training data (Q-LR in the paper). Each feature has its own linear layer.

    The attribute ``outputs`` is the number of values that an item has after the embedding.

    Args:
        width: number of features of an item.
        kind: ``"periodic"``, ``"piecewise"``, or None to leave the features unchanged.
        size: size of the vector of each feature.
        bins: the maximum number of bins for ``piecewise``; there are fewer if quantiles are equal.
        frequencies: number of frequencies of each feature for ``periodic``.
        sigma: standard deviation of the initial frequencies, in periods per unit of the
            transformed feature.
        numbers: how many features to embed, starting with the first; the others are appended
            unchanged. None: all features.

    Raises:
        ConfigError: a setting is out of range.
    """

    def __init__(
        self,
        width: int,
        *,
        kind: str | None = None,
        size: int = 16,
        bins: int = 32,
        frequencies: int = 24,
        sigma: float | int = 0.1,
        numbers: int | None = None,
    ) -> None:
        super().__init__()
        if kind is None:
            numbers = 0
        elif numbers is None:
            numbers = width
        self.numbers = numbers
        self.size = positive_int("embedding.size", size)
        self.outputs = self.numbers * self.size + width - self.numbers
        if kind is not None:
            check_choice("embedding.kind", kind, ("periodic", "piecewise"))
        if not self.numbers:
            return
        self.encoding: Periodic | Piecewise
        if kind == "periodic":
            self.encoding = Periodic(self.numbers, frequencies, sigma)
        else:
            self.encoding = Piecewise(self.numbers, bins)
        bound = self.encoding.values**-0.5  # as in PyTorch's linear layer
        self.weight = nn.Parameter(torch.empty(self.numbers, self.encoding.values, size))
        # flat, not a matrix, so that l1 and l2 skip it
        self.bias = nn.Parameter(torch.empty(self.numbers * size))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, items: Tensor) -> Tensor:
        """Map ``[items, width]`` to ``[items, outputs]``."""
        if not self.numbers:
            return items
        return torch.cat([self._embed(chunk) for chunk in split_rows(items, _MAX_ROWS)])

    def _embed(self, items: Tensor) -> Tensor:
        encoded = self.encoding(items[:, : self.numbers])
        bias = self.bias.view(-1, 1, self.size)
        vectors = torch.baddbmm(bias, encoded, self.weight).relu().transpose(0, 1).flatten(1)
        return torch.cat([vectors, items[:, self.numbers :]], -1)


class Periodic(nn.Module):
    """Maps ``[items, numbers]`` to cos and sin of 2 pi c x, ``[numbers, items, values]``.

    The frequencies c are learned.
    """

    def __init__(self, numbers: int, frequencies: int, sigma: float | int) -> None:
        super().__init__()
        check_positive("embedding.sigma", sigma)
        self.values = 2 * positive_int("embedding.frequencies", frequencies)
        self.frequencies = nn.Parameter(torch.empty(numbers * frequencies))
        nn.init.trunc_normal_(self.frequencies, std=sigma, a=-3 * sigma, b=3 * sigma)

    def forward(self, items: Tensor) -> Tensor:
        frequencies = self.frequencies.view(items.shape[1], 1, -1)
        angles = 2 * math.pi * frequencies * items.T[..., None]
        return torch.cat([angles.cos(), angles.sin()], -1)


class Piecewise(nn.Module):
    """Maps ``[items, numbers]`` to the position of x in each bin, ``[numbers, items, values]``.

    The position is (x - left) / (right - left), clipped to [0, 1], except that the first bin has no
    lower limit and the last bin no upper limit (Gorishniy et al., 2022, equation 1). A bin of width
    0 gives 0. The edges are quantiles of a standard normal distribution until ``fit`` is called.
    They are a buffer, so checkpoints keep them.
    """

    edges: Tensor

    def __init__(self, numbers: int, bins: int) -> None:
        super().__init__()
        self.values = positive_int("embedding.bins", bins)
        levels = torch.linspace(1e-3, 1 - 1e-3, bins + 1)
        self.register_buffer("edges", torch.special.ndtri(levels).repeat(numbers, 1))

    def forward(self, items: Tensor) -> Tensor:
        widths = self.edges.diff(dim=-1)
        is_real = widths > 0  # bins of width > 0 come first
        is_last = is_real & ~torch.cat([is_real[:, 1:], torch.zeros_like(is_real[:, :1])], -1)
        lower = torch.zeros_like(widths)
        lower[:, 0] = -math.inf
        upper = torch.where(is_last, math.inf, 1.0).to(widths)
        positions = items.T[..., None] - self.edges[:, None, :-1]
        positions = positions.mul_(torch.where(is_real, 1 / widths, 0.0)[:, None])
        return positions.clamp_(lower[:, None], upper[:, None])

    def fit(self, features: Tensor) -> None:
        """Set the edges to evenly spaced quantiles of each column of ``features``.

        ``features`` has the shape ``[items, numbers]``.
        """
        sample = features[:: -(-len(features) // _SAMPLE)].cpu().numpy()
        levels = np.linspace(0.0, 1.0, self.values + 1)
        for row, column in zip(self.edges, sample.T, strict=True):
            quantiles = np.quantile(column, levels).astype(np.float32)  # distinct in this dtype
            edges = torch.from_numpy(np.unique(quantiles)).to(row)
            row[: len(edges)] = edges
            row[len(edges) :] = edges[-1]


def number_embedding(width: int, embedding: EmbeddingSettings) -> NumberEmbedding:
    """Return the embedding with these settings; ``embedding=None`` gives the identity."""
    return NumberEmbedding(positive_int("width", width), **_settings_by_name(embedding))


def _settings_by_name(embedding: EmbeddingSettings) -> Mapping[str, Any]:
    return embedding if isinstance(embedding, Mapping) else {"kind": embedding}


class Embedding(nn.Module):
    """Embeds a category column: the vector of a code is ``other + own[code]``, with ``own[0]`` = 0.

    The codes are 0, 1, ..., ``codes``. Code 0 stands for every value that the training data lacks,
    and the last code, ``codes``, for a missing value. Every step trains ``other``, so code 0 has a
    trained vector although it does not occur in training. All vectors start at 0, so the vector of
    a rare value stays close to ``other``.

    The size of a vector is 1.6 codes^0.56, but at most 50. The formula is fastai's
    (``emb_sz_rule``; Howard and Gugger, 2020), which allows sizes up to 600.
    """

    def __init__(self, codes: int) -> None:
        super().__init__()
        self.size = min(_MAX_SIZE, round(1.6 * codes**0.56))
        self.other = nn.Parameter(torch.zeros(self.size))
        self.own = nn.Embedding(codes + 1, self.size, padding_idx=0)  # row 0 gets no gradient
        nn.init.zeros_(self.own.weight)

    def forward(self, codes: Tensor) -> Tensor:
        """Return the vectors, ``[..., size]``, of the integers ``codes``, ``[...]``."""
        vectors: Tensor = self.other + self.own(codes)
        return vectors


class WithEmbeddings(nn.Module):
    """A network whose inputs are the numeric columns, then the vectors of the category columns.

    Args:
        make: a function that takes the number of inputs and returns the network.
        codes: the number of codes of each feature, 0 if the feature is a number.
        numbers: the number of numeric columns that follow these features, such as the indicators of
            missing values.
    """

    categories: Tensor
    numbers: Tensor

    def __init__(
        self, make: Callable[..., nn.Module], codes: Sequence[int], *, numbers: int = 0
    ) -> None:
        super().__init__()
        category_columns = [column for column, count in enumerate(codes) if count]
        number_columns = [column for column, count in enumerate(codes) if not count]
        number_columns += range(len(codes), len(codes) + numbers)
        number_indices = torch.tensor(number_columns, dtype=torch.long)
        self.register_buffer("categories", torch.tensor(category_columns), persistent=False)
        self.register_buffer("numbers", number_indices, persistent=False)
        embeddings = [Embedding(codes[column]) for column in category_columns]
        self.embeddings = nn.ModuleList(embeddings)
        if isinstance(make, partial) and getattr(make.func, "embeds_numbers", False):
            # The embedding of numbers applies only to the numeric columns.
            settings = _settings_by_name(make.keywords.get("embedding"))
            make = partial(make, embedding={**settings, "numbers": len(number_columns)})
        vector_sizes = [embedding.size for embedding in embeddings]
        self.model: Any = make(len(number_columns) + sum(vector_sizes))
        self.pointwise = bool(getattr(self.model, "pointwise", False))
        self.batch_statistics = bool(getattr(self.model, "batch_statistics", False))
        if hasattr(self.model, "member_scores"):
            self.member_scores = self._member_scores

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return the network's scores, ``[batch, list]``; categories of padding are never read."""
        scores: Scores = self.model(self.inputs(features, mask), mask, ranks)
        return scores

    def _member_scores(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Tensor:
        scores: Tensor = self.model.member_scores(self.inputs(features, mask), mask, ranks)
        return scores

    @property
    def columns(self) -> Tensor:
        """The feature column from which each input of the network comes, ``[inputs]``."""
        sizes = [embedding.size for embedding in self.embeddings]
        vector_columns = self.categories.repeat_interleave(self.categories.new_tensor(sizes))
        return torch.cat([self.numbers, vector_columns])

    def inputs(self, features: Features, mask: Mask) -> Tensor:
        """Return the network's inputs: the numbers, then the vectors of the categories."""
        codes = features[..., self.categories].masked_fill(~mask[..., None], 0).long()
        vectors = [embed(codes[..., i]) for i, embed in enumerate(self.embeddings)]
        return torch.cat([features[..., self.numbers], *vectors], -1)


def fit_embedding(model: nn.Module, features: Callable[[], Tensor]) -> None:
    """Set the bins of ``model`` before it is trained; do nothing if it has no bins.

    ``features`` returns the transformed training features, ``[items, width]``. It is called only if
    there are bins. ``model`` may be a network from outside this project.
    """
    network = model.model if isinstance(model, WithEmbeddings) else model
    embedding: Any = getattr(network, "embedding", None)
    encoding = getattr(embedding, "encoding", None)
    if not isinstance(encoding, Piecewise):
        return
    inputs = features()
    if isinstance(model, WithEmbeddings):
        inputs = inputs[:, model.numbers]
    encoding.fit(inputs[:, : embedding.numbers])
