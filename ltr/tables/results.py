"""What the finished runs of a table amount to: verdicts between its rows, and all its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ltr.analysis.values import SystemValues
from ltr.analysis.verdicts import Comparison, SystemInterval, compare_systems, interval_of
from ltr.errors import DataError
from ltr.metrics import Convention
from ltr.tables.config import MARGIN
from ltr.tables.measure import CROSSFIT, Measured, conventions_of
from ltr.tables.runs import Run
from ltr.tables.spec import Published, Table

ALPHA = 0.05
_COLUMNS = [
    "row", "convention", "metric", "runs", "ours", "deviation", "low", "high", "beside",
    "published", "difference", "covered", "baseline", "less_baseline", "less_low", "less_high",
    "p", "verdict", "note",
]  # fmt: skip


@dataclass(frozen=True)
class Verdicts:
    """Intervals and comparisons of the rows under one metric."""

    systems: Mapping[str, SystemValues]  # the values per query, by row
    # of the mean, by row; none where the convention skips every list
    intervals: Mapping[str, SystemInterval] = field(default_factory=dict)
    # row -> the row beside the baseline, corrected for these comparisons
    against: Mapping[str, Comparison] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of a table.

    Attributes:
        table: the rows, and the metrics and conventions that are printed.
        runs: all that are planned.
        measured: the finished ones.
        margin: differences smaller than this count as none, in units of the metric.
        percent: whether metrics are printed times 100.
        missing: why a row has no numbers.
        lists: how many the data have, in words.
        unlike: why the published numbers are of other data.
    """

    table: Table
    runs: Sequence[Run]
    measured: Sequence[Measured]
    margin: float = MARGIN
    percent: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    lists: str = ""
    unlike: str | None = None

    @property
    def baseline(self) -> str:
        """The row that the others are compared with."""
        return self.table.baseline or next(iter(self.table.rows))

    @property
    def published(self) -> Published | None:
        """The published numbers on this data set."""
        return self.table.published.get(str(self.runs[0].config.dataset.name))

    @cached_property
    def conventions(self) -> dict[str, Convention]:
        """Of the table's blocks."""
        return conventions_of(self.table, int(self.runs[0].config.suggested.levels))

    @cached_property
    def by_run(self) -> pd.DataFrame:
        """A row per finished run: row label, fold, seed, epoch, seconds, ``letor4 ndcg@10``, ...

        The epoch of an ensemble is None. ``crossfit vali`` is NaN where nothing was chosen. A
        column of ``table.history`` is that of the tested epoch; NaN where the run did not keep it.
        """
        rows = []
        for one in self.measured:
            epoch = one.results.get("selected_epoch")
            kept = one.history.reindex(columns=["epoch", *self.table.history])
            of_epoch = kept[kept["epoch"] == epoch].to_dict("records") or [{}]
            rows.append(
                {
                    "row": one.run.label,
                    "fold": one.run.fold,
                    "seed": one.run.seed,
                    "epoch": epoch,
                    "seconds": one.results["wall_seconds"],
                    "run": str(one.run.folder),
                    CROSSFIT: one.results.get("crossfit"),
                    **one.means,
                    **{column: of_epoch[0].get(column, np.nan) for column in self.table.history},
                }
            )
        frame = pd.DataFrame(rows)
        if rows:  # whole numbers beside None
            frame[CROSSFIT] = frame[CROSSFIT].astype(float)
            frame["epoch"] = pd.Series([row["epoch"] for row in rows], dtype=object)
        return frame

    @cached_property
    def whole(self) -> pd.DataFrame:
        """The rows of ``by_run`` whose row and seed are done in all folds: means are fair."""
        frame, folds = self.by_run, len({run.fold for run in self.runs})
        if frame.empty:
            return frame
        return frame[frame.groupby(["row", "seed"], sort=False)["run"].transform("size") == folds]

    @cached_property
    def verdicts(self) -> dict[str, Verdicts]:
        """By metric, under the first convention."""
        return {metric: self._judge(metric) for metric in self.table.verdicts if self.measured}

    def _judge(self, metric: str) -> Verdicts:
        systems = self._systems(metric)
        try:
            intervals = {label: interval_of(one, alpha=ALPHA) for label, one in systems.items()}
        except DataError:  # the convention skips every list
            return Verdicts(systems)
        if len(systems) < 2 or self.baseline not in systems:
            return Verdicts(systems, intervals)
        how: Any = {"margin": self.margin, "alpha": ALPHA, "baseline": self.baseline}
        pairs = compare_systems(systems, **how)
        return Verdicts(systems, intervals, {pair.first: pair for pair in pairs})

    def _systems(self, metric: str) -> dict[str, SystemValues]:
        """``metric`` of every query of each row, with the seeds that are done in all folds."""
        if self.whole.empty:
            return {}
        qids = {one.run.fold: one.qids for one in self.measured}
        queries = [(fold, str(qid)) for fold in qids for qid in qids[fold]]
        values: dict[tuple[str, int], dict[int | None, NDArray[np.float64]]] = {}
        for one in self.measured:
            of_folds = values.setdefault((one.run.label, one.run.seed), {})
            of_folds[one.run.fold] = one.values[self.table.conventions[0]][metric]
        systems = {}
        for label, lines in self.whole.groupby("row", sort=False):
            seeds = sorted(set(lines["seed"]))
            rows = [np.concatenate([values[str(label), s][fold] for fold in qids]) for s in seeds]
            systems[str(label)] = SystemValues(np.stack(rows), queries, tuple(seeds))
        return systems

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """All numbers of the finished rows, in full precision, of each convention and metric.

        Returns:
            Columns row, convention, metric, runs, ours, deviation, low and high (the interval of
            ours), beside (the label of the published number), published, difference, covered
            (``covers``, or where ours is: ``above``, ``below``), baseline, less_baseline, less_low,
            less_high, p (after Holm), verdict, note; empty where nothing is known or asked.
        """
        if self.whole.empty:
            return pd.DataFrame(columns=_COLUMNS)
        conventions, metrics = self.table.conventions, self.table.metrics
        ours = over_repeats(self.whole, [" ".join(one) for one in product(conventions, metrics)])
        runs = self.whole["row"].value_counts()
        rows: list[dict[str, Any]] = []
        labels = [label for label in self.table.rows if label in ours]
        for label, convention, metric in product(labels, conventions, metrics):
            mean, deviation = (ours[label][f"{convention} {metric}", of] for of in ("mean", "std"))
            row: dict[str, Any] = {
                "row": label,
                "convention": convention,
                "metric": metric,
                "runs": int(runs[label]),
                "ours": mean,
                "deviation": deviation,
            }
            judged = self.verdicts.get(metric) if convention == conventions[0] else None
            interval = judged.intervals.get(label) if judged is not None else None
            if interval is not None:
                row |= {"low": interval.low, "high": interval.high}
            if self.published is not None and (beside := self.published.of(label)) is not None:
                number = self.published.values[beside].get(convention, {}).get(metric)
                if number is not None:
                    row |= {"beside": beside, "published": number, "difference": mean - number}
                    row["covered"] = interval.covers(number) if interval is not None else None
            if judged is not None and (pair := judged.against.get(label)) is not None:
                row |= {
                    "baseline": self.baseline,
                    "less_baseline": pair.difference,
                    "less_low": pair.interval[0],
                    "less_high": pair.interval[1],
                    "p": pair.p_holm,
                    "verdict": pair.word,
                    "note": pair.note,
                }
            rows.append(row)
        return pd.DataFrame(rows).reindex(columns=_COLUMNS)


def over_repeats(values: pd.DataFrame, columns: Sequence[str]) -> dict[Any, dict[Any, float]]:
    """Mean and standard deviation of each column, by row: ``[row][column, "mean" or "std"]``.

    The deviation is that of the seeds, of their means over folds; with one seed that of the folds;
    NaN for one.
    """
    only_folds = values["seed"].nunique() == 1 and values["fold"].nunique() > 1
    repeat = "fold" if only_folds else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False)[list(columns)].mean()
    return by_repeat.groupby("row", sort=False).agg(["mean", "std"]).to_dict("index")
