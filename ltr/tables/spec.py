"""Read a table from ``configs/tables/*.yaml``."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_text
from ltr.console.configs import files_of, hint
from ltr.errors import ConfigError
from ltr.scorers.ensemble import parse_weights
from ltr.scorers.parts import named_metrics

RUNS, STATISTICS, FOLDS = "runs", "statistics", "folds"
FOLD_SPLITS = ("test", "vali")  # of a table fold by fold


@dataclass
class Published:
    """Published numbers, and the row that each stands beside."""

    source: str = MISSING  # of the numbers
    # values[label][convention][metric]; fold by fold values[label][split][metric][fold - 1];
    # of counts values[data set][quantity]
    values: dict[str, Any] = MISSING
    # row of the table -> label in values; a row that is not named stands beside the label of
    # its own name, if there is one
    beside: dict[str, str] = field(default_factory=dict)
    others: str | None = None  # the label that every remaining row stands beside, or None

    def of(self, row: str) -> str | None:
        """The label that stands beside ``row``, None where nothing does."""
        return self.own(row) or self.others

    def own(self, row: str) -> str | None:
        """The label that is the row's own published counterpart, None where it has none."""
        return self.beside.get(row, row if row in self.values else None)


@dataclass
class Row:
    """A row: a command line of ``train.py``, or an ensemble of other rows."""

    settings: list[str] = field(default_factory=list)  # of train.py, over those of the table
    # with a budget what is searched: space=NAMES and space.KEY=[...]
    space: list[str] = field(default_factory=list)
    ensemble: list[str] = field(default_factory=list)  # the trained rows of its members
    weights: Any = "equal"  # of the members: equal, vali, or one for each row
    seeds: str = "all"  # of the members: one ensemble of all, or one of each
    # key -> values; the row stands for every combination, and vali chooses one in each fold
    choices: dict[str, list[Any]] = field(default_factory=dict)
    choice_of: str = ""  # the row of the file that this is a combination of
    unknown: str = ""  # what the source does not say of the published row

    @property
    def teacher(self) -> str:
        """The teacher that it names, a row of the table or a run; empty: none.

        >>> Row(["loss=distil", "teacher=big one"]).teacher
        'big one'
        """
        named = [one.partition("=")[2] for one in self.settings if one.startswith("teacher=")]
        return named[-1] if named else ""

    def describe(self) -> str:
        """An ensemble in words."""
        weights = self.weights if isinstance(self.weights, str) else ", ".join(
            f"{weight:g}" for weight in self.weights
        )  # fmt: skip
        return f"ensemble of {', '.join(self.ensemble)} (weights {weights}, seeds {self.seeds})"


@dataclass
class Table:
    """The rows of a table and its columns."""

    title: str = MISSING
    rows: dict[str, Row] = MISSING
    name: str = ""  # of its file
    kind: str = RUNS  # or FOLDS: published rows beside ours, or STATISTICS: counts of data sets
    settings: list[str] = field(default_factory=list)  # overrides for every row
    space: list[str] = field(default_factory=list)  # what is searched in every row
    folds: Any = "all"  # or some; ignored for a data set without folds
    metrics: list[str] = field(default_factory=list)  # the columns
    conventions: list[str] = field(default_factory=list)  # of metrics_as, a block of columns each
    # the metrics by which rows are compared, under the first convention; none: all
    verdicts: list[str] = field(default_factory=list)
    baseline: str | None = None  # the row that the others are compared with; None: the first
    history: list[str] = field(default_factory=list)  # columns of the epoch that was tested
    # by name of the data set; of the other kinds by kind
    published: dict[str, Published] = field(default_factory=dict)

    @property
    def ensembles(self) -> dict[str, Row]:
        """The rows that are ensembles."""
        return {label: row for label, row in self.rows.items() if row.ensemble}

    @property
    def teachers(self) -> dict[str, str]:
        """Of each row that learns from another row, ``teacher=ROW``, that row."""
        return {k: row.teacher for k, row in self.rows.items() if row.teacher in self.rows}

    def needs(self, label: str) -> tuple[str, ...]:
        """The rows whose runs those of ``label`` are made of, or learn from."""
        first = [*self.rows[label].ensemble, *filter(None, [self.teachers.get(label)])]
        return tuple(dict.fromkeys(one for each in first for one in (each, *self.needs(each))))

    def with_rows(self, labels: Iterable[str]) -> "Table":
        """The table with the rows ``labels`` alone, in this order."""
        return replace(self, rows={label: self.rows[label] for label in labels})

    def only(self, labels: Sequence[str]) -> "Table":
        """The table with the rows ``labels`` and those that they need; without another baseline.

        Raises:
            ConfigError: a label is not one of its rows.
        """
        chosen = [row for label in labels for row in self.find("rows", label)]
        needed = [row for label in chosen for row in self.needs(label)]
        baseline = self.baseline if self.baseline in chosen else None
        return replace(self, baseline=baseline).with_rows(dict.fromkeys([*chosen, *needed]))

    def without(self, labels: Container[str]) -> "Table":
        """The table without the rows ``labels``, and the rows that need one of them."""
        return self.with_rows(
            row for row in self.rows if not any(one in labels for one in (row, *self.needs(row)))
        )

    def find(self, key: str, label: str) -> list[str]:
        """The row named ``label`` in upper or lower case, or all its choices.

        Raises:
            ConfigError: about ``key``: there is none.
        """
        named = {row: (one.choice_of or row).lower() for row, one in self.rows.items()}
        rows = [row for row, name in named.items() if name == label.lower()]
        if not rows:
            near = [row for row in self.rows if label.lower() in row.lower()] or self.rows
            raise ConfigError(f"{key}={label}: no such row; {self.name} has {', '.join(near)}")
        return rows


