"""The training loop of networks, in plain PyTorch.

Training can be resumed after any step. A resumed run ends with the same weights, bit for bit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltr.arrays import Ints, Texts
from ltr.data.batches import Batch, ItemTensors, train_batches
from ltr.errors import TrainingError
from ltr.losses.batch import counted_lists, sum_over_batch
from ltr.training.checkpoint import checkpoint_errors, random_states, restore_random_states
from ltr.training.device import matrix_products
from ltr.training.distributed import (
    any_interrupt,
    barrier,
    check_alike,
    check_processes,
    connected,
    distribute,
    rank,
    seed_process,
    size,
    sum_over_processes,
)
from ltr.training.evaluation import predict, score
from ltr.training.hooks import progress_bar
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.monitor import Monitor, sentence
from ltr.training.schedules import factor_of_step
from ltr.training.settings import Settings
from ltr.typing import Loss

MAX_DEFERRED = 50  # the most steps whose loss and norm wait on a GPU until they are read together


class Trainer:
    """Trains a network; ``monitor`` saves the weights and the history."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        schedule: Callable[[float, float], float],
        monitor: Monitor,
    ) -> None:
        """Prepare to train ``model`` with ``loss`` and the settings of ``monitor``."""
        check_processes(model, monitor.settings.batch_size)
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.monitor = monitor
        self._base_lr = [group["lr"] for group in optimizer.param_groups]
        self.step = TrainingStep(model, loss, optimizer, monitor.settings)

    def fit(self, data: Mapping[str, ItemTensors]) -> None:
        """Train on ``data["train"]``, and select the best epoch on ``data["vali"]``.

        Training continues from the progress of the monitor.

        Raises:
            TrainingError: a loss or gradient is not finite; that step did not update the weights.
            Interrupted: SIGINT or SIGTERM was received; the state is saved in ``last.pt``.
        """
        monitor = self.monitor
        progress = monitor.progress
        steps = math.ceil(len(data["train"]) / monitor.settings.batch_size)
        with monitor.open() as interruption:
            monitor.replay()
            if not progress.history:
                self._close_epoch(data, steps)  # epoch 0: the untrained model
            while not monitor.done:
                self._train_epoch(data["train"], steps, interruption)
                progress.epoch += 1
                progress.step = 0
                self._close_epoch(data, steps)
                self._stop_if_asked(any_interrupt(interruption.signum))  # processes wait here

    def _train_epoch(self, data: ItemTensors, steps: int, interruption: Interruption) -> None:
        """Train the rest of the current epoch, which has ``steps`` steps in total."""
        progress = self.monitor.progress
        settings = self.monitor.settings
        self.model.train()
        started = time.perf_counter()
        title = f"epoch {progress.epoch + 1}/{settings.epochs}"
        with progress_bar(total=steps, initial=progress.step, desc=title, unit="step") as bar:
            for batch in self._batches(data):
                self._set_learning_rate(steps)
                self.step(batch, (settings.seed, progress.epoch, progress.step))
                progress.step += 1
                is_due = self.monitor.due
                signum = any_interrupt(interruption.signum)
                if is_due or signum or self.step.is_full or progress.step == steps:
                    loss = self._record_steps(data)
                    bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
                current_time = time.perf_counter()
                progress.seconds += current_time - started
                started = current_time
                bar.update()
                self._stop_if_asked(signum)
                if is_due:
                    self._save(self.monitor.last)

    def _set_learning_rate(self, steps: int) -> None:
        """Set the learning rate of the next step of an epoch that has ``steps`` steps."""
        progress = self.monitor.progress
        settings = self.monitor.settings
        start = progress.epoch + progress.step / steps
        end = progress.epoch + (progress.step + 1) / steps
        factor = factor_of_step(self.schedule, start, end, settings.epochs, settings.warmup)
        for group, base in zip(self.optimizer.param_groups, self._base_lr, strict=True):
            group["lr"] = base * factor

    def _record_steps(self, data: ItemTensors) -> float:
        """Add the losses and norms of the recent steps to the progress; return the last loss."""
        progress = self.monitor.progress
        figures = self.step.flush(progress.epoch + 1, progress.step, data.qids)
        for loss, weight, norm in figures:
            progress.loss += loss * weight
            progress.lists += weight
            progress.grad_norm += norm
        return figures[-1][0]

    def _batches(self, data: ItemTensors) -> Iterator[Batch]:
        """Return this process's slices of the remaining batches of the epoch."""
        progress = self.monitor.progress
        settings = self.monitor.settings
        return train_batches(
            data,
            batch_size=settings.batch_size,
            list_size=settings.list_size,
            seed=settings.seed,
            epoch=progress.epoch,
            start=progress.step,
            noise=settings.augment["noise"],
            fixed=settings.compile or data.device.type != "cpu",
            rank=rank(),
            ranks=size(),
        )

    def _close_epoch(self, data: Mapping[str, ItemTensors], steps: int) -> None:
        """Evaluate the model, record the epoch, and save the last weights and the best weights."""
        monitor = self.monitor
        progress = monitor.progress
        settings = monitor.settings
        check_alike(self.model)
        row: dict[str, float] = {"epoch": progress.epoch}
        if progress.epoch:
            row["loss"] = progress.loss / (progress.lists or 1)
        for split in monitor.splits:
            scores = predict(
                self.model,
                data[split],
                items=settings.evaluation_items,
                precision=settings.precision,
            )
            row |= monitor.measure(split, data[split], scores)
        if progress.epoch:
            row["lr"] = self.optimizer.param_groups[0]["lr"]
            row["grad_norm"] = progress.grad_norm / steps
            row["lists_per_second"] = len(data["train"]) / max(progress.seconds, 1e-9)
        row["seconds"] = progress.seconds
        progress.reset_epoch()
        is_better = monitor.add(row)
        if is_better:
            self._save(monitor.best)
        self._save(monitor.last)
        monitor.write()
        star = " *" if is_better and progress.epoch else ""  # marks the best epoch so far
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
        """Restore weights, optimiser, progress and random states from the content of ``last.pt``.

        Raises ``CheckpointError`` if the content does not fit this model or optimiser.
        """
        with checkpoint_errors(self.monitor.last):
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self._base_lr = [float(rate) for rate in content["base_lr"]]
            self.monitor.resume(content)
            restore_random_states(content["random"])


