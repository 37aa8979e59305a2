"""The verdicts between the rows of a table, and its numbers: a line per row and metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pandas as pd

from ltr.analysis.values import SystemValues
from ltr.analysis.verdicts import Comparison, SystemInterval, compare_systems, interval_of, rule
from ltr.errors import DataError
from ltr.tables.measure import Measured, stacked
from ltr.tables.spec import Published, Table

ALPHA = 0.05


@dataclass(frozen=True)
class Verdicts:
    """Intervals and comparisons of the rows under one metric."""

    systems: Mapping[str, SystemValues]  # the values per query, by row
    # of the mean, by row; none where the convention skips every list
    intervals: Mapping[str, SystemInterval] = field(default_factory=dict)
    # row -> the row beside the baseline, corrected for these comparisons
    against: Mapping[str, Comparison] = field(default_factory=dict)
    rule: str = ""  # of the verdicts, in words


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
    """Compare all finished rows with the baseline on the same queries.

    Args:
        measured: the finished runs.
        convention: a name of ``metrics_as``.
        metric: by which rows are compared.
        folds: of the table; a row takes part with the seeds that are done in all.
        baseline: the row that the others are compared with.
        margin: differences smaller than this count as none, in units of the metric.
        percent: whether the rule says the margin in percent.
    """
    systems = stacked(measured, convention, metric, folds)
    try:
        intervals = {label: interval_of(one, alpha=ALPHA) for label, one in systems.items()}
    except DataError:  # the convention skips every list
        return Verdicts(systems)
    if len(systems) < 2 or baseline not in systems:
        return Verdicts(systems, intervals)
    pairs = compare_systems(systems, margin=margin, alpha=ALPHA, baseline=baseline)
    text = rule(margin * (100 if percent else 1), ALPHA)
    return Verdicts(systems, intervals, {pair.first: pair for pair in pairs}, text)


def over_repeats(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Mean and standard deviation of each column, by row.

    Returns:
        Indexed by row, with columns ``(column, "mean")`` and ``(column, "std")``; the deviation is
        that of the seeds, of their means over folds; with one seed that of the folds; NaN for one.
    """
    only_folds = values["seed"].nunique() == 1 and values["fold"].nunique() > 1
    repeat = "fold" if only_folds else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False)[list(columns)].mean()
    return by_repeat.groupby("row", sort=False).agg(["mean", "std"])


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
    columns = [" ".join(one) for one in product(table.conventions, table.metrics)]
    ours = over_repeats(frame, columns).to_dict("index")
    runs = frame["row"].value_counts()
    rows: list[dict[str, Any]] = []
    labels = [label for label in table.rows if label in ours]
    for label, convention, metric in product(labels, table.conventions, table.metrics):
        mean, deviation = (ours[label][f"{convention} {metric}", of] for of in ("mean", "std"))
        row: dict[str, Any] = {
            "row": label,
            "convention": convention,
            "metric": metric,
            "runs": int(runs[label]),
            "ours": mean,
            "deviation": deviation,
        }
        judged = verdicts.get(metric) if convention == table.conventions[0] else None
        interval = judged.intervals.get(label) if judged is not None else None
        if interval is not None:
            row |= {"low": interval.low, "high": interval.high}
        if published is not None and (beside := published.of(label)) is not None:
            number = published.values[beside].get(convention, {}).get(metric)
            if number is not None:
                row |= {"beside": beside, "published": number, "difference": mean - number}
                row["covered"] = interval.covers(number) if interval is not None else None
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
