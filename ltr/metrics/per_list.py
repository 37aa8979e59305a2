"""The dtype of a metric, the value of empty and broken lists, and the mean over lists."""

import math

import torch
from torch import Tensor

from ltr.metrics.checks import check_empty
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores


def float_type(scores: Scores, labels: Labels) -> torch.dtype:
    """The dtype of a metric: float64 where an input is float64, else float32."""
    return torch.promote_types(torch.promote_types(scores.dtype, labels.dtype), torch.float32)


def promoted(scores: Scores) -> Scores:
    """The scores in float64 where they are float64, else in float32."""
    return scores.to(float_type(scores, scores))


def settle(
    values: Tensor,
    scores: Scores,
    mask: Mask,
    *,
    without: PerListMask,
    empty: float | int | str,
    labels: Labels | None = None,
) -> PerList:
    """``values`` with ``empty`` (NaN for ``"skip"``) for lists ``without`` a relevant item.

    A list in which a real item is scored NaN, or labelled so in ``labels``, is NaN, empty or not.
    """
    check_empty(empty)
    broken = scores.isnan() if labels is None else scores.isnan() | labels.isnan()
    values = values.masked_fill(without, torch.nan if empty == "skip" else float(empty))
    return values.masked_fill((broken & mask).any(-1), torch.nan)


def mean_over_lists(values: PerList, *, empty: float | int | str = "skip") -> float:
    """Mean of per-list values in float64, as one sum over one count.

    ``values``, ``[lists]``, are those of all batches, so that the batch size cannot change the
    figure. ``empty`` is the convention under which they were computed: under ``"skip"`` lists of
    NaN are left out; under a number a NaN can only come from a NaN score and makes the mean NaN. No
    list left gives NaN.

    >>> mean_over_lists(torch.tensor([1.0, torch.nan, 0.5]))
    0.75
    >>> mean_over_lists(torch.tensor([1.0, torch.nan, 0.5]), empty=1.0)
    nan
    """
    check_empty(empty)
    values = values.detach().cpu().to(torch.float64)
    if empty == "skip":
        values = values[~values.isnan()]
    return float(values.sum()) / len(values) if len(values) else math.nan
