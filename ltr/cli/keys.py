"""Classify the keys of ``configs/train.yaml`` by effect; convert configs of earlier versions."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from omegaconf import ListConfig, OmegaConf


class Kind(Enum):
    """What a key affects; a key that has no kind belongs to the method (data, model, training)."""

    SELECTION = auto()  # which epoch is tested
    REPEAT = auto()  # seed and fold: runs that differ only in these form one system
    MEASUREMENT = auto()  # what is measured and reported
    PLACE = auto()  # where and how fast a run is computed, and what is shown
    PROPOSAL = auto()  # default values to which other keys refer


class Resumed(Enum):
    """Where the value of a key comes from when a run is resumed.

    A key that is not listed always has the value in the checkpoint.
    """

    TYPED = auto()  # from the checkpoint, unless another value is typed
    OWN = auto()  # from the command line; checkpoints do not contain the key
    FOLDER = auto()  # checkpoints do not contain the key; it is an error to type it


_KEYS: dict[Kind | Resumed, tuple[str, ...]] = {
    Kind.SELECTION: ("select_on", "select"),
    Kind.REPEAT: ("seed", "dataset.fold", "dataset.seed"),
    Kind.MEASUREMENT: ("metrics", "own_metrics", "monitor", "convention"),
    Kind.PLACE: (
        "device", "threads", "deterministic", "evaluation_items", "checkpoint_minutes", "data_dir",
        "cache_dir", "output_dir", "sweep", "show_test", "resume", "trust",
        "tracking", "tracking.experiment", "tracking.project", "dataset.data_dir",
        "dataset.cache_dir",
    ),
    Kind.PROPOSAL: ("suggested", "gain"),
    Resumed.TYPED: (
        "epochs", "patience", "device", "threads", "deterministic", "evaluation_items",
        "checkpoint_minutes", "data_dir",
    ),
    Resumed.OWN: (
        "cache_dir", "show_test", "resume", "trust", "tracking",
        "tracking.experiment", "tracking.project",
    ),
    Resumed.FOLDER: ("output_dir", "sweep"),
}  # fmt: skip


class Holds(Enum):
    """The kinds of keys whose values stay exactly as typed, so that 1.10 does not become 1.1."""

    TEXT = auto()  # one string, including commas and brackets
    TEXTS = auto()  # a string, a list of strings, or a dict of strings


_HOLDS: dict[Holds, tuple[str, ...]] = {
    Holds.TEXT: (
        "cache_dir", "data_dir", "init_from", "output_dir", "resume", "select_on", "sweep",
        "teacher", "dataset.cache_dir", "dataset.data_dir", "dataset.folder", "dataset.label",
        "dataset.name", "dataset.path", "dataset.query", "dataset.split.test",
        "dataset.split.train", "dataset.split.vali", "dataset.weight", "hydra.job.name",
        "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "tracking.experiment",
        "tracking.project",
    ),
    Holds.TEXTS: (
        "metrics", "monitor", "trust", "dataset.categories", "dataset.features", "dataset.id",
        "dataset.split",
    ),
}  # fmt: skip
# Keys that are missing in the configs of older runs and searches, with the values that these runs
# used. A new key whose default is null needs no entry.
_LATER = {"loss.gain": "exp2", "suggested.gain": "exp2"}


# Modules of earlier versions, and the modules that have their content now.
_MOVED = {"ltr.models.rounds.": "ltr.boosting.", "ltr.scorers.ensemble.": "ltr.parts.ensemble."}
_REMOVED = ("shards", "for_engine", "metrics_as")  # keys of earlier versions
# The name of ``convention`` in version 0.2; the next version will no longer accept it.
FORMER_CONVENTION = "metrics_as"


def upgrade(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved config of any version in the form of this version.

    Keys that no longer exist are removed, and the ``_target_`` of a model that was moved is
    replaced.

    >>> upgrade({"model": {"_target_": "ltr.models.rounds.LightGBM"}, "seed": 1, "shards": None})
    {'model': {'_target_': 'ltr.boosting.LightGBM'}, 'seed': 1}
    """
    upgraded = {key: value for key, value in config.items() if key not in _REMOVED}
    model = config.get("model")
    if isinstance(model, Mapping):
        target = str(model.get("_target_"))
        for old, new in _MOVED.items():
            if target.startswith(old):
                upgraded["model"] = {**model, "_target_": new + target.removeprefix(old)}
    return upgraded


