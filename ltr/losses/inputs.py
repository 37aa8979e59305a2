"""What every loss does to its inputs first."""

import torch

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
