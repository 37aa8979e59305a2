"""What a run computes, as one hash of its whole config, the content of its data and the code."""

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.keys import Kind, without
from ltr.data.lists import SPLITS
from ltr.experiment.build import as_list, make_dataset
from ltr.experiment.code_hash import code_hash
from ltr.experiment.labels import with_levels
from ltr.experiment.own_code import own_code, tree_library

# The code that decides what a run computes; what is not there is not counted.
_CODE = (
    "metrics", "relaxations", "kernels", "losses", "models", "trees", "data", "training",
    "experiment/build.py", "experiment/fit.py", "experiment/labels.py",
    "experiment/run.py",
)  # fmt: skip
_OF_TREES = "trees"  # decides nothing of a run whose model is another
_LTR = Path(__file__).resolve().parents[1]


def identity(config: DictConfig) -> str:
    """SHA-256 of what a run computes: its config without places, its data, the code.

    Raises:
        ConfigError, DataError: its data are not there, or cannot be read.
    """
    data = _data(_frozen(config.dataset))
    settled = with_levels(config, lambda: make_dataset(config.dataset).split("train"))
    return _hash(settled, data)


def identity_without_data(config: DictConfig) -> str:
    """As ``identity`` of data that are not here: equal to no run's, different for each config."""
    return _hash(config, {})


def _hash(config: DictConfig, data: dict[str, str]) -> str:
    whole: Any = OmegaConf.to_container(config, resolve=True)
    plain = without(whole, Kind.PLACE)
    del plain["monitor"]  # of it, all but vali counts all the same
    trees = str(config.model._target_).startswith("ltr.trees.")
    parts = {"config": plain, "data": data, "code": code_digest(trees=trees)}
    parts |= _more(config)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _more(config: DictConfig) -> dict[str, Any]:
    """What only some runs have; absent where there is none, so that others keep their hash."""
    watched = sorted({*as_list(config.monitor)} - {"vali"})  # columns of history.csv
    more = {"monitor": watched, "own_code": own_code(config), "library": tree_library(config)}
    return {key: value for key, value in more.items() if value}


def _frozen(node: DictConfig) -> str:
    return json.dumps(OmegaConf.to_container(node, resolve=True), sort_keys=True)


@functools.cache
def _data(node: str) -> dict[str, str]:
    dataset = make_dataset(OmegaConf.create(json.loads(node)))
    dataset.check()
    return {split: dataset.split(split).digest for split in SPLITS}


@functools.cache
def code_digest(*, trees: bool = True) -> str:
    """A hash of the code that decides what a run computes; without ``trees`` one of a network."""
    return code_hash(file.read_text(encoding="utf-8") for file in _code_files(trees=trees))


def _code_files(*, trees: bool) -> Iterator[Path]:
    for part in _CODE:
        place = _LTR / part
        if trees or part != _OF_TREES:
            yield from [place] if place.is_file() else sorted(place.rglob("*.py"))
