"""Read a table from ``configs/tables/*.yaml``."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.console.configs import files_of, hint
from ltr.errors import ConfigError
from ltr.tables.ensemble_rows import EnsembleRow, parse_ensemble

RUNS, STATISTICS, FOLDS = "runs", "statistics", "folds"
FOLD_SPLITS = ("test", "vali")  # of a table fold by fold
_KEYS = {
    RUNS: ("title", "settings", "folds", "metrics", "conventions", "rows"),
    STATISTICS: ("title", "kind", "settings", "fold", "rows"),
    FOLDS: ("title", "kind", "settings", "metrics", "convention", "rows", "published"),
}
_OPTIONAL = {
    RUNS: ("kind", "verdicts", "baseline", "history", "published"),
    STATISTICS: ("published",),
    FOLDS: (),
}

Numbers = Mapping[str, Mapping[str, float]]  # convention -> metric -> number


@dataclass(frozen=True)
class Published:
    """Published numbers, and the row that each stands beside."""

    source: str  # of the numbers
    values: Mapping[str, Numbers]  # values[label][convention][metric]
    # row of the table -> label in values; a row that is not named stands beside the label of
    # its own name, if there is one
    beside: Mapping[str, str] = field(default_factory=dict)
    others: str | None = None  # the label that every remaining row stands beside, or None

    def of(self, row: str) -> str | None:
        """The label that stands beside ``row``, None where nothing does."""
        return self.own(row) or self.others

    def own(self, row: str) -> str | None:
        """The label that is the row's own published counterpart, None where it has none."""
        return self.beside.get(row, row if row in self.values else None)


@dataclass(frozen=True)
class Table:
    """The rows of a table, each a command line of ``train.py``, and its columns."""

    name: str  # of its file
    title: str
    settings: tuple[str, ...]  # overrides for every row
    rows: Mapping[str, tuple[str, ...]]  # label -> overrides of that row
    # all folds of the data set, or these; ignored for a data set without folds
    folds: str | tuple[int, ...]
    metrics: tuple[str, ...]  # the columns
    conventions: tuple[str, ...]  # names of metrics_as, a block of columns each
    published: Mapping[str, Published]  # by name of the data set
    # the metrics by which rows are compared, under the first convention
    verdicts: tuple[str, ...] = ()
    baseline: str | None = None  # the row that the others are compared with; None: the first
    history: tuple[str, ...] = ()  # columns of history.csv shown for the epoch that was tested
    # the rows that are ensembles of others; ``rows`` has no overrides for them
    ensembles: Mapping[str, EnsembleRow] = field(default_factory=dict)
    # what is searched where there is a budget: ``space=NAMES`` and ``space.KEY=[...]``, of every
    # row and, by label, of a row
    space: tuple[str, ...] = ()
    spaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def teachers(self) -> dict[str, str]:
        """Of each row that learns from another row, ``teacher=ROW``, that row."""
        named = {label: teacher_in(overrides) for label, overrides in self.rows.items()}
        return {label: named[label] for label in named if named[label] in self.rows}

    def needs(self, label: str) -> tuple[str, ...]:
        """The rows whose runs those of ``label`` are made of, or learn from."""
        members = self.ensembles[label].rows if label in self.ensembles else ()
        row = dict.fromkeys([*members, *filter(None, [self.teachers.get(label)])])
        return tuple(dict.fromkeys(one for each in row for one in (each, *self.needs(each))))


@dataclass(frozen=True)
class StatisticsTable:
    """A table that counts what data sets hold."""

    name: str
    title: str
    settings: tuple[str, ...]
    fold: int  # of a data set that has folds
    rows: Mapping[str, tuple[str, ...]]  # label -> overrides that choose the data set
    published: Mapping[str, Mapping[str, int]]  # label -> quantity -> number
    source: str  # of the published numbers


@dataclass(frozen=True)
class Choices:
    """A row whose settings are chosen on vali, for each fold alone."""

    settings: tuple[str, ...]
    choices: Mapping[str, Sequence[Any]]  # key -> values; all combinations are tried
    unknown: str  # of the published row


@dataclass(frozen=True)
class FoldsTable:
    """A table of published rows beside ours, fold by fold."""

    name: str
    title: str
    settings: tuple[str, ...]
    metrics: tuple[str, ...]
    convention: str
    rows: Mapping[str, Choices]
    published: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # row, split, metric
    source: str


