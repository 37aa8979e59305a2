"""The training loop of networks, in plain PyTorch.

It can be resumed after any step, and then ends with the same weights, bit for bit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltr.arrays import Ints, Texts
from ltr.data.batches import Batch, ItemTensors, Slices, train_batches
from ltr.errors import TrainingError
from ltr.losses.batch import counted_lists, sum_over_batch
from ltr.training.checkpoint import fitting, random_states, restore_random_states
from ltr.training.device import matrix_products
from ltr.training.distributed import (
    any_interrupt,
    barrier,
    check_alike,
    check_shards,
    rank_share,
    set_gradients,
)
from ltr.training.evaluation import predict, score
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.monitor import Monitor, sentence
from ltr.training.schedules import factor_of_step
from ltr.training.settings import Settings
from ltr.typing import Loss

DEFERRED = 50  # the most steps whose loss and norm stay on a GPU until they are read together


class NetworkLearner:
    """Trains a network; ``monitor`` saves the weights and the history."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        schedule: Callable[[float, float], float],
        monitor: Monitor,
    ) -> None:
        check_shards(model, monitor.settings.shards)
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.monitor = monitor
        self._base_lr = [group["lr"] for group in optimizer.param_groups]
        self.step = Step(model, loss, optimizer, monitor.settings)

    def fit(self, data: Mapping[str, ItemTensors]) -> None:
        """Train on ``data["train"]`` and select the best epoch on ``data["vali"]``; continue from
        the monitor's progress.

        Raises:
            TrainingError: a loss or gradient is not finite; the weights were not updated with it.
            Interrupted: SIGINT or SIGTERM came; the state is saved in ``last.pt``.
        """
        monitor, done = self.monitor, self.monitor.progress
        steps = math.ceil(len(data["train"]) / monitor.settings.batch_size)
        with monitor.open() as interruption:
            monitor.replay()
            if not done.history:
                self._close_epoch(data, steps)  # epoch 0: the untrained model
            while not monitor.done:
                self._train_epoch(data["train"], steps, interruption)
                done.epoch, done.step = done.epoch + 1, 0
                self._close_epoch(data, steps)
                self._stop_if_asked(any_interrupt(interruption.signum))  # processes wait here

    def _train_epoch(self, data: ItemTensors, steps: int, interruption: Interruption) -> None:
        done, settings = self.monitor.progress, self.monitor.settings
        self.model.train()
        started = time.perf_counter()
        title = f"epoch {done.epoch + 1}/{settings.epochs}"
        with progress_bar(total=steps, initial=done.step, desc=title, unit="step") as bar:
            for batch in self._batches(data):
                start = done.epoch + done.step / steps
                end = done.epoch + (done.step + 1) / steps
                factor = factor_of_step(self.schedule, start, end, settings.epochs, settings.warmup)
                for group, base in zip(self.optimizer.param_groups, self._base_lr, strict=True):
                    group["lr"] = base * factor
                self.step(batch)
                done.step += 1
                due = self.monitor.due
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

    def _batches(self, data: ItemTensors) -> Iterator[Batch | Slices]:
        """Return the rest of the epoch: whole batches, or this process's shards of them."""
        done, settings = self.monitor.progress, self.monitor.settings
        how: Any = {
            "batch_size": settings.batch_size, "list_size": settings.list_size,
            "seed": settings.seed, "epoch": done.epoch, "start": done.step,
            "noise": settings.augment["noise"],
            "fixed": settings.compile or data.device.type != "cpu", "shards": settings.shards,
        }  # fmt: skip
        return train_batches(data, **how, mine=rank_share(range(settings.shards or 0)))

    def _close_epoch(self, data: Mapping[str, ItemTensors], steps: int) -> None:
        """Evaluate the model, record the epoch, and save the last weights and the best ones."""
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
        star = " *" if better and done.epoch else ""  # the best so far
        monitor.publish(row, sentence(row, settings.epochs) + star)

    def _stop_if_asked(self, signum: int | None) -> None:
        if signum is not None:
            self._save(self.monitor.last)
            barrier()  # no process ends before the file is written
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
        """Restore weights, optimiser, progress and random states from the content of ``last.pt``;
        ``CheckpointError`` if it does not fit this model or optimiser.
        """
        with fitting(self.monitor.last):
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self._base_lr = [float(rate) for rate in content["base_lr"]]
            self.monitor.resume(content)
            restore_random_states(content["random"])


