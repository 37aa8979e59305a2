"""Steps around the formula of a loss: overwrite padding, order by label, average over lists."""

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_choice
from ltr.metrics.ordering import order_by_score
from ltr.metrics.per_list import check_lists, check_values, describe_value
from ltr.typing import Labels, Mask, PerList, PerListMask, Ranks, Scores


def without_padding(
    scores: Scores, labels: Labels, mask: Mask, *, called: str = "labels", fill: float = 0
) -> tuple[Scores, Labels]:
    """Check the tensors; return scores and labels in one dtype, with padding overwritten.

    Values on padding, even NaN, then affect neither the loss nor its gradient.

    Args:
        scores, labels, mask: ``[batch, list]``, as passed to a loss.
        called: the name of ``labels`` in an error message.
        fill: the score on padding.

    Returns:
        The scores, with ``fill`` on padding, and the labels, without gradient and with 0 on
        padding. Both are float64 if the scores are float64, otherwise float32.

    Raises:
        ConfigError: the shapes or devices of the tensors differ, or the mask is not boolean.
    """
    check_lists(scores, labels, mask, called=called)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    padding = ~mask
    labels = labels.detach().to(dtype).masked_fill(padding, 0)
    return scores.to(dtype).masked_fill(padding, fill), labels


def refuse_below_0(values: PerList, labels: Labels) -> PerList:
    """Return the values of a loss, with NaN for each list that has a label that is NaN or below 0.

    Metrics do the same. They raise no error, because the check would have to wait for the GPU.
    ``labels`` must be 0 on padding.
    """
    return values.masked_fill(~(labels >= 0).all(-1), torch.nan)


def ideal_order(scores: Scores, labels: Labels, mask: Mask) -> Ranks:
    """Return the item at each rank, ``[batch, rank]``, by descending label, then descending score.

    Items with equal labels and scores keep their given order; padding comes last.

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
    r"""Return the mean of the losses of the lists.

    .. math::
        \frac{\sum_q w_q \, \ell_q}{\sum_q w_q}

    where the sums are over the lists q that count. Without ``weights``, w_q is 1, so every list
    counts equally, however many items it has. A list without items never counts.

    Args:
        values: ``[batch]``, the result of a loss for ``labels`` and ``mask``.
        labels, mask: ``[batch, list]``, as for the loss.
        empty: what to do with a list without a relevant item. ``"keep"`` counts it with its value.
            For NeuralNDCG and LambdaRank this value is 0, which moves the mean and its gradient
            towards 0. ``"skip"`` leaves the list out of both sums.
        weights: w, ``[batch]``, >= 0; None: all lists count equally. A weight below 0 makes the
            mean NaN. There is no error, because a check would have to wait for the GPU.

    Returns:
        The mean, a scalar. If no list counts, the mean and its gradient are 0.

    Raises:
        ConfigError: ``empty`` is not ``"keep"`` or ``"skip"``, or ``values`` or ``weights`` do not
            hold one number per list.

    >>> values, labels = torch.tensor([4.0, 2.0]), torch.tensor([[1.0], [0.0]])
    >>> [mean_over_batch(values, labels, labels >= 0, empty=x).item() for x in ("keep", "skip")]
    [3.0, 4.0]
    """
    total, count = sum_over_batch(values, labels, mask, empty=empty, weights=weights)
    if weights is None:
        return total / count.clamp(min=1)
    return total / torch.where(count > 0, count, 1.0)


def sum_over_batch(
    values: PerList,
    labels: Labels,
    mask: Mask,
    *,
    empty: str = "keep",
    weights: PerList | None = None,
) -> tuple[Tensor, Tensor]:
    """Return two scalars whose ratio is the result of ``mean_over_batch`` for the same arguments.

    The first is the weighted sum of the losses. The second is the number of counted lists or, with
    ``weights``, the sum of their weights. If a batch is cut into slices, the scalars of the slices
    can be added up.
    """
    check_values(values, mask, whose="the loss")
    counted = counted_lists(labels, mask, empty=empty)
    values = values.masked_fill(~counted, 0)
    if weights is None:
        return values.sum(), counted.sum()
    if weights.shape != values.shape:
        raise ConfigError(
            f"weights: expected one weight per list, {[*values.shape]}, got "
            f"{describe_value(weights)}"
        )
    values = values.masked_fill(weights < 0, torch.nan)
    weights = weights * counted
    return (values * weights).sum(), weights.sum()


def counted_lists(labels: Labels, mask: Mask, *, empty: str = "keep") -> PerListMask:
    """Return, for each list, ``[batch]``, whether ``mean_over_batch`` counts it."""
    check_choice("empty", empty, ["keep", "skip"])
    if empty == "keep":
        return mask.any(-1)
    return (mask & (labels > 0)).any(-1)
