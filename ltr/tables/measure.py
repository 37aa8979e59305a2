"""Every metric of every query of the finished runs of a table, under each of its conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import OmegaConf

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
