"""The training loop: plain PyTorch, resumable at any step to the same weights bit for bit."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ltr.data.batches import ItemTensors, steps_in_epoch, train_batches
from ltr.errors import TrainingError
from ltr.metrics import Convention, Metric
from ltr.training.checkpoint import (
    fitting,
    random_states,
    restore_random_states,
    save_checkpoint,
)
from ltr.training.evaluation import evaluate, means
from ltr.training.history import Scalars, write_history
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.schedules import warm_up
from ltr.training.settings import Settings
from ltr.training.step import Stepper
from ltr.typing import Loss

log = logging.getLogger(__name__)

Schedule = Callable[[float, int], float]
AfterEpoch = Callable[[int, Mapping[str, float]], None]


@dataclass
class Progress:
    """Where a run stands; saved whole with every checkpoint.

    ``loss``, ``lists``, ``grad_norm`` and ``seconds`` are sums over the steps of the epoch under
    way, so that an epoch cut in two is recorded like any other.
    """

    epoch: int = 0  # epochs finished
    step: int = 0  # steps done in the epoch under way
    best_epoch: int | None = None
    best_value: float = -math.inf
    wall_seconds: float = 0.0  # of training and its evaluations, over all resumes
    loss: float = 0.0
    lists: int = 0  # lists that counted in the loss
    grad_norm: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """Trains ``model`` and keeps ``best.pt``, ``last.pt`` and the history in ``folder``."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        settings: Settings,
        *,
        metrics: Sequence[Metric],
        convention: Convention,
        folder: Path,
        kept: Mapping[str, Any],
        after_epoch: AfterEpoch | None = None,
    ) -> None:
        """Nothing is trained yet.

        Args:
            model, loss, optimizer, schedule, settings, metrics, convention: what to train, how.
            folder: of the checkpoints and the history.
            kept: goes into every checkpoint as it is: the config and the transform.
            after_epoch: called with each epoch, 0 for the untrained model, and its row of the
                history, when all of it is saved; what it raises ends ``fit``. Epochs done before a
                resume come first.
        """
        self.model = model
        self.optimizer, self.schedule = optimizer, schedule
        self.settings, self.metrics, self.convention = settings, metrics, convention
        self.folder, self.kept, self.after_epoch = folder, kept, after_epoch
        self.progress = Progress()
        self._clock = time.perf_counter()
        self._base_lr = [group["lr"] for group in optimizer.param_groups]
        self.stepper = Stepper(model, loss, optimizer, settings)

    @property
    def best(self) -> Path:
        """The checkpoint of the epoch with the best ``select_on``."""
        return self.folder / "best.pt"

    @property
    def last(self) -> Path:
        """The checkpoint a run is resumed from."""
        return self.folder / "last.pt"

    def fit(self, data: Mapping[str, ItemTensors]) -> Progress:
        """Train on ``data["train"]`` from where ``progress`` stands, select on ``data["vali"]``.

        Raises:
            TrainingError: the loss or the gradient is not finite; nothing was updated with it.
            Interrupted: SIGINT or SIGTERM came; the state is saved in ``last.pt``.
        """
        done = self.progress
        self._clock = time.perf_counter()
        steps = steps_in_epoch(len(data["train"]), self.settings.batch_size)
        scalars = Scalars(self.folder, after_epoch=done.epoch if done.history else -1)
        with logging_redirect_tqdm(), Interruption() as interruption:
            try:
                if done.history:  # a kill between the two may have left the file behind
                    write_history(self.folder / "history.csv", done.history)
                for row in done.history:
                    self._tell(row)
                if not done.history:
                    self._close_epoch(data, scalars)  # epoch 0: the untrained model
                while done.epoch < self.settings.epochs and not self._stalled():
                    self._train_epoch(data["train"], steps, interruption)
                    done.epoch, done.step = done.epoch + 1, 0
                    self._close_epoch(data, scalars)
                    self._stop_if_asked(interruption)
            finally:
                scalars.close()
        return done

    def _train_epoch(self, data: ItemTensors, steps: int, interruption: Interruption) -> None:
        done, settings = self.progress, self.settings
        self.model.train()
        window = self.stepper.window
        saved = started = time.perf_counter()
        title = f"epoch {done.epoch + 1}/{settings.epochs}"
        with tqdm(total=steps, initial=done.step, desc=title, leave=False, disable=None) as bar:
            for batch in train_batches(
                data,
                batch_size=settings.batch_size,
                list_size=settings.list_size,
                seed=settings.seed,
                epoch=done.epoch,
                start=done.step,
                fixed=settings.compile or data.device.type != "cpu",
            ):
                self._set_rate(done.step / steps, (done.step + 1) / steps)
                self.stepper.take(batch)
                done.step += 1
                due = time.perf_counter() - saved > 60 * settings.checkpoint_minutes > 0
                asked = interruption.signum is not None
                if due or asked or done.step == steps or self.stepper.pending >= window:
                    loss = self._settle(data)
                    bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
                now = time.perf_counter()
                done.seconds, started = done.seconds + now - started, now
                bar.update()
                if asked:
                    self._stop_if_asked(interruption)
                if due:
                    self._save(self.last)
                    saved = time.perf_counter()

    def _set_rate(self, begin: float, end: float) -> None:
        """The learning rate of a step; the parts of the epoch done before and after it."""
        done, settings = self.progress, self.settings
        factor = self.schedule(done.epoch + begin, settings.epochs)
        factor *= warm_up(done.epoch + end, settings.warmup)
        for group, base in zip(self.optimizer.param_groups, self._base_lr, strict=True):
            group["lr"] = base * factor

    def _settle(self, data: ItemTensors) -> float:
        """Add what the steps since the last time gave to the sums of the epoch; the last's loss."""
        done = self.progress
        taken = self.stepper.settle(done.epoch + 1, done.step, data.qids)
        for loss, lists, grad_norm in taken:
            done.loss += loss * lists
            done.lists += lists
            done.grad_norm += grad_norm
        return taken[-1].loss

    def _close_epoch(self, data: Mapping[str, ItemTensors], scalars: Scalars) -> None:
        """Evaluate, record, keep the best and the last weights."""
        done, settings = self.progress, self.settings
        row: dict[str, float] = {"epoch": done.epoch}
        if done.epoch:
            row["loss"] = done.loss / max(1, done.lists)
        for split in dict.fromkeys((*settings.monitor, "vali")):
            values = evaluate(
                self.model,
                data[split],
                self.metrics,
                self.convention,
                items=settings.evaluation_items,
                precision=settings.precision,
            )
            row |= {
                f"{split}_{name}": mean for name, mean in means(values, self.convention).items()
            }
        selected = selection_of(row, settings.select_on)
        if done.epoch:
            steps = steps_in_epoch(len(data["train"]), settings.batch_size)
            row["lr"] = self.optimizer.param_groups[0]["lr"]
            row["grad_norm"] = done.grad_norm / steps
            row["lists_per_second"] = len(data["train"]) / max(done.seconds, 1e-9)
        row["seconds"] = done.seconds
        done.loss, done.lists, done.grad_norm, done.seconds = 0.0, 0, 0.0, 0.0
        done.history.append(row)

        # The untrained model counts as the best only where it is all there is.
        better = selected > done.best_value and (done.epoch > 0 or settings.epochs == 0)
        if better:
            done.best_value, done.best_epoch = selected, done.epoch
            self._save(self.best)
        self._save(self.last)
        write_history(self.folder / "history.csv", done.history)
        scalars.add(row)
        log.info("%s%s", sentence(row, settings.epochs), " *" if better else "")
        self._tell(row)

    def _tell(self, row: Mapping[str, float]) -> None:
        if self.after_epoch is not None:
            self.after_epoch(int(row["epoch"]), row)

    def _stalled(self) -> bool:
        patience, done = self.settings.patience, self.progress
        return patience is not None and done.epoch - (done.best_epoch or 0) >= patience

    def _stop_if_asked(self, interruption: Interruption) -> None:
        if interruption.signum is not None:
            self._save(self.last)
            raise Interrupted(interruption.signum)

    def _save(self, path: Path) -> None:
        now = time.perf_counter()
        self.progress.wall_seconds += now - self._clock
        self._clock = now
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "base_lr": self._base_lr,
            "progress": vars(self.progress),
            "random": random_states(),
            **self.kept,
        }
        save_checkpoint(path, content)

    def resume(self, content: Mapping[str, Any]) -> None:
        """Take over weights, optimiser, progress and random states.

        Args:
            content: of ``last.pt``, as ``load_checkpoint`` gives it.

        Raises:
            CheckpointError: it does not fit.
        """
        with fitting(self.last):
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self._base_lr = [float(rate) for rate in content["base_lr"]]
            if len(self._base_lr) != len(self.optimizer.param_groups):
                raise ValueError("base_lr: one for each group of parameters")
            self.progress = Progress(**content["progress"])
            restore_random_states(content["random"])


def selection_of(row: Mapping[str, float], select_on: str) -> float:
    """The value of ``select_on`` on vali in a row of the history.

    Raises:
        TrainingError: no list of vali counts.
    """
    selected = row[f"vali_{select_on}"]
    if math.isnan(selected):
        raise TrainingError(
            f"{select_on} of vali is not a number: no list of vali counts under this "
            "convention; set convention.empty to a number"
        )
    return selected


def sentence(row: Mapping[str, float], epochs: int, *, unit: str = "epoch") -> str:
    """One line of the log for an epoch, or for another ``unit`` that the epochs of a model are."""
    parts = [f"{unit} {int(row['epoch'])}/{epochs}"]
    if "loss" in row:
        parts.append(f"loss {row['loss']:.4f}")
    of_splits = {k: v for k, v in row.items() if k.partition("_")[0] in ("train", "vali", "test")}
    parts += [f"{k.replace('_', ' ', 1)} {v:.4f}" for k, v in of_splits.items()]
    if "lists_per_second" in row:
        parts.append(f"{row['lists_per_second']:,.0f} lists/s")
    return "  ".join(parts)
