"""Which runs a table needs; each is known by the hash of its config, its data and the code."""

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.data.dataset import SPLITS
from ltr.errors import ConfigError
from ltr.experiment.build import make_dataset
from ltr.experiment.cli import CONFIGS, explain, register_resolvers
from ltr.experiment.table.spec import Table

# Where and how fast a run is computed, not what.
_PLACE = (
    "data_dir", "cache_dir", "output_dir", "resume", "trust", "device", "threads",
    "evaluation_items", "checkpoint_minutes", "monitor",
)  # fmt: skip
# The code that decides what a run computes.
_CODE = (
    "metrics", "relaxations", "losses", "models", "data", "training", "trees",
    "experiment/build.py", "experiment/run.py",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One training run of a table.

    Attributes:
        label: the row it belongs to.
        fold: of the data set, None where it has none.
        seed: of the training.
        overrides: its command line for ``train.py``.
        config: the composed config.
        folder: where it is kept; its name ends with the hash of what it computes.
    """

    label: str
    fold: int | None
    seed: int
    overrides: tuple[str, ...]
    config: DictConfig
    folder: Path

    @property
    def done(self) -> bool:
        """Whether its results are there."""
        return (self.folder / "results.json").is_file()


def plan(table: Table, given: Sequence[str], seeds: Sequence[int], output_dir: Path) -> list[Run]:
    """The runs of ``table``, row by row.

    Args:
        table: what to run.
        given: overrides of the user; they go over the table's settings, not over what makes a row.
        seeds: of the training, every one for every row and fold.
        output_dir: its folder ``runs`` keeps them; what is there from another table is used.

    Raises:
        ConfigError: an override is wrong.
        DataError: the data are not there.
    """
    runs = []
    for label, row in table.rows.items():
        overrides = merged(table.settings, given, row)
        config = _composed(overrides)
        for fold in _folds(table, config):
            for seed in seeds:
                own = [*overrides, f"seed={seed}"]
                if fold is not None:
                    own.append(f"dataset.fold={fold}")
                runs.append(_run(label, fold, seed, own, config, output_dir))
    return runs


def merged(*parts: Sequence[str]) -> list[str]:
    """Overrides of which a later one replaces an earlier one of the same key.

    Another choice of a group takes the settings inside that group along.

    >>> merged(["dataset=mq2008", "dataset.fold=2", "epochs=5"], ["dataset=synthetic", "epochs=1"])
    ['dataset=synthetic', 'epochs=1']
    """
    kept: dict[str, str] = {}
    for override in (item for part in parts for item in part):
        key = override.lstrip("+").partition("=")[0]
        if kept.get(key, override) != override:
            kept = {other: text for other, text in kept.items() if not other.startswith(f"{key}.")}
        kept[key] = override
    return list(kept.values())


def _composed(overrides: Sequence[str]) -> DictConfig:
    register_resolvers()
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return hydra.compose("train", list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, "train")) from error


def _folds(table: Table, config: DictConfig) -> Iterator[int | None]:
    count = config.dataset.get("folds") or 0
    if not count:
        yield None
    elif table.folds == "all":
        yield from range(1, count + 1)
    else:
        yield from (int(fold) for fold in table.folds)


def _run(
    label: str,
    fold: int | None,
    seed: int,
    overrides: Sequence[str],
    row_config: DictConfig,
    output_dir: Path,
) -> Run:
    config = row_config.copy()
    config.seed = seed
    if fold is not None:
        config.dataset.fold = fold
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    place = f"{name}-{config.dataset.name}" + (f"-fold{fold}" if fold is not None else "")
    folder = output_dir / "runs" / f"{place}-seed{seed}-{identity(config)[:10]}"
    return Run(label, fold, seed, tuple(overrides), config, folder)


def identity(config: DictConfig) -> str:
    """SHA-256 of what a run computes: its config without places, its data, the code."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    for key in _PLACE:
        plain.pop(key, None)
    for key in ("data_dir", "cache_dir"):
        plain["dataset"].pop(key, None)
    parts = {"config": plain, "data": _data(_frozen(config.dataset)), "code": _code()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _frozen(node: DictConfig) -> str:
    return json.dumps(OmegaConf.to_container(node, resolve=True), sort_keys=True)


@functools.cache
def _data(node: str) -> dict[str, str]:
    dataset = make_dataset(OmegaConf.create(json.loads(node)))
    dataset.check()
    return {split: dataset.split(split).digest for split in SPLITS}


@functools.cache
def _code() -> str:
    root = Path(__file__).resolve().parents[2]
    files = [file for part in _CODE for file in sorted((root / part).rglob("*.py"))]
    files += [root / part for part in _CODE if part.endswith(".py")]
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
