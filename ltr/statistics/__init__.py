"""Which of two systems ranks better, and how sure that is: tests, intervals, verdicts.

A system is a method as it is trained: its runs differ in the seed alone. Systems are compared in
one metric, ``[seeds, queries]``, on the same queries (``SystemValues``).
``compare_systems`` gives a ``Comparison`` of each pair, with the word "better", "worse", "differ"
(these models do, with one seed), "equivalent" or "undecided"; ``compare_seeds`` the same for the
runs of one system among themselves; ``interval_of`` and ``covers`` set one system against a
published number.
"""

from ltr.statistics.compare import compare_seeds, compare_systems
from ltr.statistics.intervals import Coverage, SystemInterval, covers, interval_of
from ltr.statistics.values import SystemValues, align
from ltr.statistics.verdict import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    UNDECIDED,
    WORDS,
    WORSE,
    Comparison,
    rule,
)

__all__ = [
    "BETTER",
    "DIFFER",
    "EQUIVALENT",
    "UNDECIDED",
    "WORDS",
    "WORSE",
    "Comparison",
    "Coverage",
    "SystemInterval",
    "SystemValues",
    "align",
    "compare_seeds",
    "compare_systems",
    "covers",
    "interval_of",
    "rule",
]
