"""The component whose properties are tested, the lists for the tests, and their verdicts.

A property is a function of the component under test. It returns None or a string with details, or
raises ``Violation`` or ``DoesNotApply`` with the reason in one line.
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

HOLDS = "holds"
FAILS = "FAILS"
DOES_NOT_APPLY = "does not apply"

Property = Callable[[Any], str | None]
Data = tuple[Tensor, Tensor, Tensor]  # scores, labels, mask


class Violation(Exception):
    """The property does not hold; the message says in one line what was observed."""


class DoesNotApply(Exception):
    """The property has no meaning for this subject; the message says why."""


class Verdict(NamedTuple):
    """The outcome of a property: ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``, and details."""

    name: str
    outcome: str
    seen: str


def judge(prop: Property, subject: Any) -> Verdict:
    """Test one property of one subject; a crash counts as ``FAILS``."""
    name = prop.__name__.replace("_", " ")
    try:
        return Verdict(name, HOLDS, prop(subject) or "")
    except DoesNotApply as error:
        return Verdict(name, DOES_NOT_APPLY, str(error))
    except Violation as error:
        return Verdict(name, FAILS, str(error))
    except Exception as error:
        return Verdict(name, FAILS, f"crashed: {describe_error(error)}")


def properties_of(module: Mapping[str, Any], *arguments: str) -> tuple[Property, ...]:
    """Return a module's public functions whose first argument is in ``arguments``, in order."""
    functions = [
        function
        for function in module.values()
        if inspect.isfunction(function)
        and function.__module__ == module["__name__"]
        and not function.__name__.startswith("_")
    ]
    return tuple(
        function for function in functions if function.__code__.co_varnames[0] in arguments
    )


def expect_close(
    actual: Tensor, expected: Tensor, name: str, when: str, *, tolerance: float = 0.0
) -> None:
    """Raise ``Violation`` unless ``actual`` equals ``expected``; a NaN equals nothing.

    Args:
        actual: the numbers found, ``[batch]`` or ``[batch, list]``.
        expected: the numbers expected.
        name: name of the numbers, for the message, such as ``value``.
        when: what was changed between the two, for the message.
        tolerance: the largest difference that is allowed. If the size of the expected number is
            above 1, it is multiplied by this size.

    >>> expect_close(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0]), "value", "on a GPU")
    Traceback (most recent call last):
    ltr.testing.subject.Violation: value of list 1 changed from 1 to 2 on a GPU
    """
    allowed = tolerance * expected.abs().clamp(min=1)
    differs = ~((actual - expected).abs() <= allowed) & (actual != expected)
    differs |= actual.isnan() | expected.isnan()
    if differs.any():
        index = tuple(torch.nonzero(differs)[0].tolist())
        item = f", item {index[1]}," if len(index) > 1 else ""
        raise Violation(
            f"{name} of list {index[0]}{item} changed from {expected[index].item():.10g} to "
            f"{actual[index].item():.10g} {when}"
        )


def expect_finite(numbers: Tensor, name: str, when: str) -> None:
    """Raise ``Violation``, with ``name`` and ``when`` in its message, if a number is not finite."""
    if not numbers.isfinite().all():
        first = numbers[~numbers.isfinite()].flatten()[0].item()
        raise Violation(f"{name} is {first} {when}")


def expect_shape(result: object, shape: torch.Size, mask: Mask, content: str) -> None:
    """Raise ``Violation`` unless ``result`` is a tensor with this shape.

    ``mask``, the mask of the lists, and ``content``, what the tensor should hold, are used in the
    message.
    """
    if isinstance(result, Tensor) and result.shape == shape:
        return
    got = f"shape {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
    raise Violation(f"returned {got}{_on_lists(mask)}, expected one {content}, {list(shape)}")


def describe_error(error: Exception) -> str:
    """Return the type and the message of an error, shortened."""
    return f"{type(error).__name__}: {textwrap.shorten(str(error), 160, placeholder='...')}"


@contextmanager
def calling(mask: Mask) -> Iterator[None]:
    """Context in which any error becomes a ``Violation`` that names the size of the lists."""
    try:
        yield
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"crashed{_on_lists(mask)}: {describe_error(error)}") from error


