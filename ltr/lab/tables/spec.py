"""Read the definition of a table from ``configs/tables/*.yaml``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml  # type: ignore[import-untyped]
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.cli.arguments import as_text
from ltr.cli.configs import files_of
from ltr.cli.keys import as_list
from ltr.errors import ConfigError
from ltr.lab.ensembles.weights import parse_weights
from ltr.parts.components import named_metrics


@dataclass
class Published:
    """The published numbers for a data set, and our rows with which they are compared."""

    source: str = MISSING
    # values[label][convention][metric] is a number. With by_fold, values[label][split][metric] is
    # a list with a number for each fold, or the mean over the folds
    values: dict[str, Any] = MISSING
    # from a row to a label in values; other rows are compared with a label of the same name, if any
    beside: dict[str, str] = field(default_factory=dict)
    others: str | None = None  # the label for all other rows
    # whether the numbers are shown even if the settings of our rows come from a search: true for
    # rankers that their authors tuned, false for numbers that belong to the settings in the table
    searched: bool = False

    def label_for(self, row: str) -> str | None:
        """Return the label of the published numbers for ``row``; None if there are none."""
        return self.beside.get(row, row if row in self.values else self.others)


@dataclass
class Row:
    """A row of a table: settings for ``ltr train``, or an ensemble of other rows."""

    settings: list[str] = field(default_factory=list)  # overrides, which replace the table's
    space: list[str] = field(default_factory=list)  # with a budget: space=NAMES and space.KEY=[...]
    ensemble: list[str] = field(default_factory=list)  # labels of the trained rows to combine
    weights: Any = "equal"  # weights of the members: equal, vali, or one number per row
    seeds: str = "all"  # all: one ensemble of the runs with all seeds; each: one per seed
    # the values of each key; all combinations are trained; each fold shows the best one on vali
    choices: dict[str, list[Any]] = field(default_factory=dict)
    choice_of: str = ""  # the label of the row in the file, to which this row adds a combination

    def describe(self) -> str:
        """Describe this row, which must be an ensemble."""
        weights = self.weights
        if not isinstance(weights, str):
            weights = ", ".join(f"{weight:g}" for weight in weights)
        return f"ensemble of {', '.join(self.ensemble)} (weights {weights}, seeds {self.seeds})"


@dataclass
class Table:
    """The definition of a table: its rows, columns and comparisons."""

    title: str = MISSING
    rows: dict[str, Row] = MISSING
    name: str = ""  # the name of the file, without suffix
    by_fold: bool = False  # show each fold, next to the published numbers (or mean) of the folds
    settings: list[str] = field(default_factory=list)  # overrides for every row
    space: list[str] = field(default_factory=list)  # with a budget: the space of every row
    folds: Any = "all"  # all, or a list of folds; ignored if the data set has no folds
    metrics: list[str] = field(default_factory=list)  # the columns
    conventions: list[str] = field(default_factory=list)  # the blocks: choices of convention
    # the metrics by which rows are compared under the first convention; empty: all metrics
    verdicts: list[str] = field(default_factory=list)
    baseline: str | None = None  # the row with which others are compared; None: the first
    history: list[str] = field(default_factory=list)  # more columns, of history.csv
    published: dict[str, Published] = field(default_factory=dict)  # by name of the data set

    @property
    def ensembles(self) -> dict[str, Row]:
        """The rows that are ensembles, by label."""
        return {label: row for label, row in self.rows.items() if row.ensemble}

    @property
    def teachers(self) -> dict[str, str]:
        """The teacher of each row that learns from another row (``teacher=ROW``), by label."""
        teachers = {
            label: setting.partition("=")[2]
            for label, row in self.rows.items()
            for setting in row.settings
            if setting.startswith("teacher=")
        }
        return {label: teacher for label, teacher in teachers.items() if teacher in self.rows}

    def with_needed_rows(self, label: str) -> list[str]:
        """Return ``label`` and all rows that it needs: ensemble members and teachers."""
        needed = [*self.rows[label].ensemble]
        if label in self.teachers:
            needed.append(self.teachers[label])
        return [label, *(row for member in needed for row in self.with_needed_rows(member))]

    def select_rows(self, labels: Iterable[str]) -> "Table":
        """Return the table with only the rows ``labels`` and the rows that these need.

        An ensemble, for example, needs its members. The table keeps its baseline only if the
        baseline is one of ``labels``.

        Raises:
            ConfigError: one of ``labels`` is not the label of any row.
        """
        selected = [row for label in labels for row in self.find_rows("rows", label)]
        needed = [row for label in selected for row in self.with_needed_rows(label)]
        baseline = self.baseline if self.baseline in selected else None
        rows = {row: self.rows[row] for row in [*selected, *needed]}
        title = f"{self.title}; {len(rows)} of {len(self.rows)} rows"
        return replace(self, title=title, baseline=baseline, rows=rows)

    def find_rows(self, key: str, label: str) -> list[str]:
        """Return the row ``label``, or all combinations of its choices. Case is ignored.

        Raises:
            ConfigError: there is no such row; the message begins with ``KEY=LABEL``.
        """
        wanted = label.lower()
        rows = [
            name for name, row in self.rows.items() if (row.choice_of or name).lower() == wanted
        ]
        if not rows:
            similar = [row for row in self.rows if wanted in row.lower()] or self.rows
            raise ConfigError(
                f"{key}={label}: no such row; choose from the rows of {self.name}: "
                f"{', '.join(similar)}"
            )
        return rows


def read_table(name: str) -> Table:
    """Read a table.

    Args:
        name: a name in ``configs/tables``, or the path of a YAML file.

    Raises:
        ConfigError: there is no such table, or its file is malformed.
    """
    files = files_of("table")
    path = files.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"table={name}: no such table; choose one of {', '.join(files)}, or the path of a "
            "YAML file"
        )
    try:
        table = _parse_table(path)
    except (
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        yaml.YAMLError,
        OmegaConfBaseException,
    ) as error:
        raise ConfigError(
            f"{path}: {' '.join(str(error).split())}; write the table in the form of "
            "configs/tables/letor4_mq2008.yaml"
        ) from error
    table = replace(table, name=path.stem, verdicts=table.verdicts or table.metrics)
    try:
        _check_table(table)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return replace(table, rows=_expand_choices(table.rows))


def _parse_table(path: Path) -> Table:
    """Read a table from YAML; raise an error for an unknown key or a value of the wrong type."""
    raw: Any = OmegaConf.to_container(OmegaConf.load(path))
    rows = {
        str(label): row if isinstance(row, dict) else {"settings": row}
        for label, row in (raw.get("rows") or {}).items()
    }
    raw |= _split_settings(raw)
    raw["rows"] = {label: row | _split_settings(row) for label, row in rows.items()}
    raw["published"] = raw.get("published") or {}
    checked = OmegaConf.merge(OmegaConf.structured(Table), raw)
    OmegaConf.to_container(checked, throw_on_missing=True)
    return cast(Table, OmegaConf.to_object(checked))


def _expand_choices(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Replace each row by one row for each combination of its choices."""
    expanded = {}
    for label, row in rows.items():
        options = [
            [f"{key}={as_text(value)}" for value in values] for key, values in row.choices.items()
        ]
        for combination in product(*options):
            settings = [*row.settings, *combination]
            new_row = replace(row, settings=settings, choice_of=label)
            expanded[" ".join([label, *combination])] = new_row
    return expanded


