"""The loss or the metric under test, and the lists that try it."""

import copy
import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ltr.battery.verdict import Broken, DoesNotApply, expect_close, told, where
from ltr.typing import Loss

# scores, labels, mask
DEGENERATE: dict[str, tuple[list[float], list[int], list[int]]] = {
    "an empty list": ([0.3, -0.2, 0.9], [0, 0, 0], [1, 1, 1]),
    "a list of one grade": ([0.3, -0.2, 0.9], [2, 2, 2], [1, 1, 1]),
    "a list all tied": ([0.5, 0.5, 0.5], [0, 3, 1], [1, 1, 1]),
    "a list of one item": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 1, 0]),
    "an empty list of one item": ([0.3, -0.2, 0.9], [0, 0, 1], [0, 1, 0]),
    "a list of two items": ([0.3, -0.2, 0.9], [0, 3, 1], [1, 1, 0]),
    "a list of no items": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 0, 0]),
    "scores 1e4 apart": ([1e4, -1e4, 0.0], [0, 3, 1], [1, 1, 1]),
    "scores all at 1e4": ([1e4, 1e4, 1e4], [0, 3, 1], [1, 1, 1]),
    "scores all at -1e4": ([-1e4, -1e4, -1e4], [0, 3, 1], [1, 1, 1]),
    "saturated scores": ([1.0, 1.0, -1.0], [0, 3, 1], [1, 1, 1]),
    "scores 1e-12 apart": ([1e-12, 0.0, -1e-12], [0, 3, 1], [1, 1, 1]),
}