def tables() -> dict[str, str]:
    """Name and title of every table."""
    return {name: str(OmegaConf.load(path).title) for name, path in files_of("table").items()}


def read_table(name: str) -> Table | StatisticsTable | FoldsTable:
    """The table of that name, or in that file; ``ConfigError`` as ``parse_table``, or no such."""
    files = files_of("table")
    path = files.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"table={name}: no such table; table is one of {', '.join(files)}, or a YAML file"
            + hint(name, files)
        )
    return parse_table(path)


def only(table: Table, labels: Sequence[str]) -> Table:
    """The table with the rows ``labels``; without a baseline that is not among them.

    The members of an ensemble and teachers come along.

    Raises:
        ConfigError: a label is not one of its rows.
    """
    chosen = [row_of(table, "rows", label) for label in labels]
    needed = [row for label in chosen for row in table.needs(label)]
    baseline = table.baseline if table.baseline in chosen else None
    return with_rows(replace(table, baseline=baseline), dict.fromkeys([*chosen, *needed]))


def with_rows(table: Table, labels: Iterable[str]) -> Table:
    """The table with the rows ``labels`` alone, in this order."""
    rows = {label: table.rows[label] for label in labels}
    ensembles = {label: row for label, row in table.ensembles.items() if label in rows}
    return replace(table, rows=rows, ensembles=ensembles)


def without(table: Table, labels: Container[str]) -> Table:
    """The table without the rows ``labels``, and the rows that need one of them."""
    gone = {
        row for row in table.rows if row in labels or any(m in labels for m in table.needs(row))
    }
    return with_rows(table, [row for row in table.rows if row not in gone])


def row_of(table: "Table | FoldsTable", key: str, label: str) -> str:
    """The row named ``label`` in upper or lower case; ``ConfigError`` about ``key`` if none is."""
    known = {row.lower(): row for row in table.rows}
    if label.lower() not in known:
        near = [row for row in table.rows if label.lower() in row.lower()] or table.rows
        raise ConfigError(f"{key}={label}: no such row; {table.name} has {', '.join(near)}")
    return known[label.lower()]


def parse_table(path: Path) -> Table | StatisticsTable | FoldsTable:
    """The table in a file.

    Raises:
        ConfigError: a key is missing or unknown, or names a row or metric that is not there.
    """
    raw = _read(path)
    kind = raw.get("kind", RUNS)
    if kind not in _KEYS:
        raise ConfigError(f"{path}: kind={kind}: write one of {', '.join(_KEYS)}")
    needed = _KEYS[kind]
    wrong = sorted(set(raw) - set(_OPTIONAL[kind]) ^ set(needed))
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]} is missing or unknown; write {', '.join(needed)}")
    listed = partial(_listed, path)
    if kind == FOLDS:
        return _folds_table(path, raw)
    given = {str(label): row for label, row in (raw["rows"] or {}).items()}
    mixed = {label: row for label, row in given.items() if kind == RUNS and isinstance(row, dict)}
    parts = {
        label: split_space(() if label in mixed else _flat(listed(label, row)))
        for label, row in given.items()
    }
    settings, space = split_space(_flat(listed("settings", raw["settings"])))
    rows = {label: trained for label, (trained, _) in parts.items()}
    published = raw.get("published") or {}
    if kind == STATISTICS:
        return StatisticsTable(
            name=path.stem,
            title=raw["title"],
            settings=settings,
            fold=raw["fold"],
            rows=rows,
            published=published.get("values", {}),
            source=published.get("source", ""),
        )
    table = Table(
        name=path.stem,
        title=raw["title"],
        settings=settings,
        rows=rows,
        folds=raw["folds"] if raw["folds"] == "all" else tuple(raw["folds"]),
        metrics=tuple(listed("metrics", raw["metrics"])),
        conventions=tuple(listed("conventions", raw["conventions"])),
        published={name: Published(**values) for name, values in published.items()},
        verdicts=tuple(listed("verdicts", raw.get("verdicts", raw["metrics"]))),
        baseline=raw.get("baseline"),
        history=tuple(raw.get("history", ())),
        ensembles={
            label: parse_ensemble(path, label, row, [row for row in rows if row not in mixed])
            for label, row in mixed.items()
        },
        space=space,
        spaces={label: own for label, (_, own) in parts.items()},
    )
    _check(table, path)
    return table


