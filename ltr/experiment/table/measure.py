"""Every metric of the finished runs of a table, under each of its conventions."""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.experiment.build import make_dataset
from ltr.experiment.cli import CONFIGS
from ltr.experiment.evaluate_scores import metrics_of_scores
from ltr.experiment.table.plan import Run
from ltr.experiment.table.spec import Table
from ltr.metrics import Convention, parse_metric
from ltr.training.evaluation import means


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


def measure(table: Table, runs: Sequence[Run]) -> pd.DataFrame:
    """A row per finished run: row label, fold, seed, epoch, seconds, ``letor4 ndcg@10``, ...

    The metrics come from the scores of the test items that the run kept: one set of scores, every
    convention.

    Raises:
        DataError: the test lists are not those of the run.
    """
    lists: dict[str, Lists] = {}
    metrics = [parse_metric(name) for name in table.metrics]
    rows = []
    for run in runs:
        if not run.done:
            continue
        results = json.loads((run.folder / "results.json").read_text())
        digest = results["data"]["test"]["digest"]
        if digest not in lists:
            lists[digest] = make_dataset(run.config.dataset).split("test")
        test = lists[digest]
        if test.digest != digest:
            raise DataError(f"{run.folder}: its test lists have changed; remove it and run again")
        scores = pd.read_csv(run.folder / "scores.csv")["score"].to_numpy(np.float64)
        row = {
            "row": run.label,
            "fold": run.fold,
            "seed": run.seed,
            "epoch": results["selected_epoch"],
            "seconds": results["wall_seconds"],
            "run": str(run.folder),
        }
        conventions = conventions_of(table, int(run.config.suggested.levels))
        for name, convention in conventions.items():
            values = metrics_of_scores(test, scores, metrics, convention, items=1 << 18)
            for metric, value in means(values, convention).items():
                row[f"{name} {metric}"] = value
        rows.append(row)
    return pd.DataFrame(rows)
