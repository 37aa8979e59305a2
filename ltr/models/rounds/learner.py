"""Fit a model by rounds: try out its settings; the loop, its history and checkpoints."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import CheckpointError, ConfigError
from ltr.models.rounds.model import FitData, RoundModel
from ltr.training.checkpoint import fitting
from ltr.training.evaluation import check_finite
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted
from ltr.training.monitor import Monitor, sentence
from ltr.training.settings import Settings
from ltr.typing import Loss

log = logging.getLogger(__name__)

# What a library raises, besides its own error, where a setting has the wrong type.
WRONG_TYPE = (TypeError, ValueError, AttributeError)
_LINES = 20  # of the log, for a whole run
_WRITE_SECONDS = 2.0  # between two versions of history.csv
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
        done, saved, written = monitor.progress, 0.0, 0.0  # long ago
        with (
            monitor.open() as interruption,
            progress_bar(total=settings.epochs, desc="rounds") as bar,
        ):
            rounds = self.model.rounds(
                FitData(
                    train=data["train"], scored={split: data[split] for split in monitor.splits},
                    rounds=settings.epochs, loss=self.loss, empty=settings.empty_lists,
                    items=settings.evaluation_items, seed=settings.seed,
                    threads=torch.get_num_threads(), convention=monitor.convention,
                    stop=lambda: interruption.signum is not None,
                )
            )  # fmt: skip
            for number in itertools.count():  # 0 is the start
                started = time.perf_counter()
                try:
                    with self.model.complaints(*(() if number else WRONG_TYPE)):
                        this = next(rounds)
                    row: dict[str, float] = {"epoch": number, **this.columns}
                    for split in monitor.splits:
                        scores, part = torch.tensor(this.scores[split]), data[split]
                        whose, remedy = f"{self.model.makes}'", self.model.not_finite
                        check_finite(scores, part, whose=whose, remedy=remedy)
                        row |= monitor.measure(split, part, scores)
                except Exception:  # keep the rounds before it, if one of them is the best
                    if done.best_epoch is not None:
                        self._keep()
                    raise
                done.epoch = number
                row["seconds"] = time.perf_counter() - started
                bar.update(number > 0)
                better = monitor.add(row)
                self._states[monitor.last] = this.state
                if better:
                    self._states[monitor.best] = this.state
                now = time.perf_counter()
                ends = monitor.done or interruption.signum is not None
                if ends or not saved or now - saved > 60 * settings.checkpoint_minutes > 0:
                    self._keep()
                    saved = now
                if ends or now - written > _WRITE_SECONDS:
                    monitor.write()
                    written = now
                told = ends or number % max(1, settings.epochs // _LINES) == 0
                monitor.publish(row, sentence(row, settings.epochs, unit="round") if told else None)
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
                with self.model.complaints():
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
    """Do two rounds of ``model`` on tiny lists and keep the first, as a run would.

    ``model`` is for this alone: its width becomes the number of features its settings are for.
    ``ConfigError``: a setting is refused, or not supported.
    """
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
    model.width = width = model.least_width
    two = np.array([[0, 1], [1, 0], [2, 1], [0, 3]], np.float32)
    lists = Lists(
        features=np.tile(two, (1, width))[:, :width],
        labels=np.array([0, 1, 1, 0], np.float32),
        offsets=np.array([0, 2, 4]),
        qids=np.array(["1", "2"]),
    )
    data = FitData(
        ItemTensors(lists, no_transform(lists)), rounds=2, loss=loss, empty=settings.empty_lists,
        items=settings.evaluation_items, seed=settings.seed,
    )  # fmt: skip
    with model.complaints(*WRONG_TYPE):
        _, first, _ = itertools.islice(model.rounds(data), 3)
        state = first.state()
    try:
        model.take(state)
    except CheckpointError as error:
        raise ConfigError(
            f"{model.title} does not read its own {model.makes} again: leave out some of "
            "model.options"
        ) from error
