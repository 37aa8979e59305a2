"""Fit boosted trees: try out their settings; the loop, its history and checkpoints."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import CheckpointError, ConfigError
from ltr.training.bars import bar as progress_bar
from ltr.training.checkpoint import fitting
from ltr.training.evaluation import check_finite
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.record import Progress, Record, sentence
from ltr.training.settings import Settings
from ltr.trees.model import NOT_FINITE, WRONG_TYPE, BoostedTrees, Boosting, Order, values_in
from ltr.trees.objective import LossObjective
from ltr.trees.trial import know
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LINES = 20  # of the log, for a whole run
_WRITE_SECONDS = 2.0  # between two versions of history.csv
# Settings of the neural trainer that trees do not support: their defaults.
_UNUSED: dict[str, Any] = {
    "warmup": 0, "clip": None, "l1": 0, "l2": 0, "compile": False, "precision": "float32",
    "augment": {"noise": 0},
}  # fmt: skip


class TreeTrainer:
    """Boosts a tree model; ``record`` keeps the trees and the history.

    An epoch is a round: ``epochs`` is the most rounds, ``patience`` how many may pass without a
    better ``select_on`` of vali. Every round sees all lists whole, so ``batch_size`` and
    ``list_size`` do nothing. The libraries do not save the state of their random numbers, so a run
    that was cut off starts over when it is resumed, and grows the same trees. Its checkpoints stay
    until it has come as far again.
    """

    def __init__(self, model: BoostedTrees, loss: Loss | None, record: Record) -> None:
        """``loss`` is the objective, None the library's own."""
        self.model, self.loss, self.record = model, loss, record
        self._best_trees = self._last_trees = 0
        self._there = 0  # rounds of the checkpoint of the run that is resumed
        self._objective: LossObjective | None = None

    def fit(self, data: Mapping[str, ItemTensors]) -> Progress:
        """Boost on ``data["train"]``, select on ``data["vali"]``.

        Raises:
            ConfigError, DataError: the library refuses a setting or the lists.
            TrainingError: the loss, its gradient or a score is not finite; the rounds before it
                are saved.
            Interrupted: SIGINT or SIGTERM came; the trees so far are saved.
        """
        record, settings = self.record, self.record.settings
        if record.over:
            record.tell_again()
            return record.progress
        self.model.check_lists()
        self._there = record.progress.epoch
        record.progress = Progress(wall_seconds=record.progress.wall_seconds)
        with record.open() as interruption:
            started = time.perf_counter()
            if self.loss is not None:
                self._objective = LossObjective(
                    self.loss, data["train"], empty=settings.empty_lists,
                    items=settings.evaluation_items, seed=settings.seed,
                )  # fmt: skip
            order = Order(
                data={split: data[split] for split in dict.fromkeys(("train", *record.splits))},
                derivatives=self._objective, rounds=settings.epochs, seed=settings.seed,
                threads=torch.get_num_threads(), device=data["train"].device.type,
                stop=lambda: interruption.signum is not None,
            )  # fmt: skip
            try:
                with self.model.complaints(*WRONG_TYPE):
                    boosting = self.model.boost(order)
                with self.model.complaints():
                    self._do_rounds(boosting, data, interruption, started)
            finally:
                if record.progress.history:
                    record.write()
        return record.progress

    def _do_rounds(
        self, boosting: Boosting, data: Mapping[str, ItemTensors], interruption: Interruption,
        started: float,
    ) -> None:  # fmt: skip
        record, done, settings = self.record, self.record.progress, self.record.settings
        saved = written = 0.0  # long ago
        with progress_bar(total=settings.epochs, desc="rounds") as bar:
            while True:
                try:
                    if done.history:  # round 0 is the start
                        started = time.perf_counter()
                        boosting.round()
                        done.epoch += 1
                        bar.update()
                    row = self._row(boosting, data, time.perf_counter() - started)
                    better = record.add(row)
                except Exception:  # keep the rounds before it, if one of them is the best
                    if done.best_epoch is not None:
                        done.epoch = int(done.history[-1]["epoch"])
                        self._keep(boosting)
                    raise
                self._last_trees = boosting.trees
                if better:
                    self._best_trees = boosting.trees
                now = time.perf_counter()
                ends = record.over or interruption.signum is not None
                if ends or not saved or now - saved > 60 * settings.checkpoint_minutes > 0:
                    self._keep(boosting)
                    saved = now
                if ends or now - written > _WRITE_SECONDS:
                    record.write()
                    written = now
                told = ends or done.epoch % max(1, settings.epochs // _LINES) == 0
                record.publish(row, sentence(row, settings.epochs, unit="round") if told else None)
                if interruption.signum is not None:
                    if done.epoch < self._there:
                        note = "the %d rounds saved before are kept; give epochs=%d again to go on"
                        log.info(note, self._there, settings.epochs)
                    raise Interrupted(interruption.signum)
                if ends:
                    return

    def _row(
        self, boosting: Boosting, data: Mapping[str, ItemTensors], seconds: float
    ) -> dict[str, float]:
        """The row of a round in the history; ``loss`` is that at the start of the round."""
        row: dict[str, float] = {"epoch": self.record.progress.epoch}
        if self._objective is not None and self.record.progress.epoch:
            row["loss"] = self._objective.value
        for split in self.record.splits:
            scores = torch.tensor(boosting.scores(split))
            check_finite(scores, data[split], whose="trees'", remedy=NOT_FINITE)
            row |= self.record.measured(split, data[split], scores)
        row["trees"] = boosting.trees
        row["seconds"] = seconds
        return row

    def _keep(self, boosting: Boosting) -> None:
        """Write ``last.pt`` and, once there is a best round, ``best.pt``.

        A checkpoint of more rounds, which this fit will reach too, stays.
        """
        record = self.record
        if record.progress.epoch < self._there and not record.over:
            return
        for path, trees in ((record.best, self._best_trees), (record.last, self._last_trees)):
            if path == record.best and record.progress.best_epoch is None:
                continue
            content = boosting.content(trees) if trees else b""
            know(content)
            self.model.take(content)
            record.save(path, {"model": self.model.state_dict()})

    def resume(self, content: Mapping[str, Any]) -> None:
        """Restore a finished run from ``last.pt``; any other starts over in ``fit``.

        Args:
            content: as ``load_checkpoint`` returns it.

        Raises:
            CheckpointError: it does not fit this model.
        """
        with fitting(self.record.last):
            self.record.progress = Progress(**content["progress"])
            if self.record.over:
                self.model.load_state_dict(content["model"])
                return
        log.info("not finished: boosting starts over, and grows the same trees")


def check_trees(model: BoostedTrees, loss: Loss | None, settings: Settings) -> None:
    """Boost ``model`` twice on tiny lists and keep the first round, as a run would.

    ``model`` is for this alone: its width becomes the number of features its options are for.

    Raises:
        ConfigError: the library refuses a setting, or trees do not support one.
    """
    given = [name for name, value in _UNUSED.items() if getattr(settings, name) != value]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: boosted trees do not support this, leave it out; model.* are "
            "their settings"
        )
    if loss is not None and not model.takes_losses:
        raise ConfigError(
            f"{model.title} does not boost with a loss of ltr.losses: leave out loss=... for its "
            f"own {model.own_objective()}, or choose model=lightgbm or model=xgboost"
        )
    if loss is not None and model.objective is not None:
        raise ConfigError(
            f"model.objective={model.objective} and a loss: give one of them; leave out loss=... "
            "or model.objective"
        )
    if loss is None and settings.empty_lists != "keep":
        raise ConfigError(
            f"empty_lists={settings.empty_lists}: {model.title}'s own {model.own_objective()} "
            "takes every list; leave it out, or boost with a loss, such as loss=lambdarank"
        )
    model.width = max([2, *map(values_in, model.options.values())])
    two = np.array([[0, 1], [1, 0], [2, 1], [0, 3]], np.float32)
    lists = Lists(
        features=np.tile(two, (1, model.width))[:, : model.width],
        labels=np.array([0, 1, 1, 0], np.float32),
        offsets=np.array([0, 2, 4]),
        qids=np.array(["1", "2"]),
    )
    data = ItemTensors(lists, no_transform(lists))
    order = Order(
        data={"train": data}, derivatives=None if loss is None else LossObjective(loss, data),
        rounds=2, seed=settings.seed, threads=1, device="cpu", stop=lambda: False,
    )  # fmt: skip
    with model.complaints(*WRONG_TYPE):
        boosting = model.boost(order)
        boosting.round()
        boosting.round()
        kept = boosting.content(1) if boosting.trees else b""
    known = boosting.parameters()
    for name in [] if known is None else sorted(model.options.keys() - known):
        raise ConfigError(
            f"model.options.{name}: {model.title} {model.version} has no parameter of that name "
            "(aliases are not accepted): see its documentation"
        )
    try:
        model.take(kept)
    except CheckpointError as error:
        raise ConfigError(
            f"{model.title} does not read the trees again that it grows with these settings: leave "
            "out some of model.options"
        ) from error
