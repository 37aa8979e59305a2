"""Any loss of ``ltr.losses`` as the objective of boosted trees."""

from typing import Any

import numpy as np
import torch

from ltr.arrays import Doubles, Floats, Reals
from ltr.data.batches import ItemTensors
from ltr.errors import TrainingError
from ltr.losses.batch import counted_lists
from ltr.metrics.per_list import check_values
from ltr.training.evaluation import padded_batches
from ltr.typing import Loss

_STEP = 1.0  # how far the scores move for the curvature, in units of the scores
_PAIRS = 240  # pairs in a batch at most, for each item it may have
_LEAST = 1.0  # curvature in units of the gradient: no leaf takes a step larger than 1 / this


class LossObjective:
    """Gradient and curvature of a loss for every item, as a boosting library takes them.

    The objective L(s) is the sum over lists of weight times loss. With g(s) its gradient by
    autograd, the curvature of item i is

        h_i = max(|g_i(s + v) - g_i(s)|, |g_i(s)|), v_j = +1 or -1 at random, anew every round,

    and a library gives a leaf the value -sum g / (sum h + its regularisation). The difference is
    H v, H the matrix of second derivatives on the way from s to s + v. Its mean over v is at least
    |H_ii|: a bound that is positive for losses that are not convex (NeuralNDCG), where Newton's
    H_ii would be negative, and needs first derivatives only. A step of 1 is as large as that of a
    boosted score, and leaves the kinks where items are tied, as trees tie many. The second part is
    a floor: no leaf takes a step larger than 1 before regularisation.

    Both are multiplied by ``unit``, 1 / mean of h at the first call, so that the libraries' limits
    on the curvature in a leaf count items, whatever the unit of the loss. A loss that is flat where
    all scores of every list are equal (SoftSort's) begins with its gradient at s + v.

    Attributes:
        value: mean over lists of the weighted loss at the scores of the last call.
        lists: how many lists count.
        unit: the factor on gradient and curvature; 0 before the first call.
    """

    def __init__(
        self, loss: Loss, data: ItemTensors, *, empty: str = "keep", items: int = 32768,
        seed: int = 0,
    ) -> None:  # fmt: skip
        """Prepare the lists of ``data``, whole, for ``loss``, its knobs bound; ``seed`` is of v.

        ``empty`` is ``keep`` or ``skip``, whether lists with no relevant item count. ``items``
        bounds the padded items of a batch, and 240 times as many its pairs, for each of which most
        losses keep several numbers; it changes values only of a loss that draws.
        """
        self._loss, self._data = loss, data
        self._batches = list(padded_batches(data, items=items, pairs=items * _PAIRS))
        self._counted = [counted_lists(b.labels, b.mask, empty=empty) for b in self._batches]
        self._weights = None if data.weights is None else torch.from_numpy(data.weights)
        self._random = np.random.default_rng(seed)
        self.lists = int(sum(counted.sum() for counted in self._counted))
        self.value, self.unit = float("nan"), 0.0

    def __call__(self, scores: Reals, train: Any = None) -> tuple[Floats, Floats]:
        """Gradient and curvature of every item, ``[items]`` each, at ``scores``.

        The libraries pass their own form of ``train``, which is not used.

        Raises:
            ConfigError: the loss, of one's own, returned other than one value per list.
            TrainingError: the loss or its gradient is not finite.
        """
        device, count = self._data.device, len(self._data.labels)
        moved = scores + _STEP * self._random.choice([-1.0, 1.0], count)
        # both gradients of a loss that draws are of one draw
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            there = self.gradient(moved)
        gradient = self.gradient(scores)
        if not gradient.any() and np.ptp(scores) == 0:
            gradient = there
        curvature = np.maximum(np.abs(there - gradient), _LEAST * np.abs(gradient))
        if not self.unit and curvature.any():
            self.unit = 1 / float(curvature.mean())
        parts = gradient * self.unit, curvature * self.unit
        return parts[0].astype(np.float32), parts[1].astype(np.float32)

    def gradient(self, scores: Reals) -> Doubles:
        """The gradient of the sum over lists of the loss, ``[items]``; sets ``value``."""
        flat = torch.from_numpy(np.array(scores, np.float64)).to(self._data.device)
        out, total, teacher = torch.zeros_like(flat), 0.0, self._data.teacher
        for batch, counted in zip(self._batches, self._counted, strict=True):
            given = flat[batch.rows].masked_fill_(~batch.mask, 0.0).requires_grad_()
            more = {} if teacher is None else {"teacher": teacher[batch.rows]}
            losses = self._loss(given, batch.labels, batch.mask, **more)
            check_values(losses, batch.mask, whose="the loss")
            losses = losses.masked_fill(~counted, 0.0)
            if self._weights is not None:
                losses = losses * self._weights[batch.lists].to(losses)
            (slope,) = torch.autograd.grad(losses.sum(), given)
            broken = ~(losses.isfinite() & slope.isfinite().all(-1)).cpu().numpy()
            if broken.any():
                qids = ", ".join(self._data.qids[batch.lists[broken]])
                raise TrainingError(
                    f"the loss or its gradient is not finite on lists with query id {qids}: lower "
                    "model.learning_rate, or look at these lists"
                )
            total += float(losses.detach().sum())
            out[batch.rows[batch.mask]] = slope[batch.mask]
        self.value = total / max(1, self.lists)
        return out.cpu().numpy()
