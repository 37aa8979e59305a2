"""Hooks of every run: what it is, advice in its log, and the search engine that it is meant for."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from ltr.data.batches import steps_in_epoch
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.experiment.engines import check_engine
from ltr.models.rounds import RoundModel
from ltr.scorers.parts import Experiment, boosts, make_tracking
from ltr.scorers.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.hooks import Ending, Hook, TensorBoard

log = logging.getLogger(__name__)

_LISTS = 100  # of train, whose features are looked at
_FEW_STEPS = 2  # in an epoch
_EARLY = 0.25  # of the epochs that were trained, at least _EPOCHS
_EPOCHS = 8
_FAR = 0.01  # of the best epoch's value


def training_hooks(folder: Path, choices: Mapping[str, str]) -> list[Hook]:
    """The hooks of every training."""
    return [Introduction(choices), ExportTarget(), TensorBoard(folder)]


def run_hooks(
    cfg: DictConfig, folder: Path, choices: Mapping[str, str], others: Sequence[Hook]
) -> list[Hook]:
    """The hooks of every run, then ``others``; of processes together the first has most."""
    hooks = training_hooks(folder, choices)
    if is_main():
        hooks += [Advice(cfg.resume is None), *make_tracking(cfg, folder, choices), *others]
    return hooks


class Advice(Hook):
    """Looks at settings and lists before the first epoch, and at the epochs after the last."""

    def __init__(self, fresh: bool) -> None:
        """``fresh``: the run is not resumed."""
        self._fresh, self._boosts = fresh, True

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        self._boosts = boosts(parts.model)
        for line in before(parts, lists["train"]) if self._fresh else ():
            log.info("advice: %s", line)

    def end(self, ending: Ending, report: Any) -> None:
        for line in after(report) if report is not None and not self._boosts else ():
            log.info("advice: %s", line)


class Introduction(Hook):
    """A line of the log that says what is trained on what."""

    def __init__(self, choices: Mapping[str, str]) -> None:
        """``choices`` of each group."""
        self._choices = choices

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        sizes = ", ".join(f"{split} {len(part):,}" for split, part in lists.items())
        fold = f" fold {parts.dataset.fold}" if parts.dataset.fold is not None else ""
        about, objective = f"{scorer.parameters:,} parameters", self._choices.get("loss", "loss")
        if isinstance(scorer.model, RoundModel):
            about = scorer.model.description
            if parts.loss is None:
                objective = f"its own objective {scorer.model.own_objective()}"
        shards = parts.settings.shards
        shared = f"; {shards} shard(s) of a batch on {size()} process(es)" if shards else ""
        log.info(
            "%s (%s) with %s on %s%s: lists %s; %s%s", self._choices.get("model", "model"), about,
            objective, parts.dataset.name, fold, sizes, describe_device(parts.device), shared,
        )  # fmt: skip


class ExportTarget(Hook):
    """Ends a run before it trains what the engine ``cfg.for_engine`` cannot hold."""

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        missing = sum(part.missing for part in lists.values())
        check_engine(cfg.for_engine, scorer.model, scorer.transform, missing)


def before(parts: Experiment, train: Lists) -> Iterator[str]:
    """What the lists of train and the settings say; nothing of boosted trees."""
    settings = parts.settings
    if boosts(parts.model) or not settings.epochs:
        return
    steps = steps_in_epoch(len(train), settings.batch_size)
    if steps <= _FEW_STEPS:
        yield (
            f"an epoch is {steps} step{'s' * (steps > 1)} (batch_size={settings.batch_size}, "
            f"{len(train):,} lists): set batch_size lower, or epochs higher"
        )
    transforms = getattr(parts.fit_transform, "func", None) is not no_transform
    if transforms and normalised_per_list(train):
        yield (
            "the features of every list span 0 to 1, as if normalised per list: compare with "
            "transform=none"
        )


def after(report: Any) -> Iterator[str]:
    """What the epochs of a network say."""
    worth, done = report.crossfit, report.progress
    if worth is None or not done.best_epoch:
        return
    early = done.epoch >= _EPOCHS and done.best_epoch <= _EARLY * done.epoch
    if early and done.best_value - worth.value > _FAR * abs(done.best_value):
        yield (
            f"the best epoch is {done.best_epoch} of {done.epoch}, and on vali worth "
            f"{worth.value:.4f}, not {done.best_value:.4f}: it overfits; compare with fewer epochs "
            "and with optimizer=adamw optimizer.weight_decay=1"
        )


def normalised_per_list(lists: Lists) -> bool:
    """Whether each column is constant, or spans exactly 0 to 1, in every one of the first lists.

    Most columns must also have values between: indicators span 0 to 1 without being normalised.
    """
    ends = lists.offsets[: _LISTS + 1]
    rows = np.asarray(lists.features[: ends[-1]])
    low, high = (way.reduceat(rows, ends[:-1], axis=0) for way in (np.minimum, np.maximum))
    spans = (low == 0) & (abs(high - 1) < 1e-6)
    between = ((rows > 0) & (rows < 1)).any(axis=0)
    return bool((spans | (low == high)).all() and between.mean() > 0.5)
