"""A loss or a metric under test, the lists that try it, and the verdict on a property of it.

A property is a function of a subject: it returns, perhaps with what was seen, or raises ``Broken``
or ``DoesNotApply`` with the reason in one line.
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
    """The property does not hold; the message says in one line what was seen."""


class DoesNotApply(Exception):
    """The property means nothing for this subject; the message says why."""


class Verdict(NamedTuple):
    """The outcome of a property, ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``, and what was seen."""

    name: str
    outcome: str
    seen: str


def judge(prop: Property, subject: Any) -> Verdict:
    """Try one property on one subject."""
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
    """The public functions of a module whose argument has one of these names, in their order."""
    functions = filter(inspect.isfunction, module.values())
    own = (x for x in functions if x.__module__ == module["__name__"] and x.__name__[0] != "_")
    return tuple(x for x in own if x.__code__.co_varnames[0] in arguments)


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


def expect_shape(found: object, shape: torch.Size, mask: Mask, what: str) -> None:
    """Raise ``Broken`` unless what was returned for ``mask`` is a tensor of this shape."""
    if not isinstance(found, Tensor) or found.shape != shape:
        got = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise Broken(f"returned {got}{_on_lists(mask)}, not one {what}, {list(shape)}")


def one_line(error: Exception) -> str:
    """Name and message of an error."""
    return f"{type(error).__name__}: {textwrap.shorten(str(error), 160, placeholder='...')}"


@contextmanager
def calling(mask: Mask) -> Iterator[None]:
    """A crash of what is under test is a finding that names the lists of the call."""
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
    """What is drawn inside comes from torch's generator, seeded, which is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def ragged(dtype: torch.dtype = torch.float64) -> Data:
    """Lists of 6, 3 and 4 items with padding behind, in front and between; some labels equal."""
    mask = [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]]
    scores = torch.randn(3, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).repeat(3, 1)
    return scores, labels, torch.tensor(mask, dtype=torch.bool)


def padded(rows: Sequence[Sequence[tuple[float, int]]]) -> Data:
    """Lists of (score, label) as float64 tensors, one place of padding in front of every item.

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
    """Lists whose labels stand in the order of the scores, which lie ``gap`` apart."""
    return padded([[(-gap * rank, label) for rank, label in enumerate(row)] for row in rows])


class Measured(NamedTuple):
    """One value per list, ``[batch]``, and the gradient of their weighted sum, as the scores."""

    value: Tensor
    gradient: Tensor


class Part:
    """What is under test, as the properties of losses, metrics and models alike see it."""

    names: tuple[str, ...] = ("scores", "labels")  # of its tensors; then the mask
    close = 1e-12  # how near the same sums of other shapes come
    mode = ""  # in words, where it is not as usual
    call: Callable[..., Tensor]
    measure: Callable[..., Any]  # a NamedTuple of tensors, per list or per item

    def lists(self) -> Sequence[Tensor]:
        """Its tensors of ragged lists, the mask last."""
        return ragged()

    def modes(self) -> Sequence[Self]:
        """The same in each way in which it is called; the last one trains."""
        return [self]

    def without_draws(self) -> tuple[Self, Sequence[Tensor]]:
        """The same and lists where nothing depends on draws; ``DoesNotApply`` if there are none."""
        return self, self.lists()

    def expect(
        self, data: Sequence[Tensor], expected: Any, when: str, *, tolerance: float = 0.0
    ) -> None:
        """Raise ``Broken`` unless what is measured is as expected."""
        for what, new, old in zip(expected._fields, self.measure(*data), expected, strict=True):
            expect_close(new, old, what, f"{when}{self.mode}", tolerance=tolerance)


@dataclass(frozen=True)
class Subject(Part):
    """A loss or a metric."""

    function: Loss  # with its knobs bound
    metric: str | None = None  # name of that which a loss, negated, goes to as it gets sharp
    grades: int = 5  # labels are from 0 to ``grades`` - 1
    bounds: tuple[float, float] | None = None  # of a metric, which has no gradient

    @classmethod
    def of_metric(
        cls, metric: Metric, *, grades: int = 5, least: float = 0.0, most: float = 1.0
    ) -> Self:
        """A metric as the project calls it: with every key of the convention that it takes."""
        convention = Convention(levels=grades)
        knobs = {name: getattr(convention, name) for name in metric.parts}
        if metric.k is not None:
            knobs["k"] = metric.k
        return cls(partial(metric.function, **knobs), grades=grades, bounds=(least, most))

    @property
    def knobs(self) -> dict[str, Any]:
        """Every knob of the signature with its value."""
        parameters = list(inspect.signature(self.function).parameters.values())[3:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    def with_knobs(self, **knobs: Any) -> Self:
        """The same with some knobs changed; ``DoesNotApply`` where there is no such knob."""
        for knob in knobs.keys() - self.knobs.keys():
            raise DoesNotApply(f"it has no knob {knob}")
        return replace(self, function=partial(self.function, **knobs))

    def at_each(self, *cutoffs: int | None) -> dict[str, Self]:
        """The same at several cutoffs, by a text that names each; as it is without a ``k``."""
        has_k = "k" in self.knobs
        return {f" at k={k}": self.with_knobs(k=k) for k in cutoffs} if has_k else {"": self}

    def sharp(self) -> Self:
        """The same loss with its knobs of softness turned down; scores far apart meet ``sigma``."""
        turned = {"temperature": 1e-4, "cut_slope": 100.0, "beta": 1e-300}
        return self.with_knobs(**{knob: x for knob, x in turned.items() if knob in self.knobs})

    def call(self, scores: Tensor, labels: Tensor, mask: Tensor, **knobs: Any) -> Tensor:
        """The values with their graph; ``Broken`` unless there is one per list."""
        if (labels[mask] >= self.grades).any():  # else they keep their strides
            labels = labels.where(~mask, labels.clamp(max=self.grades - 1))
        with calling(mask):
            value = self.function(scores, labels, mask, **knobs)
        expect_shape(value, mask.shape[:1], mask, "value per list")
        return value

    def measure(self, scores: Tensor, labels: Tensor, mask: Tensor, *, seed: int = 0) -> Measured:
        """Value and gradient, of a metric 0, with torch's generator seeded; raises as ``value``."""
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
        """The values alone, detached."""
        return self.measure(scores, labels, mask).value

    def draws(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Whether it draws from torch's generator, or gives another value at each call."""
        with seeded():
            before = torch.get_rng_state()
            first = self.call(scores, labels, mask)
            moved = not torch.equal(before, torch.get_rng_state())
            return moved or not torch.equal(first, self.call(scores, labels, mask))

    def steps(self, scores: Tensor, labels: Tensor, mask: Tensor) -> bool:
        """Whether the loss draws and its values, for given draws, are step functions of the scores.

        Its gradient is then an estimate of that of the mean over draws.
        """
        if not self.draws(scores, labels, mask):
            return False
        moved = scores + 1e-10 * scores.sin()
        return torch.equal(*(self.values(given, labels, mask) for given in (scores, moved)))

    def without_draws(self) -> tuple[Self, Data]:
        """Loss and lists whose value does not depend on the draws; ``DoesNotApply`` without them.

        Distinct labels help where the loss draws the order of equal ones; noise of scale ``beta``
        is turned off, and a model that is drawn from is sharp.
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