def _on_lists(mask: Mask) -> str:
    return f" on {mask.shape[0]} lists padded to {mask.shape[1]} items"


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Context in which torch's generator has this seed; its state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def ragged(dtype: torch.dtype = torch.float64) -> Data:
    """Return lists of 6, 3 and 4 items, some with equal labels, with padding in various places."""
    mask = [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]]
    scores = torch.randn(3, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).repeat(3, 1)
    return scores, labels, torch.tensor(mask, dtype=torch.bool)


def padded(rows: Sequence[Sequence[tuple[float, int]]]) -> Data:
    """Convert lists of (score, label) to float64 tensors, with padding before every item.

    >>> scores, labels, mask = padded([[(0.5, 2), (0.25, 1)], [(4.0, 3)]])
    >>> scores[mask].tolist(), labels[mask].tolist(), mask.tolist()[1]
    ([0.5, 0.25, 4.0], [2.0, 1.0, 3.0], [False, True, False, False])
    """
    list_size = 2 * max(map(len, rows))
    padding = (7.0, 2.0, 0.0)  # score, label and mask
    lists = []
    for row in rows:
        entries = [entry for item in row for entry in (padding, (*item, 1.0))]
        lists.append(entries + [padding] * (list_size - len(entries)))
    scores, labels, mask = torch.tensor(lists, dtype=torch.float64).unbind(-1)
    return scores, labels, mask.bool()


def in_score_order(rows: Sequence[Sequence[int]], gap: float = 1.0) -> Data:
    """Return lists with these labels in descending order of score; scores are ``gap`` apart."""
    return padded([[(-gap * rank, label) for rank, label in enumerate(row)] for row in rows])


class Measured(NamedTuple):
    """One value per list, and the gradient of their weighted sum with respect to the scores."""

    value: Tensor  # [batch]
    gradient: Tensor  # [batch, list]


class Component:
    """The component under test: what losses, metrics and models have in common."""

    names: tuple[str, ...] = ("scores", "labels")  # names of its inputs, before the mask
    close = 1e-12  # tolerance for sums over tensors of different shapes
    mode = ""  # the mode in words, if it is not the usual one
    call: Callable[..., Tensor]  # returns the values or scores with their graph
    measure: Callable[..., Any]  # returns a NamedTuple of tensors, per list or per item

    def lists(self) -> Sequence[Tensor]:
        """Return lists of different sizes as input tensors, with the mask last."""
        return ragged()

    def modes(self) -> Sequence[Self]:
        """Return the component in each mode in which it is called; the last is training mode."""
        return [self]

    def without_draws(self) -> tuple[Self, Sequence[Tensor]]:
        """Return a component, and lists on which its results are not random.

        Raises:
            DoesNotApply: the results are always random.
        """
        return self, self.lists()

    def expect(
        self, data: Sequence[Tensor], expected: Any, when: str, *, tolerance: float = 0.0
    ) -> None:
        """Raise ``Violation`` unless ``measure`` gives ``expected``; see ``expect_close``."""
        when = f"{when}{self.mode}"
        names = expected._fields
        for name, new, old in zip(names, self.measure(*data), expected, strict=True):
            expect_close(new, old, name, when, tolerance=tolerance)


