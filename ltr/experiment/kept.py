"""Load a kept model or config without executing anything that its file names.

A config is kept with its values filled in. The only interpolations left in it are ``LINK``, whole
values such as ``${epochs}`` that follow a key which may change when the run is resumed; no resolver
is ever called for a config that comes from a file. Paths of output are the user's to choose and are
not kept.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn

import ltr.losses
import ltr.models
import ltr.trees
from ltr.console.keys import Resumed, keys
from ltr.data.lists import Columns, Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.ensemble import Ensemble, Member
from ltr.experiment.identity import own_metrics
from ltr.experiment.parts import make_convention, make_model, make_settings, model_for
from ltr.training.checkpoint import (
    columns_of,
    fitting,
    members_of,
    selected_checkpoint,
    transform_of,
    weight_bytes,
)
from ltr.training.settings import Settings

LINK = re.compile(r"\$\{(" + "|".join(keys(Resumed.TYPED, Resumed.OWN)) + r")\}")
_PLAIN_LINK = re.compile(r"\$\{[\w.]+\}", re.ASCII)  # a value of the config, no resolver

# The keys that are read of every kept config, and their types; ``object``: the reader checks them.
_READ: dict[str, Any] = {
    **dict.fromkeys((*Settings.names(), "device", "dataset", "model"), object),
    "data_dir": str,
    "metrics": (list, str, type(None)),
    "monitor": (list, str, type(None)),
    "convention": dict,
}
# What the config of an older run lacks, as it was trained.
_OLDER: dict[str, Any] = {
    "init_from": None, "shards": None, "augment": {"noise": 0.0}, "teacher": None,
    "deterministic": False,
}  # fmt: skip
RELATIVE = ("data_dir", "init_from", "teacher")  # paths that are kept as seen from the run folder

# What each part of a checkpoint's config may be, and nothing that merely lives in the same module.
TARGETS: dict[str, set[str]] = {
    "model": {f"ltr.models.{name}" for name in ltr.models.__all__}
    | {f"ltr.trees.{name}" for name in ("LightGBM", "XGBoost", "CatBoost")}
    | {f"ltr.rounds.{name}" for name in ("AdaRank", "PRank", "RankBoost")},
    "loss": {f"ltr.losses.{name}" for name in vars(ltr.losses) if name.endswith("_loss")},
    "optimizer": {
        f"torch.optim.{name}"
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    },
    "schedule": {f"ltr.training.schedules.{name}" for name in ("constant", "cosine", "step_decay")},
    "transform": {
        "ltr.data.transforms.fit_transform",
        "ltr.data.transforms.no_transform",
        "ltr.data.quantiles.quantile_transform",
    },
    "dataset": {
        "ltr.data.files.LetorFiles",
        "ltr.data.memory.MemoryLists",
        "ltr.data.synthetic.SyntheticLists",
        "ltr.data.table_files.TableFiles",
    },
}


@dataclass(frozen=True)
class KeptModel:
    """A model, its features and their transform, and the config that trained it, not yet trusted.

    ``columns`` are names and categories, None: numbers without names; ``data`` the digest of the
    lists of each split that it was trained with.
    """

    model: nn.Module
    transform: FeatureTransform
    columns: Columns | None
    config: dict[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)


def load_kept(path: str, device: torch.device, trust: Sequence[str] | str = ()) -> KeptModel:
    """Load the model of a run folder (its selected weights) or of one ``.pt`` file.

    Raises:
        CheckpointError: nothing readable is there, or it does not fit its own config.
        ConfigError: its config names code that is neither of this project nor in ``trust``.
    """
    return kept_model(*selected_checkpoint(Path(path), device), device, trust)


def kept_model(
    file: Path, content: Mapping[str, Any], device: torch.device, trust: Sequence[str] | str = ()
) -> KeptModel:
    """The model of ``content``, the checkpoint of ``file`` or of a member in it; as ``load_kept``.

    The members of an ensemble are read as any model is, one by one.
    """
    config, data = kept_config(content, file.parent), content.get("data", {})
    with fitting(file):
        members = members_of(content)
        transform, columns = transform_of(content), columns_of(content)
    checked = trusted(config, [] if members else ["model"], trust)
    make_settings(checked), make_convention(checked)  # a wrong value is named
    if members:
        with fitting(file):  # too deep is a RecursionError
            if weight_bytes(content) > file.stat().st_size:
                raise ValueError("members: larger than the file that holds them")
            kept = [kept_model(file, member, device, trust) for _, member in members]
            if any(one.transform.width != transform.width for one in kept):
                raise ValueError("members: of other features")
            ensemble = ensemble_of(kept, [weight for weight, _ in members])
        return KeptModel(ensemble.to(device).eval(), transform, columns, config, data)
    make = make_model(checked.model)
    check_size(make, transform, file)
    model = model_for(make, transform).to(device)
    with fitting(file):
        model.load_state_dict(content["model"])
    return KeptModel(model.eval(), transform, columns, config, data)


def ensemble_of(members: Sequence[KeptModel], weights: Sequence[float]) -> Ensemble:
    """The ensemble of ``members``."""
    parts = [Member(one.model, one.transform, one.config["precision"]) for one in members]
    return Ensemble(parts, weights)


def check_size(make: Callable[[int], nn.Module], transform: FeatureTransform, file: Path) -> None:
    """Raise ``CheckpointError`` where the model is larger than ``file``, which holds its weights.

    No weight is allocated for it, so that a few bytes of config cannot ask for terabytes.
    """
    with fitting(file), torch.device("meta"):
        model = model_for(make, transform)
        needed = sum(held.nbytes for held in (*model.parameters(), *model.buffers()))
    if needed > file.stat().st_size:
        raise CheckpointError(
            f"{file} has {file.stat().st_size:,} bytes, the model of its config takes {needed:,}: "
            "train.py did not write it; use another"
        )


def check_columns(lists: Lists, columns: Columns | None) -> None:
    """Raise ``DataError`` where ``lists`` have other names or categories than ``columns``.

    Lists without names, and a model that was trained on such, go by the order of the features.
    """
    ours, theirs = columns or Columns(()), lists.columns or Columns(())
    pairs = zip_longest(ours.names, theirs.names, fillvalue="nothing")
    if ours.names and theirs.names and (wrong := [pair for pair in pairs if pair[0] != pair[1]]):
        raise DataError(
            f"the model was trained on the feature {wrong[0][0]}, where the lists have "
            f"{wrong[0][1]}: give lists with the same features in the same order"
        )
    names = dict.fromkeys([*ours.categories, *theirs.categories])
    changed = [name for name in names if ours.categories.get(name) != theirs.categories.get(name)]
    if changed:
        raise DataError(
            f"the categories of {', '.join(changed[:5])} are not those the model was trained on: "
            "give lists whose categories are read with those of the run, or train anew"
        )


def kept_config(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The config in a checkpoint of ``folder``, not yet trusted; its paths as seen from here.

    Raises:
        CheckpointError: it lacks a key that every run has.
    """
    config = {**_OLDER, **content["config"]}
    for key, kind in _READ.items():
        if key not in config or not isinstance(config[key], kind):
            raise CheckpointError(
                f"the config in the checkpoint of {folder} has no {key} as train.py writes it: use "
                "another checkpoint"
            )
    for key in RELATIVE:
        if config[key] is not None and not Path(config[key]).is_absolute():
            config[key] = os.path.relpath(folder / config[key])
    return config


