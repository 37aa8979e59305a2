"""Settle and check what follows from the labels, once the lists are open."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeGuard

import numpy as np
import torch
from omegaconf import DictConfig

from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment
from ltr.experiment.named_items import Source, as_written, best_list, largest_item, named_item
from ltr.experiment.parts import bind, make_convention
from ltr.knobs import levels_for
from ltr.metrics import Convention, Metric
from ltr.metrics.relevance import threshold
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LARGE = 32.0  # from here on a gain of 2^label can be too large for float32, squared
_SPREAD = 16.0  # labels up to here count beside each other under 2^label and softmax
_NOTHING = 1e-6  # what counts less than this share of the largest label counts nothing


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
        check_loss(loss, lists["train"], experiment.dataset, experiment.settings.list_size)
        _tell_of_loss(loss, lists["train"], experiment.dataset)
    return settled, experiment


def _reads_levels(loss: Loss | None) -> TypeGuard[partial[torch.Tensor]]:
    return isinstance(loss, partial) and "levels" in loss.keywords


def check_metrics(
    split: str,
    lists: Lists,
    metrics: Sequence[Metric],
    convention: Convention,
    source: Source = None,
    *,
    measured: bool = True,
    levels_key: str = "convention.levels",
    warn: bool = True,
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
        warn: of metrics that see the largest labels alone, by a line of the log.

    Raises:
        ConfigError: a label is above ``convention.levels``, no list has a relevant item for a
            metric, or a gain is too large to count with.
    """
    if any("levels" in metric.parts for metric in metrics):
        _check_levels({split: lists}, levels_key, convention.levels, source)
    if any("gain" in metric.parts for metric in metrics) and not isinstance(convention.gain, str):
        _check_gains(split, lists, convention.gain, source)
    if not measured:
        return
    largest, labels = best_list(lists)
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
                    f"set convention.relevant={as_written(largest)} or lower, or leave {metric} "
                    "out of metrics"
                )
            raise ConfigError(
                f"{metric} of {split}: no list has a relevant item, the largest label is "
                f"{largest:g}{threshold}: every list would {counts}; {remedy}"
            )
    if warn and (drowned := [str(m) for m in metrics if metric_drowns(m, convention, largest)]):
        log.warning(
            "%s of %s: beside %s one of %g counts no more than one of 0, as 2^label counts; set "
            "convention.gain=linear (err does not take it), or choose other metrics",
            " ".join(drowned), split, largest_item(split, lists, source), largest / 2,
        )  # fmt: skip


def _check_levels(splits: Mapping[str, Lists], key: str, levels: float, source: Source) -> None:
    """Raise ``ConfigError`` where a label is above ``levels`` - 1; ``key`` sets it."""
    largest = max(float(lists.labels.max()) for lists in splits.values())
    for split, lists in splits.items():
        place = int(lists.labels.argmax())
        label = float(lists.labels[place])
        if label > levels - 1:
            raise ConfigError(
                f"{split} has {named_item(place, split, lists, source)}, but {key}={levels:g} "
                f"means labels up to {levels - 1:g}: set {key}={levels_for(largest)}, or look "
                "at that line"
            )


def _check_gains(split: str, lists: Lists, table: Sequence[float | int], source: Source) -> None:
    """Raise ``ConfigError`` where a label is no grade of the ``table`` of gains."""
    wrong = (lists.labels >= len(table)) | (lists.labels != np.floor(lists.labels))
    if wrong.any():
        raise ConfigError(
            f"{split} has {named_item(int(wrong.argmax()), split, lists, source)}, but "
            f"convention.gain has the gains of the grades 0 to {len(table) - 1}: write one for "
            "each label of the data, or set convention.gain=linear"
        )


