"""Every metric of every query of the finished runs of a table, under each of its conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import OmegaConf

from ltr.analysis.values import SystemValues
from ltr.console.configs import files_of
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention
from ltr.scorers.parts import make_dataset, named_metrics
from ltr.tables.runs import Run
from ltr.tables.spec import Table
from ltr.training.evaluation import PerQuery, means, metrics_of_scores

CROSSFIT = "crossfit vali"  # a column


@dataclass(frozen=True)
class Measured:
    """A finished run and its metrics of each test query."""

    run: Run
    results: Mapping[str, Any]  # its results.json
    # convention -> metric -> [queries], in the order of the test lists
    values: Mapping[str, PerQuery]
    means: Mapping[str, float]  # of the queries: "letor4 ndcg@10", ...
    qids: NDArray[np.str_]  # query id of each test list
    history: pd.DataFrame  # its history.csv, a row per epoch


def conventions_of(table: Table, levels: int) -> dict[str, Convention]:
    """The conventions that ``table`` names, for labels of ``levels`` grades.

    Raises:
        ConfigError: there is no such ``metrics_as``.
    """
    files = files_of("metrics_as")
    for name in table.conventions:
        if name not in files:
            raise ConfigError(f"conventions: {name} is not known; choose of {', '.join(files)}")
    keys: dict[str, Any] = {name: OmegaConf.load(files[name]) for name in table.conventions}
    return {name: Convention(**keys[name], levels=levels) for name in keys}


def check_test_lists(table: Table, runs: Sequence[Run]) -> None:
    """Check before training that the metrics of ``table`` are defined on the test lists.

    Raises:
        ConfigError: they are not; see ``check_metrics``.
    """
    for run in {run.fold: run for run in runs}.values():
        test = make_dataset(run.config.dataset).split("test")
        for convention in conventions_of(table, int(run.config.suggested.levels)).values():
            check_metrics("test", test, named_metrics(table.metrics), convention)


def measure(table: Table, runs: Sequence[Run]) -> list[Measured]:
    """Compute the metrics of the finished ones of ``runs`` from the test scores that they kept.

    Raises:
        DataError: the test lists are not those of the run.
    """
    lists: dict[str, Lists] = {}
    measured = []
    for run in (run for run in runs if run.done):
        left = RunFolder(run.folder)
        if left.digest not in lists:
            lists[left.digest] = make_dataset(run.config.dataset).split("test")
        test = lists[left.digest]
        if test.digest != left.digest:
            raise DataError(f"{run.folder}: its test lists have changed; remove it and run again")
        values, of_run, metrics = {}, {}, named_metrics(table.metrics)
        for name, convention in conventions_of(table, int(run.config.suggested.levels)).items():
            values[name] = metrics_of_scores(test, left.scores, metrics, convention, items=1 << 18)
            for metric, mean in means(values[name], convention).items():
                of_run[f"{name} {metric}"] = mean
        measured.append(Measured(run, left.results, values, of_run, test.qids, left.history))
    return measured


def by_run(table: Table, measured: Sequence[Measured]) -> pd.DataFrame:
    """A row per run: row label, fold, seed, epoch, seconds, ``letor4 ndcg@10``, ...

    The epoch of an ensemble is None. ``crossfit vali`` is NaN where nothing was chosen. A column of
    ``table.history`` is that of the tested epoch; NaN where the run did not keep it.
    """
    rows = []
    for one in measured:
        epoch = one.results.get("selected_epoch")
        kept = one.history.reindex(columns=["epoch", *table.history])
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
                **{column: of_epoch[0].get(column, np.nan) for column in table.history},
            }
        )
    frame = pd.DataFrame(rows)
    if rows:  # whole numbers beside None
        frame[CROSSFIT] = frame[CROSSFIT].astype(float)
        frame["epoch"] = pd.Series([row["epoch"] for row in rows], dtype=object)
    return frame


def whole_rows(frame: pd.DataFrame, folds: int) -> pd.DataFrame:
    """The runs of ``by_run`` whose row and seed are done in all folds, so that means are fair."""
    if frame.empty:
        return frame
    return frame[frame.groupby(["row", "seed"], sort=False)["run"].transform("size") == folds]


def stacked(
    measured: Sequence[Measured], convention: str, metric: str, folds: Sequence[int | None]
) -> dict[str, SystemValues]:
    """A metric of every query of each row, with the seeds that ``whole_rows`` keeps."""
    qids = {one.run.fold: one.qids for one in measured}
    queries = [(fold, str(qid)) for fold in qids for qid in qids[fold]]
    found: dict[str, dict[int, dict[int | None, NDArray[np.float64]]]] = {}
    for one in measured:
        of_seed = found.setdefault(one.run.label, {}).setdefault(one.run.seed, {})
        of_seed[one.run.fold] = one.values[convention][metric]
    systems = {}
    for label, runs in found.items():
        if done := tuple(seed for seed in sorted(runs) if set(folds) <= runs[seed].keys()):
            rows = [np.concatenate([runs[seed][fold] for fold in qids]) for seed in done]
            systems[label] = SystemValues(np.stack(rows), queries, done)
    return systems