def upgrade_choices(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices of config groups of any version, with the group names of this version.

    >>> upgrade_choices({"loss": "listnet", "metrics_as": "trec"})
    {'loss': 'listnet', 'convention': 'trec'}
    """
    upgraded = dict(choices)
    former_choice = upgraded.pop(FORMER_CONVENTION, None)
    if former_choice is not None:
        upgraded["convention"] = former_choice
    return upgraded


def upgrade_override(override: str) -> str:
    """Return an override of any version in the form of this version.

    >>> upgrade_override("metrics_as=trec"), upgrade_override("seed=1")
    ('convention=trec', 'seed=1')
    """
    return _rename_key(override, FORMER_CONVENTION, "convention")


def former_override(override: str) -> str:
    """Return an override in the form of version 0.2.

    >>> former_override("convention=trec"), former_override("convention.empty=0")
    ('metrics_as=trec', 'convention.empty=0')
    """
    return _rename_key(override, "convention", FORMER_CONVENTION)


def _rename_key(override: str, old: str, new: str) -> str:
    """Return ``override`` with the key ``new`` if its key is ``old``; otherwise unchanged."""
    key, equals, value = override.partition("=")
    signs = key.removesuffix(old)
    return f"{signs}{new}{equals}{value}" if key.lstrip("+~") == old else override


def keys(*kinds: Kind | Resumed) -> tuple[str, ...]:
    """Return the keys of the given kinds.

    >>> keys(Kind.REPEAT)
    ('seed', 'dataset.fold', 'dataset.seed')
    """
    return tuple(key for kind in kinds for key in _KEYS[kind])


def holds(key: str) -> Holds | None:
    """Return what ``key`` of ``train`` holds if its values are strings; otherwise None.

    If the result is None, Hydra's grammar decides the type of the value.

    >>> holds("dataset.folder"), holds("metrics"), holds("seed")
    (<Holds.TEXT: 1>, <Holds.TEXTS: 2>, None)
    """
    return next((value_kind for value_kind, names in _HOLDS.items() if key in names), None)


def without(config: Mapping[str, Any], *kinds: Kind | Resumed) -> dict[str, Any]:
    """Return ``config`` without the keys of the given kinds.

    >>> without({"seed": 1, "l2": 0.0, "dataset": {"fold": 2, "name": "mq2008"}}, Kind.REPEAT)
    {'l2': 0.0, 'dataset': {'name': 'mq2008'}}
    """
    removed_keys = keys(*kinds)
    return {
        key: {
            name: inner_value
            for name, inner_value in value.items()
            if f"{key}.{name}" not in removed_keys
        }
        if isinstance(value, Mapping)
        else value
        for key, value in config.items()
        if key not in removed_keys
    }


def without_null(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``config`` without the keys whose value is None, at any depth.

    >>> without_null({"patience": None, "loss": {"k": None, "sigma": 1.0}, "all": [{"k": None}]})
    {'loss': {'sigma': 1.0}, 'all': [{}]}
    """
    return {key: _without_null(value) for key, value in config.items() if value is not None}


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_null(value)
    if isinstance(value, list):
        return [_without_null(entry) for entry in value]
    return value


def of_method(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``config`` that the runs of one system share: the keys of the method.

    A key that is missing in the configs of older runs is left out if it has the value that these
    runs used.

    >>> of_method({"seed": 1, "l2": 0.0, "loss": {"k": 5, "gain": "exp2"}})
    {'l2': 0.0, 'loss': {'k': 5}}
    """
    method_config = without(
        upgrade(config), Kind.REPEAT, Kind.PLACE, Kind.MEASUREMENT, Kind.PROPOSAL
    )
    for key, former_value in _LATER.items():
        node, _, name = key.partition(".")
        if (
            isinstance(method_config.get(node), dict)
            and method_config[node].get(name) == former_value
        ):
            method_config[node].pop(name, None)
    return method_config


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested config; the result maps full keys to values.

    >>> flat({"seed": 1, "loss": {"temperature": 0.5}})
    {'seed': 1, 'loss.temperature': 0.5}
    """
    flat_config: dict[str, Any] = {}
    for key, value in config.items():
        full_key = f"{prefix}{key}"
        flat_config |= (
            flat(value, f"{full_key}.") if isinstance(value, Mapping) else {full_key: value}
        )
    return flat_config


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a flat config that differ from None, False and what older runs used.

    A digest of these entries stays the same if a later version adds a key with the default null or
    false.

    >>> stated({"seed": 0, "patience": None, "compile": False})
    {'seed': 0}
    """
    stated_config = {
        key: value for key, value in config.items() if value is not None and value is not False
    }
    return {key: value for key, value in stated_config.items() if _LATER.get(key) != value}


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config or node as plain values, with its interpolations resolved."""
    values: Any = OmegaConf.to_container(config, resolve=True)
    return dict(values)


def as_list(value: Any) -> list[str]:
    """Return a setting as a list of strings; a single value becomes a list with one string."""
    if isinstance(value, (list, tuple, ListConfig)):
        return list(map(str, value))
    return [] if value is None else [str(value)]
