"""Dropout that draws its masks quickly on the CPU."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16  # of the 16 random bits that decide over a value


class Dropout(nn.Module):
    """Sets values to 0 at ``rate`` and scales the others up, in training; else the identity.

    On the CPU PyTorch's own draws one value at a time, which can take a quarter of a training step;
    there the mask comes from ``keep_factors``. Elsewhere, and in a compiled model, it is PyTorch's.
    """

    def __init__(self, rate: float, *, inplace: bool = False) -> None:
        """``inplace`` overwrites the input: only where nothing else needs its values."""
        super().__init__()
        self.rate, self.inplace = rate, inplace

    def forward(self, values: Tensor) -> Tensor:
        """``values`` of any shape, thinned out."""
        if not self.training or self.rate == 0:
            return values
        if values.device.type != "cpu" or torch.compiler.is_compiling():
            return functional.dropout(values, self.rate, inplace=self.inplace)
        keep = keep_factors(values.shape, self.rate).to(values.dtype)
        return values.mul_(keep) if self.inplace else values * keep

    def extra_repr(self) -> str:
        """The rate, for ``print(model)``."""
        return f"rate={self.rate}"


def keep_factors(shape: Sequence[int], rate: float) -> Tensor:
    """0 with probability ``rate``, else 1 / (1 - rate), independently, float32 on the CPU.

    ``rate`` is rounded to a multiple of 2**-16, in the scale too, so that the expected factor is 1.
    The draws come from a generator of NumPy that one number from torch's global one seeds:
    ``torch.manual_seed`` governs them, and a checkpoint holds their state.

    >>> keep_factors((2, 3), 0.0)
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    count = int(np.prod(shape))
    bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    draws = bits.random_raw(-(-count // 4)).view(np.uint16)[:count]  # four of each 64 bits
    keep = torch.from_numpy(draws >= dropped).float().mul_(_LEVELS / (_LEVELS - dropped))
    return keep.view(tuple(shape))
