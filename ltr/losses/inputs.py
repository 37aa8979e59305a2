"""What every loss does to its inputs first."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.typing import Labels, Mask, Scores


def without_padding(scores: Scores, labels: Labels, mask: Mask) -> tuple[Scores, Labels]:
    """Scores and labels with 0 on padding, in one dtype: float64 if the scores are, else float32.

    Whatever stood on padding, NaN included, reaches neither values nor gradients.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(dtype).masked_fill(~mask, 0), labels.to(dtype).masked_fill(~mask, 0)


def kernels_apply(scores: Scores) -> bool:
    """Whether the compiled loops of ``ltr.kernels`` can take these scores: on the CPU, not traced.

    Everywhere else a loss takes its plain path, the same formula on whole tensors.
    """
    return scores.device.type == "cpu" and not torch.compiler.is_compiling()


def to_array(values: Tensor) -> Any:
    """A contiguous NumPy array for the kernels: float64, or bool or int64 if it is that."""
    values = values.detach()
    return np.ascontiguousarray((values.double() if values.is_floating_point() else values).numpy())
