"""Draw random numbers for the items of lists."""

import torch
from torch import Tensor

from ltr.typing import Mask


def uniform_noise(
    mask: Mask, samples: int, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Independent uniform numbers above 0 and below 1, ``[samples, batch, list]``; 0 on padding.

    On the CPU numbers are drawn for real items only, in the order of the lists, so that neither the
    amount of padding nor its place changes what an item gets. Elsewhere, where counting the items
    would wait for the GPU, as many are drawn as there are places: what an item gets then depends on
    the amount of padding, but not on its place.

    Args:
        samples: >= 1, numbers per item.
        like: gives dtype and device.
        generator: draws; None is torch's own generator of the device, which ``torch.manual_seed``
            seeds and the trainer keeps in its checkpoints.

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
    drawn = drawn.to(like.device).clamp(limits.tiny, 1 - limits.eps)
    # the i-th number of each sample for the i-th real item of the batch
    if counted:  # by indices, PyTorch's threads would wait for each other longer than they work
        given = drawn.new_zeros(samples, *mask.shape)
        return given.masked_scatter_(mask.expand_as(given), drawn)
    number = (mask.flatten().cumsum(0) - 1).clamp(min=0)
    return drawn[:, number].view(samples, *mask.shape).masked_fill(~mask, 0)
