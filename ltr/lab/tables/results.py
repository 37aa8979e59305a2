"""Compute the metrics and verdicts of a table from its finished runs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from ltr.cli.folders import convention_keys
from ltr.data.lists import Lists, measured_split, splits_of
from ltr.errors import ConfigError, DataError
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.run_folder import RunFolder
from ltr.lab.analysis.systems import join_folds
from ltr.lab.analysis.verdicts import Comparison, SystemInterval, compare_systems, interval_of
from ltr.lab.tables.runs import Run
from ltr.lab.tables.spec import Published, Table
from ltr.metrics import Convention
from ltr.parts.components import build_convention, build_dataset, named_metrics
from ltr.training.evaluation import means, metrics_of_scores

ALPHA = 0.05
CROSSFIT = "crossfit vali"  # column: vali metric with epochs chosen on the other half of vali
OWN = "own"  # the name, in a table, of the convention that the runs themselves use
IN_MEMORY = ["commit", "queries"]  # columns that are not written to runs.csv
_COLUMNS = [
    "row", "convention", "split", "metric", "runs", "ours", "deviation", "low", "high", "beside",
    "published", "difference", "covered", "baseline", "less_baseline", "less_low", "less_high",
    "p", "verdict", "note",
]  # fmt: skip


def conventions_of(table: Table, run: Run) -> dict[str, Convention]:
    """Return the conventions listed in ``table``, each with the number of grades in the run's data.

    The name ``OWN`` stands for the run's own convention.
    """
    if table.conventions == [OWN]:
        return {OWN: build_convention(run.config)}
    levels = int(run.config.suggested.levels)
    return {name: Convention(**convention_keys(name), levels=levels) for name in table.conventions}


def split_of_runs(runs: Sequence[Run]) -> str:
    """Return the split on which ``runs`` are measured: test, or vali if there is no test split.

    Raises:
        ConfigError: some of the data sets have a test split, and others have none.
    """
    by_split: dict[str, Run] = {}
    for run in runs:
        split = measured_split(splits_of(build_dataset(run.config.dataset)))
        by_split.setdefault(split, run)
    if len(by_split) > 1:
        raise ConfigError(
            f"{by_split['test'].name} has a test split, but {by_split['vali'].name} has none: add "
            "the missing test split, or remove all test splits to compare on vali"
        )
    return next(iter(by_split))


def check_measured_lists(table: Table, runs: Sequence[Run]) -> None:
    """Raise ``ConfigError`` if a metric of ``table`` is not defined on the measured lists."""
    split = split_of_runs(runs)
    for run in {run.fold: run for run in runs}.values():
        lists = build_dataset(run.config.dataset).split(split)
        for convention in conventions_of(table, run).values():
            check_metrics(split, lists, named_metrics(table.metrics), convention)


def measure_rows(table: Table, runs: Sequence[Run]) -> pd.DataFrame:
    """Compute the metrics of all finished ``runs`` from the scores in their run folders.

    These scores are those of the test lists or, if the data have no test split, of the validation
    lists.

    Returns:
        A frame with one line per run. Its columns are row (the label), fold, seed, epoch (NA for an
        ensemble), split, seconds, run (the folder), ``crossfit vali`` (NaN if unknown), a column
        such as ``letor4 ndcg@10`` for each convention and metric, the columns of ``history.csv``
        that ``table.history`` names, commit, and queries. The column queries holds, for each
        metric, the query ids and the values of the queries under the first convention.

    Raises:
        DataError: the lists have changed since a run was measured.
    """
    lists_by_digest: dict[str, Lists] = {}
    rows = []
    for run in (run for run in runs if run.done):
        folder = RunFolder(run.folder)
        if folder.digest not in lists_by_digest:
            dataset = build_dataset(run.config.dataset)
            lists_by_digest[folder.digest] = dataset.split(folder.split)
        lists = lists_by_digest[folder.digest]
        if lists.digest != folder.digest:
            raise DataError(
                f"{run.folder}: the {folder.split} lists have changed since this run was measured: "
                "remove the folder and repeat the command"
            )
        rows.append(_measure_run(table, run, folder, lists))
    columns = None if rows else ["row", "fold", "seed", "epoch", CROSSFIT, *IN_MEMORY]
    return pd.DataFrame(rows, columns=columns).astype({CROSSFIT: float, "epoch": "Int64"})


def _measure_run(table: Table, run: Run, folder: RunFolder, lists: Lists) -> dict[str, Any]:
    """Return the line of ``measure_rows`` for one run."""
    results = folder.results
    epoch = results.get("selected_epoch")
    row: dict[str, Any] = {
        "row": run.label,
        "fold": run.fold,
        "seed": run.seed,
        "epoch": epoch,
        "split": folder.split,
        "seconds": results["wall_seconds"],
        "run": str(run.folder),
        CROSSFIT: results.get("crossfit"),
        "commit": results.get("commit"),
    }
    metrics = named_metrics(table.metrics)
    for name, convention in conventions_of(table, run).items():
        values = metrics_of_scores(lists, folder.scores, metrics, convention, items=1 << 18)
        for metric, mean in means(values, convention).items():
            row[f"{name} {metric}"] = mean
        if "queries" not in row:  # only for the first convention
            row["queries"] = {
                metric: (lists.qids, query_values) for metric, query_values in values.items()
            }
    epochs = folder.history.set_index("epoch").reindex(columns=table.history)
    history: Any = epochs.reindex([epoch]).iloc[0].to_dict()
    return {**row, **history}


class Verdicts(NamedTuple):
    """The intervals of the rows and their comparisons with the baseline, for one metric."""

    intervals: Mapping[str, SystemInterval]  # by row; empty if the convention skips every list
    against: Mapping[str, Comparison]  # by row: its comparison with the baseline


@dataclass(frozen=True, eq=False)
class Results:
    """The numbers and verdicts of a table, computed from its runs."""

    table: Table
    runs: Sequence[Run]  # all planned runs
    by_run: pd.DataFrame  # metrics of the finished runs, from ``measure_rows``
    margin: float  # differences below it do not matter
    missing: Mapping[str, str]  # by row: why it has no numbers
    lists: str  # text with the number of lists in each split
    split: str = "test"  # the split that the runs are measured on
    left_out: str | None = None  # why the published numbers are left out; None if they are not

    @property
    def baseline(self) -> str:
        """The label of the row that the others are compared with."""
        return self.table.baseline or next(iter(self.table.rows))

    @property
    def published(self) -> Published:
        """The published numbers for this data set, if there are any and they are not left out."""
        no_numbers = Published(source="", values={})
        if self.left_out is not None:
            return no_numbers
        return self.table.published.get(str(self.runs[0].config.dataset.name), no_numbers)

    @cached_property
    def complete(self) -> pd.DataFrame:
        """The lines of each row and seed that are finished in all folds; means need all folds."""
        fold_count = len({run.fold for run in self.runs})
        counts = self.by_run.groupby(["row", "seed"])["seed"].transform("size")
        return self.by_run[counts == fold_count]

    @cached_property
    def verdicts(self) -> dict[str, Verdicts]:
        """The verdicts by each metric, computed under the table's first convention.

        Only the lines of ``complete`` are used; the dict is empty if there are none.
        """
        lines = self.complete.assign(fold=self.complete["fold"].fillna(0))
        rows = {
            str(row): group.pivot(index="seed", columns="fold", values="queries")
            for row, group in lines.groupby("row", sort=False)
        }
        return {metric: self._judge(metric, rows) for metric in self.table.verdicts if rows}

    @property
    def judged(self) -> dict[str, pd.DataFrame]:
        """The lines of ``numbers`` for each metric of ``verdicts``, under the first convention."""
        first = self.numbers[self.numbers["convention"] == self.table.conventions[0]]
        return {metric: first[first["metric"] == metric] for metric in self.verdicts}

    def _judge(self, metric: str, rows: Mapping[str, pd.DataFrame]) -> Verdicts:
        """Compare the rows by ``metric``; the frame of a row has a cell for each seed and fold."""
        systems = {}
        for row, cells in rows.items():
            folds = {
                fold: [queries[metric] for queries in trainings]
                for fold, trainings in cells.items()
            }
            systems[row] = join_folds(folds)
        intervals: dict[str, SystemInterval] = {}
        pairs: list[Comparison] = []
        with suppress(DataError):  # the convention skips every list
            intervals = {
                row: interval_of(values, metric, alpha=ALPHA) for row, values in systems.items()
            }
            if self.baseline in systems:
                pairs = compare_systems(
                    systems, margin=self.margin, alpha=ALPHA, baseline=self.baseline
                )
        return Verdicts(intervals, {pair.first: pair for pair in pairs})

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """All numbers of the finished rows, in full precision.

        There is a line for each row, convention and metric, with the columns ``_COLUMNS``. The
        columns ``low`` and ``high`` hold the ends of the interval of our mean, ``beside`` holds the
        label of the published number, and ``p`` includes Holm's correction. A cell is empty if its
        value is unknown or was not computed.
        """
        repeats = over_repeats(self.complete)
        run_counts = self.complete["row"].value_counts()
        rows = []
        labels = [label for label in self.table.rows if label in run_counts]
        conventions = self.table.conventions
        for label, convention, metric in product(labels, conventions, self.table.metrics):
            mean = repeats[label][f"{convention} {metric}", "mean"]
            row: dict[str, Any] = {
                "row": label,
                "convention": convention,
                "metric": metric,
                "split": self.split,
                "runs": run_counts[label],
                "ours": mean,
                "deviation": repeats[label][f"{convention} {metric}", "std"],
            }
            interval = None
            pair = None
            if convention == conventions[0] and metric in self.verdicts:
                interval = self.verdicts[metric].intervals.get(label)
                pair = self.verdicts[metric].against.get(label)
            row |= self._published_cells(label, convention, metric, mean, interval)
            if interval is not None:
                row["low"] = interval.low
                row["high"] = interval.high
            if pair is not None:
                low, high = pair.interval
                row |= {
                    "baseline": self.baseline,
                    "less_baseline": pair.difference,
                    "less_low": low,
                    "less_high": high,
                    "p": pair.p_holm,
                    "verdict": pair.word,
                    "note": pair.note,
                }
            rows.append(row)
        return pd.DataFrame(rows, columns=_COLUMNS)

    def _published_cells(
        self,
        label: str,
        convention: str,
        metric: str,
        mean: float,
        interval: SystemInterval | None,
    ) -> dict[str, Any]:
        """Return the cells of ``numbers`` for a row's published number; empty if none."""
        untrained = "epochs=0" in self.table.rows[label].settings
        beside = None if untrained else self.published.label_for(label)
        number = self.published.values.get(str(beside), {}).get(convention, {}).get(metric)
        if number is None:
            return {}
        return {
            "beside": beside,
            "published": number,
            "difference": mean - number,
            "covered": None if interval is None else interval.covers(number),
        }


def over_repeats(values: pd.DataFrame) -> dict[Any, dict[Any, float]]:
    """Return the mean and standard deviation of each column, by row.

    In the dict of a row, the keys are ``(column, "mean")`` and ``(column, "std")``. The deviation
    is taken over the seeds, after the values of each seed are averaged over the folds. If there is
    only one seed, it is taken over the folds.
    """
    only_folds = values["seed"].nunique() == 1 and values["fold"].nunique() > 1
    repeat = "fold" if only_folds else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False).mean(numeric_only=True)
    return by_repeat.groupby("row", sort=False).agg(["mean", "std"]).to_dict("index")
