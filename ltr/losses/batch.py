"""Before and after a loss: scores and labels without padding, and the mean over a batch's lists."""

import torch
from torch import Tensor

from ltr.knobs import check_choice
from ltr.metrics.ordering import order_by_score
from ltr.metrics.per_list import check_lists, check_values
from ltr.typing import Labels, Mask, PerList, PerListMask, Ranks, Scores


def without_padding(
    scores: Scores, labels: Labels, mask: Mask, *, called: str = "labels"
) -> tuple[Scores, Labels]:
    """Scores and labels with 0 on padding, in one dtype: float64 if the scores are, else float32.

    Whatever stood on padding, NaN included, reaches neither values nor gradients. What the labels
    are ``called`` is for the error where the shapes differ.
    """
    check_lists(scores, labels, mask, called=called)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(dtype).masked_fill(~mask, 0), labels.detach().to(dtype).masked_fill(~mask, 0)


def ideal_order(scores: Scores, labels: Labels, mask: Mask) -> Ranks:
    """The item at each rank by descending label, equal labels by score, ``[batch, rank]``.

    Equal ones of both stand as they are given; padding comes last.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[1.0, 0.0, 1.0]])
    >>> ideal_order(scores, labels, labels >= 0)
    tensor([[2, 0, 1]])
    """
    order = order_by_score(scores.detach(), mask)
    keys = labels.masked_fill(~mask, -torch.inf).gather(-1, order)
    return order.gather(-1, keys.argsort(dim=-1, descending=True, stable=True))


def mean_over_batch(
    values: PerList,
    labels: Labels,
    mask: Mask,
    *,
    empty: str = "keep",
    weights: PerList | None = None,
) -> Tensor:
    """Mean of the lists' losses, a scalar; every list counts the same, however long it is.

    A row without items never counts. If no list counts, the result is 0 with gradients of 0.

    Args:
        values: ``[batch]``, what a loss returned for ``labels`` and ``mask``.
        empty: ``"keep"`` counts a list without a relevant item with the value the loss gives it
            (0 for NeuralNDCG and LambdaRank, which lowers the mean and so the step); ``"skip"``
            leaves it out of sum and count.
        weights: ``[batch]``, >= 0, how much each list counts; None: all the same.

    Raises:
        ConfigError: ``empty`` is neither, or there is not one value per list.

    >>> values, labels = torch.tensor([4.0, 2.0]), torch.tensor([[1.0], [0.0]])
    >>> [mean_over_batch(values, labels, labels >= 0, empty=x).item() for x in ("keep", "skip")]
    [3.0, 4.0]
    """
    total, count = sum_over_batch(values, labels, mask, empty=empty, weights=weights)
    return total / (count.clamp(min=1) if weights is None else torch.where(count > 0, count, 1.0))


def sum_over_batch(
    values: PerList,
    labels: Labels,
    mask: Mask,
    *,
    empty: str = "keep",
    weights: PerList | None = None,
) -> tuple[Tensor, Tensor]:
    """What ``mean_over_batch`` divides, and by what: two scalars that can be added over slices.

    The second is the number of counted lists or, with ``weights``, what these weigh.
    """
    check_values(values, mask, whose="the loss")
    counted = counted_lists(labels, mask, empty=empty)
    values = values.masked_fill(~counted, 0)
    if weights is None:
        return values.sum(), counted.sum()
    weights = weights * counted
    return (values * weights).sum(), weights.sum()


def counted_lists(labels: Labels, mask: Mask, *, empty: str = "keep") -> PerListMask:
    """The lists that ``mean_over_batch`` counts, ``[batch]``."""
    check_choice("empty", empty, ["keep", "skip"])
    return mask.any(-1) if empty == "keep" else (mask & (labels > 0)).any(-1)
