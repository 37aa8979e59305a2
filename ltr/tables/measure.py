"""Every metric of every query of the finished runs of a table, under each of its conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ltr.console.configs import CONFIGS
from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.labels import check_metrics
from ltr.experiment.parts import make_dataset
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention, parse_metric
from ltr.tables.runs import Run
from ltr.tables.spec import Table
from ltr.training.evaluation import PerQuery, means, metrics_of_scores

CUTOFFS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)  # of the plot of NDCG against k


@dataclass(frozen=True)
class Measured:
    """A finished run and what it reached on each test query.

    Attributes:
        run: which.
        results: its ``results.json``.
        values: convention -> metric -> ``[queries]``, in the order of the test lists.
        qids: query id of each test list.
        curve: ``ndcg@k`` of ``CUTOFFS`` -> ``[queries]``, under the table's first convention.
        history: its ``history.csv``, a row per epoch.
    """

    run: Run
    results: Mapping[str, Any]
    values: Mapping[str, PerQuery]
    qids: NDArray[np.str_]
    curve: PerQuery
    history: pd.DataFrame


def conventions_of(table: Table, levels: int) -> dict[str, Convention]:
    """The conventions that ``table`` names, for labels of ``levels`` grades.

    Raises:
        ConfigError: there is no such ``metrics_as``.
    """
    from omegaconf import OmegaConf

    found = {}
    for name in table.conventions:
        path = CONFIGS / "metrics_as" / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
            raise ConfigError(f"conventions: {name} is not known; choose of {known}")
        keys = OmegaConf.to_container(OmegaConf.load(path))
        assert isinstance(keys, dict)
        found[name] = Convention(**{str(k): v for k, v in keys.items()}, levels=levels)
    return found


def check_test_lists(table: Table, runs: Sequence[Run]) -> None:
    """See, before anything runs, that the metrics of ``table`` mean something on the test lists.

    Raises:
        ConfigError: they do not; see ``check_metrics``.
    """
    metrics = [parse_metric(metric) for metric in table.metrics]
    for run in {run.fold: run for run in runs}.values():
        dataset = make_dataset(run.config.dataset)
        for convention in conventions_of(table, int(run.config.suggested.levels)).values():
            check_metrics("test", dataset.split("test"), metrics, convention, dataset)


def measure(table: Table, runs: Sequence[Run]) -> list[Measured]:
    """What the finished ones of ``runs`` reached.

    The metrics come from the scores of the test items that the run kept: one set of scores, every
    convention.

    Raises:
        DataError: the test lists are not those of the run.
    """
    lists: dict[str, Lists] = {}
    names = dict.fromkeys(table.metrics)
    curve = [f"ndcg@{k}" for k in CUTOFFS]
    found = []
    for run in runs:
        if not run.done:
            continue
        left = RunFolder(run.folder)
        digest = left.digest
        if digest not in lists:
            lists[digest] = make_dataset(run.config.dataset).split("test")
        test = lists[digest]
        if test.digest != digest:
            raise DataError(f"{run.folder}: its test lists have changed; remove it and run again")
        conventions = conventions_of(table, int(run.config.suggested.levels))
        values = {}
        for number, (name, convention) in enumerate(conventions.items()):
            wanted = list(dict.fromkeys([*names, *curve])) if number == 0 else list(names)
            metrics = [parse_metric(metric) for metric in wanted]
            values[name] = metrics_of_scores(test, left.scores, metrics, convention, items=1 << 18)
        (first, *_) = values.values()
        found.append(
            Measured(
                run=run,
                results=left.results,
                values=values,
                qids=test.qids,
                curve={str(parse_metric(name)): first[str(parse_metric(name))] for name in curve},
                history=left.history,
            )
        )
    return found


def by_run(table: Table, measured: Sequence[Measured]) -> pd.DataFrame:
    """A row per run: row label, fold, seed, epoch, seconds, ``letor4 ndcg@10``, ...

    A column of ``table.history`` is that of the epoch that was tested; NaN where it was not kept.
    """
    rows = []
    for one in measured:
        row: dict[str, Any] = {
            "row": one.run.label,
            "fold": one.run.fold,
            "seed": one.run.seed,
            "epoch": one.results.get("selected_epoch"),
            "seconds": one.results["wall_seconds"],
            "run": str(one.run.folder),
        }
        conventions = conventions_of(table, int(one.run.config.suggested.levels))
        for name, convention in conventions.items():
            chosen = {metric: one.values[name][metric] for metric in table.metrics}
            for metric, value in means(chosen, convention).items():
                row[f"{name} {metric}"] = value
        for column in table.history:
            row[column] = _at_epoch(one.history, column, row["epoch"])
        rows.append(row)
    return pd.DataFrame(rows)


def whole_rows(frame: pd.DataFrame, folds: int) -> pd.DataFrame:
    """The runs of ``by_run`` whose row and seed are done in all folds, so that means are fair."""
    if frame.empty:
        return frame
    done = frame.groupby(["row", "seed"], sort=False)["run"].transform("size")
    return frame[done == folds]


def _at_epoch(history: pd.DataFrame, column: str, epoch: int | None) -> float:
    if column not in history or "epoch" not in history:
        return float("nan")
    found = history.loc[history["epoch"] == epoch, column]
    return float(found.iloc[0]) if len(found) else float("nan")


@dataclass(frozen=True)
class Stacked:
    """A metric of every query by row; the queries are the same in every row.

    Attributes:
        values: row -> ``[seeds, queries]``, the folds one after the other.
        seeds: row -> which seeds.
        queries: ``[queries]``, fold and query id.
    """

    values: Mapping[str, NDArray[np.float64]]
    seeds: Mapping[str, tuple[int, ...]]
    queries: Sequence[tuple[int | None, str]]


def stacked(
    measured: Sequence[Measured], convention: str, metric: str, folds: Sequence[int | None]
) -> Stacked:
    """Put the runs of a row together, a seed for each line.

    A row takes part if at least one of its seeds is done in all of ``folds``; its other seeds are
    left out, as ``whole_rows`` leaves them out.
    """
    of_fold = {one.run.fold: one.qids for one in measured}
    found: dict[str, dict[int, dict[int | None, NDArray[np.float64]]]] = {}
    for one in measured:
        of_seed = found.setdefault(one.run.label, {}).setdefault(one.run.seed, {})
        of_seed[one.run.fold] = one.values[convention][metric]
    values, seeds = {}, {}
    for label, runs in found.items():
        done = tuple(seed for seed in sorted(runs) if set(folds) <= runs[seed].keys())
        if done:
            rows = [np.concatenate([runs[seed][fold] for fold in of_fold]) for seed in done]
            values[label], seeds[label] = np.stack(rows), done
    queries = [(fold, str(qid)) for fold, qids in of_fold.items() for qid in qids]
    return Stacked(values, seeds, queries)
