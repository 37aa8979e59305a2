"""One training step: scores, loss, gradients and update, with figures that are read late."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ltr.data.batches import Batch, Slices
from ltr.errors import TrainingError
from ltr.losses.batch import counted_lists, mean_over_batch, sum_over_batch
from ltr.training.device import matrix_products
from ltr.training.distributed import set_gradients
from ltr.training.evaluation import score
from ltr.training.settings import Settings
from ltr.typing import Loss

DEFERRED = 50  # steps whose figures wait on a GPU to be read together


class Step:
    """Takes training steps; a loss or gradient that is not finite never updates the weights.

    Reading a number from a GPU waits for all its work. So there the figures of the steps stay on
    the device until ``flush``. From the first bad step on, an optimiser that can skip an update
    (a fused one) skips all updates, until ``flush`` reads of the bad step and raises. Otherwise
    ``window`` is 1: every step is read before its update.

    Attributes:
        window: how many steps may wait for ``flush``.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        self.model, self.loss, self.optimizer, self.settings = model, loss, optimizer, settings
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._weights = [p for p in self._parameters if p.dim() > 1]
        device = next(model.parameters()).device
        # What GradScaler knows PyTorch's fused optimisers by: they skip where found_inf is set.
        can_skip = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.window = DEFERRED if device.type == "cuda" and can_skip else 1
        self._figures: list[Tensor] = []
        self._lists: list[NDArray[np.int64]] = []
        self._bad = torch.zeros((), dtype=torch.bool, device=device)
        self._scorer: Callable[..., Tensor] = getattr(model, "member_scores", model)
        self._mean, self._sums = self._mean_of, self._sums_of
        if settings.compile:
            torch.compiler.reset()  # a process compiles the code of a step only so many times
        if settings.compile and _compiles_losses(device):
            # CUDA graphs launch the many small kernels of a step at once
            knobs: Any = {"mode": "reduce-overhead", "dynamic": False}
            self._mean, self._sums = (torch.compile(f, **knobs) for f in (self._mean, self._sums))
        elif settings.compile:
            self._scorer = torch.compile(self._scorer, dynamic=False)

    @property
    def full(self) -> bool:
        """Whether ``flush`` is due before the next step."""
        return len(self._figures) >= self.window

    def __call__(self, batch: Batch | Slices) -> None:
        """Update the weights from ``batch`` once, unless its loss or gradient is not finite.

        Where the model has ``member_scores``, the loss is the mean of its members' losses.
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
            self._bad = self._bad | (total - total != 0)  # not 0 but NaN where one is not finite
            self.optimizer.found_inf = self._bad.float()  # type: ignore[attr-defined]
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.optimizer.step()
        elif bool(figures.isfinite().all()):
            self.optimizer.step()

    def flush(
        self, epoch: int, step: int, qids: NDArray[np.str_]
    ) -> list[tuple[float, float, float]]:
        """Read the figures of the steps since the last call, at least one.

        Args:
            epoch: from 1.
            step: from 1, of the last step taken.
            qids: the query id of every list of the data.

        Returns:
            Of each step: the mean loss, what the lists weigh that it is the mean of (without
            weights their number), and the gradient norm.

        Raises:
            TrainingError: a loss or gradient was not finite; the weights are those before it.
        """
        rows, lists = torch.stack(self._figures).tolist(), self._lists
        self._figures, self._lists = [], []
        first = step - len(rows) + 1
        for number, ((loss, _, norm), which) in enumerate(zip(rows, lists, strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                what = "loss" if not math.isfinite(loss) else "gradient"
                raise TrainingError(
                    f"epoch {epoch}, step {number}: the {what} is not finite (loss {loss}, "
                    f"gradient norm {norm}); the weights are those before this step; lists with "
                    f"query id {', '.join(qids[which])}: lower optimizer.lr, set clip=1, or look "
                    "at these lists"
                )
        return [(loss, weight, norm) for loss, weight, norm in rows]

    def _set_gradients(self, batch: Batch | Slices) -> tuple[Tensor, Tensor]:
        """Set the gradients; the mean loss and what the lists weigh that it is the mean of."""
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
        """The mean loss, the same with the penalty, and what the counted lists weigh."""
        empty = self.settings.empty_lists
        values, labels, mask, weights = self._values(batch)
        objective = mean_over_batch(values, labels, mask, empty=empty, weights=weights)
        return objective, objective + self._penalty(), self._weight_of(batch)

    def _sums_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """What ``set_gradients`` asks of a shard."""
        empty = self.settings.empty_lists
        values, labels, mask, weights = self._values(batch)
        total, weight = sum_over_batch(values, labels, mask, empty=empty, weights=weights)
        return total, weight, self._weight_of(batch)

    def _values(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The loss of every list, with the labels, the mask and the weight of each."""
        scores = score(self._scorer, batch, self.settings.precision)
        labels, mask, weights = batch.labels, batch.mask, batch.weights
        given = {} if batch.teacher is None else {"teacher": batch.teacher}
        if scores.dim() == 3:  # [members, batch, list], as one batch of members * batch lists
            members, scores = len(scores), scores.flatten(0, 1)
            labels, mask = labels.repeat(members, 1), mask.repeat(members, 1)
            weights = None if weights is None else weights.repeat(members)
            given = {name: one.repeat(members, 1) for name, one in given.items()}
        return self.loss(scores, labels, mask, **given), labels, mask, weights

    def _weight_of(self, batch: Batch) -> Tensor:
        """What the counted lists of ``batch`` weigh: without weights their number."""
        counted = counted_lists(batch.labels, batch.mask, empty=self.settings.empty_lists)
        return (counted if batch.weights is None else counted * batch.weights).sum()

    def _penalty(self) -> Tensor | float:
        """L1 and L2 penalty of the weight matrices (not of biases and norms)."""
        l1, l2 = self.settings.l1, self.settings.l2
        absolute = l1 * sum(w.abs().sum() for w in self._weights) if l1 else 0.0
        return absolute + (l2 / 2 * sum(w.square().sum() for w in self._weights) if l2 else 0.0)


def _compiles_losses(device: torch.device) -> bool:
    """Whether the loss is compiled too; the kernels that losses have on the CPU are faster."""
    return device.type != "cpu"
