"""Random numbers for the items of lists: the one place that draws them."""

import torch
from torch import Tensor

from ltr.typing import Mask


def uniform_noise(
    mask: Mask, samples: int, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Independent uniform numbers above 0 and below 1, ``[samples, batch, list]``; 0 on padding.

    Numbers are drawn for real items only, in the order of the lists, so that neither the amount
    of padding nor its place changes what an item gets.

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
    size = (samples, int(mask.sum()))
    drawn = torch.rand(size, generator=generator, dtype=like.dtype, device=device)
    limits = torch.finfo(like.dtype)
    noise = torch.zeros((samples, *mask.shape), dtype=like.dtype, device=like.device)
    noise[:, mask] = drawn.to(like.device).clamp(limits.tiny, 1 - limits.eps)
    return noise
