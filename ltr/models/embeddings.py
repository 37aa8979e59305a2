"""Inputs of networks: numbers and categories as vectors."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.knobs import check_choice, check_positive, positive_int
from ltr.models.layers import in_parts
from ltr.typing import Features, Mask, Ranks, Scores

_SAMPLE = 1 << 17  # items whose quantiles are the edges of the bins, sampled evenly
_ROWS = 1 << 12  # items embedded at once: the encodings are larger than what they become
_LARGEST = 50

Settings = Mapping[str, Any] | str | None  # of a ``NumberEmbedding``; a text is its kind


class NumberEmbedding(nn.Module):
    """A vector ReLU(linear(encoding(x))) for each number x, after Gorishniy et al. (2022).

    "On Embeddings for Numerical Features in Tabular Deep Learning". Its encodings are
    ``periodic``: cos and sin of 2 pi c x with learned frequencies c (their PLR), and
    ``piecewise``: how far x lies in each bin between quantiles of train, from 0 to 1 (their
    Q-LR). Each feature has a linear layer of its own.

    Args:
        width: number of features of an item; ``outputs`` is that of the values they become.
        kind: None: the features stay as they are.
        size: of the vector of a feature.
        bins: of ``piecewise``, at most; equal quantiles make fewer.
        frequencies: of ``periodic``, for each feature.
        sigma: standard deviation of the frequencies at the start, in periods per unit of the
            transformed feature.
        numbers: how many of the first features are embedded, None: all; others follow as they are.

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
        self.numbers = 0 if kind is None else width if numbers is None else numbers
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
        bound = self.encoding.values**-0.5  # as PyTorch's linear layer
        self.weight = nn.Parameter(torch.empty(self.numbers, self.encoding.values, size))
        self.bias = nn.Parameter(
            torch.empty(self.numbers * size)
        )  # no matrix: l1 and l2 pass it by
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, items: Tensor) -> Tensor:
        """``[items, width]`` to ``[items, outputs]``."""
        if not self.numbers:
            return items
        return torch.cat([self._embedded(part) for part in in_parts(items, _ROWS)])

    def _embedded(self, items: Tensor) -> Tensor:
        encoded = self.encoding(items[:, : self.numbers])
        bias = self.bias.view(-1, 1, self.size)
        vectors = torch.baddbmm(bias, encoded, self.weight).relu().transpose(0, 1).flatten(1)
        return torch.cat([vectors, items[:, self.numbers :]], -1)


