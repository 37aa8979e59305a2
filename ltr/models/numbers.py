"""Numbers in networks: each feature becomes a vector (Gorishniy et al., 2022)."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.errors import ConfigError
from ltr.knobs import positive_int
from ltr.models.layers import is_exporting

# The settings of a ``NumberEmbedding``, as configs and the models that take one have them.
EMBEDDING: Mapping[str, Any] = {
    "kind": None, "size": 16, "bins": 32, "frequencies": 24, "sigma": 0.1, "lite": False,
}  # fmt: skip
_SAMPLE = 1 << 17  # items whose quantiles are the edges of the bins, sampled evenly
_ROWS = 1 << 12  # items embedded at once: the encodings are larger than what they become


class NumberEmbedding(nn.Module):
    """A vector ReLU(linear(encoding(x))) for each number x, after Gorishniy et al. (2022).

    "On Embeddings for Numerical Features in Tabular Deep Learning". Its encodings are
    ``periodic``: cos and sin of 2 pi c x with learned frequencies c (their PLR), and
    ``piecewise``: how far x lies in each bin between quantiles of train, from 0 to 1 (their
    Q-LR). Each feature has a linear layer of its own.

    Args:
        width: number of features of an item.
        kind: ``"periodic"``, ``"piecewise"``, or None: the features stay as they are.
        size: of the vector of a feature.
        bins: of ``piecewise``, at most; equal quantiles make fewer.
        frequencies: of ``periodic``, for each feature.
        sigma: standard deviation of the frequencies at the start, in periods per unit of the
            transformed feature.
        lite: one linear layer for all features, their PLR(lite).
        numbers: how many features are embedded, the first ones; the others follow the vectors as
            they are. None: all.

    Attributes:
        outputs: the number of values of an item.

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
        lite: bool = False,
        numbers: int | None = None,
    ) -> None:
        super().__init__()
        if kind not in ("periodic", "piecewise", None):
            raise ConfigError(
                f"embedding.kind={kind} is not known: choose one of periodic, piecewise, null"
            )
        self.numbers = 0 if kind is None else width if numbers is None else numbers
        self.size = positive_int("embedding.size", size)
        self.outputs = self.numbers * self.size + width - self.numbers
        if not self.numbers:
            return
        self.encoding: Periodic | Piecewise
        if kind == "periodic":
            self.encoding = Periodic(self.numbers, frequencies, sigma)
        else:
            self.encoding = Piecewise(self.numbers, bins)
        bound = self.encoding.values**-0.5  # as PyTorch's linear layer
        layers = 1 if lite else self.numbers
        self.weight = nn.Parameter(torch.empty(layers, self.encoding.values, size))
        self.bias = nn.Parameter(torch.empty(layers * size))  # no matrix: l1 and l2 pass it by
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, items: Tensor) -> Tensor:
        """``[items, width]`` to ``[items, outputs]``."""
        if not self.numbers:
            return items
        if is_exporting():  # into a graph, where the number of items is not known
            return self._embedded(items)
        return torch.cat([self._embedded(part) for part in items.split(_ROWS)])

    @property
    def binned(self) -> bool:
        """Whether it has bins to fit."""
        return bool(self.numbers) and isinstance(self.encoding, Piecewise)

    def fit(self, features: Tensor) -> None:
        """Set the bins, if it has some, by ``features``, ``[items, width]``, those of train."""
        if self.numbers and isinstance(self.encoding, Piecewise):
            self.encoding.fit(features[:, : self.numbers])

    def _embedded(self, items: Tensor) -> Tensor:
        encoded = self.encoding(items[:, : self.numbers])
        layers = self.weight, self.bias.view(-1, 1, self.size)
        weight, bias = (values.expand(self.numbers, -1, -1) for values in layers)
        vectors = torch.baddbmm(bias, encoded, weight).relu().transpose(0, 1).flatten(1)
        return torch.cat([vectors, items[:, self.numbers :]], -1)


class Periodic(nn.Module):
    """``[items, numbers]`` to cos and sin of 2 pi c x, ``[numbers, items, values]``."""

    def __init__(self, numbers: int, frequencies: int, sigma: float | int) -> None:
        super().__init__()
        if not sigma > 0:
            raise ConfigError(f"embedding.sigma={sigma} is out of range: write a number > 0")
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


def number_embedding(width: int, embedding: Mapping[str, Any] | str | None) -> NumberEmbedding:
    """The embedding of these settings; a text is its kind, None leaves the features as they are."""
    return NumberEmbedding(width, **_settings(embedding))


def embedding_first(make: Callable[..., nn.Module], numbers: int) -> Callable[[int], nn.Module]:
    """``make`` with its ``embedding``, if it has one, for its first ``numbers`` inputs alone."""
    if not getattr(getattr(make, "func", None), "embeds_numbers", False):
        return make
    given = getattr(make, "keywords", {}).get("embedding")
    return partial(make, embedding={**_settings(given), "numbers": numbers})


def _settings(embedding: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    return embedding if isinstance(embedding, Mapping) else {"kind": embedding}
