"""Lists that have a value of their own: empty ones, and those on which the model broke down."""

import torch
from torch import Tensor

from ltr.metrics.checks import check_empty
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores


def float_type(scores: Scores, labels: Labels) -> torch.dtype:
    """The dtype of a metric: float64 where an input is float64, else float32."""
    return torch.promote_types(torch.promote_types(scores.dtype, labels.dtype), torch.float32)


def settle(
    values: Tensor, scores: Scores, mask: Mask, *, without: PerListMask, empty: float | int | str
) -> PerList:
    """``values`` with ``empty`` where ``without`` says that a list has no relevant item.

    A list in which a real item is scored NaN is NaN, empty or not: looking for it would stop a
    GPU, so nothing is raised, and the mean shows it. ``empty="skip"`` gives NaN too.

    Raises:
        ConfigError: ``empty`` is neither a number from 0 to 1 nor ``"skip"``.
    """
    check_empty(empty)
    values = values.masked_fill(without, torch.nan if empty == "skip" else float(empty))
    return values.masked_fill((scores.isnan() & mask).any(-1), torch.nan)
