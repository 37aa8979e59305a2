"""What follows from the labels, once the lists are open: the number of grades, and checks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.metrics.relevance import threshold
from ltr.scorers.parts import Experiment, make, make_convention

log = logging.getLogger(__name__)

_LARGE = 32.0  # from here on a gain of 2^label can be too large for float32, squared
_LOOK = "or look at that item (dataset.max_grade=N refuses labels above N)"


def with_levels(cfg: DictConfig, train: Callable[[], Lists]) -> DictConfig:
    """``cfg`` with ``suggested.levels`` from the labels of ``train`` where it is null.

    Keys that read ``levels`` follow by interpolation; a checkpoint keeps the result.
    """
    if cfg.suggested.levels is not None:
        return cfg
    cfg = cfg.copy()
    cfg.suggested.levels = levels_for(float(train().labels.max()))
    return cfg


def resolve_labels(
    cfg: DictConfig, experiment: Experiment, lists: Mapping[str, Lists]
) -> tuple[DictConfig, Experiment]:
    """Config and parts with the number of grades of train; the labels of ``lists`` are checked.

    Raises:
        ConfigError: the loss or a metric cannot take a label, or a metric finds no relevant item.
    """
    resolved = with_levels(cfg, lambda: lists["train"])
    if resolved is not cfg:
        log.info("%d grades (levels) by the largest label of train", resolved.suggested.levels)
        loss, convention = make(resolved.get("loss"), "loss"), make_convention(resolved)
        experiment = replace(experiment, loss=loss, convention=convention)
    levels = _knob(experiment.loss, "levels")
    for split, part in lists.items():
        if levels is not None:
            _check_levels(split, part, "loss.levels", levels)
        if split in {*experiment.settings.monitor, "vali", "test"}:
            check_metrics(split, part, experiment.metrics, experiment.convention)
    if experiment.loss is not None:
        check_loss(experiment.loss, lists["train"], experiment.settings.list_size)
    return resolved, experiment


def check_metrics(
    split: str, lists: Lists, metrics: Sequence[Metric], convention: Convention
) -> None:
    """See that ``metrics`` mean something on ``lists``, by the list with the largest label.

    Raises:
        ConfigError: a label is above ``convention.levels`` or in no table of gains, no list has a
            relevant item for a metric, or a gain is too large to count with.
    """
    if any("levels" in metric.parts for metric in metrics):
        _check_levels(split, lists, "convention.levels", convention.levels)
    if not isinstance(convention.gain, str) and any("gain" in one.parts for one in metrics):
        count = len(convention.gain)
        wrong = (lists.labels >= count) | (lists.labels != np.floor(lists.labels))
        if wrong.any():
            raise ConfigError(
                f"{split} has {_item(lists, int(wrong.argmax()))}, but convention.gain has the "
                f"gains of the grades 0 to {count - 1}: write one for each, or set "
                "convention.gain=linear"
            )
    largest, labels, gain = _top(lists)
    mask = torch.ones_like(labels, dtype=torch.bool)
    for metric in metrics:
        try:
            value, filled = (
                float(metric(labels, labels, mask, replace(convention, empty=empty)))
                for empty in ("skip", 0)
            )
        except OverflowError:
            value = filled = np.inf
        remedy = f"leave {metric} out of metrics"
        if not np.isfinite(filled):
            if "gain" in metric.parts:
                remedy = "set convention.gain=linear"
            raise ConfigError(f"{metric} of {split} is not finite: {gain}: {remedy}, {_LOOK}")
        if np.isnan(value):
            lower = "give labels above 0"
            if "relevant" in metric.parts and largest > 0:
                lower = f"set convention.relevant={_as_written(largest)} or lower"
            raise ConfigError(
                f"{metric} of {split}: no list has a relevant item, the largest label is "
                f"{largest:g}: {lower}, or {remedy}"
            )


def check_loss(
    loss: Callable[..., torch.Tensor], train: Lists, list_size: int | None = None
) -> None:
    """See that ``loss`` can learn from the labels of ``train``, cut to ``list_size`` items a list.

    Raises:
        ConfigError: no item is relevant for it, or it is not finite.
    """
    largest, labels, gain = _top(train)
    relevant = _knob(loss, "relevant")
    if relevant is not None and largest < threshold(relevant):
        lower = f"set loss.relevant={_as_written(largest)} or lower"
        raise ConfigError(
            f"the loss finds no relevant item in train, the largest label is {largest:g}: "
            f"{lower if largest > 0 else 'give labels above 0'}, or choose a loss that compares "
            "labels, such as loss=ranknet"
        )
    if largest < _LARGE:
        return
    labels = labels.float()[:, :list_size]
    scores = torch.linspace(-1, 1, labels.shape[-1])[None].requires_grad_()
    try:
        value = loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
        slope = torch.autograd.grad(value, scores)[0] if value.requires_grad else value
        finite = bool(value.isfinite()) and bool(slope.isfinite().all())
    except ArithmeticError:
        finite = False
    if not finite:
        raise ConfigError(
            f"the loss is not finite on train: {gain}: choose a loss that does not raise 2 to the "
            f"label, such as loss=ranknet convention.gain=linear, {_LOOK}"
        )


def _knob(loss: Any, name: str) -> float | None:
    """The value of a knob of ``loss``; None where it has none of that name."""
    return loss.keywords.get(name) if isinstance(loss, partial) else None


def _check_levels(split: str, lists: Lists, key: str, levels: float) -> None:
    """Raise ``ConfigError`` where a label is above ``levels`` - 1; ``key`` has them."""
    place = int(lists.labels.argmax())
    if (largest := float(lists.labels[place])) > levels - 1:
        raise ConfigError(
            f"{split} has {_item(lists, place)}, but {key}={levels:g} means labels up to "
            f"{levels - 1:g}: set {key}={levels_for(largest)} (of a run suggested.levels sets it, "
            "for loss and metrics), or look at that item"
        )


def _top(lists: Lists) -> tuple[float, torch.Tensor, str]:
    """The largest label, the labels of its list, descending, ``[1, items]``, and its gain."""
    place = int(lists.labels.argmax())
    number = int(np.searchsorted(lists.offsets, place, side="right")) - 1
    labels = np.sort(lists.labels[lists.offsets[number] : lists.offsets[number + 1]])[::-1]
    largest = float(labels[0])
    gain = f"2^{largest:g} - 1, the gain of {_item(lists, place)}, is too large a number"
    return largest, torch.from_numpy(labels.astype(np.float64))[None], gain


def _item(lists: Lists, place: int) -> str:
    """An item by its label and its query id."""
    qid = lists.qids[np.searchsorted(lists.offsets, place, side="right") - 1]
    return f"label {lists.labels[place]:g} (query id {qid})"


def _as_written(label: float) -> str:
    """A label of float32 with the fewest digits that name it."""
    return np.format_float_positional(np.float32(label), trim="-")
