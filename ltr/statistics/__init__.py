"""Which of two systems ranks better, and how sure one can be: tests, intervals, verdicts.

A system is a method as it is trained: its runs differ in the seed alone. What is compared is one
metric of every query, ``[seeds, queries]``, on the same queries for all systems (``SystemValues``).
``compare_systems`` gives a ``Comparison`` of each pair, with the word "better", "worse", "differ"
(these models do, with one seed), "equivalent" or "undecided"; ``compare_seeds`` the same for the
runs of one system among themselves;
``interval_of`` and ``covers`` set one system against a published number.
"""

from ltr.statistics.bootstrap import draw, interval
from ltr.statistics.compare import compare_seeds, compare_systems
from ltr.statistics.comparison import Comparison
from ltr.statistics.effect import Effect, effect_size
from ltr.statistics.equivalence import equivalence_p
from ltr.statistics.power import resolvable_difference
from ltr.statistics.published import Coverage, SystemInterval, covers, interval_of
from ltr.statistics.randomisation import sign_flip_exact, sign_flip_p
from ltr.statistics.spread import Spread, difference_spread, system_spread
from ltr.statistics.t_tests import paired_t_p, t_p
from ltr.statistics.values import Aligned, SystemValues, align
from ltr.statistics.verdict import BETTER, DIFFER, EQUIVALENT, UNDECIDED, WORDS, WORSE, rule

__all__ = [
    "BETTER",
    "DIFFER",
    "EQUIVALENT",
    "UNDECIDED",
    "WORDS",
    "WORSE",
    "Aligned",
    "Comparison",
    "Coverage",
    "Effect",
    "Spread",
    "SystemInterval",
    "SystemValues",
    "align",
    "compare_seeds",
    "compare_systems",
    "covers",
    "difference_spread",
    "draw",
    "effect_size",
    "equivalence_p",
    "interval",
    "interval_of",
    "paired_t_p",
    "resolvable_difference",
    "rule",
    "sign_flip_exact",
    "sign_flip_p",
    "system_spread",
    "t_p",
]
