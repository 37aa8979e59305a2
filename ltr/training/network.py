"""The learner of networks: plain PyTorch, resumable at any step to the same weights bit for bit."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ltr.data.batches import Batch, ItemTensors, Slices, steps_in_epoch, train_batches, train_slices
from ltr.training.checkpoint import fitting, random_states, restore_random_states
from ltr.training.distributed import any_interrupt, barrier, check_alike, check_shards, rank_share
from ltr.training.evaluation import predict
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.monitor import Monitor, sentence
from ltr.training.schedules import warm_up
from ltr.training.step import Step
from ltr.typing import Loss

Schedule = Callable[[float, int], float]


class NetworkLearner:
    """Trains a network; ``monitor`` keeps the weights and the history."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        monitor: Monitor,
    ) -> None:
        check_shards(model, monitor.settings.shards)
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.monitor = monitor
        self._base_lr = [group["lr"] for group in optimizer.param_groups]
        self.step = Step(model, loss, optimizer, monitor.settings)

    def fit(self, data: Mapping[str, ItemTensors]) -> None:
        """Train on ``data["train"]`` from the monitor's progress on, select on ``data["vali"]``.

        Raises:
            TrainingError: the loss or the gradient is not finite; it updated nothing.
            Interrupted: SIGINT or SIGTERM came; the state is saved in ``last.pt``.
        """
        monitor, done = self.monitor, self.monitor.progress
        steps = steps_in_epoch(len(data["train"]), monitor.settings.batch_size)
        with monitor.open() as interruption:
            monitor.replay()
            if not done.history:
                self._close_epoch(data, steps)  # epoch 0: the untrained model
            while not monitor.done:
                self._train_epoch(data["train"], steps, interruption)
                done.epoch, done.step = done.epoch + 1, 0
                self._close_epoch(data, steps)
                self._stop_if_asked(
                    any_interrupt(interruption.signum)
                )  # all wait for what is saved

    def _train_epoch(self, data: ItemTensors, steps: int, interruption: Interruption) -> None:
        done, settings = self.monitor.progress, self.monitor.settings
        self.model.train()
        saved = started = time.perf_counter()
        title = f"epoch {done.epoch + 1}/{settings.epochs}"
        with progress_bar(total=steps, initial=done.step, desc=title) as bar:
            for batch in self._batches(data):
                self._set_rate(done.step / steps, (done.step + 1) / steps)
                self.step(batch)
                done.step += 1
                due = time.perf_counter() - saved > 60 * settings.checkpoint_minutes > 0
                signum = any_interrupt(interruption.signum)
                if due or signum or self.step.full or done.step == steps:
                    figures = self.step.flush(done.epoch + 1, done.step, data.qids)
                    for loss, weight, norm in figures:
                        done.loss += loss * weight
                        done.lists += weight
                        done.grad_norm += norm
                    bar.set_postfix_str(f"loss {figures[-1][0]:.4f}", refresh=False)
                now = time.perf_counter()
                done.seconds, started = done.seconds + now - started, now
                bar.update()
                self._stop_if_asked(signum)
                if due:
                    self._save(self.monitor.last)
                    saved = time.perf_counter()

    def _batches(self, data: ItemTensors) -> Iterator[Batch | Slices]:
        """What is left of the epoch: whole batches, or this process's shards of them."""
        done, settings = self.monitor.progress, self.monitor.settings
        how: Any = {
            "batch_size": settings.batch_size, "list_size": settings.list_size,
            "seed": settings.seed, "epoch": done.epoch, "start": done.step,
            "noise": settings.augment["noise"],
            "fixed": settings.compile or data.device.type != "cpu",
        }  # fmt: skip
        if settings.shards is None:
            return train_batches(data, **how)
        mine = rank_share(range(settings.shards))
        return train_slices(data, shards=settings.shards, mine=mine, **how)

    def _set_rate(self, begin: float, end: float) -> None:
        """Set the learning rate of a step from ``begin`` to ``end``, fractions of the epoch."""
        done, settings = self.monitor.progress, self.monitor.settings
        factor = self.schedule(done.epoch + begin, settings.epochs)
        factor *= warm_up(done.epoch + end, settings.warmup)
        for group, base in zip(self.optimizer.param_groups, self._base_lr, strict=True):
            group["lr"] = base * factor

    def _close_epoch(self, data: Mapping[str, ItemTensors], steps: int) -> None:
        """Evaluate, record, keep the best and the last weights."""
        monitor, done, settings = self.monitor, self.monitor.progress, self.monitor.settings
        row: dict[str, float] = {"epoch": done.epoch}
        check_alike(self.model)
        if done.epoch:
            row["loss"] = done.loss / (done.lists or 1)
        for split in monitor.splits:
            items, precision = settings.evaluation_items, settings.precision
            scores = predict(self.model, data[split], items=items, precision=precision)
            row |= monitor.measure(split, data[split], scores)
        if done.epoch:
            row["lr"] = self.optimizer.param_groups[0]["lr"]
            row["grad_norm"] = done.grad_norm / steps
            row["lists_per_second"] = len(data["train"]) / max(done.seconds, 1e-9)
        row["seconds"] = done.seconds
        done.loss, done.lists, done.grad_norm, done.seconds = 0.0, 0.0, 0.0, 0.0
        better = monitor.add(row)
        if better:
            self._save(monitor.best)
        self._save(monitor.last)
        monitor.write()
        monitor.publish(row, sentence(row, settings.epochs) + (" *" if better else ""))

    def _stop_if_asked(self, signum: int | None) -> None:
        if signum is not None:
            self._save(self.monitor.last)
            barrier()  # none ends before it is written
            raise Interrupted(signum)

    def _save(self, path: Path) -> None:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "base_lr": self._base_lr,
            "random": random_states(),
        }
        self.monitor.save(path, state)

    def resume(self, content: Mapping[str, Any]) -> None:
        """Restore weights, optimiser, progress and random states from the content of ``last.pt``.

        Raises:
            CheckpointError: it does not fit this model or optimiser.
        """
        with fitting(self.monitor.last):
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self._base_lr = [float(rate) for rate in content["base_lr"]]
            if len(self._base_lr) != len(self.optimizer.param_groups):
                raise ValueError("base_lr: one for each group of parameters")
            self.monitor.resume(content)
            restore_random_states(content["random"])
