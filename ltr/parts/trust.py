"""The config of a checkpoint: store it without private settings, read it without running code.

A config is stored with its interpolations resolved. The only ones that remain match
``INTERPOLATION``: they are whole values such as ``${epochs}``, and refer to a key that may change
when the run is resumed. No resolver is ever called for a config that comes from a file. The config
does not contain output paths, because the user chooses them for each command.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import ltr.losses
import ltr.models
import ltr.training.schedules
from ltr.cli.keys import Resumed, as_list, keys, upgrade, without
from ltr.errors import ConfigError
from ltr.parts.components import user_metrics
from ltr.training.checkpoint import checkpoint_errors
from ltr.training.results_file import BEFORE
from ltr.training.settings import Settings

INTERPOLATION = re.compile(r"\$\{(" + "|".join(keys(Resumed.TYPED, Resumed.OWN)) + r")\}")
_READ = (*Settings.names(), "device", "dataset", "model", "data_dir", "metrics", "convention")
RELATIVE = ("data_dir", "init_from", "teacher")  # paths that are stored relative to the run folder


def _in(module: str, names: str | Iterable[str]) -> set[str]:
    return {f"{module}.{name}" for name in (names.split() if isinstance(names, str) else names)}


# The classes and functions that each part of a checkpoint's config may name without ``trust``.
TARGETS: dict[str, set[str]] = {
    "model": _in("ltr.models", ltr.models.__all__)
    | _in("ltr.boosting", "LightGBM XGBoost CatBoost AdaRank PRank RankBoost"),
    "loss": _in("ltr.losses", (name for name in vars(ltr.losses) if name.endswith("_loss"))),
    "optimizer": _in("torch.optim", (name for name in torch.optim.__all__ if name[0].isupper())),
    "schedule": _in("ltr.training.schedules", ltr.training.schedules.__all__),
    "transform": _in("ltr.data.transforms", "fit_transform no_transform quantile_transform"),
    "dataset": _in(
        "ltr.data",
        "files.LetorFiles memory.MemoryLists synthetic.SyntheticLists table_files.TableFiles",
    ),
}


def config_for_checkpoint(linked: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a run as its checkpoints store it; its paths are not relocated yet.

    Args:
        linked: the config as plain values, with its interpolations.
        resolved: the same config with all interpolations resolved.
    """
    config = _restore_links(linked, resolved, linked)
    return without(config, Resumed.OWN, Resumed.FOLDER)


def _restore_links(linked: Any, resolved: Any, root: Mapping[str, Any]) -> Any:
    """Return ``resolved`` with the interpolations of ``linked``, except links to other links."""
    if isinstance(linked, str):
        link = INTERPOLATION.fullmatch(linked)
        is_direct = link is not None and not INTERPOLATION.fullmatch(str(root.get(link[1])))
        return linked if is_direct else resolved
    if isinstance(linked, Mapping) and isinstance(resolved, Mapping):
        return {key: _restore_links(linked[key], value, root) for key, value in resolved.items()}
    if isinstance(linked, list) and isinstance(resolved, list):
        pairs = zip(linked, resolved, strict=True)
        return [_restore_links(*pair, root) for pair in pairs]
    return resolved


def relocate_paths(config: Mapping[str, Any], folder: Path, base: Path = Path()) -> dict[str, Any]:
    """Return ``config`` with its paths relative to ``folder`` instead of ``base``."""
    relocated = {
        key: os.path.relpath(base / config[key], folder)
        for key in RELATIVE
        if config.get(key) is not None and not Path(config[key]).is_absolute()
    }
    return {**config, **relocated}


