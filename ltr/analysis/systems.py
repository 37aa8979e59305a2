"""Group finished runs into systems: runs whose configs differ only in seed and fold."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ltr.analysis.values import SystemValues
from ltr.arrays import Doubles
from ltr.console.arguments import as_text
from ltr.console.keys import flat, of_method
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder, check_measured_alike
from ltr.metrics.spec import METRICS

OfQueries = tuple[Sequence[str], Doubles]  # the ids of queries, and a metric for each query


def runs_frame(runs: Sequence[RunFolder], metric: str) -> pd.DataFrame:
    """Arrange ``runs`` by system and training, to compare them by ``metric``.

    The frame of run folders has a column for each fold. Its index has the system, in the order of
    the first runs, and the training: the seed, or a text such as "1, dataset.seed 2" if several
    values of ``dataset.seed`` have the same lists.

    Raises:
        ConfigError: two runs are the same, one is missing, or their conventions differ.
        DataError: the lists that they are measured on differ.
    """
    _check_side_by_side(runs, metric)
    fold_of = folds_of(runs)
    shared = len(set(fold_of.values())) < len(fold_of)
    methods = [json.dumps(method(run), sort_keys=True) for run in runs]
    trainings = [
        f"{run.results['seed']}, {run.repeat}" if shared else run.results["seed"] for run in runs
    ]
    folds = [fold_of[run.repeat] for run in runs]
    columns = {"method": methods, "training": trainings, "fold": folds, "run": runs}
    frame = pd.DataFrame(columns)
    same = frame[frame.duplicated(["method", "training", "fold"], keep=False)]
    if len(same):
        one, other = same[same["method"] == same["method"].iloc[0]]["run"].iloc[:2]
        raise ConfigError(
            f"{one.folder} and {other.folder} are the same run (same config, seed and fold): give "
            "one of them"
        )
    grouped = {key: list(of["run"]) for key, of in frame.groupby("method", sort=False)}
    names = dict(zip(grouped, name_systems(list(grouped.values())), strict=True))
    frame["system"] = frame["method"].map(names)
    cells = frame.pivot(index=["system", "training"], columns="fold", values="run")
    cells = cells.loc[list(names.values())]
    if (missing := cells.isna()).any(axis=None):
        if len({run.results.get("dataset") for run in runs}) > 1:
            raise _different(runs[0], next(run for run in runs if run.digest != runs[0].digest))
        index: Any = missing.any(axis=1).idxmax()
        raise ConfigError(
            f"{index[0]}: seed {index[1]} has no run of {missing.loc[index].idxmax() or 'all'}, as "
            "others have: run what is missing, or leave the others out"
        )
    return cells


def folds_of(runs: Sequence[RunFolder]) -> dict[str | None, str]:
    """Map the ``repeat`` of each run to its fold; runs measured on the same lists share a fold.

    Raises:
        ConfigError: several seeds split one table, so that their lists share queries.
    """
    by_digest: dict[str, str] = {}
    found = {}
    for run in sorted(runs, key=lambda run: run.repeat or ""):
        found[run.repeat] = by_digest.setdefault(run.digest, run.repeat or "")
    tables = [run.results["protocol"].get("dataset", {}).get("path") for run in runs]
    if len(by_digest) > 1 and any(tables):
        raise ConfigError(
            f"{runs[0].split} was cut from one table by several seeds "
            f"({', '.join(map(str, found))}): queries that stand in several cuts would be counted "
            "more than once; compare the runs of one dataset.seed, trained with several seed="
        )
    return found


def method(run: RunFolder) -> dict[str, Any]:
    """Return a run's config without the keys that may differ between runs of one system. If the
    config names a run as ``teacher`` or ``init_from``, the ``method`` of that run replaces its
    path, because each seed may use another run.
    """
    config = {"dataset": {}, **run.results["protocol"]}
    plain = of_method(config)
    for key in ("teacher", "init_from"):
        if plain.get(key) is not None:
            with suppress(DataError):  # that run is missing: keep its path
                plain[key] = method(RunFolder(Path(plain[key])))
    return plain


def values_of(
    cells: pd.DataFrame, metric: str, measure: Callable[[RunFolder], OfQueries]
) -> SystemValues:
    """Return ``metric`` of one system (rows of ``runs_frame``), with all folds in one array.

    Where a run did not compute it, ``measure`` does.

    Raises:
        ConfigError, DataError: ``metric`` cannot be computed, or a file is damaged.
    """
    folds = {
        fold: [run.values(metric) if metric in run.measured else measure(run) for run in runs]
        for fold, runs in cells.items()
    }
    return side_by_side(folds)


def side_by_side(folds: Mapping[Hashable, Sequence[OfQueries]]) -> SystemValues:
    """Join the queries of all folds (fold -> ids and values for each training) into one array. A
    query is named by its position and its id, because several lists of a fold may share an id.
    """
    queries = [
        (fold, f"{place} qid {qid}")
        for fold, trainings in folds.items()
        for place, qid in enumerate(trainings[0][0], 1)
    ]
    blocks = [np.stack([values for _, values in trainings]) for trainings in folds.values()]
    return SystemValues(np.concatenate(blocks, axis=1), queries)


def _check_side_by_side(runs: Sequence[RunFolder], metric: str) -> None:
    """Check that all runs have one convention and, in each fold, are measured on the same lists."""
    check_measured_alike(runs)
    first = runs[0]
    name = metric.partition("@")[0]
    # among our metrics only err depends on the number of grades, which may differ between folds
    ignored = {"levels"} if name in METRICS and name != "err" else set()
    lists: dict[str | None, RunFolder] = {}
    for run in runs:
        (ours, text), (theirs, other) = first.convention, run.convention
        unlike = [key for key in ours if key not in ignored and ours[key] != theirs.get(key)]
        if unlike:
            remedy = "suggested.levels" if unlike == ["levels"] else "metrics_as"
            raise ConfigError(
                f"{first.folder} and {run.folder} are under different conventions "
                f"({text} | {other}): train one of them again with the "
                f"{remedy}= of the other"
            )
        same = lists.setdefault(run.repeat, run)
        if run.digest != same.digest:
            raise _different(same, run)


def _different(one: RunFolder, other: RunFolder) -> DataError:
    return DataError(
        f"{one.folder} and {other.folder} have different {one.split} lists "
        f"({one.results.get('dataset')} and {other.results.get('dataset')}): compare runs on the "
        "same data set and version"
    )


def name_systems(systems: Sequence[Sequence[RunFolder]]) -> list[str]:
    """Name each system, for example ``loss=neuralndcg``, by the choices and typed keys that differ.

    If two names would be the same, all keys that differ between these systems are added. A single
    system is named by its model and loss.
    """
    choices = pd.DataFrame([dict(runs[0].results["choices"]) for runs in systems])
    if len(systems) == 1:
        return [_join(choices.iloc[0][[key for key in ("model", "loss") if key in choices]])]
    flattened = [flat(method(runs[0])) for runs in systems]
    configs = pd.DataFrame(
        [{key: as_text(value) for key, value in one.items()} for one in flattened]
    )
    every = [item for runs in systems for run in runs for item in run.overrides]
    typed = {item.lstrip("+~").partition("=")[0] for item in every}
    choices = choices.drop(columns=["metrics_as", "experiment"], errors="ignore")
    known = pd.concat([choices, configs[configs.columns.intersection([*typed])]], axis=1)
    names = np.array(_names(known), dtype=object)
    for name in [name for name in dict.fromkeys(names) if (names == name).sum() > 1]:
        same = names == name
        names[same] = [f"{name}, {rest}" for rest in _names(configs[same])]
    return names.tolist()


def _names(frame: pd.DataFrame) -> list[str]:
    """Return a name for each row: its values in the columns that are not constant."""
    frame = frame.loc[:, frame.nunique(dropna=False) > 1]
    return [_join(row) or "default" for _, row in frame.iterrows()]


def _join(row: pd.Series) -> str:
    return ", ".join(f"{key}={value}" for key, value in row.dropna().items())