class Step:
    """Takes training steps; a loss or gradient that is not finite never updates the weights.

    Reading a number from a GPU waits until the GPU has done all its work. So on a GPU the loss and
    the gradient norm of several steps stay on the device until ``flush`` reads them together. This
    needs an optimiser that can skip an update (a fused one): from the first step that is not finite
    on, it skips all updates, until ``flush`` finds that step and raises. With any other optimiser,
    and on a CPU, ``window`` is 1: each step's numbers are read before its update.

    Attributes:
        window: the number of steps that may wait for ``flush``.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        self.model, self.loss, self.optimizer, self.settings = model, loss, optimizer, settings
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._weights = [p for p in self._parameters if p.dim() > 1]
        device = next(model.parameters()).device
        # Marks PyTorch's fused optimisers, also for GradScaler: they skip if found_inf is set.
        can_skip = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.window = DEFERRED if device.type == "cuda" and can_skip else 1
        self._figures: list[Tensor] = []
        self._lists: list[Ints] = []
        self._bad = torch.zeros((), dtype=torch.bool, device=device)
        self._scorer: Callable[..., Tensor] = getattr(model, "member_scores", model)
        self._mean, self._sums = self._mean_of, self._sums_of
        if settings.compile:
            torch.compiler.reset()  # PyTorch limits how often a process compiles the same code
        if settings.compile and _compiles_losses(device):
            # CUDA graphs launch the many small kernels of a step at once
            knobs: Any = {"mode": "reduce-overhead", "dynamic": False}
            self._mean, self._sums = (torch.compile(f, **knobs) for f in (self._mean, self._sums))
        elif settings.compile:
            self._scorer = torch.compile(self._scorer, dynamic=False)

    @property
    def full(self) -> bool:
        """Whether ``flush`` must be called before the next step."""
        return len(self._figures) >= self.window

    def __call__(self, batch: Batch | Slices) -> None:
        """Update the weights once with ``batch``, unless its loss or gradient is not finite. If the
        model has a method ``member_scores``, the loss is the mean of its members' losses.
        """
        if self.settings.compile and self._bad.is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        with matrix_products(self.settings.precision):
            objective, weight = self._set_gradients(batch)
        norm = nn.utils.get_total_norm(
            [p.grad for p in self.model.parameters() if p.grad is not None]
        )
        if self.settings.clip is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        self._lists.append(batch.lists)
        figures = torch.stack([objective.detach(), weight, norm]).double()
        self._figures.append(figures)
        if self.window > 1:
            total = figures.sum()
            self._bad = self._bad | (total - total != 0)  # NaN if a number is not finite, else 0
            self.optimizer.found_inf = self._bad.float()  # type: ignore[attr-defined]
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.optimizer.step()
        elif bool(figures.isfinite().all()):
            self.optimizer.step()

    def flush(self, epoch: int, step: int, qids: Texts) -> list[list[float]]:
        """Read the numbers of all steps since the last call; there must be at least one step.

        Returns for each step the mean loss, the total weight of the lists in that mean (without
        weights, their number), and the gradient norm. ``TrainingError``: a loss or gradient was not
        finite; the weights are those before it. The error names ``epoch`` and ``step``, the last
        step taken, both counted from 1, and some of ``qids``, the query id of every list of the
        data.
        """
        rows, lists = torch.stack(self._figures).tolist(), self._lists
        self._figures, self._lists = [], []
        first = step - len(rows) + 1
        for number, ((loss, _, norm), which) in enumerate(zip(rows, lists, strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise TrainingError(
                    f"epoch {epoch}, step {number}: the loss or its gradient is not finite "
                    f"({loss}, norm {norm}); the weights are those before this step; lists with "
                    f"query id {', '.join(qids[which])}: lower optimizer.lr, set clip=1, or look "
                    "at these lists"
                )
        return rows

    def _set_gradients(self, batch: Batch | Slices) -> tuple[Tensor, Tensor]:
        """Set the gradients; return the mean loss and the total weight of the lists in it."""
        if isinstance(batch, Slices):
            objective, weight = set_gradients(self._parameters, batch, self._sums)
            if isinstance(penalty := self._penalty(), Tensor):
                penalty.backward()
            return objective, weight
        self.optimizer.zero_grad(set_to_none=True)  # before a CUDA graph takes their memory
        objective, penalised, weight = self._mean(batch)
        penalised.backward()
        return objective, weight

    def _mean_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss without and with penalty, and the total weight of its lists."""
        total, divisor, weight = self._sums_of(batch)
        objective = total / torch.where(divisor > 0, divisor, 1.0)
        return objective, objective + self._penalty(), weight

    def _sums_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum of the losses, its divisor, and the total weight of the counted lists."""
        scores = score(self._scorer, batch, self.settings.precision)
        labels, mask, weights = batch.labels, batch.mask, batch.weights
        given = {} if batch.teacher is None else {"teacher": batch.teacher}
        if scores.dim() == 3:  # [members, batch, list] becomes [members * batch, list]
            members, scores = len(scores), scores.flatten(0, 1)
            labels, mask = labels.repeat(members, 1), mask.repeat(members, 1)
            weights = None if weights is None else weights.repeat(members)
            given = {name: one.repeat(members, 1) for name, one in given.items()}
        values, empty = self.loss(scores, labels, mask, **given), self.settings.empty_lists
        total, divisor = sum_over_batch(values, labels, mask, empty=empty, weights=weights)
        counted = counted_lists(batch.labels, batch.mask, empty=empty)
        weight = (counted if batch.weights is None else counted * batch.weights).sum()
        return total, divisor, weight

    def _penalty(self) -> Tensor | float:
        """Return the L1 and L2 penalty on the weight matrices (not on biases and norms)."""
        l1, l2 = self.settings.l1, self.settings.l2
        absolute = l1 * sum(w.abs().sum() for w in self._weights) if l1 else 0.0
        return absolute + (l2 / 2 * sum(w.square().sum() for w in self._weights) if l2 else 0.0)


def _compiles_losses(device: torch.device) -> bool:
    """Return whether the loss is compiled too; on a CPU the losses' own kernels are faster."""
    return device.type != "cpu"
