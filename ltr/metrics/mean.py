"""The mean of a metric over the lists of a split."""

import math

import torch

from ltr.metrics.checks import check_empty
from ltr.typing import PerList


def mean_over_lists(values: PerList, *, empty: float | int | str = "skip") -> float:
    """Mean of per-list values in float64, as one sum over one count.

    Collect the values of all batches first, so that the batch size cannot change the figure.

    Args:
        values: ``[lists]``.
        empty: the convention under which they were computed. Under ``"skip"`` a NaN is a list that
            is left out. Under a number no list is left out: a NaN can only come from a NaN score
            and makes the mean NaN, instead of dropping the lists on which the model broke down.

    Returns:
        The mean; NaN if no list is left.

    Raises:
        ConfigError: ``empty`` is neither a number from 0 to 1 nor ``"skip"``.

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
