"""What follows from the training lists once they are read: grades, batch size, and checks."""

import logging
import math
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
from ltr.metrics import Convention, Metric, parse_metric
from ltr.metrics.relevance import threshold
from ltr.scorers.parts import Experiment, by_rounds, make, make_convention, make_settings
from ltr.scorers.trust import values_in
from ltr.training.caveats import warn_of_fixed_metrics, warn_of_nothing_to_rank

log = logging.getLogger(__name__)

_LARGE = 32.0  # from this label on, the square of a gain of 2^label may be too large for float32
BATCH_SIZE = 64  # the largest that is suggested
_LOOK = "or look at that item (dataset.max_grade=N refuses labels above N)"


def with_suggested(cfg: DictConfig, train: Callable[[], Lists]) -> DictConfig:
    """Return ``cfg`` with ``suggested.levels`` set from the labels of ``train`` and ``batch_size``
    from the number of its lists, where they are null. Keys that refer to them by interpolation
    change too. A checkpoint stores the result.
    """
    if cfg.suggested.levels is not None and cfg.batch_size is not None:
        return cfg
    cfg, lists = cfg.copy(), train()
    if cfg.suggested.levels is None:
        cfg.suggested.levels = levels_for(float(lists.labels.max()))
    if cfg.batch_size is None:
        size = batch_size_for(bag_size(len(lists), cfg.bagging), cfg.suggested.steps)
        cfg.batch_size = max(size, cfg.shards or 1)
    return cfg


def bag_size(count: int, bagging: Any) -> int:
    """Return how many of ``count`` lists ``bagging`` draws, repeated ones included.

    >>> [bag_size(20, bagging) for bagging in (None, "bootstrap", 0.72, 0.01)]
    [20, 20, 14, 1]
    """
    return max(1, round(bagging * count)) if isinstance(bagging, float) else count


