"""A loss or a metric under test, the lists that try it, and the verdict on a property of it.

A property is a function of a subject: it returns, perhaps with what was seen, or raises ``Broken``
or ``DoesNotApply`` with the reason in one line.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ltr.typing import Loss, Mask

HOLDS, FAILS, DOES_NOT_APPLY = "holds", "FAILS", "does not apply"

Property = Callable[[Any], str | None]


class Broken(Exception):
    """The property does not hold; the message says in one line what was seen."""


class DoesNotApply(Exception):
    """The property means nothing for this subject; the message says why."""


class Verdict(NamedTuple):
    """The outcome of a property, ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``, and what was seen."""

    name: str
    outcome: str
    seen: str


def judge(prop: Property, subject: Any) -> Verdict:
    """Try one property on one subject.

    >>> def padding_is_never_read(loss): raise Broken("it is read")
    >>> judge(padding_is_never_read, None)
    Verdict(name='padding is never read', outcome='FAILS', seen='it is read')
    """
    outcome = HOLDS
    try:
        seen = prop(subject) or ""
    except DoesNotApply as error:
        outcome, seen = DOES_NOT_APPLY, str(error)
    except Broken as error:
        outcome, seen = FAILS, str(error)
    except Exception as error:
        outcome, seen = FAILS, f"crashed: {one_line(error)}"
    return Verdict(prop.__name__.replace("_", " "), outcome, seen)


def properties_of(module: Mapping[str, Any]) -> tuple[Property, ...]:
    """The properties that a module defines: its public functions, in their order."""
    return tuple(
        value
        for name, value in module.items()
        if inspect.isfunction(value) and value.__module__ == module["__name__"] and name[0] != "_"
    )


def expect_close(
    found: Tensor, expected: Tensor, what: str, when: str, *, tolerance: float = 0.0
) -> None:
    """Raise ``Broken`` unless both agree, such as values (``what``) before and after (``when``).

    ``tolerance`` is the largest difference, times the larger of 1 and the expected number. A NaN
    agrees with nothing.

    >>> expect_close(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0]), "value", "in a dream")
    Traceback (most recent call last):
    ltr.checks.subject.Broken: value of list 1 changed from 1 to 2 in a dream
    """
    allowed = tolerance * expected.abs().clamp(min=1)
    wrong = ~((found - expected).abs() <= allowed) & (found != expected)
    wrong |= found.isnan() | expected.isnan()
    if wrong.any():
        place = tuple(torch.nonzero(wrong)[0].tolist())
        item = f", item {place[1]}," if len(place) > 1 else ""
        raise Broken(
            f"{what} of list {place[0]}{item} changed from {expected[place].item():.10g} to "
            f"{found[place].item():.10g} {when}"
        )


def expect_finite(found: Tensor, what: str, when: str) -> None:
    """Raise ``Broken`` unless every number is finite."""
    if not found.isfinite().all():
        raise Broken(f"{what} is {found[~found.isfinite()].flatten()[0].item()} {when}")


def expect_unchanged(call: Callable[..., object], **data: Tensor) -> None:
    """Raise ``Broken`` where a call changes what it is given."""
    before = {name: tensor.clone() for name, tensor in data.items()}
    with seeded():
        call(*data.values())
    for name, tensor in data.items():
        if not torch.equal(tensor, before[name]):
            raise Broken(f"the {name} were changed in place: work on a copy")


def expect_different(values: Mapping[int | None, Tensor]) -> None:
    """Raise ``Broken`` where the cutoffs None, 1 and 2 give the same values."""
    for k, other in ((1, None), (2, None), (1, 2)):
        if torch.allclose(values[k], values[other], rtol=1e-9, atol=1e-12):
            raise Broken(f"k={k} gave the same values as k={other}: k is ignored")


def one_line(error: Exception) -> str:
    """Name and message of an error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'...' if len(text) > 160 else ''}"


@contextmanager
def calling(mask: Mask) -> Iterator[None]:
    """A crash of what is under test is a finding that names the lists of the call."""
    try:
        yield
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"crashed{on_lists(mask)}: {one_line(error)}") from error


def on_lists(mask: Mask) -> str:
    """The lists of a call, to name them in a message."""
    return f" on {mask.shape[0]} lists of {mask.shape[1]} places"


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """What is drawn inside comes from torch's generator, seeded, which is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def ragged(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 6, 3 and 4 items with padding behind, in front and between; some labels equal.

    >>> [x.shape for x in ragged()], ragged()[2].sum(-1).tolist()
    ([torch.Size([3, 8]), torch.Size([3, 8]), torch.Size([3, 8])], [6, 3, 4])
    """
    mask = [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]]
    scores = torch.randn(3, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).repeat(3, 1)
    return scores, labels, torch.tensor(mask, dtype=torch.bool)


