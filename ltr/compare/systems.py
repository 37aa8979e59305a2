"""Group finished runs into systems: the same config but for seed and fold."""

import json
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ltr.console.keys import Kind, without
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder
from ltr.metrics.spec import METRICS
from ltr.statistics.values import SystemValues

Training = int | str  # the seed; "1, dataset.seed 2" where that tells trainings on a fold apart


@dataclass(frozen=True)
class System:
    """The runs of one config: one for each training on each fold."""

    name: str
    cells: Mapping[tuple[Training, str | None], RunFolder]

    @property
    def runs(self) -> list[RunFolder]:
        return list(self.cells.values())

    @property
    def trainings(self) -> list[Training]:
        return sorted({training for training, _ in self.cells}, key=_in_order)

    @property
    def folds(self) -> list[str | None]:
        return sorted({fold for _, fold in self.cells}, key=_in_order)


def _in_order(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def group(runs: Sequence[RunFolder], metric: str) -> list[System]:
    """Systems in the order of their first runs, to be compared by ``metric``.

    Raises:
        ConfigError: the runs cannot be set side by side, or two are of the same seed and fold.
        DataError: their test lists differ.
    """
    _check_side_by_side(runs, metric)
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(json.dumps(method(run), sort_keys=True), []).append(run)
    names = name_systems([(members, json.loads(key)) for key, members in groups.items()])
    fold_of = folds_of(runs)
    systems = [
        System(name, _cells(members, fold_of))
        for name, members in zip(names, groups.values(), strict=True)
    ]
    for system in systems:
        _check_complete(system)
    first, *others = systems
    for other in others:
        if apart := set(first.folds) ^ set(other.folds):
            one, two = first.runs[0], other.runs[0]
            if one.results.get("dataset") != two.results.get("dataset"):
                raise _different(one, two)
            missing = min(map(str, apart))
            raise ConfigError(
                f"{first.name} and {other.name} are not on the same folds ({missing} is in one "
                "only): run what is missing, or leave those runs out"
            )
    return systems


def folds_of(runs: Sequence[RunFolder]) -> dict[str | None, str | None]:
    """Of each ``repeat`` the fold that it is: repeats on the same test lists are one fold.

    Such are cuts of vali alone, by another ``dataset.seed``: further trainings, no further queries.

    Raises:
        ConfigError: test lists cut from one table by several seeds, which share queries.
    """
    by_digest: dict[str, str | None] = {}
    found = {}
    for run in sorted(runs, key=lambda run: _in_order(run.repeat)):
        found[run.repeat] = by_digest.setdefault(run.digest, run.repeat)
    if len(by_digest) > 1 and any(run.cut_test for run in runs):
        raise ConfigError(
            f"test was cut from one table by several seeds ({', '.join(map(str, found))}): queries "
            "that stand in several cuts would be counted more than once; compare the runs of one "
            "dataset.seed, trained with several seed="
        )
    return found


def _cells(
    runs: Sequence[RunFolder], fold_of: Mapping[str | None, str | None]
) -> dict[tuple[Training, str | None], RunFolder]:
    """The runs by training and fold.

    Raises:
        ConfigError: two are the same.
    """
    shared = len(set(fold_of.values())) < len(fold_of)
    cells: dict[tuple[Training, str | None], RunFolder] = {}
    for run in runs:
        training = f"{run.seed}, {run.repeat}" if shared else run.seed
        other = cells.setdefault((training, fold_of[run.repeat]), run)
        if other is not run:
            raise ConfigError(
                f"{other.folder} and {run.folder} are the same run (same config, seed {run.seed}"
                f"{f', {run.repeat}' if run.repeat else ''}): give one of them"
            )
    return cells


def method(run: RunFolder) -> dict[str, Any]:
    """The config of a run without the keys that may differ between two runs of one system.

    A run that it learned from or began with counts by its own method: each seed may have another.
    """
    config = {"dataset": {}, **run.results["protocol"]}
    plain = without(config, Kind.REPEAT, Kind.PLACE, Kind.MEASUREMENT, Kind.PROPOSAL)
    for key in ("teacher", "init_from"):
        if plain.get(key) is not None:
            with suppress(DataError):  # it is gone: its path tells it apart
                plain[key] = method(RunFolder(Path(plain[key])))
    return plain


def values_of(system: System, metric: str) -> SystemValues:
    """``metric`` of the system, ``[trainings, queries]``, the queries of all folds side by side.

    Raises:
        ConfigError: a run did not measure it.
        DataError: a file is damaged.
    """
    trainings = system.trainings
    blocks, queries = [], list[tuple[Hashable, str]]()
    for fold in system.folds:
        read = [system.cells[training, fold].values(metric) for training in trainings]
        qids = read[0][0]
        if any(ids != qids for ids, _ in read):
            raise DataError(
                f"{system.cells[trainings[0], fold].folder} and other seeds of it hold other "
                "queries in queries.csv: run them again"
            )
        queries += named_queries(fold, qids)
        blocks.append(np.stack([values for _, values in read]))
    return SystemValues(np.concatenate(blocks, axis=1), queries, trainings)


def named_queries(fold: str | None, qids: Sequence[str]) -> list[tuple[Hashable, str]]:
    """The test queries of a fold; an id may stand for several lists, its place tells them apart."""
    return [(fold, f"{place} qid {qid}") for place, qid in enumerate(qids, 1)]


def _check_side_by_side(runs: Sequence[RunFolder], metric: str) -> None:
    """Check that ``metric`` is under one convention, and on the same test lists in each fold."""
    first = runs[0]
    name = metric.partition("@")[0]
    # of the metrics here err alone reads the number of grades, in which folds may differ
    ignored = {"levels"} if name in METRICS and name != "err" else set()
    lists: dict[str | None, RunFolder] = {}
    for run in runs:
        ours, theirs = (
            {key: value for key, value in one.convention_keys.items() if key not in ignored}
            for one in (first, run)
        )
        if ours != theirs:
            unlike = [key for key in ours if ours[key] != theirs.get(key)]
            remedy = "suggested.levels" if unlike == ["levels"] else "metrics_as"
            raise ConfigError(
                f"{first.folder} and {run.folder} are under different conventions "
                f"({first.convention} | {run.convention}): train one of them again with the "
                f"{remedy}= of the other"
            )
        same = lists.setdefault(run.repeat, run)
        if run.digest != same.digest:
            raise _different(same, run)


def _different(one: RunFolder, other: RunFolder) -> DataError:
    return DataError(
        f"{one.folder} and {other.folder} have different test lists "
        f"({one.results.get('dataset')} and {other.results.get('dataset')}): compare runs on the "
        "same data set and version"
    )


def _check_complete(system: System) -> None:
    """Check that there is one run for every training in every fold."""
    for fold, training in product(system.folds, system.trainings):
        if (training, fold) not in system.cells:
            raise ConfigError(
                f"{system.name}: seed {training} has no run of {fold}, as other seeds have: run "
                "what is missing, or leave that seed out"
            )


_ABSENT = object()


def name_systems(systems: Sequence[tuple[Sequence[RunFolder], dict[str, Any]]]) -> list[str]:
    """A name for each system, such as ``loss=neuralndcg`` or ``epochs=0``; no two are the same.

    A name has the choices of groups that differ, and the keys that differ and that someone typed;
    where these do not tell two systems apart, every key that differs between the two.

    Args:
        systems: runs and config of each.
    """
    choices = [dict(runs[0].results["choices"]) for runs, _ in systems]
    configs = [_flat(config) for _, config in systems]
    if len(systems) == 1:
        (only,) = choices
        return [_joined({key: only[key] for key in ("model", "loss") if key in only})]
    groups = [key for key in _differing(choices) if key not in ("metrics_as", "experiment")]
    typed = {
        item.lstrip("+~").partition("=")[0]
        for runs, _ in systems
        for run in runs
        for item in run.overrides
    }
    keys = [key for key in _differing(configs) if key in typed]
    names = [
        _joined(_present(choice, groups) | _present(config, keys)) or "default"
        for choice, config in zip(choices, configs, strict=True)
    ]
    for name in [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        same = [i for i, other in enumerate(names) if other == name]
        apart = _differing([configs[i] for i in same])
        for i in same:
            names[i] = ", ".join(filter(None, (name, _joined(_present(configs[i], apart)))))
    return names


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """``{"optimizer.lr": 0.001, ...}``."""
    if not isinstance(node, dict) or not node:
        return {prefix: node}
    return {
        key: value
        for name, below in node.items()
        for key, value in _flat(below, f"{prefix}.{name}" if prefix else str(name)).items()
    }


def _differing(mappings: Sequence[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for mapping in mappings for key in mapping)
    first = mappings[0]
    return [k for k in keys if any(m.get(k, _ABSENT) != first.get(k, _ABSENT) for m in mappings)]


def _present(mapping: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


def _joined(parts: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_text(value)}" for key, value in parts.items())


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
