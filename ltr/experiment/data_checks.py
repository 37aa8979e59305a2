"""Check that the losses and metrics of an experiment can use the labels of its lists."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.metrics import Convention, Metric, parse_metric
from ltr.metrics.relevance import threshold
from ltr.training.caveats import warn_of_fixed_metrics
from ltr.training.settings import Settings

_LARGE = 32.0  # for such a label or a larger one, the square of 2^label may overflow float32
_LOOK = "or check this label (dataset.max_grade=N refuses labels above N)"


def check_labels(
    loss: Callable[..., torch.Tensor] | None,
    metrics: Sequence[Metric],
    convention: Convention,
    settings: Settings,
    lists: Mapping[str, Lists],
) -> None:
    """Check that the loss and the metrics can use the labels of the lists of each split.

    Raises ``ConfigError`` if they cannot use a label, or find no relevant item.
    """
    measured = {*settings.monitor, "vali", "test"}
    for split, split_lists in lists.items():
        check_grades(loss, split, split_lists)
        if split in measured:
            check_metrics(split, split_lists, metrics, convention)
    if loss is not None:
        check_loss_learns(loss, lists["train"], settings.list_size)
    select_on = [metric for metric in metrics if str(metric) == settings.select_on]
    warn_of_fixed_metrics("vali", lists["vali"], select_on, convention)


def check_grades(loss: Any, split: str, lists: Lists) -> None:
    """Raise ``ConfigError`` if a label of ``lists`` is not one of the grades of ``loss``."""
    levels = _knob(loss, "levels")
    if levels is not None and lists.labels.max() > levels - 1:
        raise ConfigError(
            f"loss.levels={levels:g} takes labels from 0 to {levels - 1:g}, but {split} has the "
            f"label {_top(lists)[1]}: set suggested.levels to the number of grades, {_LOOK}"
        )


def check_metrics(
    split: str, lists: Lists, metrics: Sequence[Metric], convention: Convention
) -> None:
    """Check that each of ``metrics`` can be computed on ``lists``.

    A metric is tried only on the list with the largest label. Raises ``ConfigError`` if a label is
    below 0 or NaN, too large for ``convention.levels``, or not in the table of gains. It is also
    raised if no list has a relevant item for a metric, or if a gain is too large to compute with.
    """
    check_signs(split, lists)
    labels, largest_item = _top(lists)
    if not isinstance(convention.gain, str):  # any label of any list may be missing in the table
        labels = torch.from_numpy(lists.labels.astype(np.float64))[None]
    mask = torch.ones_like(labels, dtype=torch.bool)

    def value(metric: Metric, empty: Any) -> float:
        return float(metric(labels, labels, mask, replace(convention, empty=empty)))

    for metric in metrics:
        try:
            if np.isfinite(value(metric, "skip")):
                continue
            is_empty = bool(np.isfinite(value(metric, 0.0)))
        except OverflowError:
            is_empty = False
        except ConfigError as error:
            raise ConfigError(f"{split}, whose largest label is {largest_item}: {error}") from None
        if is_empty:
            has_labels = bool(labels.max() > 0)
            remedy = ", or set convention.relevant to that label or lower" if has_labels else ""
            raise ConfigError(
                f"no item of {split} is relevant for {metric}; the largest label is "
                f"{largest_item}: use lists with relevant items{remedy}"
            )
        raise ConfigError(
            f"{metric} of {split} is not finite on the list with the largest label, "
            f"{largest_item}: if 2^label is too large, set convention.gain=linear; otherwise leave "
            f"{metric} out of metrics, {_LOOK}"
        )


def check_loss_learns(
    loss: Callable[..., torch.Tensor], train: Lists, list_size: int | None = None
) -> None:
    """Check that ``loss`` can learn from the labels of ``train``.

    The loss is tried on the list with the largest label. If that list has more than ``list_size``
    items, only those with the largest labels are used. Raises ``ConfigError`` if no item is
    relevant for the loss, if its value or gradient is not finite, or if a table of gains has no
    entry for a label.
    """
    labels, largest_item = _top(train)
    for gains in _gain_tables(getattr(loss, "keywords", {})):
        check_metrics("train", train, [parse_metric("dcg")], Convention(gain=gains))
    largest = labels.max()
    labels = labels[:, :list_size].float()
    relevant = _knob(loss, "relevant")
    if relevant is not None and not bool(largest >= threshold(relevant)):
        raise ConfigError(
            f"no item of train is relevant for the loss; the largest label is {largest_item}: set "
            "loss.relevant to that label or lower, or choose a loss that compares labels, such as "
            "loss=ranknet"
        )
    learns = True
    if largest >= _LARGE:
        scores = torch.linspace(-1, 1, labels.shape[-1])[None].requires_grad_()
        try:
            value = loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
            gradient = torch.autograd.grad(value, scores)[0] if value.requires_grad else value
            learns = bool(value.isfinite()) and bool(gradient.isfinite().all())
        except ArithmeticError:
            learns = False
    if not learns:
        raise ConfigError(
            "the loss is not finite on the training list with the largest label, "
            f"{largest_item}: if 2^label is too large, set gain=linear; otherwise choose a loss "
            f"that compares labels (such as loss=ranknet), {_LOOK}"
        )


def _gain_tables(knobs: Mapping[str, Any]) -> Iterator[list[float]]:
    """Yield the tables of gains in the settings of a loss, and in those of the parts of a mix."""
    for name, value in knobs.items():
        if name == "gain" and isinstance(value, list):
            yield value
        elif isinstance(value, Mapping):
            yield from _gain_tables(value)


def check_signs(split: str, lists: Lists) -> None:
    """Raise ``ConfigError`` unless all labels are >= 0 and all weights > 0.

    Only a user-defined data set can have other values, because the readers of files refuse those.
    """
    if not (lists.labels >= 0).all():
        label = lists.labels[~(lists.labels >= 0)][0]
        raise ConfigError(
            f"{split} has the label {label:g}: expected labels >= 0, where 0 means not relevant; "
            "leave out items without a judgment"
        )
    if lists.weights is not None and not (lists.weights > 0).all():
        weight = lists.weights[~(lists.weights > 0)][0]
        raise ConfigError(
            f"{split} has a list with the weight {weight:g}: expected weights > 0; leave out lists "
            "that should not count"
        )


def _knob(loss: Any, name: str) -> float | None:
    """Return the value of the setting ``name`` of ``loss``; None if it has no such setting."""
    return loss.keywords.get(name) if isinstance(loss, partial) else None


def _top(lists: Lists) -> tuple[torch.Tensor, str]:
    """Return the labels of the list with the largest label, and that label in words.

    The labels are in descending order, ``[1, items]``. The text also names the query, for example
    ``4 (query id 17)``.
    """
    item = int(lists.labels.argmax())
    index = int(np.searchsorted(lists.offsets, item, side="right")) - 1
    labels = np.sort(lists.labels[lists.offsets[index] : lists.offsets[index + 1]])[::-1]
    description = f"{lists.labels[item]:g} (query id {lists.qids[index]})"
    return torch.from_numpy(labels.astype(np.float64))[None], description