@dataclass(frozen=True)
class Subject(Component):
    """A loss or a metric under test."""

    function: Loss  # the loss or metric, with its knobs bound
    metric: str | None = None  # for a loss: the metric whose negative it approaches when sharp
    grades: int = 5  # labels are from 0 to ``grades`` - 1
    bounds: tuple[float, float] | None = None  # of a metric, which has no gradient; None: a loss

    @classmethod
    def of_metric(
        cls, metric: Metric, *, grades: int = 5, lower: float = 0.0, upper: float = 1.0
    ) -> Self:
        """Return the subject for a metric with values in [lower, upper].

        The metric has the default convention.
        """
        convention = Convention(levels=grades)
        knobs = {name: getattr(convention, name) for name in metric.parts}
        if metric.k is not None:
            knobs["k"] = metric.k
        return cls(partial(metric.function, **knobs), grades=grades, bounds=(lower, upper))

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs in the function's signature with their values."""
        parameters = list(inspect.signature(self.function).parameters.values())[3:]
        return {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.kind is not parameter.VAR_KEYWORD
        }

    def with_knobs(self, **knobs: Any) -> Self:
        """Return the subject with changed knobs; raise ``DoesNotApply`` if it lacks one of them."""
        for knob in knobs.keys() - self.knobs.keys():
            raise DoesNotApply(f"it has no knob named {knob}")
        return replace(self, function=partial(self.function, **knobs))

    def at_each(self, *cutoffs: int | None) -> dict[str, Self]:
        """Return the subject with each cutoff; the keys, such as `` at k=5``, are for messages.

        If the subject has no knob ``k``, the result is ``{"": self}``.
        """
        if "k" not in self.knobs:
            return {"": self}
        return {f" at k={k}": self.with_knobs(k=k) for k in cutoffs}

    def sharp(self) -> Self:
        """Return the loss in its sharp limit, for scores far apart; ``sigma`` is unchanged."""
        sharp_knobs = {"temperature": 1e-12, "cut_slope": 100.0, "beta": 1e-300}
        knobs = {knob: value for knob, value in sharp_knobs.items() if knob in self.knobs}
        return self.with_knobs(**knobs)

    def call(self, scores: Tensor, labels: Tensor, mask: Tensor, **knobs: Any) -> Tensor:
        """Return the values, ``[batch]``, with their graph. Labels are clamped to ``grades`` - 1.

        Raises:
            Violation: the function crashes, or does not return one value per list.
        """
        if (labels[mask] >= self.grades).any():  # otherwise keep the strides of the labels
            labels = labels.where(~mask, labels.clamp(max=self.grades - 1))
        with calling(mask):
            value = self.function(scores, labels, mask, **knobs)
        expect_shape(value, mask.shape[:1], mask, "value per list")
        return value

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """Return the values and the gradient (0 for a metric); torch's generator gets ``seed``.

        Raises:
            Violation: the function crashes, returns another shape, or has no graph for backward.
        """
        scores = scores.detach().clone().requires_grad_(self.bounds is None)
        with seeded(seed), calling(mask):
            value = self.call(scores, labels, mask)
            if self.bounds is not None:
                value = value.detach() if value.is_floating_point() else value.to(scores.dtype)
                return Measured(value, torch.zeros_like(scores))
            if not value.requires_grad:
                raise Violation(f"the values have no graph, so backward fails{_on_lists(mask)}")
            weights = torch.arange(1, len(mask) + 1, dtype=value.dtype)
            (gradient,) = torch.autograd.grad((value * weights).sum(), scores)
        return Measured(value.detach(), gradient)

    def values(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return only the values, detached."""
        return self.measure(scores, labels, mask).value

    def draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Return whether a call draws from torch's generator, or gives another result next time."""
        with seeded():
            state = torch.get_rng_state()
            first = self.call(scores, labels, mask)
            if not torch.equal(state, torch.get_rng_state()):
                return True
            return not torch.equal(first, self.call(scores, labels, mask))

    def steps(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Return whether the values depend on random draws, and are step functions of the scores.

        The second condition is tested with fixed draws. The gradient of such a loss is an estimate
        of the gradient of the mean over draws.
        """
        if not self.draws(scores, labels, mask):
            return False
        moved_scores = scores + 1e-10 * scores.sin()
        values = self.values(scores, labels, mask)
        return torch.equal(values, self.values(moved_scores, labels, mask))

    def without_draws(self) -> tuple[Self, Data]:
        """Return a loss, and lists on which its values are not random.

        If the loss draws random numbers, the labels become distinct, because it may draw the order
        of equal labels. The loss becomes ``sharp``, which turns off noise of scale ``beta`` and
        concentrates a distribution over rankings on one ranking.

        Raises:
            DoesNotApply: the values are still random.
        """
        scores, labels, mask = ragged()
        if not self.draws(scores, labels, mask):
            return self, (scores, labels, mask)
        list_size = labels.shape[-1]
        distinct = torch.arange(list_size).to(labels).expand_as(labels)
        subject = replace(self.sharp(), grades=max(self.grades, list_size))
        values = [subject.measure(scores, distinct, mask, seed=seed).value for seed in range(3)]
        if not all(torch.allclose(value, values[0], rtol=0, atol=1e-12) for value in values):
            raise DoesNotApply("its value depends on random draws, and no knob turns them off")
        return subject, (scores, distinct, mask)
