"""Fit a model by rounds: what it does not support; the loop, its history and checkpoints."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ltr.data.batches import ItemTensors
from ltr.errors import ConfigError
from ltr.models.rounds.model import FitData, RoundModel
from ltr.training.checkpoint import fitting
from ltr.training.evaluation import check_finite
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted
from ltr.training.monitor import Monitor, sentence
from ltr.training.settings import Settings
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LINES = 20  # of the log, for a whole run
# Settings of the neural trainer that these models do not support: their defaults.
_UNUSED: dict[str, Any] = {
    "warmup": 0, "clip": None, "l1": 0, "l2": 0, "compile": False, "precision": "float32",
    "shards": None, "augment": {"noise": 0},
}  # fmt: skip


class RoundLearner:
    """Fits a model round by round; ``monitor`` keeps what rounds made and the history.

    An epoch is a round: ``epochs`` is the most rounds, ``patience`` how many may pass without a
    better ``select_on`` of vali. Every round sees all lists whole, so ``batch_size`` and
    ``list_size`` do nothing. The libraries of trees do not save the state of their random numbers,
    so a run that was cut off starts over when it is resumed, and does the same rounds. Its
    checkpoints stay until it has come as far again.
    """

    def __init__(self, model: RoundModel, loss: Loss | None, monitor: Monitor) -> None:
        """``loss`` is the objective, None the model's own."""
        self.model, self.loss, self.monitor = model, loss, monitor
        self._states: dict[Path, Callable[[], Any]] = {}  # of the best and of the last round
        self._there = 0  # rounds of the checkpoint of the run that is resumed

    def fit(self, data: Mapping[str, ItemTensors]) -> None:
        """Fit ``data["train"]``, select on ``data["vali"]``.

        The rounds so far are saved where a score is not finite (``TrainingError``), and where the
        user stops it (``Interrupted``).
        """
        monitor, settings = self.monitor, self.monitor.settings
        if monitor.done:
            monitor.replay()
            return
        self._there = monitor.progress.epoch
        monitor.restart()
        done = monitor.progress
        with (
            monitor.open() as interruption,
            progress_bar(total=settings.epochs, desc="rounds") as bar,
        ):
            rounds = self.model.rounds(
                FitData(
                    train=data["train"],
                    scored={split: data[split] for split in monitor.splits},
                    settings=settings,
                    loss=self.loss,
                    stop=lambda: interruption.signum is not None,
                    convention=monitor.convention,
                )
            )
            for number in itertools.count():  # 0 is the start
                started = time.perf_counter()
                try:
                    this = next(rounds)
                    row: dict[str, float] = {"epoch": number, **this.columns}
                    for split in monitor.splits:
                        scores, part = torch.tensor(this.scores[split]), data[split]
                        whose, remedy = f"{self.model.makes}'", self.model.not_finite
                        check_finite(scores, part, whose=whose, remedy=remedy)
                        row |= monitor.measure(split, part, scores)
                except Exception:  # keep the rounds before it
                    self._keep()
                    raise
                done.epoch = number
                row["seconds"] = time.perf_counter() - started
                bar.update(number > 0)
                better = monitor.add(row)
                self._states[monitor.last] = this.state
                if better:
                    self._states[monitor.best] = this.state
                ends = monitor.done or interruption.signum is not None
                if ends or not number or monitor.due:
                    self._keep()
                    monitor.write()
                told = ends or number % max(1, settings.epochs // _LINES) == 0
                monitor.publish(row, sentence(row, settings.epochs) if told else None)
                if interruption.signum is not None:
                    raise Interrupted(interruption.signum)
                if ends:
                    return

    def _keep(self) -> None:
        """Write ``last.pt`` and, once there is a best round, ``best.pt``.

        A checkpoint of more rounds, which this fit will reach too, stays.
        """
        monitor = self.monitor
        if monitor.progress.epoch < self._there and not monitor.done:
            return
        for path in (monitor.best, monitor.last):
            if path in self._states:
                self.model.take(self._states[path]())
                monitor.save(path, {"model": self.model.state_dict()})

    def resume(self, content: Mapping[str, Any]) -> None:
        """Restore a finished run from ``last.pt``; any other starts over in ``fit``."""
        with fitting(self.monitor.last):
            self.monitor.resume(content)
            if self.monitor.done:
                self.model.load_state_dict(content["model"])
                return
        log.info("not finished: it starts over, and does the same rounds")


def check_rounds(model: Any, loss: Loss | None, settings: Settings) -> None:
    """Raise ``ConfigError`` where ``model`` does not support the loss, or one of the settings."""
    given = [name for name, value in _UNUSED.items() if getattr(settings, name) != value]
    if given:
        raise ConfigError(f"{', '.join(given)}: {model.title} does not support this, leave it out")
    own = f"{model.title} fits its own {model.own_objective()}"
    if loss is not None and not model.takes_losses:
        raise ConfigError(f"{own}: leave out loss=..., or choose model=lightgbm or model=xgboost")
    if loss is not None and model.objective is not None:
        raise ConfigError(f"model.objective={model.objective} and a loss: give one of them")
    if loss is None and settings.empty_lists != "keep":
        raise ConfigError(f"empty_lists={settings.empty_lists}: {own}: leave it out")
