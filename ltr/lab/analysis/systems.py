"""Group finished runs into systems; the runs of a system differ only in seed and fold."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ltr.arrays import Doubles
from ltr.cli.arguments import as_text
from ltr.cli.keys import flat, of_method, upgrade_choices, without_null
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder, check_measured_alike
from ltr.lab.analysis.values import SystemValues
from ltr.metrics.spec import METRICS

QueryValues = tuple[Sequence[str], Doubles]  # the ids of queries, and a metric for each query


def arrange_runs(runs: Sequence[RunFolder], metric: str) -> pd.DataFrame:
    """Arrange ``runs`` by system and seed, to compare them by ``metric``.

    Returns:
        A frame of run folders with a column for each fold. Its index has two levels. ``system`` is
        the name of the system; the systems are in the order of their first runs. ``training`` is
        the seed, or a string such as "1, dataset.seed 2" if runs with several values of
        ``dataset.seed`` have the same lists.

    Raises:
        ConfigError: two runs are the same, a system lacks a run that others have, the conventions
            of the runs differ, or the runs split one table with different seeds.
        DataError: the lists on which the runs are measured differ.
    """
    _check_comparable(runs, metric)
    fold_of = fold_names(runs)
    folds_share_lists = len(set(fold_of.values())) < len(fold_of)
    frame = pd.DataFrame(
        {
            "method": [_system_key(run) for run in runs],
            "training": [
                f"{run.results['seed']}, {run.repeat}" if folds_share_lists else run.results["seed"]
                for run in runs
            ],
            "fold": [fold_of[run.repeat] for run in runs],
            "run": runs,
        }
    )
    _check_no_duplicates(frame)
    grouped = {key: list(group["run"]) for key, group in frame.groupby("method", sort=False)}
    names = dict(zip(grouped, name_systems(list(grouped.values())), strict=True))
    frame["system"] = frame["method"].map(names)
    cells = frame.pivot(index=["system", "training"], columns="fold", values="run")
    cells = cells.loc[list(names.values())]
    _check_complete(cells, runs)
    return cells


def _check_no_duplicates(frame: pd.DataFrame) -> None:
    """Raise ``ConfigError`` if two runs have the same method, training and fold."""
    duplicates = frame[frame.duplicated(["method", "training", "fold"], keep=False)]
    if len(duplicates):
        same_method = duplicates[duplicates["method"] == duplicates["method"].iloc[0]]
        first, second = same_method["run"].iloc[:2]
        raise ConfigError(
            f"{first.folder} and {second.folder} are the same run (same config, seed and fold): "
            "leave out one of them"
        )


def _check_complete(cells: pd.DataFrame, runs: Sequence[RunFolder]) -> None:
    """Raise an error if a seed of a system lacks a fold that others have."""
    missing = cells.isna()
    if not missing.any(axis=None):
        return
    if len({run.results.get("dataset") for run in runs}) > 1:
        raise _different_lists(runs[0], next(run for run in runs if run.digest != runs[0].digest))
    index: Any = missing.any(axis=1).idxmax()
    system, training = index
    fold = missing.loc[index].idxmax()
    on_fold = f" on {fold}" if fold else " without a fold"
    raise ConfigError(
        f"{system} has no run with seed {training}{on_fold}, but other systems or seeds do: train "
        "the missing run, or compare only the seeds and folds that all of them have"
    )


def fold_names(runs: Sequence[RunFolder]) -> dict[str | None, str]:
    """Return a dict from the ``repeat`` of each run to the name of its fold.

    Runs that are measured on the same lists have the same fold.

    Raises:
        ConfigError: the runs split one table with different seeds, so their lists share queries.
    """
    by_digest: dict[str, str] = {}
    fold_of = {}
    for run in sorted(runs, key=lambda run: run.repeat or ""):
        fold_of[run.repeat] = by_digest.setdefault(run.digest, run.repeat or "")
    tables = [run.results["protocol"].get("dataset", {}).get("path") for run in runs]
    if len(by_digest) > 1 and any(tables):
        seeds = ", ".join(name or "no seed" for name in fold_of)
        raise ConfigError(
            f"the {runs[0].split} lists were split from one table with several seeds "
            f"({seeds}): a query in several of these splits would be "
            "counted more than once; compare runs with one dataset.seed that differ only in seed"
        )
    return fold_of


def method_config(run: RunFolder) -> dict[str, Any]:
    """Return a run's config without the keys that may differ between runs of one system.

    If the config names a run as ``teacher`` or ``init_from``, the ``method_config`` of that run
    replaces its path, because each seed may use a different run.
    """
    config = {"dataset": {}, **run.results["protocol"]}
    plain = of_method(config)
    for key in ("teacher", "init_from"):
        if plain.get(key) is not None:
            with suppress(DataError):  # if that run is missing, its path stays
                plain[key] = method_config(RunFolder(Path(plain[key])))
    return plain


def _system_key(run: RunFolder) -> str:
    """Return a string that is the same for all runs of a system.

    Keys with the value null are left out, because older runs do not have them.
    """
    return json.dumps(without_null(method_config(run)), sort_keys=True)


def system_values(
    cells: pd.DataFrame, metric: str, measure: Callable[[RunFolder], QueryValues]
) -> SystemValues:
    """Return ``metric`` of one system, with all folds in one array.

    Args:
        cells: the rows of one system, from ``arrange_runs``, without the index level ``system``.
        metric: the name of the metric.
        measure: computes the metric of a run that did not compute it itself.

    Raises:
        ConfigError, DataError: ``metric`` cannot be computed, or a file is damaged.
    """
    folds = {
        fold: [run.values(metric) if metric in run.measured else measure(run) for run in runs]
        for fold, runs in cells.items()
    }
    return join_folds(folds)


def join_folds(folds: Mapping[Hashable, Sequence[QueryValues]]) -> SystemValues:
    """Join the queries of all folds into one array.

    ``folds`` contains the query ids and the values of each training run, by fold. A query is named
    by its position and its id, because several lists of a fold may share an id.
    """
    queries = [
        (fold, f"{position} qid {qid}")
        for fold, trainings in folds.items()
        for position, qid in enumerate(trainings[0][0], 1)
    ]
    blocks = [np.stack([values for _, values in trainings]) for trainings in folds.values()]
    return SystemValues(np.concatenate(blocks, axis=1), queries)


def _check_comparable(runs: Sequence[RunFolder], metric: str) -> None:
    """Check that all runs have one convention and, in each fold, are measured on the same lists."""
    check_measured_alike(runs)
    reference = runs[0]
    name = metric.partition("@")[0]
    # among our metrics only err depends on the number of grades, which may differ between folds
    ignored = {"levels"} if name in METRICS and name != "err" else set()
    first_of_fold: dict[str | None, RunFolder] = {}
    for run in runs:
        reference_keys, reference_text = reference.convention
        run_keys, run_text = run.convention
        differing = [
            key
            for key in reference_keys
            if key not in ignored and reference_keys[key] != run_keys.get(key)
        ]
        if differing:
            remedy = "suggested.levels" if differing == ["levels"] else "convention"
            raise ConfigError(
                f"{reference.folder} and {run.folder} were measured under different conventions "
                f"({reference_text} | {run_text}): train one of them again with the "
                f"{remedy}= of the other"
            )
        first = first_of_fold.setdefault(run.repeat, run)
        if run.digest != first.digest:
            raise _different_lists(first, run)


def _different_lists(first: RunFolder, second: RunFolder) -> DataError:
    return DataError(
        f"{first.folder} and {second.folder} have different {first.split} lists "
        f"({first.results.get('dataset')} and {second.results.get('dataset')}): compare runs on "
        "the same version of the same data set"
    )


def name_systems(systems: Sequence[Sequence[RunFolder]]) -> list[str]:
    """Return a name for each system, for example ``loss=neuralndcg``.

    The name contains the config choices and the keys from the command line in which the systems
    differ. If several systems would have the same name, all keys in which they differ are added. A
    single system is named after its model and loss.
    """
    choices = pd.DataFrame([upgrade_choices(runs[0].results["choices"]) for runs in systems])
    if len(systems) == 1:
        return [_join(choices.iloc[0][[key for key in ("model", "loss") if key in choices]])]
    flat_configs = [flat(method_config(runs[0])) for runs in systems]
    configs = pd.DataFrame(
        [{key: as_text(value) for key, value in config.items()} for config in flat_configs]
    )
    overrides = [override for runs in systems for run in runs for override in run.overrides]
    typed_keys = {override.lstrip("+~").partition("=")[0] for override in overrides}
    choices = choices.drop(columns=["convention", "experiment"], errors="ignore")
    typed_configs = configs[configs.columns.intersection([*typed_keys])]
    names = np.array(_name_rows(pd.concat([choices, typed_configs], axis=1)), dtype=object)
    for name in [name for name in dict.fromkeys(names) if (names == name).sum() > 1]:
        same = names == name
        names[same] = [f"{name}, {details}" for details in _name_rows(configs[same])]
    return names.tolist()


def _name_rows(frame: pd.DataFrame) -> list[str]:
    """Return a name for each row: its values in the columns that are not constant."""
    frame = frame.loc[:, frame.nunique(dropna=False) > 1]
    return [_join(row) or "default" for _, row in frame.iterrows()]


def _join(row: pd.Series) -> str:
    return ", ".join(f"{key}={value}" for key, value in row.dropna().items())
