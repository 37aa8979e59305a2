"""What the finished runs of a table amount to: their metrics, verdicts, and all its numbers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
from omegaconf import OmegaConf

from ltr.analysis.systems import values_of
from ltr.analysis.verdicts import Comparison, SystemInterval, compare_systems, interval_of
from ltr.arrays import Doubles, Texts
from ltr.console.configs import files_of
from ltr.data.lists import Lists
from ltr.errors import DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention
from ltr.scorers.parts import make_dataset, named_metrics
from ltr.tables.runs import Run
from ltr.tables.spec import Published, Table
from ltr.training.evaluation import PerQuery, means, metrics_of_scores

ALPHA = 0.05
CROSSFIT = "crossfit vali"  # a column
_COLUMNS = [
    "row", "convention", "metric", "runs", "ours", "deviation", "low", "high", "beside",
    "published", "difference", "covered", "baseline", "less_baseline", "less_low", "less_high",
    "p", "verdict", "note",
]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A finished run and its metrics of each test query."""

    run: Run
    results: Mapping[str, Any]  # its results.json
    per_query: Mapping[str, PerQuery]  # convention -> metric -> [queries]
    means: Mapping[str, float]  # by column of runs.csv, as "letor4 ndcg@10"
    qids: Texts  # [queries]

    def values(self, metric: str) -> tuple[list[str], Doubles]:
        """The ids of the test queries, and ``metric`` of each under the first convention."""
        return self.qids.tolist(), next(iter(self.per_query.values()))[metric]


def conventions_of(table: Table, run: Run) -> dict[str, Convention]:
    """The conventions that ``table`` names, for the grades of the data of ``run``."""
    files, levels = files_of("metrics_as"), int(run.config.suggested.levels)
    keys: dict[str, Any] = {name: OmegaConf.load(files[name]) for name in table.conventions}
    return {name: Convention(**keys[name], levels=levels) for name in keys}


def check_test_lists(table: Table, runs: Sequence[Run]) -> None:
    """Raise ``ConfigError`` where a metric of ``table`` is not defined on the test lists."""
    for run in {run.fold: run for run in runs}.values():
        test = make_dataset(run.config.dataset).split("test")
        for convention in conventions_of(table, run).values():
            check_metrics("test", test, named_metrics(table.metrics), convention)


def measure(table: Table, runs: Sequence[Run]) -> list[Measured]:
    """Compute the metrics of the finished ones of ``runs`` from the test scores that they kept.

    Raises:
        DataError: the test lists are not those of the run.
    """
    lists: dict[str, Lists] = {}
    measured, metrics = [], named_metrics(table.metrics)
    for run in (run for run in runs if run.done):
        left = RunFolder(run.folder)
        if left.digest not in lists:
            lists[left.digest] = make_dataset(run.config.dataset).split("test")
        test = lists[left.digest]
        if test.digest != left.digest:
            raise DataError(f"{run.folder}: its test lists have changed; remove it and run again")
        per_query, of_run = {}, dict[str, float]()
        for name, convention in conventions_of(table, run).items():
            per_query[name] = metrics_of_scores(
                test, left.scores, metrics, convention, items=1 << 18
            )
            found = means(per_query[name], convention)
            of_run |= {f"{name} {metric}": mean for metric, mean in found.items()}
        epochs = left.history.set_index("epoch").reindex(columns=table.history)
        tested = epochs.reindex([left.results.get("selected_epoch")]).iloc[0]
        of_run |= {str(column): float(value) for column, value in tested.items()}
        measured.append(Measured(run, left.results, per_query, of_run, test.qids))
    return measured


