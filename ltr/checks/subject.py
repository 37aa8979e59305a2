"""Try properties on a loss or a metric: the part under test, lists to try it on, and verdicts.

A property is a function of the part under test. It returns None or a text with details, or raises
``Broken`` or ``DoesNotApply`` with the reason in one line.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ltr.metrics import Convention, Metric
from ltr.typing import Loss, Mask

HOLDS, FAILS, DOES_NOT_APPLY = "holds", "FAILS", "does not apply"

Property = Callable[[Any], str | None]
Data = tuple[Tensor, Tensor, Tensor]  # scores, labels, mask


class Broken(Exception):
    """The property does not hold; the message says in one line what was observed."""


class DoesNotApply(Exception):
    """The property has no meaning for this subject; the message says why."""


class Verdict(NamedTuple):
    """The outcome of a property: ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``, and details."""

    name: str
    outcome: str
    seen: str


def judge(prop: Property, subject: Any) -> Verdict:
    """Try one property on one subject; a crash counts as ``FAILS``."""
    try:
        outcome, seen = HOLDS, prop(subject) or ""
    except DoesNotApply as error:
        outcome, seen = DOES_NOT_APPLY, str(error)
    except Broken as error:
        outcome, seen = FAILS, str(error)
    except Exception as error:
        outcome, seen = FAILS, f"crashed: {one_line(error)}"
    return Verdict(prop.__name__.replace("_", " "), outcome, seen)


def properties_of(module: Mapping[str, Any], *arguments: str) -> tuple[Property, ...]:
    """Return a module's public functions whose first argument has one of these names, in order."""
    functions = filter(inspect.isfunction, module.values())
    own = (x for x in functions if x.__module__ == module["__name__"] and x.__name__[0] != "_")
    return tuple(x for x in own if x.__code__.co_varnames[0] in arguments)


