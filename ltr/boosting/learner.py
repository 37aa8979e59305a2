"""Fit a model in rounds: check the settings, run the loop, write history and checkpoints."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ltr.boosting.model import FitData, Round, RoundModel
from ltr.data.batches import ItemTensors
from ltr.errors import ConfigError
from ltr.training.checkpoint import checkpoint_errors
from ltr.training.evaluation import check_finite
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted
from ltr.training.monitor import Monitor, sentence
from ltr.training.settings import Settings
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LOG_LINES = 20  # the log of a whole run has about this many lines
# Settings of the neural trainer that these models do not support, with their defaults.
_UNSUPPORTED: dict[str, Any] = {
    "warmup": 0, "clip": None, "l1": 0, "l2": 0, "compile": False, "precision": "float32",
    "augment": {"noise": 0},
}  # fmt: skip


class RoundLearner:
    """Fits a model round by round; ``monitor`` writes the checkpoints and the history.

    One epoch is one round: ``epochs`` is the maximum number of rounds, and ``patience`` is how many
    rounds may pass without an improvement of the ``select_on`` metric on the validation lists.
    Every round uses all lists in full, so ``batch_size`` and ``list_size`` have no effect. The tree
    libraries do not save the state of their random generators. Therefore an interrupted run starts
    over when it is resumed, and does the same rounds again. The existing checkpoints are kept until
    the run reaches the round at which it was interrupted.
    """

    def __init__(self, model: RoundModel, loss: Loss | None, monitor: Monitor) -> None:
        """Prepare to fit ``model`` to ``loss``; None means the model's own objective."""
        self.model = model
        self.loss = loss
        self.monitor = monitor
        self._states: dict[Path, Callable[[], Any]] = {}  # states of the best and the last round
        self._saved_rounds = 0  # rounds that the resumed run's checkpoint already has

    def fit(self, data: Mapping[str, ItemTensors]) -> None:
        """Fit ``data["train"]``, and select the best round on ``data["vali"]``.

        The rounds so far are also saved if a score is not finite (``TrainingError``) or if the user
        stops the fit (``Interrupted``).
        """
        monitor = self.monitor
        settings = monitor.settings
        if monitor.done:
            monitor.replay()
            return
        self._saved_rounds = monitor.progress.epoch
        monitor.restart()
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
                latest, row = self._measured_round(number, rounds, data)
                bar.update(number > 0)
                is_best = monitor.add(row)
                self._states[monitor.last] = latest.state
                if is_best:
                    self._states[monitor.best] = latest.state
                is_end = monitor.done or interruption.signum is not None
                if is_end or number == 0 or monitor.due:
                    self._save_checkpoints()
                    monitor.write()
                is_logged = is_end or number % max(1, settings.epochs // _LOG_LINES) == 0
                monitor.publish(row, sentence(row, settings.epochs) if is_logged else None)
                if interruption.signum is not None:
                    raise Interrupted(interruption.signum)
                if is_end:
                    return

    def _measured_round(
        self, number: int, rounds: Iterator[Round], data: Mapping[str, ItemTensors]
    ) -> tuple[Round, dict[str, float]]:
        """Do the next round, and return it with its row of the history.

        If the round fails, save the rounds before it.
        """
        started = time.perf_counter()
        try:
            latest = next(rounds)
            row: dict[str, float] = {"epoch": number, **latest.columns}
            for split in self.monitor.splits:
                scores = torch.tensor(latest.scores[split])
                check_finite(
                    scores,
                    data[split],
                    whose="model's",
                    remedy=self.model.nonfinite_remedy,
                )
                row |= self.monitor.measure(split, data[split], scores)
        except Exception:
            self._save_checkpoints()
            raise
        self.monitor.progress.epoch = number
        row["seconds"] = time.perf_counter() - started
        return latest, row

    def _save_checkpoints(self) -> None:
        """Write ``last.pt`` and, once there is a best round, ``best.pt``.

        An existing checkpoint of more rounds is kept, because this fit will reach those rounds too.
        """
        monitor = self.monitor
        if monitor.progress.epoch < self._saved_rounds and not monitor.done:
            return
        for path in (monitor.best, monitor.last):
            if path in self._states:
                self.model.restore(self._states[path]())
                monitor.save(path, {"model": self.model.state_dict()})

    def resume(self, content: Mapping[str, Any]) -> None:
        """Restore a finished run from ``last.pt``; any other run starts over in ``fit``."""
        with checkpoint_errors(self.monitor.last):
            self.monitor.resume(content)
            if self.monitor.done:
                self.model.load_state_dict(content["model"])
                return
        log.info("the run is not finished, so it starts over and repeats the same rounds")


def check_rounds(model: Any, loss: Loss | None, settings: Settings) -> None:
    """Raise ``ConfigError`` if ``model`` does not support the loss or one of the settings."""
    unsupported = [
        name for name, default in _UNSUPPORTED.items() if getattr(settings, name) != default
    ]
    if unsupported:
        names = ", ".join(unsupported)
        raise ConfigError(f"{model.title} does not support {names}: leave out {names}")
    own_objective = f"{model.title} fits its own objective"
    if model.own_objective() != model.title:  # only a tree library has several objectives
        own_objective += f", {model.own_objective()}"
    if loss is not None and not model.accepts_losses:
        raise ConfigError(
            f"{own_objective}: leave out loss=..., or choose model=lightgbm or model=xgboost"
        )
    if loss is not None and model.objective is not None:
        raise ConfigError(
            f"got both model.objective={model.objective} and a loss: give only one of them"
        )
    if loss is None and settings.empty_lists != "keep":
        raise ConfigError(
            f"empty_lists={settings.empty_lists} applies to losses, but {own_objective}: leave "
            "empty_lists out"
        )