def _split_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Split the settings of a table or row into those for ``ltr train`` and the search space."""
    settings = raw.get("settings", [])
    if not isinstance(settings, list):
        raise ValueError(f"settings: expected a list, such as [loss=listnet], got {settings}")
    overrides, space = split_space(_flatten(settings))
    return {"settings": overrides, "space": space}


def split_space(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``overrides`` into those for ``ltr train`` and those that define a search space.

    >>> split_space(["loss=bce", "space=mlp,features", "space.optimizer.lr=null"])
    (['loss=bce'], ['space=mlp,features', 'space.optimizer.lr=null'])
    """
    space = [override for override in overrides if override.startswith(("space=", "space."))]
    return [override for override in overrides if override not in space], space


def key_of(override: str) -> str:
    """Return the key that ``override`` sets."""
    return override.lstrip("+").partition("=")[0]


def _flatten(settings: Sequence[Any]) -> list[str]:
    """Flatten nested lists; a YAML list that includes the list of another row is nested."""
    flat: list[str] = []
    for setting in settings:
        if isinstance(setting, list):
            flat += _flatten(setting)
        else:
            flat.append(str(setting))
    return flat


class _Reference(NamedTuple):
    """A name to which the file of a table refers."""

    key: str  # the key under which the name is written
    name: str
    allowed: Sequence[str]  # the names that are defined


