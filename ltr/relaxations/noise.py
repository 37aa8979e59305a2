"""Random numbers for the items of lists: the one place that draws them."""

import torch
from torch import Tensor

from ltr.typing import Mask


def uniform_noise(
    mask: Mask, samples: int, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Independent uniform numbers above 0 and below 1, ``[samples, batch, list]``; 0 on padding.

    On the CPU numbers are drawn for real items only, in the order of the lists, so that neither the
    amount of padding nor its place changes what an item gets. Elsewhere, where to count the items
    would be to wait for the GPU, as many are drawn as there are places: what an item gets still
    does not depend on the place of the padding, but it does on its amount.

    Args:
        mask: ``[batch, list]``, True where an item exists.
        samples: >= 1, numbers per item.
        like: gives dtype and device.
        generator: what draws. None is torch's own generator of the device, which
            ``torch.manual_seed`` seeds; the trainer seeds it from ``seed`` and keeps its state in
            the checkpoints, so that a run that is resumed draws what it would have drawn.

    >>> mask = torch.tensor([[True, False]])
    >>> noise = uniform_noise(mask, 1, torch.zeros(()), torch.Generator().manual_seed(0))
    >>> bool(0 < noise[0, 0, 0] < 1), noise[0, 0, 1].item()
    (True, 0.0)
    """
    device = like.device if generator is None else generator.device
    counted = mask.device.type == "cpu" and not torch.compiler.is_compiling()
    numbers = int(mask.sum()) if counted else mask.numel()
    drawn = torch.rand((samples, numbers), generator=generator, dtype=like.dtype, device=device)
    limits = torch.finfo(like.dtype)
    return _to_items(drawn.to(like.device).clamp(limits.tiny, 1 - limits.eps), mask)


def _to_items(drawn: Tensor, mask: Mask) -> Tensor:
    """The i-th number of each sample for the i-th real item of the batch, 0 on padding."""
    number = (mask.flatten().cumsum(0) - 1).clamp(min=0)
    given = drawn[:, number] if drawn.shape[-1] else drawn.new_zeros(len(drawn), mask.numel())
    return given.view(len(drawn), *mask.shape).masked_fill(~mask, 0)
