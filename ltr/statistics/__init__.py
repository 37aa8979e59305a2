"""Which of two systems ranks better, and how sure that is: tests, intervals, verdicts.

A system is a method as it is trained: its runs differ in the seed alone. Systems are compared in
one metric, ``[seeds, queries]``, on the same queries (``SystemValues``).
``compare_systems`` gives a ``Comparison`` of each pair, with the word "better", "worse", "differ"
(these models do, with one seed), "equivalent" or "undecided"; ``compare_seeds`` the same for the
runs of one system among themselves; ``interval_of`` and ``covers`` set one system against a
published number. Each is imported when it is first used: training needs ``crossfit`` alone, and
the tests of significance take seconds to import.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Import what is in ``__all__`` when it is first asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = (import_module(f"{__name__}.{home}") for home in ("verdict", "compare", "intervals"))
    return next(getattr(home, name) for home in homes if hasattr(home, name))