def ragged(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 6, 3 and 4 items with padding behind, in front and between; some labels equal.

    >>> [x.shape for x in ragged()], ragged()[2].sum(-1).tolist()
    ([torch.Size([3, 8]), torch.Size([3, 8]), torch.Size([3, 8])], [6, 3, 4])
    """
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor(
        [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]],
        dtype=torch.bool,
    )
    scores = torch.randn(3, 8, dtype=dtype, generator=generator)
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).expand(3, 8).clone()
    return scores, labels, mask


def padded(rows: list[list[tuple[float, int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of (score, label) as float64 tensors, one place of padding in front of every item.

    >>> scores, labels, mask = padded([[(0.5, 2), (0.25, 1)], [(4.0, 3)]])
    >>> scores[mask].tolist(), labels[mask].tolist(), mask.tolist()[1]
    ([0.5, 0.25, 4.0], [2.0, 1.0, 3.0], [False, True, False, False])
    """
    width = 2 * max(map(len, rows))
    scores = torch.full((len(rows), width), 7.0, dtype=torch.float64)
    labels = torch.full((len(rows), width), 2.0, dtype=torch.float64)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        for j, (score, label) in enumerate(row):
            scores[i, 2 * j + 1], labels[i, 2 * j + 1], mask[i, 2 * j + 1] = score, label, True
    return scores, labels, mask


class Measured(NamedTuple):
    """One value per list, ``[batch]``, and the gradient of their weighted sum, as the scores."""

    value: Tensor
    gradient: Tensor


class Subject:
    """A loss and its knobs.

    Attributes:
        loss: the function with knobs bound.
        metric: name of the metric that the loss, negated, goes to as it gets sharp, or None.
        grades: labels are from 0 to ``grades`` - 1.
    """

    def __init__(self, loss: Loss, *, metric: str | None = None, grades: int = 5) -> None:
        self.loss, self.metric, self.grades = loss, metric, grades

    @property
    def knobs(self) -> dict[str, Any]:
        """Every knob of the signature with its value."""
        parameters = list(inspect.signature(self.loss).parameters.values())[3:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    def with_knobs(self, **knobs: Any) -> Self:
        """The same loss with some knobs changed."""
        other = copy.copy(self)
        other.loss = partial(self.loss, **knobs)
        return other

    def at(self, k: int | None) -> Self:
        """The same loss at a cutoff; ``DoesNotApply`` if it has no ``k``."""
        if "k" not in self.knobs:
            raise DoesNotApply("it has no knob k")
        return self.with_knobs(k=k)

    def sharp(self) -> Self:
        """The same loss with its knobs of softness turned down; scores far apart meet ``sigma``."""
        turned = {"temperature": 1e-4, "cut_slope": 100.0, "beta": 1e-300}
        return self.with_knobs(**{knob: x for knob, x in turned.items() if knob in self.knobs})

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """Value and gradient, with torch's generator seeded by ``seed``.

        Raises:
            Broken: the loss crashed, or did not return one value per list.
        """
        scores = scores.detach().clone().requires_grad_()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            value = self.value(scores, labels, mask)
            if not value.requires_grad:
                raise Broken(f"the values have no graph, so backward fails{where(mask)}")
            weights = torch.arange(1, len(mask) + 1, dtype=value.dtype)
            try:
                (gradient,) = torch.autograd.grad((value * weights).sum(), scores)
            except Exception as error:
                raise Broken(f"backward crashed{where(mask)}: {told(error)}") from error
        return Measured(value.detach(), gradient)

    def expect(
        self,
        data: Sequence[Tensor],
        expected: Measured,
        when: str,
        *,
        tolerance: float = 0.0,
        first: int = 0,
    ) -> Measured:
        """Value and gradient of scores, labels and mask; ``Broken`` unless they are as expected."""
        found = self.measure(*data)
        for what in Measured._fields:
            numbers = getattr(found, what), getattr(expected, what)
            expect_close(*numbers, what, when, tolerance=tolerance, first=first)
        return found

    def value(self, scores: Tensor, labels: Tensor, mask: Tensor, **knobs: Any) -> Tensor:
        """The value of the loss with its graph; raises as ``measure`` does."""
        if (labels[mask] >= self.grades).any():  # else they keep their strides
            labels = labels.where(~mask, labels.clamp(max=self.grades - 1))
        try:
            value = self.loss(scores, labels, mask, **knobs)
        except Exception as error:
            raise Broken(f"crashed{where(mask)}: {told(error)}") from error
        if not isinstance(value, Tensor):
            raise Broken(
                f"returned {type(value).__name__}, not one value per list, a tensor [batch]"
            )
        if value.shape != mask.shape[:1]:
            raise Broken(
                f"returned shape {list(value.shape)}{where(mask)}, not one value per list, "
                f"{list(mask.shape[:1])}"
            )
        return value

    def draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Whether the loss draws from torch's generator, or gives another value at each call."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            before = torch.get_rng_state()
            first = self.value(scores, labels, mask)
            moved = not torch.equal(before, torch.get_rng_state())
            return moved or not torch.equal(first, self.value(scores, labels, mask))

    def steps(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Whether the loss draws and its values, for given draws, are step functions of the scores.

        Its gradient is then an estimate of that of the mean over draws.
        """
        if not self.draws(scores, labels, mask):
            return False
        values = [self.measure(scores + x * scores.sin(), labels, mask).value for x in (0, 1e-10)]
        return torch.equal(*values)

    def silenced(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Self, Tensor]:
        """Loss and labels whose value does not depend on the draws.

        Distinct labels help where the loss draws the order of equal ones; failing that, noise of
        scale ``beta`` is turned off, or the model that is drawn from is sharp. ``DoesNotApply`` if
        nothing helps.
        """
        if not self.draws(scores, labels, mask):
            return self, labels
        distinct = torch.arange(labels.shape[-1], dtype=labels.dtype).expand_as(labels)
        quiet = copy.copy(self)
        quiet.grades = max(self.grades, labels.shape[-1])
        attempts = [(quiet, distinct)]
        if "beta" in self.knobs:
            attempts.append((self.with_knobs(beta=1e-300), labels))
        if self.steps(scores, labels, mask):
            attempts.append((self.sharp(), labels))
        for subject, given in attempts:
            values = [subject.measure(scores, given, mask, seed=seed).value for seed in range(3)]
            if all(torch.allclose(value, values[0], rtol=0, atol=1e-12) for value in values):
                return subject, given
        raise DoesNotApply("its value depends on its draws, and no knob turns them off")
