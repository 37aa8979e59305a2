"""Encodings of a given initial rank, added to the hidden vector of an item."""

import torch
from torch import Tensor, nn

from ltr.errors import ConfigError


def position_encoding(position: str, size: int, max_rank: int) -> nn.Module:
    """The module for ``"fixed"`` or ``"learned"``: ranks ``[...]`` to vectors ``[..., size]``.

    Raises:
        ConfigError: ``position`` is neither, or ``size`` is odd with ``"fixed"``.
    """
    if position not in ("fixed", "learned"):
        raise ConfigError(f"position={position} is not known: choose one of fixed, learned, null")
    if position == "learned":
        return LearnedPosition(size, max_rank)
    if size % 2:
        raise ConfigError(
            f"position=fixed pairs sines with cosines and the hidden size is {size}: "
            "make the last of fc_sizes even, or write position=learned"
        )
    return FixedPosition(size)


class FixedPosition(nn.Module):
    """Sines and cosines of the rank (Vaswani et al., 2017, section 3.5); any rank has its own."""

    rates: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, ranks: Tensor) -> Tensor:
        """``[..., size]`` of ranks ``[...]`` that count from 1."""
        angles = (ranks - 1).unsqueeze(-1) * self.rates
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class LearnedPosition(nn.Module):
    """One learned vector per rank; the ranks beyond ``max_rank`` share its vector."""

    def __init__(self, size: int, max_rank: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_rank, size)

    def forward(self, ranks: Tensor) -> Tensor:
        """``[..., size]`` of ranks ``[...]`` that count from 1."""
        return self.table(ranks.clamp(1, self.table.num_embeddings) - 1)
