"""Classify every key of ``configs/train.yaml``: the one table of what a key does to a run."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    """What of a run a key decides."""

    METHOD = auto()  # what is trained, and how
    SELECTION = auto()  # which of its epochs is tested
    REPEAT = auto()  # seed and fold: runs that differ in nothing else are of one system
    MEASUREMENT = auto()  # what is reported
    PLACE = auto()  # where and how fast it is computed, and how much of it is shown
    PROPOSAL = auto()  # values that other keys read


class Resumed(Enum):
    """Where the value of a key comes from when a run is resumed."""

    KEPT = auto()  # the checkpoint; typing another value is refused
    TYPED = auto()  # the checkpoint, unless another value is typed
    OWN = auto()  # the command line; no checkpoint holds it
    FOLDER = auto()  # no checkpoint holds it, and typing it is refused: the folder exists


KEYS = {
    "seed": (Kind.REPEAT, Resumed.KEPT),
    "epochs": (Kind.METHOD, Resumed.TYPED),
    "batch_size": (Kind.METHOD, Resumed.KEPT),
    "shards": (Kind.METHOD, Resumed.KEPT),
    "list_size": (Kind.METHOD, Resumed.KEPT),
    "metrics": (Kind.MEASUREMENT, Resumed.KEPT),
    "own_metrics": (Kind.MEASUREMENT, Resumed.KEPT),  # follows metrics and select_on
    "select_on": (Kind.SELECTION, Resumed.KEPT),
    "select": (Kind.SELECTION, Resumed.KEPT),
    "patience": (Kind.METHOD, Resumed.TYPED),
    "monitor": (Kind.MEASUREMENT, Resumed.KEPT),
    "convention": (Kind.MEASUREMENT, Resumed.KEPT),
    "metrics_as": (Kind.MEASUREMENT, Resumed.KEPT),
    "empty_lists": (Kind.METHOD, Resumed.KEPT),
    "bagging": (Kind.METHOD, Resumed.KEPT),
    "warmup": (Kind.METHOD, Resumed.KEPT),
    "clip": (Kind.METHOD, Resumed.KEPT),
    "l1": (Kind.METHOD, Resumed.KEPT),
    "l2": (Kind.METHOD, Resumed.KEPT),
    "augment": (Kind.METHOD, Resumed.KEPT),
    "device": (Kind.PLACE, Resumed.TYPED),
    "threads": (Kind.PLACE, Resumed.TYPED),
    "precision": (Kind.METHOD, Resumed.KEPT),
    "compile": (Kind.METHOD, Resumed.KEPT),
    "deterministic": (Kind.PLACE, Resumed.TYPED),
    "evaluation_items": (Kind.PLACE, Resumed.TYPED),
    "checkpoint_minutes": (Kind.PLACE, Resumed.TYPED),
    "data_dir": (Kind.PLACE, Resumed.TYPED),
    "cache_dir": (Kind.PLACE, Resumed.OWN),
    "output_dir": (Kind.PLACE, Resumed.FOLDER),
    "sweep": (Kind.PLACE, Resumed.FOLDER),
    "show_test": (Kind.PLACE, Resumed.OWN),
    "resume": (Kind.PLACE, Resumed.OWN),
    "init_from": (Kind.METHOD, Resumed.KEPT),  # of a run's identity by its content
    "for_engine": (Kind.PLACE, Resumed.OWN),
    "teacher": (Kind.METHOD, Resumed.KEPT),  # of a run's identity by its content
    "trust": (Kind.PLACE, Resumed.OWN),
    "tracking": (Kind.PLACE, Resumed.OWN),
    "tracking.experiment": (Kind.PLACE, Resumed.OWN),
    "tracking.project": (Kind.PLACE, Resumed.OWN),
    "suggested": (Kind.PROPOSAL, Resumed.KEPT),
    "dataset": (Kind.METHOD, Resumed.KEPT),
    "dataset.fold": (Kind.REPEAT, Resumed.KEPT),
    "dataset.seed": (Kind.REPEAT, Resumed.KEPT),
    "dataset.data_dir": (Kind.PLACE, Resumed.KEPT),  # follows data_dir
    "dataset.cache_dir": (Kind.PLACE, Resumed.KEPT),
    "transform": (Kind.METHOD, Resumed.KEPT),
    "loss": (Kind.METHOD, Resumed.KEPT),
    "model": (Kind.METHOD, Resumed.KEPT),
    "optimizer": (Kind.METHOD, Resumed.KEPT),
    "schedule": (Kind.METHOD, Resumed.KEPT),
    "experiment": (Kind.METHOD, Resumed.KEPT),
}


def keys(*what: Kind | Resumed) -> tuple[str, ...]:
    """The keys that are one of ``what``.

    >>> keys(Kind.REPEAT)
    ('seed', 'dataset.fold', 'dataset.seed')
    """
    return tuple(key for key, entry in KEYS.items() if {*entry} & {*what})


def without(config: Mapping[str, Any], *what: Kind) -> dict[str, Any]:
    """``config`` without the keys that are one of ``what``.

    >>> without({"seed": 1, "l2": 0.0, "dataset": {"fold": 2, "name": "mq2008"}}, Kind.REPEAT)
    {'l2': 0.0, 'dataset': {'name': 'mq2008'}}
    """
    gone = keys(*what)
    return {
        key: {name: one for name, one in value.items() if f"{key}.{name}" not in gone}
        if isinstance(value, Mapping)
        else value
        for key, value in config.items()
        if key not in gone
    }


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested config by their whole keys.

    >>> flat({"seed": 1, "loss": {"temperature": 0.5}})
    {'seed': 1, 'loss.temperature': 0.5}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        whole = f"{prefix}{key}"
        found |= flat(value, f"{whole}.") if isinstance(value, Mapping) else {whole: value}
    return found


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are neither null nor false.

    A later version adds a key as null or false, so that a digest of the others stays the same.

    >>> stated({"seed": 0, "patience": None, "compile": False})
    {'seed': 0}
    """
    return {key: value for key, value in config.items() if value is not None and value is not False}