def _check_table(table: Table) -> None:
    """Raise ``ConfigError`` if the file refers to a name that is not defined."""
    named_metrics(table.metrics)
    if not (table.rows and table.metrics and table.conventions):
        raise ConfigError(
            "expected at least one entry in each of rows, metrics and conventions, got "
            f"{len(table.rows)}, {len(table.metrics)} and {len(table.conventions)}"
        )
    references = _references_of_rows(table)
    for row in table.ensembles.values():
        row.weights = parse_weights(as_list(row.weights), len(row.ensemble))
    for data, published in table.published.items():
        references += _references_of_published(f"published.{data}", published, table)
        if table.by_fold and table.folds != "all":
            _check_numbers_by_fold(f"published.{data}", published)
    for key, name, allowed in references:
        if name not in allowed:
            raise ConfigError(f"{key}: unknown name {name}; choose one of {', '.join(allowed)}")


def _references_of_rows(table: Table) -> list[_Reference]:
    """Return the names that the table and its rows refer to."""
    trained = [label for label, row in table.rows.items() if not row.ensemble]
    without_teacher = [label for label in trained if label not in table.teachers]
    conventions = [*files_of("convention")]
    references = [_Reference("conventions", name, conventions) for name in table.conventions]
    references += [_Reference("verdicts", metric, table.metrics) for metric in table.verdicts]
    if table.baseline:
        references.append(_Reference("baseline", table.baseline, [*table.rows]))
    for label, teacher in table.teachers.items():
        references.append(_Reference(f"{label}: teacher", teacher, without_teacher))
    for label, row in table.ensembles.items():
        key = f"{label}: ensemble"
        references += [_Reference(key, member, trained) for member in row.ensemble]
        references.append(_Reference(f"{label}: seeds", row.seeds, ["all", "each"]))
    return references


def _references_of_published(key: str, published: Published, table: Table) -> list[_Reference]:
    """Return the names to which published numbers refer; ``key`` is the key of these numbers."""
    labels = [*published.beside.values()]
    if published.others:
        labels.append(published.others)
    references = [_Reference(key, label, [*published.values]) for label in labels]
    references += [_Reference(f"{key}.beside", row, [*table.rows]) for row in published.beside]
    if table.by_fold:
        for label, splits in published.values.items():
            references += [
                _Reference(f"{key}.{label}", split, ["test", "vali"]) for split in splits
            ]
    return references


def _check_numbers_by_fold(key: str, published: Published) -> None:
    """Raise ``ConfigError`` for a published mean over all folds: the table shows only some."""
    for label, splits in published.values.items():
        numbers = [number for metrics in splits.values() for number in metrics.values()]
        if not all(isinstance(number, list) for number in numbers):
            raise ConfigError(
                f"{key}.{label}: expected a list with a number for each fold, got a mean over all "
                "folds: write the list, or set 'folds: all'"
            )
