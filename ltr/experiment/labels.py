"""Settle and check what follows from the labels, once the lists are open."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

import numpy as np
import torch
from omegaconf import DictConfig

from ltr.data.lists import Dataset, Lists
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment
from ltr.experiment.parts import bind, make_convention
from ltr.metrics import Convention, Metric
from ltr.metrics.checks import levels_for
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LARGE = 32.0  # from here on a gain of 2^label can be too large for float32, squared


def with_levels(cfg: DictConfig, train: Callable[[], Lists]) -> DictConfig:
    """``cfg`` with ``suggested.levels`` from the labels of ``train`` where it is null.

    Keys that read ``levels`` follow by interpolation; a checkpoint keeps the result.
    """
    if cfg.suggested.levels is not None:
        return cfg
    cfg = cfg.copy()
    cfg.suggested.levels = levels_for(float(train().labels.max()))
    return cfg


def settle(
    cfg: DictConfig, experiment: Experiment, lists: Mapping[str, Lists]
) -> tuple[DictConfig, Experiment]:
    """Config and parts with everything that follows from the labels, which are checked.

    Args:
        cfg: the config of ``experiment``.
        experiment: built without data.
        lists: the splits that will be used, ``train`` among them.

    Raises:
        ConfigError: the loss or a metric cannot take a label, or a metric finds no relevant item.
    """
    settled = with_levels(cfg, lambda: lists["train"])
    if settled is not cfg:
        log.info(
            "%d grades (levels), as the largest label of train is %g",
            settled.suggested.levels, float(lists["train"].labels.max()),
        )  # fmt: skip
        experiment = replace(
            experiment,
            loss=bind(settled.loss, "loss") if _reads_levels(experiment.loss) else experiment.loss,
            convention=make_convention(settled),
        )
    loss = experiment.loss

    def key(own: str, value: object) -> str:
        """The key to set: ``suggested.levels`` unless ``own`` was set by itself."""
        return "suggested.levels" if value == settled.suggested.levels else own

    if _reads_levels(loss):
        levels = loss.keywords["levels"]
        _check_levels(lists, key("loss.levels", levels), levels, experiment.dataset)
    measured = {*experiment.settings.monitor, "vali", "test"}
    for split, part in lists.items():
        check_metrics(
            split, part, experiment.metrics, experiment.convention, experiment.dataset,
            measured=split in measured,
            levels_key=key("convention.levels", experiment.convention.levels),
        )  # fmt: skip
    if loss is not None:
        _check_loss(loss, lists["train"], experiment)
    return settled, experiment


def _reads_levels(loss: Loss | None) -> TypeGuard[partial[torch.Tensor]]:
    return isinstance(loss, partial) and "levels" in loss.keywords


def check_metrics(
    split: str,
    lists: Lists,
    metrics: Sequence[Metric],
    convention: Convention,
    source: Dataset | Path | None = None,
    *,
    measured: bool = True,
    levels_key: str = "convention.levels",
) -> None:
    """See that ``metrics`` mean something on ``lists``, by the list with the largest label.

    Args:
        split: the name of the lists in messages.
        lists: at least one.
        metrics: each is tried.
        convention: of the metrics.
        source: the data set or the file of the lists, to name a line.
        measured: False where only the number of grades must fit.
        levels_key: the key that sets that number.

    Raises:
        ConfigError: a label is above ``convention.levels``, no list has a relevant item for a
            metric, or a gain is too large to count with.
    """
    if any("levels" in metric.parts for metric in metrics):
        _check_levels({split: lists}, levels_key, convention.levels, source)
    if not measured:
        return
    largest, labels = _best_list(lists)
    mask = torch.ones_like(labels, dtype=torch.bool)
    for metric in metrics:
        try:  # the best order of the best list: where that is empty, every list is
            value, filled = (
                float(metric(labels, labels, mask, replace(convention, empty=empty)))
                for empty in ("skip", 0)
            )
        except OverflowError:
            value = filled = float("inf")
        if not np.isfinite(filled):
            linear = "gain" in metric.parts
            remedy = "set convention.gain=linear" if linear else f"leave {metric} out of metrics"
            raise ConfigError(
                f"{metric} of {split} is not finite: {_gain_of(largest, split, lists, source)}: "
                f"{remedy}, or look at that line (dataset.max_grade=N refuses labels above N)"
            )
        if np.isnan(value):
            counts = "be left out" if convention.empty == "skip" else f"count {convention.empty:g}"
            threshold, remedy = "", "give labels above 0, or other metrics"
            if "relevant" in metric.parts and largest > 0:
                threshold = f" and convention.relevant={convention.relevant:.9g}"
                remedy = (
                    f"set convention.relevant={largest:g} or lower, or leave {metric} out of "
                    "metrics"
                )
            raise ConfigError(
                f"{metric} of {split}: no list has a relevant item, the largest label is "
                f"{largest:g}{threshold}: every list would {counts}; {remedy}"
            )


def _check_levels(
    splits: Mapping[str, Lists], key: str, levels: float, source: Dataset | Path | None
) -> None:
    """Raise ``ConfigError`` where a label is above ``levels`` - 1; ``key`` sets it."""
    largest = max(float(lists.labels.max()) for lists in splits.values())
    for split, lists in splits.items():
        place = int(lists.labels.argmax())
        label = float(lists.labels[place])
        if label > levels - 1:
            raise ConfigError(
                f"{split} has {_named(place, split, lists, source)}, but {key}={levels:g} means "
                f"labels up to {levels - 1:g}: set {key}={levels_for(largest)}, or look at that "
                "line"
            )


def _check_loss(loss: Callable[..., torch.Tensor], train: Lists, experiment: Experiment) -> None:
    """See that the largest label, where it is large, leaves ``loss`` finite."""
    largest, labels = _best_list(train)
    if largest < _LARGE:
        return
    labels = labels.float()[:, : experiment.settings.list_size]
    if not _finite(loss, labels):
        raise ConfigError(
            "the loss is not finite on train: "
            f"{_gain_of(largest, 'train', train, experiment.dataset)}: look at that line "
            "(dataset.max_grade=N refuses labels above N), or choose a loss that does not raise 2 "
            "to the label, such as loss=listnet convention.gain=linear"
        )


def _finite(loss: Callable[..., torch.Tensor], labels: torch.Tensor) -> bool:
    scores = torch.linspace(-1, 1, labels.shape[-1])[None].requires_grad_()
    try:
        value = loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
    except ArithmeticError:
        return False
    if not value.requires_grad:
        return bool(value.isfinite())
    (slope,) = torch.autograd.grad(value, scores)
    return bool(value.isfinite() and slope.isfinite().all())


def _best_list(lists: Lists) -> tuple[float, torch.Tensor]:
    """The largest label, and the labels of the list that holds it, descending, ``[1, items]``."""
    place = int(lists.labels.argmax())
    number = _list_of(lists, place)
    labels = lists.labels[lists.offsets[number] : lists.offsets[number + 1]]
    ordered = np.sort(labels)[::-1].astype(np.float64)
    return float(lists.labels[place]), torch.from_numpy(ordered)[None]


def _list_of(lists: Lists, place: int) -> int:
    """The number of the list that holds the item ``place``."""
    return int(np.searchsorted(lists.offsets, place, side="right")) - 1


def _gain_of(largest: float, split: str, lists: Lists, source: Dataset | Path | None) -> str:
    named = _named(int(lists.labels.argmax()), split, lists, source)
    return f"2^{largest:g} - 1, the gain of {named}, is too large a number"


def _named(place: int, split: str, lists: Lists, source: Dataset | Path | None) -> str:
    """The label of an item, its query id and, where it is from a file, the line."""
    label, qid = float(lists.labels[place]), str(lists.qids[_list_of(lists, place)])
    of_split = getattr(source, "path", None)  # of a data set in files
    path = source if isinstance(source, Path) else Path(of_split(split)) if of_split else None
    line = _line(path, label, qid) if path is not None else None
    where = f", {path}:{line}" if line else ""
    return f"label {label:g} (query id {qid}{where})"


def _line(path: Path, label: float, qid: str) -> int | None:
    """The first line of a LETOR file with this label and query id."""
    wanted = f"qid:{qid}".encode()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                tokens = line.split(None, 2)
                if len(tokens) > 1 and tokens[1] == wanted and np.float32(tokens[0]) == label:
                    return number
    except (OSError, ValueError):  # the error that asks for it stands without
        return None
    return None
