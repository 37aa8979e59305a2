"""Hooks of every run: what it is, advice in its log, and the search engine that it is meant for."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.data.lists import Lists
from ltr.experiment.engines import check_engine
from ltr.models.rounds import RoundModel
from ltr.scorers.parts import Experiment, boosts, make_tracking
from ltr.scorers.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.hooks import Ending, Hook, TensorBoard

log = logging.getLogger(__name__)

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
    return [*hooks, *make_tracking(cfg, folder, choices), *others] if is_main() else hooks


class Introduction(Hook):
    """A line of the log that says what is trained on what, and at the end perhaps advice."""

    def __init__(self, choices: Mapping[str, str]) -> None:
        """``choices`` of each group."""
        self._choices, self._boosts = choices, False

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        self._boosts = boosts(parts.model)
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

    def end(self, ending: Ending, report: Any) -> None:
        for line in advice(report) if report is not None and not self._boosts else ():
            log.info("advice: %s", line)


class ExportTarget(Hook):
    """Ends a run before it trains what the engine ``cfg.for_engine`` cannot hold."""

    def start(
        self, cfg: Any, parts: Experiment, lists: Mapping[str, Lists], scorer: Scorer
    ) -> None:
        missing = sum(part.missing for part in lists.values())
        check_engine(cfg.for_engine, scorer.model, scorer.transform, missing)


def advice(report: Any) -> Iterator[str]:
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