class Periodic(nn.Module):
    """``[items, numbers]`` to cos and sin of 2 pi c x, ``[numbers, items, values]``."""

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
    """``[items, numbers]`` to the place of x in each bin, ``[numbers, items, values]``.

    (x - left) / (right - left), cut to [0, 1], but for the first bin below and the last above
    (their equation 1). A bin without width gives 0. The edges are quantiles of a standard normal
    distribution until ``fit``, and a buffer, so that checkpoints keep them.
    """

    edges: Tensor

    def __init__(self, numbers: int, bins: int) -> None:
        super().__init__()
        self.values = positive_int("embedding.bins", bins)
        levels = torch.linspace(1e-3, 1 - 1e-3, bins + 1)
        self.register_buffer("edges", torch.special.ndtri(levels).repeat(numbers, 1))

    def forward(self, items: Tensor) -> Tensor:
        gaps = self.edges.diff(dim=-1)
        real = gaps > 0  # those of a feature stand in front
        last = real & ~torch.cat([real[:, 1:], torch.zeros_like(real[:, :1])], -1)
        least = torch.zeros_like(gaps)
        least[:, 0] = -math.inf
        most = torch.where(last, math.inf, 1.0).to(gaps)
        places = items.T[..., None] - self.edges[:, None, :-1]
        places = places.mul_(torch.where(real, 1 / gaps, 0.0)[:, None])
        return places.clamp_(least[:, None], most[:, None])

    def fit(self, features: Tensor) -> None:
        """Set the edges to even quantiles of each column of ``features``, ``[items, numbers]``."""
        sample = features[:: -(-len(features) // _SAMPLE)].cpu().numpy()
        levels = np.linspace(0.0, 1.0, self.values + 1)
        for row, column in zip(self.edges, sample.T, strict=True):
            quantiles = np.quantile(column, levels).astype(np.float32)  # as the buffer, then apart
            edges = torch.from_numpy(np.unique(quantiles)).to(row)
            row[: len(edges)] = edges
            row[len(edges) :] = edges[-1]


def number_embedding(width: int, embedding: Settings) -> NumberEmbedding:
    """The embedding of these settings; None leaves the features as they are."""
    return NumberEmbedding(positive_int("width", width), **_named(embedding))


def _named(embedding: Settings) -> Mapping[str, Any]:
    return embedding if isinstance(embedding, Mapping) else {"kind": embedding}


class Embedding(nn.Module):
    """``other + own[code]`` for a column of codes 0, 1, ..., ``codes``; ``own[0]`` is 0.

    Every step trains ``other``, so that it is a trained vector where train has no code 0. All start
    at 0: a value that train lacks is as ``other``, and a rare one stays near it. The code after the
    last of the lists is a missing value. A vector has 1.6 codes^0.56 numbers, at most 50: the rule
    of fastai (``emb_sz_rule``; Howard and Gugger, 2020), whose bound is 600.
    """

    def __init__(self, codes: int) -> None:
        super().__init__()
        self.size = min(_LARGEST, round(1.6 * codes**0.56))
        self.other = nn.Parameter(torch.zeros(self.size))
        self.own = nn.Embedding(codes + 1, self.size, padding_idx=0)  # no gradient of row 0
        nn.init.zeros_(self.own.weight)

    def forward(self, codes: Tensor) -> Tensor:
        """``[..., size]`` of whole numbers ``[...]``."""
        vectors: Tensor = self.other + self.own(codes)
        return vectors


class WithEmbeddings(nn.Module):
    """A network that reads numbers, and for each category column its vector behind them.

    ``make`` is called with the number of its inputs; ``codes`` has the number of codes of each
    feature, 0 for a number; ``numbers`` more follow these features (indicators of missing values).
    """

    categories: Tensor
    numbers: Tensor

    def __init__(
        self, make: Callable[..., nn.Module], codes: Sequence[int], *, numbers: int = 0
    ) -> None:
        super().__init__()
        of_category = [column for column, count in enumerate(codes) if count]
        of_number = [column for column, count in enumerate(codes) if not count]
        of_number += range(len(codes), len(codes) + numbers)
        self.register_buffer("categories", torch.tensor(of_category), persistent=False)
        self.register_buffer("numbers", torch.tensor(of_number, dtype=torch.long), persistent=False)
        embeddings = [Embedding(codes[column]) for column in of_category]
        self.embeddings = nn.ModuleList(embeddings)
        if isinstance(make, partial) and getattr(make.func, "embeds_numbers", False):
            given = _named(make.keywords.get("embedding"))  # of the numbers alone
            make = partial(make, embedding={**given, "numbers": len(of_number)})
        self.model: Any = make(len(of_number) + sum(one.size for one in embeddings))
        self.pointwise = bool(getattr(self.model, "pointwise", False))
        self.batch_statistics = bool(getattr(self.model, "batch_statistics", False))
        if hasattr(self.model, "member_scores"):
            self.member_scores = self._member_scores

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """The scores of the network, ``[batch, list]``; categories on padding are never read."""
        scores: Scores = self.model(self.inputs(features, mask), mask, ranks)
        return scores

    def _member_scores(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Tensor:
        scores: Tensor = self.model.member_scores(self.inputs(features, mask), mask, ranks)
        return scores

    @property
    def columns(self) -> Tensor:
        """The column of the features that each input of the network is of, ``[inputs]``."""
        sizes = [embedding.size for embedding in self.embeddings]
        of_vectors = self.categories.repeat_interleave(self.categories.new_tensor(sizes))
        return torch.cat([self.numbers, of_vectors])

    def inputs(self, features: Features, mask: Mask) -> Tensor:
        """What the network reads: the numbers, then the vectors of the categories."""
        codes = features[..., self.categories].masked_fill(~mask[..., None], 0).long()
        vectors = [embed(codes[..., i]) for i, embed in enumerate(self.embeddings)]
        return torch.cat([features[..., self.numbers], *vectors], -1)


def fit_embedding(model: nn.Module, features: Callable[[], Tensor]) -> None:
    """Set the bins of ``model``, of this project or another, before it is trained.

    ``features`` gives ``[items, width]``, train's, transformed; it is called where there are bins.
    """
    inner = model.model if isinstance(model, WithEmbeddings) else model
    embedding: Any = getattr(inner, "embedding", None)
    if isinstance(encoding := getattr(embedding, "encoding", None), Piecewise):
        given = features()
        if isinstance(model, WithEmbeddings):
            given = given[:, model.numbers]
        encoding.fit(given[:, : embedding.numbers])
