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

_STEP = 1.0  # how far the scores are moved to measure the curvature, in units of the scores
_PAIRS = 240  # the limit on pairs in a batch, as a multiple of the limit on items
# The least curvature, in units of the gradient: no leaf takes a larger step than 1 / this.
_LEAST_CURVATURE = 1.0


class LossObjective:
    r"""The gradient and curvature of a loss for every item, as boosting libraries expect them.

    The objective L(s) is the sum over lists of weight times loss, and g(s) is its gradient by
    autograd. The curvature of item i is

    .. math:: h_i = \max(|g_i(s + v) - g_i(s)|, |g_i(s)|)

    where each v_j is 1 or -1, drawn at random in every round.

    A library gives a leaf the value -sum g / (sum h + regularisation).

    The difference g_i(s + v) - g_i(s) is (H v)_i, where H is the matrix of second derivatives
    averaged between s and s + v. The mean of |(H v)_i| over v is at least |H_ii|. Newton's method
    would use H_ii itself, which can be negative if the loss is not convex (NeuralNDCG). In
    contrast, h is never negative, and needs only first derivatives. A step of 1 is about as large
    as the steps that boosting takes. It also moves the scores away from ties, which trees often
    cause and where a loss can have kinks. The second term of the maximum is a lower limit: even
    without regularisation, no leaf takes a step larger than 1.

    Gradient and curvature are multiplied by ``unit``, which is 1 / (mean of h at the first call).
    So a library's limit on the curvature in a leaf becomes a limit on the number of items, whatever
    the unit of the loss. If the gradient of a loss is 0 where all scores are equal (SoftSort), the
    fit starts with the gradient at s + v.

    Attributes:
        value: mean over the counted lists of weight times loss, at the scores of the last call.
        lists: the number of counted lists.
        unit: the factor of gradient and curvature; 0 before the first call.
    """

    def __init__(
        self, loss: Loss, data: ItemTensors, *, empty: str = "keep", items: int = 32768,
        seed: int = 0,
    ) -> None:  # fmt: skip
        """Prepare the full lists of ``data``.

        Args:
            loss: the loss, with its knobs bound.
            data: the training lists.
            empty: ``"keep"`` counts lists without a relevant item, and ``"skip"`` leaves them out.
            items: the maximum number of items in a batch, padding included. The maximum number of
                pairs is 240 times this number. Pairs are limited because most losses keep several
                numbers for each pair. The value of a loss depends on ``items`` only if the loss
                draws random numbers.
            seed: the seed from which v is drawn.
        """
        self._loss = loss
        self._data = data
        self._batches = list(padded_batches(data, items=items, pairs=items * _PAIRS))
        self._counted = [
            counted_lists(batch.labels, batch.mask, empty=empty) for batch in self._batches
        ]
        self._weights = None if data.weights is None else torch.from_numpy(data.weights)
        self._random = np.random.default_rng(seed)
        self.lists = int(sum(counted.sum() for counted in self._counted))
        self.value = float("nan")
        self.unit = 0.0

    def __call__(self, scores: Reals, train: Any = None) -> tuple[Floats, Floats]:
        """Return the gradient and the curvature at ``scores``, each ``[items]``.

        Libraries pass their own form of the training data as ``train``; it is not used.

        Raises:
            ConfigError: the user's own loss did not return one value per list.
            TrainingError: the loss or its gradient is not finite.
        """
        device = self._data.device
        moved = scores + _STEP * self._random.choice([-1.0, 1.0], len(self._data.labels))
        # If the loss draws random numbers, both gradients use the same numbers.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            moved_gradient = self.gradient(moved)
        gradient = self.gradient(scores)
        if not gradient.any() and np.ptp(scores) == 0:
            gradient = moved_gradient
        change = np.abs(moved_gradient - gradient)
        curvature = np.maximum(change, _LEAST_CURVATURE * np.abs(gradient))
        if not self.unit and curvature.any():
            self.unit = 1 / float(curvature.mean())
        scaled_gradient = gradient * self.unit
        scaled_curvature = curvature * self.unit
        return scaled_gradient.astype(np.float32), scaled_curvature.astype(np.float32)

    def gradient(self, scores: Reals) -> Doubles:
        """Return the gradient, ``[items]``, of the weighted sum of the losses; set ``value``."""
        flat = torch.from_numpy(np.array(scores, np.float64)).to(self._data.device)
        gradient = torch.zeros_like(flat)
        total = 0.0
        teacher = self._data.teacher
        for batch, counted in zip(self._batches, self._counted, strict=True):
            padded = flat[batch.rows].masked_fill_(~batch.mask, 0.0).requires_grad_()
            knobs = {} if teacher is None else {"teacher": teacher[batch.rows]}
            losses = self._loss(padded, batch.labels, batch.mask, **knobs)
            check_values(losses, batch.mask, whose="the loss")
            losses = losses.masked_fill(~counted, 0.0)
            if self._weights is not None:
                losses = losses * self._weights[batch.lists].to(losses)
            (padded_gradient,) = torch.autograd.grad(losses.sum(), padded)
            is_finite = losses.isfinite() & padded_gradient.isfinite().all(-1)
            broken = ~is_finite.cpu().numpy()
            if broken.any():
                qids = ", ".join(self._data.qids[batch.lists[broken]])
                raise TrainingError(
                    f"the loss or its gradient is not finite on lists with the query ids {qids}: "
                    "lower model.learning_rate, or check these lists"
                )
            total += float(losses.detach().sum())
            gradient[batch.rows[batch.mask]] = padded_gradient[batch.mask]
        self.value = total / max(1, self.lists)
        return gradient.cpu().numpy()