class Verdicts(NamedTuple):
    """Intervals and comparisons of the rows under one metric."""

    intervals: Mapping[str, SystemInterval]  # none where the convention skips every list
    against: Mapping[str, Comparison]  # row -> the row beside the baseline


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of a table."""

    table: Table
    runs: Sequence[Run]  # all that are planned
    measured: Sequence[Measured]  # the finished ones
    margin: float  # differences smaller than this count as none
    missing: Mapping[str, str] = field(default_factory=dict)  # why a row has no numbers
    lists: str = ""  # how many the data have, in words
    unlike: str | None = None  # why the published numbers are of other data

    @property
    def baseline(self) -> str:
        """The row that the others are compared with."""
        return self.table.baseline or next(iter(self.table.rows))

    @property
    def published(self) -> Published:
        """The published numbers on this data set, perhaps none."""
        none = Published(source="", values={})
        return self.table.published.get(str(self.runs[0].config.dataset.name), none)

    @cached_property
    def by_run(self) -> pd.DataFrame:
        """A row per finished run: row label, fold, seed, epoch, seconds, ``letor4 ndcg@10``, ...

        The epoch of an ensemble is NA; ``crossfit vali`` is NaN where nothing was chosen.
        """
        rows = [
            {
                "row": one.run.label, "fold": one.run.fold, "seed": one.run.seed,
                "epoch": one.results.get("selected_epoch"), "seconds": one.results["wall_seconds"],
                "run": str(one.run.folder), CROSSFIT: one.results.get("crossfit"), **one.means,
            }
            for one in self.measured
        ]  # fmt: skip
        columns = None if rows else ["row", "fold", "seed", "epoch", CROSSFIT]
        return pd.DataFrame(rows, columns=columns).astype({CROSSFIT: float, "epoch": "Int64"})

    @cached_property
    def whole(self) -> pd.DataFrame:
        """The rows of ``by_run`` whose row and seed are done in all folds: means are fair."""
        frame, folds = self.by_run, len({run.fold for run in self.runs})
        return frame[frame.groupby(["row", "seed"])["seed"].transform("size") == folds]

    @cached_property
    def verdicts(self) -> dict[str, Verdicts]:
        """By metric, under the first convention; none where no row is whole."""
        cells = [self.measured[i] for i in self.whole.index]
        whole = self.whole.assign(fold=self.whole["fold"].fillna(0), cell=cells)
        rows = {
            str(row): of_row.pivot(index="seed", columns="fold", values="cell")
            for row, of_row in whole.groupby("row", sort=False)
        }
        return {metric: self._judge(metric, rows) for metric in self.table.verdicts if rows}

    def _judge(self, metric: str, rows: Mapping[str, pd.DataFrame]) -> Verdicts:
        systems = {row: values_of(runs, metric) for row, runs in rows.items()}
        found = Verdicts({}, {})
        with suppress(DataError):  # the convention skips every list
            found = Verdicts({row: interval_of(of, alpha=ALPHA) for row, of in systems.items()}, {})
            if self.baseline in systems:
                how: Any = {"margin": self.margin, "alpha": ALPHA, "baseline": self.baseline}
                pairs = compare_systems(systems, **how)
                found = Verdicts(found.intervals, {pair.first: pair for pair in pairs})
        return found

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """All numbers of the finished rows, in full precision, of each convention and metric.

        The columns are ``_COLUMNS``: low and high are the interval of ours, beside the label of the
        published number, p is after Holm; empty where nothing is known or asked.
        """
        conventions, published = self.table.conventions, self.published
        ours, runs = over_repeats(self.whole), self.whole["row"].value_counts()
        rows, none = [], Verdicts({}, {})
        labels = [label for label in self.table.rows if label in runs]
        for label, convention, metric in product(labels, conventions, self.table.metrics):
            mean, deviation = (ours[label][f"{convention} {metric}", of] for of in ("mean", "std"))
            row: dict[str, Any] = {"row": label, "convention": convention, "metric": metric}
            row |= {"runs": runs[label], "ours": mean, "deviation": deviation}
            judged = self.verdicts.get(metric, none) if convention == conventions[0] else none
            if interval := judged.intervals.get(label):
                row |= {"low": interval.low, "high": interval.high}
            beside = published.of(label)
            theirs = published.values.get(str(beside), {}).get(convention, {}).get(metric)
            if theirs is not None:
                row |= {"beside": beside, "published": theirs, "difference": mean - theirs}
                row["covered"] = interval.covers(theirs) if interval else None
            if pair := judged.against.get(label):
                row |= {"baseline": self.baseline, "less_baseline": pair.difference}
                row |= dict(zip(("less_low", "less_high"), pair.interval, strict=True))
                row |= {"p": pair.p_holm, "verdict": pair.word, "note": pair.note}
            rows.append(row)
        return pd.DataFrame(rows, columns=_COLUMNS)


def over_repeats(values: pd.DataFrame) -> dict[Any, dict[Any, float]]:
    """Mean and standard deviation of each column: ``[row][column, "mean" or "std"]``.

    The deviation is that of the seeds' means over folds; with one seed that of the folds.
    """
    only_folds = values["seed"].nunique() == 1 and values["fold"].nunique() > 1
    repeat = "fold" if only_folds else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False).mean(numeric_only=True)
    return by_repeat.groupby("row", sort=False).agg(["mean", "std"]).to_dict("index")
