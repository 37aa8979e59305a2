"""Steps around the formula of a metric: check inputs, fill empty lists, take the mean."""

import math
import struct
from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_empty
from ltr.typing import Labels, Mask, PerList, PerListMask, Scores

# The NaN of a list with a NaN score, or with a label that no metric accepts. Its bits distinguish
# it from the NaN of a list that the mean leaves out; copies and casts between float32 and float64
# keep these bits.
_BROKEN_BITS = 0x7FFC_0000_0000_0000
(BROKEN,) = struct.unpack("<d", struct.pack("<Q", _BROKEN_BITS))


def check_lists(scores: Scores, labels: Labels, mask: Mask, *, called: str = "labels") -> None:
    """Check that the three tensors have one shape, ``[batch, list]``, and one device.

    Every loss and metric calls this first, often through ``without_padding`` or
    ``promoted_labels``.

    Args:
        scores, labels, mask: the tensors to check.
        called: the name of ``labels`` in the message.

    Raises:
        ConfigError: an argument is not such a tensor, or the mask is not boolean.
    """
    for name, values in (("scores", scores), (called, labels), ("mask", mask)):
        if not isinstance(values, Tensor) or values.dim() != 2:
            expected = "a tensor of shape [batch, list], such as [1, list] for one list"
        elif values.shape != scores.shape or values.device != scores.device:
            expected = f"shape {list(scores.shape)} on {scores.device}, like the scores"
        elif name == "mask" and values.dtype is not torch.bool:
            expected = "a tensor of type torch.bool, True where an item exists"
        else:
            continue
        raise ConfigError(f"{name}: expected {expected}, got {describe_value(values)}")


def check_values(values: Any, mask: Mask, *, whose: str) -> None:
    """Raise ``ConfigError`` unless ``values`` holds one value per list.

    ``whose`` is the name of the loss or metric that returned the values, for the message.
    """
    if not isinstance(values, Tensor) or values.shape != mask.shape[:1]:
        raise ConfigError(
            f"{whose} returned {describe_value(values)}: return one value per list, a tensor of "
            f"shape {list(mask.shape[:1])} for these {len(mask)} lists padded to {mask.shape[-1]} "
            "items"
        )


def describe_value(value: Any) -> str:
    """Describe a value for an error message.

    A tensor is described by its dtype, shape and device, any other value by its type.
    """
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype} {list(value.shape)} on {value.device}"


def promoted_labels(scores: Scores, labels: Labels, mask: Mask) -> Labels:
    """Check the three tensors, and return the labels in the dtype of the metric.

    A label below 0 becomes NaN. There is no error, because a check would have to wait for the GPU.
    """
    check_lists(scores, labels, mask)
    return nan_below_0(labels.to(float_type(scores, labels)))


def nan_below_0(labels: Labels) -> Labels:
    """Return the labels with NaN in place of those below 0."""
    return torch.where(labels < 0, torch.nan, labels)


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
    """Return ``values`` after setting the values of empty and of broken lists.

    A broken list has a real item with a NaN score or, if ``labels`` are passed, with a label that
    is NaN or below 0. Its value is the NaN ``BROKEN``, even if the list is empty.

    Args:
        values: the metric of each list, ``[batch]``; the values of empty lists are not read.
        scores, mask: ``[batch, list]``, as for the metric.
        without: ``[batch]``, True for an empty list.
        empty: the value of an empty list, from 0 to 1, or ``"skip"`` for NaN.
        labels: ``[batch, list]``, as for the metric; None: only scores are checked.

    Returns:
        One value per list, ``[batch]``, in the dtype of ``values``.

    Raises:
        ConfigError: ``empty`` is neither a number from 0 to 1 nor ``"skip"``.
    """
    empty = check_empty(empty)
    values = values.masked_fill(without, torch.nan if empty == "skip" else float(empty))
    return values.masked_fill(broken_lists(scores, labels, mask), BROKEN)


def broken_lists(scores: Scores, labels: Labels | None, mask: Mask) -> PerListMask:
    """Return, for each list, ``[batch]``, whether a score is NaN or a label is not >= 0."""
    broken = scores.isnan() if labels is None else scores.isnan() | ~(labels >= 0)
    return (broken & mask).any(-1)


def of_own_metric(values: PerList, scores: Scores, labels: Labels, mask: Mask) -> PerList:
    """Return the values of the user's own metric in the dtype that a built-in metric would have.

    A NaN becomes ``BROKEN`` if the list has a NaN score.
    """
    broken = values.isnan() & broken_lists(scores, None, mask)
    return values.to(float_type(scores, labels)).masked_fill(broken, BROKEN)


def mean_over_lists(values: PerList, *, empty: float | int | str = "skip") -> float:
    """Return the mean of the values of all lists, as one sum divided by one count.

    Args:
        values: ``[lists]``, the metric of each list. Pass the lists of all batches together;
            otherwise the batch size can change the result.
        empty: the argument ``empty`` with which the values were computed. With ``"skip"``, lists
            with the value NaN are left out, unless a metric of this package marked them as broken
            because of a NaN score, or a label that is NaN or below 0. One broken list makes the
            mean NaN. With a number, any NaN makes the mean NaN.

    Returns:
        The mean, computed in float64; NaN if no list is left.

    Raises:
        ConfigError: ``empty`` is neither a number from 0 to 1 nor ``"skip"``.

    >>> from ltr.metrics import ndcg
    >>> scores = torch.tensor([[2.0, 1.0], [torch.nan, 1.0]])  # of a model that diverged
    >>> labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> mean_over_lists(ndcg(scores, labels, labels >= 0))
    nan
    """
    check_empty(empty)
    values = values.detach().cpu().to(torch.float64)
    if empty == "skip":
        broken = values.view(torch.int64) == _BROKEN_BITS
        values = values[~values.isnan() | broken]
    return float(values.sum()) / len(values) if len(values) else math.nan