def config_of(content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the config in the checkpoint ``file``; the config is not yet trusted.

    Its relative paths are relative to the working directory. Raises ``CheckpointError`` if the
    config lacks a key that every run has.
    """
    with checkpoint_errors(file):
        config = {key: content["config"][key] for key in _READ} | content["config"]
        folder = file.parent
        if folder.name.startswith(BEFORE):  # it was moved there from the run folder
            folder = folder.parent
        return relocate_paths(upgrade(config), Path(), folder)


def trusted(
    config: Mapping[str, Any], parts: Sequence[str], trust: Sequence[str] | str = ()
) -> DictConfig:
    """Return a checkpoint's config after checking its strings and the ``parts`` to be built.

    Args:
        config: what ``config_of`` returned, with the keys that the user sets.
        parts: the parts that will be built: model, loss, optimizer, schedule, transform or dataset;
            also metrics, if the metrics of the checkpoint will be computed.
        trust: the user's own modules that the parts may name, in addition to this project.

    Raises:
        ConfigError: a string does not have the form that ``ltr train`` writes, or a part names code
            that is not trusted. The message names the part and the code.
    """
    try:
        _check_interpolations(config)
        checked: Any = OmegaConf.create(dict(config))
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        raise ConfigError(
            "the checkpoint's config was not written by ltr train "
            f"({error}): use another checkpoint"
        ) from error
    for part_name in parts:
        node = config.get(part_name)
        if part_name == "metrics":
            for metric_node in _metric_nodes(config):
                _check_target("metric", metric_node, trust)
        elif part_name != "loss" or node is not None:  # None: the model has its own objective
            _check_target(part_name, node, trust)
            _complete_node(checked[part_name], part_name)
    return checked


def _check_interpolations(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a string has an interpolation that is not a link to a plain value."""
    for value in iter_nested(config):
        if isinstance(value, str) and "${" in value:
            link = INTERPOLATION.fullmatch(value)
            target = config.get(link[1]) if link else "${"
            if isinstance(target, (Mapping, list, tuple)) or "${" in str(target):
                raise ValueError(f"it has the interpolation {value[:60]!r}")


def _metric_nodes(config: Mapping[str, Any]) -> list[Any]:
    """Return a node with ``_target_`` for each of the user's own metrics."""
    nodes: list[Any] = [{"_target_": name} for name in user_metrics(config)]
    configured = config.get("own_metrics") or {}
    nodes += configured.values() if isinstance(configured, Mapping) else [configured]
    return nodes


def _complete_node(node: Any, part_name: str) -> None:
    """Add to a checked node the keys that are needed to build the part."""
    if part_name != "dataset":
        node["_partial_"] = True
    elif "cache_dir" in node:
        node["cache_dir"] = "${cache_dir}"  # the key of the user's config


def _check_target(part_name: str, node: Any, trust: Sequence[str] | str) -> None:
    """Raise ``ConfigError`` unless ``node`` names code of this project or of ``trust``.

    No node inside ``node`` may name any code.
    """
    target = str(node.get("_target_")) if isinstance(node, Mapping) else "unknown"
    nodes = [
        inner for inner in iter_nested(node) if isinstance(inner, Mapping) and "_target_" in inner
    ]
    is_allowed = target in TARGETS.get(part_name, ()) or _is_defined_in(target, trust)
    if not is_allowed or nodes != [node]:
        raise ConfigError(
            f"the checkpoint's {part_name} is {target}, which is not a {part_name} of this "
            "project; if you trust the source of the file, set 'trust=[MODULE]'"
        )


def iter_nested(root: Any) -> Iterator[Any]:
    """Yield ``root`` and everything nested in it, keys included, without recursion."""
    stack = [root]
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, Mapping):
            stack.extend([*value.keys(), *value.values()])
        elif isinstance(value, (list, tuple)):
            stack.extend(value)


def _is_defined_in(target: str, trust: Sequence[str] | str) -> bool:
    """Return whether ``target`` is in one of the modules ``trust`` and is defined there."""

    def is_inside(module: str) -> bool:
        return any(f"{module}.".startswith(f"{package}.") for package in as_list(trust))

    if not is_inside(target):
        return False
    try:
        code = get_object(target)  # mine.os.system, for example, is defined in another module
    except (ImportError, AttributeError, ValueError):
        return False
    return callable(code) and is_inside(getattr(code, "__module__", ""))
