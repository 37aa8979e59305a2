"""One battery over every loss: properties that a loss must have, each a function that tries it.

A property takes a ``Subject`` and returns, or raises ``Broken`` with what was seen, or
``DoesNotApply`` with why. ``PROPERTIES`` are all of them; ``judge`` tries one;
``scripts/check_loss.py`` prints the verdicts on any loss.
"""

from ltr.battery.findings import (
    DOES_NOT_APPLY,
    FAILS,
    HOLDS,
    Broken,
    DoesNotApply,
    Verdict,
    judge,
    title,
)
from ltr.battery.goes_to import GOES_TO
from ltr.battery.properties import PROPERTIES
from ltr.battery.subject import Subject

__all__ = [
    "DOES_NOT_APPLY",
    "FAILS",
    "GOES_TO",
    "HOLDS",
    "PROPERTIES",
    "Broken",
    "DoesNotApply",
    "Subject",
    "Verdict",
    "judge",
    "title",
]
