"""Categories in networks: each value of a category column becomes a learned vector."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ltr.models.numbers import NumberEmbedding, embedding_first
from ltr.typing import Features, Mask, Ranks, Scores

_LARGEST = 50


def embedding_size(values: int) -> int:
    """The size of the vector of a category of so many values: 1.6 values^0.56, at most 50.

    The rule of fastai (``emb_sz_rule``; Howard and Gugger, 2020), whose bound is 600.

    >>> [embedding_size(values) for values in (2, 10, 100, 10_000)]
    [2, 6, 21, 50]
    """
    return min(_LARGEST, round(1.6 * values**0.56))


class Embedding(nn.Module):
    """``other + own[code]`` for a column of codes 0, 1, ..., ``codes``; ``own[0]`` is 0.

    Every step trains ``other``, the part that all values share, so that it is a trained vector
    where train has no code 0. All start at 0: a value that train lacks is as ``other``, and a rare
    one stays near it.
    """

    def __init__(self, codes: int) -> None:
        """``codes``: how many codes the lists have; one more stands for a missing value."""
        super().__init__()
        self.size = embedding_size(codes)
        self.other = nn.Parameter(torch.zeros(self.size))
        self.own = nn.Embedding(codes + 1, self.size, padding_idx=0)  # no gradient of row 0
        nn.init.zeros_(self.own.weight)

    def forward(self, codes: Tensor) -> Tensor:
        """``[..., size]`` of whole numbers ``[...]``."""
        vectors: Tensor = self.other + self.own(codes)
        return vectors


class WithEmbeddings(nn.Module):
    """A network that reads numbers, and for each category column its vector behind them.

    Args:
        make: makes the network, called with the number of its inputs.
        codes: how many codes each feature has, as ``FeatureTransform.codes``; 0 for a number.
        numbers: further numbers behind these features (indicators of missing values).
    """

    categories: Tensor
    numbers: Tensor

    def __init__(
        self, make: Callable[[int], nn.Module], codes: Sequence[int], *, numbers: int = 0
    ) -> None:
        super().__init__()
        of_category = [column for column, count in enumerate(codes) if count]
        of_number = [column for column, count in enumerate(codes) if not count]
        of_number += range(len(codes), len(codes) + numbers)
        self.register_buffer("categories", torch.tensor(of_category), persistent=False)
        self.register_buffer("numbers", torch.tensor(of_number, dtype=torch.long), persistent=False)
        self.embeddings = nn.ModuleList(Embedding(codes[column]) for column in of_category)
        width = len(of_number) + sum(embedding_size(codes[column]) for column in of_category)
        self.model = embedding_first(make, len(of_number))(width)
        self.pointwise = bool(getattr(self.model, "pointwise", False))
        self.batch_statistics = bool(getattr(self.model, "batch_statistics", False))
        if hasattr(self.model, "bytes_needed"):
            self.bytes_needed = self.model.bytes_needed
        if hasattr(self.model, "member_scores"):
            self.member_scores = self._member_scores

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """The scores of the network, ``[batch, list]``; categories on padding are never read."""
        scores: Scores = self.model(self.inputs(features, mask), mask, ranks)
        return scores

    def _member_scores(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Tensor:
        model: Any = self.model
        scores: Tensor = model.member_scores(self.inputs(features, mask), mask, ranks)
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
    """Set the bins of ``model``, where it has some, before it is trained.

    Args:
        model: of this project or another.
        features: gives ``[items, width]``, train's, transformed; called where there are bins.
    """
    inner = model.model if isinstance(model, WithEmbeddings) else model
    numbers = getattr(inner, "embedding", None)
    if isinstance(numbers, NumberEmbedding) and numbers.binned:
        given = features()
        numbers.fit(given[:, model.numbers] if isinstance(model, WithEmbeddings) else given)
