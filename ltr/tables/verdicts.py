"""What can be said of the rows of a table: their intervals, and how each pair of them compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ltr.errors import DataError
from ltr.statistics.compare import compare_systems
from ltr.statistics.intervals import SystemInterval, interval_of
from ltr.statistics.values import SystemValues
from ltr.statistics.verdict import Comparison, rule
from ltr.tables.measure import Measured, Stacked, stacked

ALPHA = 0.05
_OTHERS = {
    "seeds": "other queries and other seeds",
    "folds": "other queries and, as far as the folds differ, other trainings",
    "queries": "other queries, but these trained models: there is one seed",
}


@dataclass(frozen=True)
class Verdicts:
    """All that is said under one metric.

    Attributes:
        metric: which.
        intervals: of the mean, by row.
        against: row -> the row beside the baseline, corrected for these comparisons.
        pairs: ``(row, other)`` -> the row beside the other, corrected for all pairs.
        stacked: the values that it is said of.
        rule: how the verdicts were made, in words.
    """

    metric: str
    intervals: Mapping[str, SystemInterval]
    against: Mapping[str, Comparison]
    pairs: Mapping[tuple[str, str], Comparison]
    stacked: Stacked
    rule: str


def interval_covers(intervals: Mapping[str, SystemInterval]) -> str:
    """What the intervals allow for, in words; rows that differ from most are named."""
    rows: dict[str, list[str]] = {}
    for label, interval in intervals.items():
        rows.setdefault(_OTHERS[interval.spread.covers], []).append(label)
    (most, _), *others = sorted(rows.items(), key=lambda pair: -len(pair[1]))
    rest = [f"of {', '.join(labels)}: {text}" for text, labels in others]
    return "; ".join([f"{1 - ALPHA:.0%}, for {most}", *rest])


def judge(
    measured: Sequence[Measured],
    convention: str,
    metric: str,
    *,
    folds: Sequence[int | None],
    baseline: str,
    margin: float,
) -> Verdicts:
    """Compare all rows that are done, on the same queries.

    Args:
        measured: the finished runs.
        convention: under which.
        metric: by which.
        folds: of the table; a row takes part with the seeds that are done in all.
        baseline: the row that the others are compared with.
        margin: differences smaller than this count as none, in units of the metric.
    """
    values = stacked(measured, convention, metric, folds)
    systems = {
        label: SystemValues(rows, values.queries, values.seeds[label])
        for label, rows in values.values.items()
    }
    try:
        intervals = {
            label: interval_of(system, name=label, alpha=ALPHA) for label, system in systems.items()
        }
    except DataError:  # the convention skips every list
        return Verdicts(metric, {}, {}, {}, values, "")
    if len(systems) < 2:
        return Verdicts(metric, intervals, {}, {}, values, "")
    against = {}
    if baseline in systems:
        compared = compare_systems(systems, margin=margin, alpha=ALPHA, baseline=baseline)
        against = {pair.first: pair for pair in compared}
    pairs = {}
    for pair in compare_systems(systems, margin=margin, alpha=ALPHA):
        pairs[pair.first, pair.second] = pair
        pairs[pair.second, pair.first] = pair.swapped()
    return Verdicts(metric, intervals, against, pairs, values, rule(margin, ALPHA))
