"""Which runs a table needs; each is known by the hash of its config, its data and the code."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from ltr.console.mistakes import run_config
from ltr.errors import DataError
from ltr.experiment.build import make_dataset
from ltr.experiment.identity import identity, identity_without_data
from ltr.experiment.labels import with_levels
from ltr.experiment.run_folder import RunFolder, by_identity
from ltr.tables.spec import Table

_SHOWN = 10  # characters of a run's identity that end the name of its folder


@dataclass(frozen=True)
class Run:
    """One training run of a table.

    Attributes:
        label: the row it belongs to.
        fold: of the data set, None where it has none.
        seed: of the training.
        overrides: its command line for ``train.py``.
        config: the composed config.
        known: its identity, by which a finished one is found again whatever its folder.
        folder: where it is kept. Rows of a table that compute the same share it.
        absent: why its data cannot be read, None where they are here.
    """

    label: str
    fold: int | None
    seed: int
    overrides: tuple[str, ...]
    config: DictConfig
    known: str
    folder: Path
    absent: str | None = None

    @property
    def done(self) -> bool:
        """Whether its results are there, and as they were left."""
        return RunFolder(self.folder).is_done(self.known)

    @property
    def damaged(self) -> bool:
        """Whether its results are there, but not as they were left: it is to be tested again."""
        left = RunFolder(self.folder)
        return left.identity == self.known and left.finished and not self.done


def plan(
    table: Table,
    given: Sequence[str],
    seeds: Sequence[int],
    output_dir: Path,
    *,
    absent_ok: bool = False,
) -> list[Run]:
    """The runs of ``table``, row by row.

    Args:
        table: what to run.
        given: overrides of the user; they go over the table's settings, not over what makes a row.
        seeds: of the training, every one for every row and fold.
        output_dir: its folder ``runs`` keeps them; what is there from another table is used.
        absent_ok: plan also for data that are not here.

    Raises:
        ConfigError: an override is wrong.
        DataError: the data are not there.
    """
    runs = []
    folders = by_identity(output_dir / "runs")
    for label, row in table.rows.items():
        overrides = merged(table.settings, given, row)
        config = run_config(overrides)[0]
        for fold in _folds(table, config):
            for seed in seeds:
                own = [*overrides, f"seed={seed}"]
                if fold is not None:
                    own.append(f"dataset.fold={fold}")
                run = _run(label, fold, seed, own, config, output_dir, absent_ok)
                folder = folders.setdefault(run.known, run.folder)
                runs.append(replace(run, folder=folder))
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
    absent_ok: bool,
) -> Run:
    config = row_config.copy()
    config.seed = seed
    if fold is not None:
        config.dataset.fold = fold
    folder, absent = folder_of(label, config, output_dir), None
    try:
        known = identity(config)
        dataset = make_dataset(config.dataset)
        config = with_levels(config, partial(dataset.split, "train"))
    except DataError as error:
        if not absent_ok:
            raise
        known, absent = identity_without_data(config), str(error)
    folder = folder.with_name(f"{folder.name}-{known[:_SHOWN]}")
    return Run(label, fold, seed, tuple(overrides), config, known, folder, absent)


def folder_of(label: str, config: DictConfig, output_dir: Path) -> Path:
    """Where the runs of a row are kept, but for the hash at the end of the name."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    fold = config.dataset.get("fold")
    place = f"{name}-{config.dataset.name}" + (f"-fold{fold}" if fold is not None else "")
    return output_dir / "runs" / f"{place}-seed{config.seed}"
