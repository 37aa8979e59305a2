"""Runs grouped into systems: the same config apart from seed and fold."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ltr.compare.naming import name_systems
from ltr.console.keys import Kind, without
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder
from ltr.statistics import SystemValues


@dataclass(frozen=True)
class System:
    """The runs of one config, and what it is called."""

    name: str
    runs: tuple[RunFolder, ...]


def group(runs: Sequence[RunFolder]) -> list[System]:
    """Systems in the order of their first runs.

    Raises:
        ConfigError: the runs cannot be set side by side, or two are of the same seed and fold.
        DataError: their test lists differ.
    """
    _check_side_by_side(runs)
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(json.dumps(method(run), sort_keys=True), []).append(run)
    names = name_systems([(members, json.loads(key)) for key, members in groups.items()])
    systems = [
        System(name, tuple(members)) for name, members in zip(names, groups.values(), strict=True)
    ]
    for system in systems:
        _check_complete(system)
    first, *others = systems
    for other in others:
        mine, theirs = ({run.repeat for run in system.runs} for system in (first, other))
        if mine != theirs:
            missing = sorted(str(repeat) for repeat in mine ^ theirs)
            raise ConfigError(
                f"{first.name} and {other.name} are not on the same folds ({missing[0]} is in one "
                "only): run what is missing, or leave those runs out"
            )
    return systems


def method(run: RunFolder) -> dict[str, Any]:
    """The config of a run without what may differ between two runs of one system."""
    config = {"dataset": {}, **run.results["protocol"]}
    return without(config, Kind.REPEAT, Kind.PLACE, Kind.MEASUREMENT, Kind.PROPOSAL)


def values_of(system: System, metric: str) -> SystemValues:
    """``metric`` of the system, ``[seeds, queries]``, the queries of all folds side by side.

    Raises:
        ConfigError: a run did not measure it.
        DataError: a file is damaged.
    """
    seeds = sorted({run.seed for run in system.runs})
    by_place = {(run.seed, run.repeat): run for run in system.runs}
    blocks, queries = [], list[tuple[Hashable, str]]()
    for repeat in _repeats(system):
        read = [by_place[seed, repeat].values(metric) for seed in seeds]
        qids = read[0][0]
        if any(ids != qids for ids, _ in read):
            raise DataError(
                f"{by_place[seeds[0], repeat].folder} and other seeds of it hold other queries in "
                "queries.csv: run them again"
            )
        # an id may stand for several lists of a file: its place tells them apart
        queries += [(repeat, f"{place} qid {qid}") for place, qid in enumerate(qids, 1)]
        blocks.append(np.stack([values for _, values in read]))
    return SystemValues(np.concatenate(blocks, axis=1), queries, seeds)


def _repeats(system: System) -> list[str | None]:
    return sorted({run.repeat for run in system.runs}, key=str)


def _check_side_by_side(runs: Sequence[RunFolder]) -> None:
    """All runs under one convention, and on the same test lists where the fold is the same."""
    first = runs[0]
    lists: dict[str | None, RunFolder] = {}
    for run in runs:
        if run.convention_keys != first.convention_keys:
            raise ConfigError(
                f"{first.folder} and {run.folder} are under different conventions "
                f"({first.convention} | {run.convention}): train one of them again with the "
                "metrics_as= of the other"
            )
        same = lists.setdefault(run.repeat, run)
        if run.digest != same.digest:
            raise DataError(
                f"{same.folder} and {run.folder} have different test lists "
                f"({same.results.get('dataset')} and {run.results.get('dataset')}): compare runs "
                "on the same data set and version"
            )


def _check_complete(system: System) -> None:
    """One run for every seed in every fold."""
    taken: dict[tuple[int, str | None], RunFolder] = {}
    for run in system.runs:
        other = taken.setdefault((run.seed, run.repeat), run)
        if other is not run:
            raise ConfigError(
                f"{other.folder} and {run.folder} are the same run (same config, seed {run.seed}"
                f"{f', {run.repeat}' if run.repeat else ''}): give one of them"
            )
    seeds = {seed for seed, _ in taken}
    missing = [
        (seed, repeat)
        for repeat in _repeats(system)
        for seed in sorted(seeds)
        if (seed, repeat) not in taken
    ]
    if missing:
        seed, repeat = missing[0]
        raise ConfigError(
            f"{system.name}: seed {seed} has no run of {repeat}, as other seeds have: run what is "
            "missing, or leave that seed out"
        )
