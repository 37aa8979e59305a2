"""The same lists packed and padded, for attention."""

import torch

from ltr.models.layers import Packing

SIZE = 6


def packed_lists() -> tuple[Packing, Packing, torch.Tensor]:
    """The same lists packed and padded, and the padded projections ``[batch, list, 3 * size]``."""
    mask = torch.arange(8) < torch.tensor([5, 0, 1, 7])[:, None]
    mask[3] = mask[3].roll(1)  # padding in front
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 8, 3 * SIZE, dtype=torch.float64, generator=generator)
    return Packing.from_mask(mask), Packing(mask), values
