"""What the battery finds: a property holds, fails with what was seen, or does not apply."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ltr.battery.subject import Subject

Property = Callable[["Subject"], None]

HOLDS, FAILS, DOES_NOT_APPLY = "holds", "FAILS", "does not apply"


class Broken(Exception):
    """The property does not hold; the message says in one line what was seen."""


class DoesNotApply(Exception):
    """The property means nothing for this loss; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """What a property came to.

    Attributes:
        name: of the property.
        outcome: ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``.
        seen: what was seen or why it does not apply, one line; empty where it holds.
    """

    name: str
    outcome: str
    seen: str = ""


def title(prop: Property) -> str:
    """The name of a property in words.

    >>> def padding_is_never_read(loss): ...
    >>> title(padding_is_never_read)
    'padding is never read'
    """
    return prop.__name__.replace("_", " ")


def judge(prop: Property, loss: "Subject") -> Verdict:
    """Try one property on one loss."""
    try:
        prop(loss)
    except Broken as finding:
        return Verdict(title(prop), FAILS, str(finding))
    except DoesNotApply as reason:
        return Verdict(title(prop), DOES_NOT_APPLY, str(reason))
    return Verdict(title(prop), HOLDS)


def expect_close(
    found: Tensor, expected: Tensor, what: str, when: str, *, tolerance: float = 0.0
) -> None:
    """Raise ``Broken`` unless both agree; a NaN or an infinity agrees with nothing.

    Args:
        found: values or gradients, of any shape.
        expected: of the same shape.
        what: what they are, such as ``value``.
        when: what was changed between them.
        tolerance: largest difference, times the larger of 1 and the expected number.

    Raises:
        Broken: naming the list and both numbers.

    >>> expect_close(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0]), "value", "in a dream")
    Traceback (most recent call last):
    ltr.battery.findings.Broken: value of list 1 changed from 1 to 2 in a dream
    """
    allowed = tolerance * expected.abs().clamp(min=1)
    wrong = ~((found - expected).abs() <= allowed) & (found != expected)
    wrong |= found.isnan() | expected.isnan()
    if wrong.any():
        place = torch.nonzero(wrong)[0].tolist()
        one, two = expected[tuple(place)].item(), found[tuple(place)].item()
        item = f", item {place[1]}," if len(place) > 1 else ""
        raise Broken(
            f"{what} of list {place[0]}{item} changed from {one:.10g} to {two:.10g} {when}"
        )


def expect_finite(found: Tensor, what: str, when: str) -> None:
    """Raise ``Broken`` unless every number is finite."""
    if not found.isfinite().all():
        bad = found[~found.isfinite()].flatten()[0].item()
        raise Broken(f"{what} is {bad} {when}")