def batch_size_for(lists: int, steps: int) -> int:
    """Return the suggested number of lists in a training step: the largest up to 64 with which an
    epoch has at least ``steps`` steps.

    >>> [batch_size_for(lists, 8) for lists in (5, 30, 63, 200, 471, 20_000)]
    [1, 4, 8, 28, 64, 64]
    """
    return min(BATCH_SIZE, max(1, (lists - 1) // max(steps - 1, 1)))


def resolve_labels(
    cfg: DictConfig, experiment: Experiment, lists: Mapping[str, Lists]
) -> tuple[DictConfig, Experiment]:
    """Check the labels of ``lists``; return config and parts with what train suggests.
    ``ConfigError``: the loss or a metric cannot use a label, or finds no relevant item.
    """
    for split, part in lists.items():
        _check_signs(split, part)
    resolved = with_suggested(cfg, lambda: lists["train"])
    if resolved is not cfg:
        experiment = replace(
            experiment,
            settings=make_settings(resolved),
            loss=make(resolved.get("loss"), "loss"),
            convention=make_convention(resolved),
        )
        if cfg.suggested.levels is None:
            levels = resolved.suggested.levels
            log.info("%d grades (levels): the largest label of train, plus 1", levels)
        if cfg.batch_size is None and resolved.batch_size < BATCH_SIZE and not by_rounds(cfg.model):
            drawn = bag_size(len(lists["train"]), cfg.bagging)
            steps = math.ceil(drawn / resolved.batch_size)  # fewer than suggested with many shards
            log.info(
                "batch_size %d: at least %d steps an epoch of few lists",
                resolved.batch_size, min(cfg.suggested.steps, steps),
            )  # fmt: skip
    levels = _knob(experiment.loss, "levels")
    for split, part in lists.items():
        if levels is not None and part.labels.max() > levels - 1:
            raise ConfigError(
                f"{split} has {_top(part)[1]}, but loss.levels has {levels:g} grades from 0 on: "
                f"set suggested.levels, {_LOOK}"
            )
        if split in {*experiment.settings.monitor, "vali", "test"}:
            check_metrics(split, part, experiment.metrics, experiment.convention)
    warn_of_nothing_to_rank(lists)
    select_on = [m for m in experiment.metrics if str(m) == experiment.settings.select_on]
    warn_of_fixed_metrics("vali", lists["vali"], select_on, experiment.convention)
    if experiment.loss is not None:
        check_loss(experiment.loss, lists["train"], experiment.settings.list_size)
    return resolved, experiment


def check_metrics(
    split: str, lists: Lists, metrics: Sequence[Metric], convention: Convention
) -> None:
    """Check that each of ``metrics`` can be computed on ``lists``.

    Only the list with the largest label is computed. ``ConfigError``: a label is below 0 or NaN,
    too large for ``convention.levels``, or not in the table of gains; no list has a relevant item
    for a metric; or a gain is too large to compute with.
    """
    _check_signs(split, lists)
    labels, item = _top(lists)
    if not isinstance(convention.gain, str):  # any label of any list may be missing in the table
        labels = torch.from_numpy(lists.labels.astype(np.float64))[None]
    mask = torch.ones_like(labels, dtype=torch.bool)

    def value(metric: Metric, empty: Any) -> float:
        return float(metric(labels, labels, mask, replace(convention, empty=empty)))

    for metric in metrics:
        try:
            if np.isfinite(value(metric, "skip")):
                continue
            empty = np.isfinite(value(metric, 0.0))
        except OverflowError:
            empty = False
        except ConfigError as error:
            raise ConfigError(f"{split}, where the largest is {item}: {error}") from None
        if empty:
            lower = ", or set convention.relevant to a label that is there" * bool(labels.max() > 0)
            raise ConfigError(
                f"no item of {split} is relevant for {metric}, the largest is {item}: give lists "
                f"with relevant items{lower}"
            )
        raise ConfigError(
            f"{metric} of {split} has no finite value on the list with {item}, the largest: set "
            f"convention.gain=linear where 2^label is too large, or leave {metric} out of metrics, "
            f"{_LOOK}"
        )


def check_loss(
    loss: Callable[..., torch.Tensor], train: Lists, list_size: int | None = None
) -> None:
    """Check that ``loss`` can learn from the labels of ``train``: the list with the largest label
    is tried, with its ``list_size`` items of the largest labels. ``ConfigError``: no item is
    relevant for the loss, its value or gradient is not finite, or a table of gains lacks a label.
    """
    labels, item = _top(train)
    for node in values_in(getattr(loss, "keywords", {})):  # parts of a mix have knobs too
        if isinstance(node, Mapping) and isinstance(node.get("gain"), list):
            convention = Convention(gain=node["gain"])
            check_metrics("train", train, [parse_metric("dcg")], convention)
    labels, largest, relevant = labels[:, :list_size].float(), labels.max(), _knob(loss, "relevant")
    if relevant is not None and not bool(largest >= threshold(relevant)):
        raise ConfigError(
            f"no item of train is relevant for the loss, the largest is {item}: set loss.relevant "
            "to a label that is there, or choose a loss that compares labels, such as loss=ranknet"
        )
    learns = True
    if largest >= _LARGE:
        scores = torch.linspace(-1, 1, labels.shape[-1])[None].requires_grad_()
        try:
            value = loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
            slope = torch.autograd.grad(value, scores)[0] if value.requires_grad else value
            learns = bool(value.isfinite()) and bool(slope.isfinite().all())
        except ArithmeticError:
            learns = False
    if not learns:
        raise ConfigError(
            f"the loss is not finite on the list with {item}, the largest of train: set "
            "gain=linear where 2^label is too large, or choose a loss that compares labels, such "
            f"as loss=ranknet, {_LOOK}"
        )


def _check_signs(split: str, lists: Lists) -> None:
    """Raise ``ConfigError`` unless labels are >= 0 and weights above 0.

    Only a data set of the user's own can have others: the readers of files refuse such rows.
    """
    if not (lists.labels >= 0).all():
        wrong = lists.labels[~(lists.labels >= 0)][0]
        raise ConfigError(
            f"{split} has the label {wrong:g}: labels are >= 0, 0 is not relevant; leave out items "
            "without a judgment"
        )
    if lists.weights is not None and not (lists.weights > 0).all():
        wrong = lists.weights[~(lists.weights > 0)][0]
        raise ConfigError(
            f"{split} has a list with the weight {wrong:g}: weights are above 0; leave out lists "
            "that do not count"
        )


def _knob(loss: Any, name: str) -> float | None:
    """Return the value of the setting ``name`` of ``loss``; None if it has no such setting."""
    return loss.keywords.get(name) if isinstance(loss, partial) else None


def _top(lists: Lists) -> tuple[torch.Tensor, str]:
    """Return the labels of the list with the largest label, descending, ``[1, items]``, and a text
    about the item with that label.
    """
    place = int(lists.labels.argmax())
    number = int(np.searchsorted(lists.offsets, place, side="right")) - 1
    labels = np.sort(lists.labels[lists.offsets[number] : lists.offsets[number + 1]])[::-1]
    item = f"label {lists.labels[place]:g} (query id {lists.qids[number]})"
    return torch.from_numpy(labels.astype(np.float64))[None], item