def check_loss(
    loss: Callable[..., torch.Tensor],
    train: Lists,
    source: Source = None,
    list_size: int | None = None,
) -> None:
    """See that ``loss`` can learn from the labels of ``train``, by the list with the largest.

    Args:
        loss: with its knobs bound.
        train: at least one list.
        source: as for ``check_metrics``.
        list_size: the longest list of a batch; None: whole lists.

    Raises:
        ConfigError: no item is relevant for it, or it is not finite.
    """
    largest, labels = best_list(train)
    relevant = _knob(loss, "relevant")
    if relevant is not None and largest < threshold(relevant):
        least = f"set loss.relevant={as_written(largest)} or lower"
        remedy = least if largest > 0 else "give labels above 0"
        raise ConfigError(
            f"the loss finds no relevant item in train, the largest label is {largest:g} and "
            f"loss.relevant={relevant:.9g}: {remedy}, or choose a loss that compares labels, such "
            "as loss=ranknet"
        )
    if largest >= _LARGE and not _finite(loss, labels.float()[:, :list_size]):
        raise ConfigError(
            f"the loss is not finite on train: {_gain_of(largest, 'train', train, source)}: look "
            "at that line (dataset.max_grade=N refuses labels above N), or choose a loss that does "
            "not raise 2 to the label, such as loss=ranknet convention.gain=linear"
        )


def _knob(loss: Callable[..., torch.Tensor], name: str) -> float | None:
    """The value of a knob of ``loss``; None where it has none of that name."""
    return loss.keywords.get(name) if isinstance(loss, partial) else None


def _tell_of_loss(loss: Loss, train: Lists, source: Source) -> None:
    """Warn where ``loss`` sees the largest labels alone."""
    largest = float(train.labels.max())
    if loss_drowns(loss, largest):
        log.warning(
            "the loss: beside %s of train one of %g counts no more than one of 0; a loss of the "
            "order of labels, such as loss=ranknet, or of their size, such as loss=rmse, sees both",
            largest_item("train", train, source), largest / 2,
        )  # fmt: skip


def loss_drowns(loss: Callable[..., torch.Tensor], largest: float) -> bool:
    """Whether beside a label ``largest`` half of it counts no more for ``loss`` than 0.

    So it is with 2^label and with the softmax of labels. A threshold, ``relevant``, is meant so.
    """
    if largest < _SPREAD or _knob(loss, "relevant") is not None:
        return False
    slopes = []
    for labels in ((0.0, largest / 2), (largest / 2, 0.0)):  # no ties, which some losses draw
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            slopes.append(_slope(loss, torch.tensor([[*labels, largest]])))
    one, other = slopes
    return bool((one - other).abs().max() < _NOTHING * other.abs().max())


def metric_drowns(metric: Metric, convention: Convention, largest: float) -> bool:
    """Whether ``metric`` of the whole list does not see which of 0 and half of it comes first."""
    powers = "levels" in metric.parts or ("gain" in metric.parts and convention.gain == "exp2")
    if largest < _SPREAD or not powers:
        return False
    whole, scores = replace(metric, k=None), torch.tensor([[3.0, 2.0, 1.0]])
    lower, higher = (
        float(whole(scores, labels, torch.ones_like(labels, dtype=torch.bool), convention))
        for middle in ((0.0, largest / 2), (largest / 2, 0.0))
        for labels in [torch.tensor([[*middle, largest]], dtype=torch.float64)]
    )
    return not higher > lower * (1 + _NOTHING)


def _finite(loss: Callable[..., torch.Tensor], labels: torch.Tensor) -> bool:
    try:
        return bool(_slope(loss, labels).isfinite().all())
    except ArithmeticError:
        return False


def _slope(loss: Callable[..., torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    """Gradient of ``loss`` for some scores, ``[1, items]``; NaN where its value is not finite."""
    scores = torch.linspace(-1, 1, labels.shape[-1])[None].requires_grad_()
    value = loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
    if not value.isfinite():
        return torch.full_like(labels, torch.nan)
    if not value.requires_grad:
        return torch.zeros_like(labels)
    return torch.autograd.grad(value, scores)[0]


def _gain_of(largest: float, split: str, lists: Lists, source: Source) -> str:
    named = largest_item(split, lists, source)
    return f"2^{largest:g} - 1, the gain of {named}, is too large a number"
