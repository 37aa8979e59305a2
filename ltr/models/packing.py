"""Work on items, not on padding: the real items of a batch as one long row."""

from typing import NamedTuple

import torch
from torch import Tensor

from ltr.typing import Mask


class Packing(NamedTuple):
    """How the items of padded lists ``[batch, list]`` stand in ``[items]``.

    On the CPU only the real items are kept: lists differ in length, so most of a padded batch can
    be padding. On a GPU every place is kept, as finding the real ones would stop it, and in a
    compiled model, as its shapes must not change. What a model makes of the real items is the same.

    Attributes:
        mask: ``[batch, list]``, True where an item exists.
        places: ``[items]``, place of each kept item in the flattened batch; None: all are kept.
        lengths: ``[batch]``, kept items of each list; None: all are kept.
    """

    mask: Mask
    places: Tensor | None = None
    lengths: list[int] | None = None

    @classmethod
    def of(cls, mask: Mask) -> "Packing":
        """The packing for the lists of ``mask``."""
        if mask.is_cuda or torch.compiler.is_compiling():
            return cls(mask)
        return cls(mask, mask.flatten().nonzero().squeeze(-1), mask.sum(-1).tolist())

    def pack(self, padded: Tensor) -> Tensor:
        """``[batch, list, ...]`` to ``[items, ...]``; padding that is kept becomes 0."""
        flat = padded.flatten(0, 1)
        if self.places is not None:
            return flat[self.places]
        return flat.masked_fill(~self.mask.flatten()[(..., *[None] * (flat.dim() - 1))], 0)

    def unpack(self, items: Tensor) -> Tensor:
        """``[items, ...]`` to ``[batch, list, ...]``, 0 on padding that was not kept."""
        shape = (*self.mask.shape, *items.shape[1:])
        if self.places is None:
            return items.view(shape)
        flat = items.new_zeros(self.mask.numel(), *items.shape[1:])
        return flat.index_copy(0, self.places, items).view(shape)
