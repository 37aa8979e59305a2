"""What a metric begins and ends with: checks of the lists, values of empty ones, the mean."""

import math
from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_empty
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores


def check_lists(scores: Scores, labels: Labels, mask: Mask, *, called: str = "labels") -> None:
    """Raise ``ConfigError`` unless the three are ``[batch, list]`` alike, on one device.

    ``called`` is what stands in the place of the labels. All losses and metrics begin with this, by
    ``without_padding`` or ``promoted_labels``.
    """
    for name, given in (("scores", scores), (called, labels), ("mask", mask)):
        if not isinstance(given, Tensor) or given.dim() != 2:
            wanted = "a tensor [batch, list], such as [1, list] for one list"
        elif given.shape != scores.shape or given.device != scores.device:
            wanted = f"{list(scores.shape)} on {scores.device}, as the scores"
        elif name == "mask" and given.dtype is not torch.bool:
            wanted = "torch.bool, True where an item exists"
        else:
            continue
        raise ConfigError(f"{name}: given is {told(given)}, wanted {wanted}")


def check_values(values: Any, mask: Mask, *, whose: str) -> None:
    """Raise ``ConfigError`` unless a loss or metric, ``whose``, returned one value per list."""
    if not isinstance(values, Tensor) or values.shape != mask.shape[:1]:
        raise ConfigError(
            f"{whose} returned {told(values)}: return one value per list, a tensor "
            f"{list(mask.shape[:1])} for these {len(mask)} lists of {mask.shape[-1]} places"
        )


def told(given: Any) -> str:
    """The dtype, shape and device of a tensor, or the type of what is none, for an error."""
    if not isinstance(given, Tensor):
        return type(given).__name__
    return f"{given.dtype} {list(given.shape)} on {given.device}"


def promoted_labels(scores: Scores, labels: Labels, mask: Mask) -> Labels:
    """The labels in the dtype of a metric, once the three are checked."""
    check_lists(scores, labels, mask)
    return labels.to(float_type(scores, labels))


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
    """
    check_empty(empty)
    values = values.detach().cpu().to(torch.float64)
    if empty == "skip":
        values = values[~values.isnan()]
    return float(values.sum()) / len(values) if len(values) else math.nan