def teacher_in(overrides: Sequence[str]) -> str:
    """The teacher that ``overrides`` name, a row of the table or a run; empty: none.

    >>> teacher_in(["loss=distil", "teacher=big one"])
    'big one'
    """
    named = [one.partition("=")[2] for one in overrides if one.startswith("teacher=")]
    return named[-1] if named else ""


def split_space(overrides: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The overrides for ``train.py``, and those that say what is searched.

    >>> split_space(["loss=bce", "space=mlp,features", "space.optimizer.lr=null"])
    (('loss=bce',), ('space=mlp,features', 'space.optimizer.lr=null'))
    """
    of_space = tuple(one for one in overrides if one.startswith(("space=", "space.")))
    return tuple(one for one in overrides if one not in of_space), of_space


def _folds_table(path: Path, raw: Mapping[str, Any]) -> FoldsTable:
    wrong = [label for label, row in raw["rows"].items() if "settings" not in row]
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]}: write settings: [model=linear, ...]")
    published = raw["published"].get("values", {})
    for label in raw["rows"]:
        for split, metric in product(FOLD_SPLITS, raw["metrics"]):
            if not (published.get(label) or {}).get(split, {}).get(metric):
                raise ConfigError(
                    f"{path}: published.values.{label}.{split}.{metric} is missing: write a number "
                    "for each fold"
                )
    counts = {len(of) for row in published.values() for one in row.values() for of in one.values()}
    if len(counts) > 1:
        raise ConfigError(f"{path}: published.values: write as many numbers for each, one a fold")
    rows = {
        label: Choices(_flat(row["settings"]), row.get("choices", {}), row.get("unknown", ""))
        for label, row in raw["rows"].items()
    }
    return FoldsTable(
        path.stem, raw["title"], tuple(raw["settings"]), tuple(raw["metrics"]), raw["convention"],
        rows, published, raw["published"]["source"],
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    """The keys of a file; ``ConfigError`` where it is no YAML with keys."""
    remedy = "write a table as configs/tables/letor4_mq2008.yaml has it"
    try:
        raw: Any = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(
            f"{path} is not YAML ({' '.join(str(error).split())}): {remedy}"
        ) from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} has no keys: {remedy}")
    return raw


def _listed(path: Path, key: str, value: Any) -> list[Any]:
    """``value``; ``ConfigError`` unless it is a list."""
    if not isinstance(value, list):
        raise ConfigError(f"{path}: {key}: {value}: write a list, such as [loss=listnet]")
    return value


def _flat(overrides: Sequence[Any]) -> tuple[str, ...]:
    """Flatten lists in a list, as ``[*like_another_row, key=value]`` gives them."""
    parts = [_flat(item) if isinstance(item, list) else (str(item),) for item in overrides]
    return tuple(override for part in parts for override in part)


def _check(table: Table, path: Path) -> None:
    """Raise ``ConfigError`` where the file refers to a name that it does not define."""
    from ltr.experiment.parts import named_metrics  # torch, which --help does without

    named_metrics(table.metrics)
    if not (table.rows and table.verdicts):
        raise ConfigError(f"{path}: rows and verdicts: each names at least one")
    for label, teacher in table.teachers.items():
        if teacher in table.ensembles or teacher in table.teachers:
            raise ConfigError(
                f"{path}: {label}: teacher={teacher} is no row that is trained by itself; name one "
                "that is, or give the folder of a run"
            )
    named = [("verdicts", name, table.metrics) for name in table.verdicts]
    if table.baseline is not None:
        named.append(("baseline", table.baseline, tuple(table.rows)))
    for data, published in table.published.items():
        labels = tuple(published.values)
        named += [(f"published.{data}.beside", row, tuple(table.rows)) for row in published.beside]
        named += [(f"published.{data}.beside", row, labels) for row in published.beside.values()]
        if published.others is not None:
            named.append((f"published.{data}.others", published.others, labels))
    for key, name, known in named:
        if name not in known:
            raise ConfigError(f"{path}: {key}: {name} is not known; choose of {', '.join(known)}")