def padded(rows: list[list[tuple[float, int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of (score, label) as float64 tensors, one place of padding in front of every item.

    >>> scores, labels, mask = padded([[(0.5, 2), (0.25, 1)], [(4.0, 3)]])
    >>> scores[mask].tolist(), labels[mask].tolist(), mask.tolist()[1]
    ([0.5, 0.25, 4.0], [2.0, 1.0, 3.0], [False, True, False, False])
    """
    padding = torch.tensor([7.0, 2.0, 0.0], dtype=torch.float64)
    data = padding.repeat(len(rows), 2 * max(map(len, rows)), 1)
    for lists, row in zip(data, rows, strict=True):
        items = [(score, label, 1.0) for score, label in row]
        lists[1 : 2 * len(row) : 2] = torch.tensor(items, dtype=torch.float64)
    scores, labels, mask = data.unbind(-1)
    return scores, labels, mask.bool()


def in_score_order(
    rows: Sequence[Sequence[int]], gap: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Lists whose labels stand in the order of the scores, which lie ``gap`` apart."""
    return padded([[(-gap * rank, label) for rank, label in enumerate(row)] for row in rows])


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
        """The same with some knobs changed."""
        other = copy.copy(self)
        other.loss = partial(self.loss, **knobs)
        return other

    def needs(self, knob: str) -> None:
        """Raise ``DoesNotApply`` where there is no such knob."""
        if knob not in self.knobs:
            raise DoesNotApply(f"it has no knob {knob}")

    def at(self, k: int | None) -> Self:
        """The same at a cutoff; ``DoesNotApply`` if it has no ``k``."""
        self.needs("k")
        return self.with_knobs(k=k)

    def at_each(self, *cutoffs: int | None) -> dict[str, Self]:
        """The same at several cutoffs, by a text that names each; as it is without a ``k``."""
        return {f" at k={k}": self.at(k) for k in cutoffs} if "k" in self.knobs else {"": self}

    def sharp(self) -> Self:
        """The same loss with its knobs of softness turned down; scores far apart meet ``sigma``."""
        turned = {"temperature": 1e-4, "cut_slope": 100.0, "beta": 1e-300}
        return self.with_knobs(**{knob: x for knob, x in turned.items() if knob in self.knobs})

    def value(self, scores: Tensor, labels: Tensor, mask: Tensor, **knobs: Any) -> Tensor:
        """The values with their graph.

        Raises:
            Broken: the loss crashed, or did not return one value per list.
        """
        if (labels[mask] >= self.grades).any():  # else they keep their strides
            labels = labels.where(~mask, labels.clamp(max=self.grades - 1))
        with calling(mask):
            value = self.loss(scores, labels, mask, **knobs)
        if not isinstance(value, Tensor) or value.shape != mask.shape[:1]:
            got = (
                f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            )
            raise Broken(
                f"returned {got}{on_lists(mask)}, not one value per list, {list(mask.shape[:1])}"
            )
        return value

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """Value and gradient, with torch's generator seeded; raises as ``value`` does."""
        scores = scores.detach().clone().requires_grad_()
        with seeded(seed), calling(mask):
            value = self.value(scores, labels, mask)
            if not value.requires_grad:
                raise Broken(f"the values have no graph, so backward fails{on_lists(mask)}")
            weights = torch.arange(1, len(mask) + 1, dtype=value.dtype)
            (gradient,) = torch.autograd.grad((value * weights).sum(), scores)
        return Measured(value.detach(), gradient)

    def expect(
        self, data: Sequence[Tensor], expected: Measured, when: str, *, tolerance: float = 0.0
    ) -> None:
        """Raise ``Broken`` unless value and gradient of scores, labels and mask are as expected."""
        found = self.measure(*data)
        for what in Measured._fields:
            expect_close(
                getattr(found, what), getattr(expected, what), what, when, tolerance=tolerance
            )

    def draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Whether it draws from torch's generator, or gives another value at each call."""
        with seeded():
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

    def without_draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Self, Tensor]:
        """Loss and labels whose value does not depend on the draws.

        Distinct labels help where the loss draws the order of equal ones; failing that, noise of
        scale ``beta`` is turned off, or the model that is drawn from is sharp. ``DoesNotApply`` if
        nothing helps.
        """
        if not self.draws(scores, labels, mask):
            return self, labels
        distinct = copy.copy(self)
        distinct.grades = max(self.grades, labels.shape[-1])
        attempts = [(distinct, torch.arange(labels.shape[-1]).to(labels).expand_as(labels))]
        if "beta" in self.knobs:
            attempts.append((self.with_knobs(beta=1e-300), labels))
        if self.steps(scores, labels, mask):
            attempts.append((self.sharp(), labels))
        for subject, given in attempts:
            values = [subject.measure(scores, given, mask, seed=seed).value for seed in range(3)]
            if all(torch.allclose(value, values[0], rtol=0, atol=1e-12) for value in values):
                return subject, given
        raise DoesNotApply("its value depends on its draws, and no knob turns them off")
