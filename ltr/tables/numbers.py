"""The numbers of a table, one line for each row, convention and metric."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ltr.statistics.intervals import covers
from ltr.tables.spec import Published, Table
from ltr.tables.verdicts import Verdicts


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


def numbers(
    table: Table,
    frame: pd.DataFrame,
    verdicts: Mapping[str, Verdicts],
    published: Published | None,
    baseline: str,
) -> pd.DataFrame:
    """What is known of every row that is finished, in full precision.

    Args:
        table: which rows, metrics and conventions.
        frame: of ``by_run``, those that are ``whole_rows``.
        verdicts: by metric, under the first convention.
        published: of the data set, or None.
        baseline: the row that the others are compared with.

    Returns:
        Columns row, convention, metric, runs, ours, deviation, low and high (the interval of ours),
        beside (what is published), published, difference, covered (``covers``, or where ours is:
        ``above``, ``below``), baseline, less_baseline, less_low, less_high, p (after Holm),
        verdict, note; empty where nothing is known or asked.
    """
    if frame.empty:
        return pd.DataFrame(columns=COLUMNS)
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
                if judged is not None:
                    row |= _against(label, judged, baseline)
                rows.append(row)
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


COLUMNS = [
    "row", "convention", "metric", "runs", "ours", "deviation", "low", "high", "beside",
    "published", "difference", "covered", "baseline", "less_baseline", "less_low", "less_high",
    "p", "verdict", "note",
]  # fmt: skip


def _beside(
    row: Mapping[str, Any], judged: Verdicts | None, published: Published | None
) -> dict[str, Any]:
    """The interval of ours, and the published number that stands beside it."""
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
        found["covered"] = covers(interval, number).word
    return found


def _against(label: str, judged: Verdicts, baseline: str) -> dict[str, Any]:
    pair = judged.against.get(label)
    if pair is None:
        return {}
    return {
        "baseline": baseline,
        "less_baseline": pair.difference,
        "less_low": pair.interval[0],
        "less_high": pair.interval[1],
        "p": pair.p_holm,
        "verdict": pair.word,
        "note": pair.note,
    }