def read_table(name: str) -> Table:
    """The table of that name, or in that file.

    Raises:
        ConfigError: there is none, or a key is missing, unknown or wrong.
    """
    files = files_of("table")
    path = files.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"table={name}: no such table; table is one of {', '.join(files)}, or a YAML file"
            + hint(name, files)
        )
    try:
        raw: Any = OmegaConf.to_container(OmegaConf.load(path))
        checked = OmegaConf.merge(OmegaConf.structured(Table), _normal(raw))
        OmegaConf.to_container(checked, throw_on_missing=True)
        table: Any = OmegaConf.to_object(checked)
    except (
        OSError, ValueError, TypeError, AttributeError, yaml.YAMLError, OmegaConfBaseException,
    ) as error:  # fmt: skip
        raise ConfigError(
            f"{path}: {' '.join(str(error).split())}: write a table as "
            "configs/tables/letor4_mq2008.yaml has it"
        ) from error
    table = replace(table, name=path.stem, verdicts=table.verdicts or table.metrics)
    try:
        _check(table)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return replace(table, rows=_with_choices(table.rows))


def _normal(raw: dict[str, Any]) -> dict[str, Any]:
    """A file's keys as ``Table`` has them: rows with names for their parts, one level of lists."""
    kind, published = raw.get("kind", RUNS), raw.get("published") or {}
    rows = {
        str(label): row if isinstance(row, dict) else {"settings": row}
        for label, row in (raw.get("rows") or {}).items()
    }
    parts = {**raw, "rows": {label: row | _split(row) for label, row in rows.items()}}
    if kind in (FOLDS, STATISTICS):
        published = {kind: {"source": "", **published}}
    if kind == FOLDS:
        parts["conventions"] = [parts.pop("convention", MISSING)]
    if kind == STATISTICS:
        parts["folds"] = [parts.pop("fold", 1)]
    return {**parts, **_split(raw), "published": published}


def _split(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for ``train.py``, and those that say what is searched."""
    settings = raw.get("settings", [])
    if not isinstance(settings, list):
        raise ValueError(f"{settings}: write a list, such as [loss=listnet]")
    runs, space = split_space(_flat(settings))
    return {"settings": list(runs), "space": list(space)}


def split_space(overrides: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The overrides for ``train.py``, and those that say what is searched.

    >>> split_space(["loss=bce", "space=mlp,features", "space.optimizer.lr=null"])
    (('loss=bce',), ('space=mlp,features', 'space.optimizer.lr=null'))
    """
    of_space = tuple(one for one in overrides if one.startswith(("space=", "space.")))
    return tuple(one for one in overrides if one not in of_space), of_space


def _flat(settings: Sequence[Any]) -> list[str]:
    """Flatten lists in a list, as ``[*like_another_row, key=value]`` gives them."""
    parts = [_flat(item) if isinstance(item, list) else [str(item)] for item in settings]
    return [setting for part in parts for setting in part]


def _with_choices(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Each combination of the choices of a row as a row of its own."""
    every = {}
    for label, row in rows.items():
        options = [[f"{key}={as_text(one)}" for one in row.choices[key]] for key in row.choices]
        for chosen in product(*options):
            settings = [*row.settings, *chosen]
            every[" ".join([label, *chosen])] = replace(row, settings=settings, choice_of=label)
    return every


def _check(table: Table) -> None:
    """Raise ``ConfigError`` where the file refers to a name that it does not define."""
    named_metrics(table.metrics)
    if table.kind != STATISTICS and not (table.rows and table.metrics and table.conventions):
        raise ConfigError("rows, metrics and conventions: each names at least one")
    trained = [label for label, row in table.rows.items() if not row.ensemble]
    alone = [label for label in trained if label not in table.teachers]
    named = [("kind", table.kind, [RUNS, STATISTICS, FOLDS])]
    named += [("verdicts", metric, table.metrics) for metric in table.verdicts]
    named += [("baseline", row, [*table.rows]) for row in [table.baseline] if row is not None]
    named += [(f"{label}: teacher", row, alone) for label, row in table.teachers.items()]
    for label, row in table.ensembles.items():
        named += [(f"{label}: ensemble", member, trained) for member in row.ensemble]
        named.append((f"{label}: seeds", row.seeds, ["all", "each"]))
        weights = row.weights if isinstance(row.weights, list) else [row.weights]
        row.weights = parse_weights([str(one) for one in weights], len(row.ensemble))
    for data, published in table.published.items():
        theirs = [*published.beside.values(), *filter(None, [published.others])]
        named += [(f"published.{data}", label, [*published.values]) for label in theirs]
        named += [(f"published.{data}.beside", row, [*table.rows]) for row in published.beside]
    for key, name, known in named:
        if name not in known:
            raise ConfigError(f"{key}: {name} is not known; choose of {', '.join(known)}")
