"""Code a run computes with that is not of this project: the user's own, a library of trees."""

import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import CONFIGS
from ltr.experiment.code_hash import code_hash

_NOT_OWN = ("ltr", "torch")
# The distributions that a class of ltr.trees may come from.
_LIBRARIES = {
    "LightGBM": ("lightgbm",),
    "XGBoost": ("xgboost", "xgboost-cpu"),
    "CatBoost": ("catboost",),
}


def own_code(config: DictConfig) -> dict[str, str]:
    """A hash for each ``_target_`` and metric outside ``ltr`` and ``torch`` whose file is found.

    A module counts with its file, a module of a package with all files of its folder. Nothing is
    imported.
    """
    found = {}
    for target in _targets(config):
        files = _files(target)
        if files:
            found[target] = code_hash(file.read_text(errors="replace") for file in files)
    return found


def own_metrics(config: Mapping[str, Any]) -> list[str]:
    """The functions of the user's own among ``metrics`` and ``select_on``, without their cutoffs.

    >>> own_metrics({"metrics": ["ndcg@5", "mine.hits@5"], "select_on": "mine.hits"})
    ['mine.hits']
    """
    metrics, chosen = config.get("metrics") or [], config.get("select_on")
    texts = [metrics] if isinstance(metrics, str) else [*metrics]
    names = (str(text).partition("@")[0] for text in [*texts, chosen] if text is not None)
    return sorted({name for name in names if "." in name})


def tree_library(config: DictConfig) -> dict[str, str]:
    """Name and version of the library of a model of ``ltr.trees``; empty for a network."""
    module, _, name = str(config.model._target_).rpartition(".")
    if not f"{module}.".startswith("ltr.trees."):
        return {}
    found = {}
    for distribution in _LIBRARIES.get(name, ()):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def _targets(config: DictConfig) -> list[str]:
    plain: Any = OmegaConf.to_container(config, resolve=True)
    named = {*_named(plain), *own_metrics(plain)}
    return sorted(name for name in named if name.partition(".")[0] not in _NOT_OWN)


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _named(item)


def _files(target: str) -> list[Path]:
    """The source files of the innermost module that ``target`` names."""
    first, *rest = target.split(".")
    spec = _top(first)
    for name in rest:
        inside = spec.submodule_search_locations if spec is not None else None
        below = (
            PathFinder.find_spec(f"{spec.name}.{name}", list(inside)) if spec and inside else None
        )
        if below is None:
            break
        spec = below
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return []
    file = Path(spec.origin)
    in_package = "." in spec.name or spec.submodule_search_locations is not None
    return sorted(file.parent.glob("*.py")) if in_package else [file]


def _top(name: str) -> ModuleSpec | None:
    """A module that is in no package, as ``train.py`` would find it."""
    try:
        return PathFinder.find_spec(name, [str(CONFIGS.parent), *sys.path]) or find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return None
