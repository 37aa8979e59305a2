"""The verdicts between the rows of a table, and its numbers: a line per row and metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ltr.errors import DataError
from ltr.statistics.compare import Comparison, SystemInterval, compare_systems, interval_of, rule
from ltr.statistics.values import SystemValues
from ltr.tables.measure import Measured, Stacked, stacked
from ltr.tables.spec import Published, Table

ALPHA = 0.05
_OTHERS = {
    "seeds": "other queries and other seeds",
    "folds": "other queries and, as far as the folds differ, other trainings",
    "queries": "other queries, but these trained models: there is one seed",
}


@dataclass(frozen=True)
class Verdicts:
    """Intervals and comparisons of the rows under one metric."""

    metric: str
    stacked: Stacked  # the values per query
    # of the mean, by row; none where the convention skips every list
    intervals: Mapping[str, SystemInterval] = field(default_factory=dict)
    # row -> the row beside the baseline, corrected for these comparisons
    against: Mapping[str, Comparison] = field(default_factory=dict)
    # (row, other) -> the row beside the other, corrected for all pairs
    pairs: Mapping[tuple[str, str], Comparison] = field(default_factory=dict)
    rule: str = ""  # of the verdicts, in words


def interval_covers(intervals: Mapping[str, SystemInterval]) -> str:
    """Say what the intervals allow for; rows that differ from most are named."""
    rows: dict[str, list[str]] = {}
    for label, interval in intervals.items():
        rows.setdefault(_OTHERS[interval.spread.covers], []).append(label)
    return f"{1 - ALPHA:.0%}, for {most_and_others(rows)}"


def most_and_others(rows: Mapping[str, Sequence[str]]) -> str:
    """The text that holds for most rows, then those of the others with their rows.

    >>> most_and_others({"last epoch": ["A"], "best epoch": ["B", "C"]})
    'best epoch; of A: last epoch'
    """
    (most, _), *others = sorted(rows.items(), key=lambda pair: -len(pair[1]))
    return "; ".join([most, *(f"of {', '.join(labels)}: {text}" for text, labels in others)])


def judge(
    measured: Sequence[Measured],
    convention: str,
    metric: str,
    *,
    folds: Sequence[int | None],
    baseline: str,
    margin: float,
    percent: bool = False,
) -> Verdicts:
    """Compare all finished rows on the same queries.

    Args:
        measured: the finished runs.
        convention: a name of ``metrics_as``.
        metric: by which rows are compared.
        folds: of the table; a row takes part with the seeds that are done in all.
        baseline: the row that the others are compared with.
        margin: differences smaller than this count as none, in units of the metric.
        percent: whether the rule says the margin in percent.
    """
    values = stacked(measured, convention, metric, folds)
    systems = {
        label: SystemValues(rows, values.queries, values.seeds[label])
        for label, rows in values.values.items()
    }
    try:
        intervals = {label: interval_of(one, alpha=ALPHA) for label, one in systems.items()}
    except DataError:  # the convention skips every list
        return Verdicts(metric, values)
    if len(systems) < 2:
        return Verdicts(metric, values, intervals)
    against = {}
    if baseline in systems:
        compared = compare_systems(systems, margin=margin, alpha=ALPHA, baseline=baseline)
        against = {pair.first: pair for pair in compared}
    pairs = {}
    for pair in compare_systems(systems, margin=margin, alpha=ALPHA):
        pairs[pair.first, pair.second] = pair
        pairs[pair.second, pair.first] = pair.swapped()
    return Verdicts(
        metric, values, intervals, against, pairs, rule(margin * (100 if percent else 1), ALPHA)
    )


def over_repeats(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Mean and standard deviation of each column, by row.

    Returns:
        Indexed by row, with columns ``(column, "mean")`` and ``(column, "sd")``; the deviation is
        that of the seeds, of their means over folds; with one seed that of the folds; NaN for one.
    """
    only_folds = values["seed"].nunique() == 1 and values["fold"].nunique() > 1
    repeat = "fold" if only_folds else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False)[list(columns)].mean()
    by_row = by_repeat.groupby("row", sort=False)
    return pd.concat({"mean": by_row.mean(), "sd": by_row.std()}, axis=1).swaplevel(axis=1)


_COLUMNS = [
    "row", "convention", "metric", "runs", "ours", "deviation", "low", "high", "beside",
    "published", "difference", "covered", "baseline", "less_baseline", "less_low", "less_high",
    "p", "verdict", "note",
]  # fmt: skip


def numbers(
    table: Table,
    frame: pd.DataFrame,
    verdicts: Mapping[str, Verdicts],
    published: Published | None,
    baseline: str,
) -> pd.DataFrame:
    """All numbers of the finished rows, in full precision.

    ``frame`` is that of ``by_run`` with the ``whole_rows``; ``verdicts`` are by metric, under the
    first convention; ``published`` is that of the data set.

    Returns:
        Columns row, convention, metric, runs, ours, deviation, low and high (the interval of ours),
        beside (the label of the published number), published, difference, covered (``covers``, or
        where ours is: ``above``, ``below``), baseline, less_baseline, less_low, less_high, p (after
        Holm), verdict, note; empty where nothing is known or asked.
    """
    if frame.empty:
        return pd.DataFrame(columns=_COLUMNS)
    rows: list[dict[str, Any]] = []
    columns = [f"{c} {metric}" for c in table.conventions for metric in table.metrics]
    ours = over_repeats(frame, columns)
    runs = frame["row"].value_counts()
    for label in (label for label in table.rows if label in ours.index):
        for convention in table.conventions:
            for metric in table.metrics:
                cell = ours[f"{convention} {metric}"]
                row = {
                    "row": label,
                    "convention": convention,
                    "metric": metric,
                    "runs": int(runs[label]),
                    "ours": float(cell["mean"][label]),
                    "deviation": float(cell["sd"][label]),
                }
                judged = verdicts.get(metric) if convention == table.conventions[0] else None
                row |= _beside(row, judged, published)
                if judged is not None and (pair := judged.against.get(label)) is not None:
                    row |= {
                        "baseline": baseline,
                        "less_baseline": pair.difference,
                        "less_low": pair.interval[0],
                        "less_high": pair.interval[1],
                        "p": pair.p_holm,
                        "verdict": pair.word,
                        "note": pair.note,
                    }
                rows.append(row)
    return pd.DataFrame(rows).reindex(columns=_COLUMNS)


def _beside(
    row: Mapping[str, Any], judged: Verdicts | None, published: Published | None
) -> dict[str, Any]:
    """The interval of ours, and the published number beside it."""
    found: dict[str, Any] = {}
    interval = judged.intervals.get(row["row"]) if judged is not None else None
    if interval is not None:
        found |= {"low": interval.low, "high": interval.high}
    label = published.of(row["row"]) if published is not None else None
    if published is None or label is None:
        return found
    number = published.values[label].get(row["convention"], {}).get(row["metric"])
    if number is None:
        return found
    found |= {"beside": label, "published": number, "difference": row["ours"] - number}
    if interval is not None:
        found["covered"] = interval.covers(number)
    return found
