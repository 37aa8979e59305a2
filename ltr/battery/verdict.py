"""The verdict on a property: it holds, fails, or does not apply, and what was seen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.typing import Mask

HOLDS, FAILS, DOES_NOT_APPLY = "holds", "FAILS", "does not apply"

Property = Callable[[Any], str | None]  # of a subject; returns what was seen, if that is worth it


class Broken(Exception):
    """The property does not hold; the message says in one line what was seen."""


class DoesNotApply(Exception):
    """The property means nothing for this subject; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a property, ``HOLDS``, ``FAILS`` or ``DOES_NOT_APPLY``, and what was seen."""

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


def judge(prop: Property, subject: Any) -> Verdict:
    """Try one property on one subject."""
    try:
        return Verdict(title(prop), HOLDS, prop(subject) or "")
    except (Broken, DoesNotApply) as seen:
        outcome = FAILS if isinstance(seen, Broken) else DOES_NOT_APPLY
        return Verdict(title(prop), outcome, str(seen))


def expect_close(
    found: Tensor,
    expected: Tensor,
    what: str,
    when: str,
    *,
    tolerance: float = 0.0,
    first: int = 0,
) -> None:
    """Raise ``Broken`` unless both agree, such as values (``what``) before and after (``when``).

    ``tolerance`` is the largest difference, times the larger of 1 and the expected number. A NaN
    agrees with nothing. ``first`` is the number of the first list among those of its batch.

    >>> expect_close(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0]), "value", "in a dream")
    Traceback (most recent call last):
    ltr.battery.verdict.Broken: value of list 1 changed from 1 to 2 in a dream
    """
    allowed = tolerance * expected.abs().clamp(min=1)
    wrong = ~((found - expected).abs() <= allowed) & (found != expected)
    wrong |= found.isnan() | expected.isnan()
    if wrong.any():
        place = torch.nonzero(wrong)[0].tolist()
        one, two = expected[tuple(place)].item(), found[tuple(place)].item()
        item = f", item {place[1]}," if len(place) > 1 else ""
        number = first + place[0]
        raise Broken(f"{what} of list {number}{item} changed from {one:.10g} to {two:.10g} {when}")


def expect_finite(found: Tensor, what: str, when: str) -> None:
    """Raise ``Broken`` unless every number is finite."""
    if not found.isfinite().all():
        bad = found[~found.isfinite()].flatten()[0].item()
        raise Broken(f"{what} is {bad} {when}")


def where(mask: Mask) -> str:
    """The lists of a call, to name them in a message."""
    return f" on {mask.shape[0]} lists of {mask.shape[1]} places"


def told(error: Exception) -> str:
    """Name and message of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'...' if len(text) > 160 else ''}"