def expect_close(
    found: Tensor, expected: Tensor, what: str, when: str, *, tolerance: float = 0.0
) -> None:
    """Raise ``Broken`` unless two tensors of lists agree; NaN never agrees.

    Args:
        found: the numbers found.
        expected: the numbers expected.
        what: name of the numbers, for the message, such as ``value``.
        when: what was changed in between, for the message.
        tolerance: largest difference allowed, times the larger of 1 and the expected number.

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
    """Raise ``Broken`` unless every number is finite; ``what`` and ``when`` are for the message."""
    if not found.isfinite().all():
        raise Broken(f"{what} is {found[~found.isfinite()].flatten()[0].item()} {when}")


def expect_shape(found: object, shape: torch.Size, mask: Mask, what: str) -> None:
    """Raise ``Broken`` unless ``found``, the result for ``mask``, is a tensor with this shape."""
    if not isinstance(found, Tensor) or found.shape != shape:
        got = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise Broken(f"returned {got}{_on_lists(mask)}, not one {what}, {list(shape)}")


def one_line(error: Exception) -> str:
    """Return type and message of an error, shortened."""
    return f"{type(error).__name__}: {textwrap.shorten(str(error), 160, placeholder='...')}"


@contextmanager
def calling(mask: Mask) -> Iterator[None]:
    """Turn any error in the body into ``Broken``, with the size of the lists in ``mask``."""
    try:
        yield
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"crashed{_on_lists(mask)}: {one_line(error)}") from error


def _on_lists(mask: Mask) -> str:
    return f" on {mask.shape[0]} lists of {mask.shape[1]} places"


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Seed torch's generator for the body, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def ragged(dtype: torch.dtype = torch.float64) -> Data:
    """Return lists of 6, 3 and 4 items, with equal labels, and padding in different places."""
    mask = [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]]
    scores = torch.randn(3, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).repeat(3, 1)
    return scores, labels, torch.tensor(mask, dtype=torch.bool)


def padded(rows: Sequence[Sequence[tuple[float, int]]]) -> Data:
    """Turn lists of (score, label) into float64 tensors, with padding before every item.

    >>> scores, labels, mask = padded([[(0.5, 2), (0.25, 1)], [(4.0, 3)]])
    >>> scores[mask].tolist(), labels[mask].tolist(), mask.tolist()[1]
    ([0.5, 0.25, 4.0], [2.0, 1.0, 3.0], [False, True, False, False])
    """
    places, padding = 2 * max(map(len, rows)), (7.0, 2.0, 0.0)
    lists = [[x for item in row for x in (padding, (*item, 1.0))] for row in rows]
    lists = [row + [padding] * (places - len(row)) for row in lists]
    scores, labels, mask = torch.tensor(lists, dtype=torch.float64).unbind(-1)
    return scores, labels, mask.bool()


def in_score_order(rows: Sequence[Sequence[int]], gap: float = 1.0) -> Data:
    """Return lists with these labels in descending order of score; scores are ``gap`` apart."""
    return padded([[(-gap * rank, label) for rank, label in enumerate(row)] for row in rows])


class Measured(NamedTuple):
    """One value per list, and the gradient of their weighted sum with respect to the scores."""

    value: Tensor  # [batch]
    gradient: Tensor  # [batch, list]


class Part:
    """The part under test: the interface that losses, metrics and models have in common."""

    names: tuple[str, ...] = ("scores", "labels")  # names of its inputs, before the mask
    close = 1e-12  # tolerance for sums over tensors of different shapes
    mode = ""  # the mode in words, if it is not the usual one
    call: Callable[..., Tensor]  # returns the values or scores with their graph
    measure: Callable[..., Any]  # returns a NamedTuple of tensors, per list or per item

    def lists(self) -> Sequence[Tensor]:
        """Return lists of different sizes as input tensors, with the mask last."""
        return ragged()

    def modes(self) -> Sequence[Self]:
        """Return the part in each mode in which it is called; the last is training mode."""
        return [self]

    def without_draws(self) -> tuple[Self, Sequence[Tensor]]:
        """Return part and lists whose results are not random, or raise ``DoesNotApply``."""
        return self, self.lists()

    def expect(
        self, data: Sequence[Tensor], expected: Any, when: str, *, tolerance: float = 0.0
    ) -> None:
        """Raise ``Broken`` unless ``measure`` gives what is ``expected``; see ``expect_close``."""
        for what, new, old in zip(expected._fields, self.measure(*data), expected, strict=True):
            expect_close(new, old, what, f"{when}{self.mode}", tolerance=tolerance)


@dataclass(frozen=True)
class Subject(Part):
    """A loss or a metric under test."""

    function: Loss  # the loss or metric, with its knobs bound
    metric: str | None = None  # for a loss: the metric whose negative it approaches when sharp
    grades: int = 5  # labels are from 0 to ``grades`` - 1
    bounds: tuple[float, float] | None = None  # for a metric (no gradient): least and largest value

    @classmethod
    def of_metric(
        cls, metric: Metric, *, grades: int = 5, least: float = 0.0, most: float = 1.0
    ) -> Self:
        """Return a metric as subject, with values in [least, most] and the default convention."""
        convention = Convention(levels=grades)
        knobs = {name: getattr(convention, name) for name in metric.parts}
        if metric.k is not None:
            knobs["k"] = metric.k
        return cls(partial(metric.function, **knobs), grades=grades, bounds=(least, most))

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs in the function's signature with their values."""
        parameters = list(inspect.signature(self.function).parameters.values())[3:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    def with_knobs(self, **knobs: Any) -> Self:
        """Return the subject with changed knobs; raise ``DoesNotApply`` if it lacks one of them."""
        for knob in knobs.keys() - self.knobs.keys():
            raise DoesNotApply(f"it has no knob {knob}")
        return replace(self, function=partial(self.function, **knobs))

    def at_each(self, *cutoffs: int | None) -> dict[str, Self]:
        """Return text -> subject for each of several cutoffs; only itself if it has no ``k``."""
        has_k = "k" in self.knobs
        return {f" at k={k}": self.with_knobs(k=k) for k in cutoffs} if has_k else {"": self}

    def sharp(self) -> Self:
        """Return a nearly sharp loss, for scores that are far apart: ``sigma`` is not changed."""
        turned = {"temperature": 1e-12, "cut_slope": 100.0, "beta": 1e-300}
        return self.with_knobs(**{knob: x for knob, x in turned.items() if knob in self.knobs})

    def call(self, scores: Tensor, labels: Tensor, mask: Tensor, **knobs: Any) -> Tensor:
        """Return the values, ``[batch]``, with their graph. Labels are clamped to ``grades`` - 1.

        Raises:
            Broken: the function crashes, or does not return one value per list.
        """
        if (labels[mask] >= self.grades).any():  # otherwise keep the strides of the labels
            labels = labels.where(~mask, labels.clamp(max=self.grades - 1))
        with calling(mask):
            value = self.function(scores, labels, mask, **knobs)
        expect_shape(value, mask.shape[:1], mask, "value per list")
        return value

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """Return values and gradient (0 for a metric), with a seed for torch's generator.

        Raises:
            Broken: the function crashes, returns another shape, or has no graph for backward.
        """
        scores = scores.detach().clone().requires_grad_(self.bounds is None)
        with seeded(seed), calling(mask):
            value = self.call(scores, labels, mask)
            if self.bounds is not None:
                value = value.detach() if value.is_floating_point() else value.to(scores.dtype)
                return Measured(value, torch.zeros_like(scores))
            if not value.requires_grad:
                raise Broken(f"the values have no graph, so backward fails{_on_lists(mask)}")
            weights = torch.arange(1, len(mask) + 1, dtype=value.dtype)
            (gradient,) = torch.autograd.grad((value * weights).sum(), scores)
        return Measured(value.detach(), gradient)

    def values(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return only the values, detached."""
        return self.measure(scores, labels, mask).value

    def draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Return whether it draws from torch's generator, or repeated calls differ."""
        with seeded():
            before = torch.get_rng_state()
            first = self.call(scores, labels, mask)
            moved = not torch.equal(before, torch.get_rng_state())
            return moved or not torch.equal(first, self.call(scores, labels, mask))

    def steps(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Return whether the values depend on random draws and, given these, are step functions.

        The gradient is then an estimate of the gradient of the mean over draws.
        """
        if not self.draws(scores, labels, mask):
            return False
        moved = scores + 1e-10 * scores.sin()
        return torch.equal(*(self.values(given, labels, mask) for given in (scores, moved)))

    def without_draws(self) -> tuple[Self, Data]:
        """Return loss and lists whose value is not random, or raise ``DoesNotApply``.

        If the loss draws, the labels become distinct (it may draw the order of equal labels), and
        the loss becomes ``sharp`` (noise of scale ``beta`` is off, and a distribution over rankings
        is concentrated on one).
        """
        scores, labels, mask = ragged()
        if not self.draws(scores, labels, mask):
            return self, (scores, labels, mask)
        places = labels.shape[-1]
        distinct = torch.arange(places).to(labels).expand_as(labels)
        subject = replace(self.sharp(), grades=max(self.grades, places))
        values = [subject.measure(scores, distinct, mask, seed=seed).value for seed in range(3)]
        if not all(torch.allclose(value, values[0], rtol=0, atol=1e-12) for value in values):
            raise DoesNotApply("its value depends on its draws, and no knob turns them off")
        return subject, (scores, distinct, mask)