def trusted(
    config: Mapping[str, Any], parts: Sequence[str], trust: Sequence[str] | str = ()
) -> DictConfig:
    """A checkpoint's config after a check of all its texts, and of the ``parts`` to be built.

    Args:
        config: as ``kept_config`` returns it, with what the user sets.
        parts: which of model, loss, optimizer, schedule, transform and dataset will be built, and
            metrics, if those of the checkpoint will be computed.
        trust: modules of the user that these may name, besides this project's own parts.

    Raises:
        ConfigError: naming the part and what it would have called.
    """
    try:
        _check_texts(config)
        resolved: Any = OmegaConf.create(dict(config))
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint's config is not one that train.py writes ({error}): use another"
        ) from error
    homes = _homes(trust)
    for part in parts:
        if part == "metrics":
            for metric in own_metrics(config):
                if not _lives_in(metric, homes):
                    raise _refusal("metric", metric)
            nodes = config.get("own_metrics") or {}  # a run of an earlier version has none
            for node in nodes.values() if isinstance(nodes, Mapping) else [nodes]:
                _check_target("metric", node, homes)
            continue
        node = config.get(part)
        if part == "loss" and node is None:
            continue  # boosted with an objective of the library
        _check_target(part, node, homes)
        if part != "dataset":
            resolved[part]["_partial_"] = True
        elif "cache_dir" in resolved[part]:
            resolved[part]["cache_dir"] = "${cache_dir}"  # the user's
    return resolved


