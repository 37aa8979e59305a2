"""One update of the weights; what came of it is read late where reading would stop the device."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ltr.data.batches import Batch
from ltr.errors import TrainingError
from ltr.losses.batch import counted_lists, mean_over_batch
from ltr.training.evaluation import score
from ltr.training.settings import Settings
from ltr.typing import Loss

DEFERRED = 50  # steps whose figures wait on a GPU before they are read together


class Taken(NamedTuple):
    """What is known of a step: ``loss`` is the mean over the ``lists`` that counted."""

    loss: float
    lists: int
    grad_norm: float


class Stepper:
    """Takes training steps; an update with a loss or gradient that is not finite never happens.

    Reading a number from a GPU waits for all its work. So there the figures of the steps stay on
    the device until ``settle``, and an optimiser that can skip an update by itself (a fused one)
    skips, from the first bad step on, until ``settle`` reads of it and raises. Otherwise ``window``
    is 1: every step is read before its update.

    Attributes:
        window: how many steps may be pending; ``settle`` is due when ``pending`` reaches it.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        self.model, self.loss, self.optimizer, self.settings = model, loss, optimizer, settings
        self._weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
        device = next(model.parameters()).device
        self.window = DEFERRED if device.type == "cuda" and can_skip(optimizer) else 1
        self._figures: list[Tensor] = []
        self._lists: list[NDArray[np.int64]] = []
        self._bad = torch.zeros((), dtype=torch.bool, device=device)
        self._scorer: Callable[..., Tensor] = model
        if settings.compile:
            # CUDA graphs launch a small model's many kernels at once; on a CPU this changes nothing
            self._scorer = torch.compile(model, mode="reduce-overhead", dynamic=False)

    @property
    def pending(self) -> int:
        """Steps taken and not yet settled."""
        return len(self._figures)

    def take(self, batch: Batch) -> None:
        """Update the weights from ``batch`` once, unless its loss or gradient is not finite."""
        if self.settings.compile and batch.features.is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        empty = self.settings.empty_lists
        scores = score(self._scorer, batch, self.settings.precision)
        values = self.loss(scores, batch.labels, batch.mask)
        objective = mean_over_batch(values, batch.labels, batch.mask, empty=empty)
        self.optimizer.zero_grad(set_to_none=True)
        (objective + self._penalty()).backward()
        norm = self._gradient_norm()
        counted = counted_lists(batch.labels, batch.mask, empty=empty).sum()
        self._lists.append(batch.lists)
        self._figures.append(torch.stack([objective.detach(), counted, norm]).double())
        if self.window > 1:
            self._bad = self._bad | ~(objective.detach().isfinite() & norm.isfinite())
            self.optimizer.found_inf = self._bad.float()  # type: ignore[attr-defined]
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.optimizer.step()
        elif bool(self._figures[-1].isfinite().all()):
            self.optimizer.step()

    def settle(self, epoch: int, step: int, qids: NDArray[np.str_]) -> list[Taken]:
        """Read what the pending steps gave, at least one.

        Args:
            epoch: from 1.
            step: from 1, of the last step taken.
            qids: the query id of every list of the data.

        Raises:
            TrainingError: a loss or gradient was not finite; the weights are those before it.
        """
        rows = torch.stack(self._figures).tolist()
        lists = self._lists
        self._figures, self._lists = [], []
        first = step - len(rows) + 1
        for number, ((loss, _, norm), which) in enumerate(zip(rows, lists, strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                what = "loss" if not math.isfinite(loss) else "gradient"
                raise TrainingError(
                    f"epoch {epoch}, step {number}: the {what} is not finite (loss {loss}, "
                    f"gradient norm {norm}); the weights are those before this step; lists with "
                    f"query id {', '.join(str(qid) for qid in qids[which])}: lower optimizer.lr, "
                    "set clip=1, or look at these lists"
                )
        return [Taken(loss, int(counted), norm) for loss, counted, norm in rows]

    def _penalty(self) -> Tensor | float:
        """L1 and L2 penalty of the weight matrices (not of biases and norms)."""
        total: Tensor | float = 0.0
        if self.settings.l1:
            total = total + self.settings.l1 * sum(w.abs().sum() for w in self._weights)
        if self.settings.l2:
            total = total + self.settings.l2 / 2 * sum(w.square().sum() for w in self._weights)
        return total

    def _gradient_norm(self) -> Tensor:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self.settings.clip is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        return norm


def can_skip(optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``optimizer`` leaves the weights alone where its ``found_inf`` is set, on its device.

    PyTorch's fused optimisers do; its GradScaler tells them by the same attribute.
    """
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
