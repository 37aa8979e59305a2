"""First and last steps of a metric: check the lists, set values of empty lists, take the mean."""

import math
from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_empty
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores


def check_lists(scores: Scores, labels: Labels, mask: Mask, *, called: str = "labels") -> None:
    """Raise ``ConfigError`` unless the three tensors have one shape ``[batch, list]`` and device.

    ``called`` is the name used for ``labels`` in the message. Every loss and metric calls this
    first, often through ``without_padding`` or ``promoted_labels``.
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
    """Raise ``ConfigError`` unless ``values`` is one value per list.

    ``whose`` names the loss or metric that returned the values, for the message.
    """
    if not isinstance(values, Tensor) or values.shape != mask.shape[:1]:
        raise ConfigError(
            f"{whose} returned {told(values)}: return one value per list, a tensor "
            f"{list(mask.shape[:1])} for these {len(mask)} lists of {mask.shape[-1]} places"
        )


def told(given: Any) -> str:
    """Describe a value for an error: dtype, shape and device of a tensor, else its type."""
    if not isinstance(given, Tensor):
        return type(given).__name__
    return f"{given.dtype} {list(given.shape)} on {given.device}"


def promoted_labels(scores: Scores, labels: Labels, mask: Mask) -> Labels:
    """Check the three tensors, and return the labels in the dtype of the metric."""
    check_lists(scores, labels, mask)
    return labels.to(float_type(scores, labels))


def float_type(scores: Scores, labels: Labels) -> torch.dtype:
    """Return the dtype of a metric: float64 if an input is float64, else float32."""
    return torch.promote_types(torch.promote_types(scores.dtype, labels.dtype), torch.float32)


def promoted(scores: Scores) -> Scores:
    """Return the scores in float64 if they are float64, else in float32."""
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
    """Set the final values of lists that are empty, or that contain NaN.

    Empty lists, where ``without`` is True, get the value ``empty`` (NaN for ``"skip"``). A list in
    which a real item has a NaN in ``scores``, or in ``labels`` if given, gets NaN even if it is
    empty.
    """
    check_empty(empty)
    broken = scores.isnan() if labels is None else scores.isnan() | labels.isnan()
    values = values.masked_fill(without, torch.nan if empty == "skip" else float(empty))
    return values.masked_fill((broken & mask).any(-1), torch.nan)


def mean_over_lists(values: PerList, *, empty: float | int | str = "skip") -> float:
    """Return the mean of per-list values, in float64, as one sum divided by one count.

    ``values``, ``[lists]``, should be the values of all batches together, so that the batch size
    cannot change the result. ``empty`` must be the convention under which they were computed. With
    ``"skip"``, lists with the value NaN are left out. With a number, a NaN can only come from a NaN
    score (or label), and the mean is then NaN. If no list is left, the mean is NaN too.
    """
    check_empty(empty)
    values = values.detach().cpu().to(torch.float64)
    if empty == "skip":
        values = values[~values.isnan()]
    return float(values.sum()) / len(values) if len(values) else math.nan