class TrainingStep:
    """Takes training steps; a loss or gradient that is not finite never updates the weights.

    Reading a number from a GPU means waiting until the GPU has done all its work. So on a GPU the
    loss and the gradient norm of several steps stay on the device until ``flush`` reads them
    together. This requires a fused optimiser, which can skip updates: after a step that is not
    finite, all updates are skipped, and ``flush`` raises the error later. For any other optimiser,
    and on a CPU, ``sync_every`` is 1, so the numbers of each step are read before its update.

    Attributes:
        sync_every: the number of steps that may wait for ``flush``.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        """Prepare to train ``model`` with ``loss``; ``optimizer`` has the model's parameters."""
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.settings = settings
        parameters = [p for p in model.parameters() if p.requires_grad]
        self._weights = [p for p in parameters if p.dim() > 1]
        device = next(model.parameters()).device
        # Marks PyTorch's fused optimisers, also for GradScaler: they skip if found_inf is set.
        can_skip = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.sync_every = MAX_DEFERRED if device.type == "cuda" and can_skip else 1
        self._figures: list[Tensor] = []
        self._lists: list[Ints] = []
        self._has_failed = torch.zeros((), dtype=torch.bool, device=device)
        self._score = distribute(model)
        self._mean_loss = self._compute_mean_loss
        if settings.compile:
            torch.compiler.reset()  # PyTorch limits how often a process may compile the same code
            if _compiles_losses(device) and size() == 1:
                # CUDA graphs launch the many small kernels of a step together.
                self._mean_loss = torch.compile(
                    self._mean_loss, mode="reduce-overhead", dynamic=False
                )
            else:
                self._score = torch.compile(self._score, dynamic=False)

    @property
    def is_full(self) -> bool:
        """Whether ``flush`` must be called before the next step."""
        return len(self._figures) >= self.sync_every

    def __call__(self, batch: Batch, number: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Update the weights once with ``batch``, unless its loss or gradient is not finite.

        If the model has a method ``member_scores``, the loss is the mean of its members' losses.

        Args:
            batch: the lists, or this process's slice of them.
            number: seed, epoch and step, which seed the random numbers if there are several
                processes.
        """
        if self.settings.compile and self._has_failed.is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        seed_process(number)
        weight = self._weigh_lists(batch)
        self.optimizer.zero_grad(set_to_none=True)  # before a CUDA graph reuses their memory
        with matrix_products(self.settings.precision):
            loss, penalised = self._mean_loss(batch, weight)
            with connected():
                penalised.backward()
        loss = sum_over_processes(loss.detach())
        seed_process(number, alike=True)
        norm = nn.utils.get_total_norm(
            [p.grad for p in self.model.parameters() if p.grad is not None]
        )
        if self.settings.clip is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        self._lists.append(batch.lists)
        self._update(torch.stack([loss, weight, norm]).double())

    def _update(self, figures: Tensor) -> None:
        """Update the weights if ``figures`` (loss, weight and norm of the step) are finite."""
        self._figures.append(figures)
        if self.sync_every == 1:
            if bool(figures.isfinite().all()):
                self.optimizer.step()
            return
        total = figures.sum()
        is_finite = total - total == 0  # NaN if a number is not finite, else 0
        self._has_failed = self._has_failed | ~is_finite
        self.optimizer.found_inf = self._has_failed.float()  # type: ignore[attr-defined]
        self.optimizer.grad_scale = None  # type: ignore[attr-defined]
        self.optimizer.step()

    def flush(self, epoch: int, step: int, qids: Texts) -> list[list[float]]:
        """Return the numbers of all steps since the last call; there must be at least one step.

        Args:
            epoch, step: the epoch and step of the last step, counted from 1, for messages.
            qids: the query id of every list of the data.

        Returns:
            For each step, the mean loss, the total weight of the lists in that mean (if there are
            no weights, the number of these lists), and the gradient norm.

        Raises:
            TrainingError: a loss or gradient was not finite; the weights are those before that
                step.
        """
        rows = torch.stack(self._figures).tolist()
        lists = self._lists
        self._figures = []
        self._lists = []
        first = step - len(rows) + 1
        for number, ((loss, _, norm), indices) in enumerate(zip(rows, lists, strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise TrainingError(
                    f"epoch {epoch}, step {number}: the loss or its gradient is not finite "
                    f"(loss {loss}, gradient norm {norm}) on the lists with the query ids "
                    f"{', '.join(qids[indices])}; the model still has the weights from before this "
                    "step: lower optimizer.lr, set clip=1, or check these lists"
                )
        return rows

    def _weigh_lists(self, batch: Batch) -> Tensor:
        """Return the total weight of the lists that count in the loss, over all processes.

        If there are no weights, this is the number of these lists.
        """
        counted = counted_lists(batch.labels, batch.mask, empty=self.settings.empty_lists)
        weight = (counted if batch.weights is None else counted * batch.weights).sum()
        return sum_over_processes(weight)

    def _compute_mean_loss(self, batch: Batch, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return this process's share of the mean loss, and the value to differentiate.

        The latter is the share, multiplied by the number of processes because their gradients are
        averaged, plus the penalty. ``weight`` is the total weight of the lists of all processes.
        """
        scores = score(self._score, batch, self.settings.precision)
        labels = batch.labels
        mask = batch.mask
        weights = batch.weights
        columns = {} if batch.teacher is None else {"teacher": batch.teacher}
        members = 1
        if scores.dim() == 3:  # [members, batch, list] becomes [members * batch, list]
            members = len(scores)
            scores = scores.flatten(0, 1)
            labels = labels.repeat(members, 1)
            mask = mask.repeat(members, 1)
            weights = None if weights is None else weights.repeat(members)
            columns = {name: column.repeat(members, 1) for name, column in columns.items()}
        values = self.loss(scores, labels, mask, **columns)
        empty = self.settings.empty_lists
        total, divisor = sum_over_batch(values, labels, mask, empty=empty, weights=weights)
        if size() > 1:
            divisor = weight * members
        loss = total / torch.where(divisor > 0, divisor, 1.0)
        return loss, loss * size() + self._penalty()

    def _penalty(self) -> Tensor | float:
        """Return the L1 and L2 penalty on the weight matrices; it omits biases and norm layers."""
        l1 = self.settings.l1
        l2 = self.settings.l2
        absolute = l1 * sum(w.abs().sum() for w in self._weights) if l1 else 0.0
        return absolute + (l2 / 2 * sum(w.square().sum() for w in self._weights) if l2 else 0.0)


def _compiles_losses(device: torch.device) -> bool:
    """Return whether the loss is compiled too; on a CPU, the kernels of the losses are faster."""
    return device.type != "cpu"
