"""A table as data: ``configs/table/*.yaml`` lists its rows and the published numbers."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ltr.errors import ConfigError
from ltr.experiment.cli import CONFIGS

_KEYS = ("title", "settings", "folds", "metrics", "conventions", "rows", "published")


@dataclass(frozen=True)
class Published:
    """Numbers that others printed: ``values[row][convention][metric]``, and where they stand."""

    source: str
    values: Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Table:
    """The rows of a table, each a command line of ``train.py``, and what is read off them.

    Attributes:
        name: of its file.
        title: what it shows.
        settings: overrides that hold for every row.
        rows: label -> overrides of that row.
        folds: ``all`` folds of the data set, or these; none for a data set without folds.
        metrics: its columns.
        conventions: names of ``metrics_as``, a block of columns each.
        published: by name of the data set.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    folds: str | tuple[int, ...]
    metrics: tuple[str, ...]
    conventions: tuple[str, ...]
    published: Mapping[str, Published]


def tables() -> dict[str, str]:
    """Name and title of every table there is."""
    files = sorted((CONFIGS / "table").glob("*.yaml"))
    return {path.stem: str(OmegaConf.load(path).title) for path in files}


def read_table(name: str) -> Table:
    """The table of that name.

    Raises:
        ConfigError: there is none, or its file lacks something.
    """
    path = CONFIGS / "table" / f"{name}.yaml"
    if not path.is_file():
        known = list(tables())
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ConfigError(f"table={name}: no such table; table is one of {', '.join(known)}{hint}")
    return parse_table(path)


def only(table: Table, labels: Sequence[str]) -> Table:
    """The table with some of its rows only.

    Raises:
        ConfigError: a label is not one of its rows.
    """
    known = {label.lower(): label for label in table.rows}
    for label in labels:
        if label.lower() not in known:
            raise ConfigError(
                f"rows={label}: no such row; {table.name} has {', '.join(table.rows)}"
            )
    chosen = [known[label.lower()] for label in labels]
    return replace(table, rows={label: table.rows[label] for label in chosen})


def parse_table(path: Path) -> Table:
    """The table in a file.

    Raises:
        ConfigError: a key is missing or unknown.
    """
    raw: Any = OmegaConf.to_container(OmegaConf.load(path))
    wrong = sorted(set(raw) ^ set(_KEYS))
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]} is missing or unknown; write {', '.join(_KEYS)}")
    return Table(
        name=path.stem,
        title=raw["title"],
        settings=tuple(raw["settings"]),
        rows={str(label): tuple(overrides) for label, overrides in raw["rows"].items()},
        folds=raw["folds"] if raw["folds"] == "all" else tuple(raw["folds"]),
        metrics=tuple(raw["metrics"]),
        conventions=tuple(raw["conventions"]),
        published={name: Published(**values) for name, values in (raw["published"] or {}).items()},
    )