def check_override(
    key: str, value: Any, metrics: Sequence[str], trust: Sequence[str] | str = ()
) -> None:
    """Raise ``ConfigError`` where an override kept in a folder names code outside ``trust``.

    Args:
        key, value: of the override.
        metrics: the user's own functions that it names as metrics.
        trust: as for ``trusted``.
    """
    homes = _homes(trust)
    for metric in metrics:
        if not _lives_in(metric, homes):
            raise _refusal("metric", metric)
    for one in _values(value):
        if isinstance(one, Mapping) and "_target_" in one:
            target = str(one["_target_"])
            if target not in set().union(*TARGETS.values()) and not _lives_in(target, homes):
                raise _refusal(key, target)
        elif isinstance(one, str) and "${" in one and not _PLAIN_LINK.fullmatch(one):
            raise ConfigError(
                f"the folder's override {key}={one[:60]} calls a resolver: leave it out of "
                ".hydra/overrides.yaml if you know where the folder comes from"
            )


def _check_target(part: str, node: Any, homes: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless ``node`` names this project's code or that of ``homes``."""
    target = str(node.get("_target_")) if isinstance(node, Mapping) else "unknown"
    known = target in TARGETS.get(part, ()) or _lives_in(target, homes)
    inside = (value for value in _values(node) if isinstance(value, Mapping))
    if not known or any("_target_" in below for below in inside if below is not node):
        raise _refusal(part, target)


def _refusal(part: str, target: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint's {part} is {target}, which is not a {part} of this project; if you know "
        "where the file comes from, allow it with 'trust=[MODULE]'"
    )


def _homes(trust: Sequence[str] | str) -> list[str]:
    """The modules of ``trust=``; one alone may be written without brackets."""
    return [trust] if isinstance(trust, str) else [str(home) for home in trust]


def _check_texts(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where an interpolation is not a link to a plain value."""
    for value in _values(config):
        if isinstance(value, str) and "${" in value:
            link = LINK.fullmatch(value)
            if link is None:
                raise ValueError(f"{value[:60]!r} in it")
            end = config.get(link[1])
            if isinstance(end, (Mapping, list, tuple)) or (isinstance(end, str) and "${" in end):
                raise ValueError(f"{value!r} in it leads on")


def _values(value: Any) -> Iterator[Any]:
    """``value`` and all that is in it, without recursion."""
    stack = [value]
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, Mapping):
            stack.extend([*value.keys(), *value.values()])
        elif isinstance(value, (list, tuple)):
            stack.extend(value)


def _lives_in(target: str, homes: Sequence[str]) -> bool:
    """Whether ``target`` is named in, and was defined in, one of the modules ``homes``."""

    def inside(module: str) -> bool:
        return any(f"{module}.".startswith(home.rstrip(".") + ".") for home in homes)

    if not inside(target):
        return False
    try:
        thing = get_object(target)  # e.g. mine.os.system is found, but lives elsewhere
    except (ImportError, AttributeError, ValueError):
        return False
    return callable(thing) and inside(getattr(thing, "__module__", ""))
