"""Read the definition of a table from ``configs/tables/*.yaml``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ltr.console.arguments import as_text
from ltr.console.configs import files_of
from ltr.console.keys import as_list
from ltr.errors import ConfigError
from ltr.scorers.parts import named_metrics
from ltr.scorers.weights import parse_weights


@dataclass
class Published:
    """Published numbers on a data set, and which of our rows each is compared with."""

    source: str = MISSING
    # values[label][convention][metric]; with by_fold values[label][split][metric]: a list of the
    # numbers of the folds, or their mean
    values: dict[str, Any] = MISSING
    # row -> label in values; other rows are compared with the label of the same name, if any
    beside: dict[str, str] = field(default_factory=dict)
    others: str | None = None  # the label for all remaining rows
    # whether they stand beside rows whose settings a budget has searched too: numbers of rankers
    # that their authors tuned, not of the settings of our rows
    searched: bool = False

    def of(self, row: str) -> str | None:
        """Return the label of the published numbers to compare ``row`` with; None if none."""
        return self.beside.get(row, row if row in self.values else self.others)


@dataclass
class Row:
    """A row of a table: settings for ``ltr train``, or an ensemble of other rows."""

    settings: list[str] = field(default_factory=list)  # overrides; they replace the table's
    space: list[str] = field(default_factory=list)  # with a budget: space=NAMES and space.KEY=[...]
    ensemble: list[str] = field(default_factory=list)  # labels of the trained rows to combine
    weights: Any = "equal"  # of the members: equal, vali, or one number per row
    seeds: str = "all"  # all: one ensemble with the members of all seeds; each: one per seed
    # key -> values; every combination is trained, and the best on vali is shown for each fold
    choices: dict[str, list[Any]] = field(default_factory=dict)
    choice_of: str = ""  # label of the row in the file that this row is a combination of

    def describe(self) -> str:
        """Return a text that describes the ensemble."""
        given = self.weights
        weights = given if isinstance(given, str) else ", ".join(map("{:g}".format, given))
        return f"ensemble of {', '.join(self.ensemble)} (weights {weights}, seeds {self.seeds})"


@dataclass
class Table:
    """The definition of a table: its rows, columns and comparisons."""

    title: str = MISSING
    rows: dict[str, Row] = MISSING
    name: str = ""  # name of its file, without suffix
    by_fold: bool = False  # show each fold, beside the published numbers of the folds or their mean
    settings: list[str] = field(default_factory=list)  # overrides for every row
    space: list[str] = field(default_factory=list)  # with a budget: what is searched in every row
    folds: Any = "all"  # or a list of folds; ignored for a data set without folds
    metrics: list[str] = field(default_factory=list)  # the columns
    conventions: list[str] = field(default_factory=list)  # choices of metrics_as; one block each
    # metrics by which rows are compared, under the first convention; empty: all metrics
    verdicts: list[str] = field(default_factory=list)
    baseline: str | None = None  # the row that the others are compared with; None: the first
    history: list[str] = field(default_factory=list)  # more columns: values of the tested epoch
    published: dict[str, Published] = field(default_factory=dict)  # by name of the data set

    @property
    def ensembles(self) -> dict[str, Row]:
        """The rows that are ensembles, by label."""
        return {label: row for label, row in self.rows.items() if row.ensemble}

    @property
    def teachers(self) -> dict[str, str]:
        """Row -> teacher for each row that learns from another row (``teacher=ROW``)."""
        named = {
            label: setting.partition("=")[2]
            for label, row in self.rows.items()
            for setting in row.settings
            if setting.startswith("teacher=")
        }
        return {label: teacher for label, teacher in named.items() if teacher in self.rows}

    def with_needed(self, label: str) -> list[str]:
        """Return ``label`` and all rows that it needs: ensemble members and teachers."""
        first = [*self.rows[label].ensemble, *filter(None, [self.teachers.get(label)])]
        return [label, *(needed for one in first for needed in self.with_needed(one))]

    def only(self, labels: Iterable[str]) -> "Table":
        """Return the table with only the rows ``labels`` and the rows that these need, such as the
        members of an ensemble. It keeps its baseline only if that is one of ``labels``.
        """
        chosen = [row for label in labels for row in self.find("rows", label)]
        needed = [row for label in chosen for row in self.with_needed(label)]
        baseline = self.baseline if self.baseline in chosen else None
        rows = {row: self.rows[row] for row in [*chosen, *needed]}
        title = f"{self.title}; {len(rows)} of {len(self.rows)} rows"
        return replace(self, title=title, baseline=baseline, rows=rows)

    def find(self, key: str, label: str) -> list[str]:
        """Return the row ``label``, or all combinations of its choices; case is ignored.

        Raises:
            ConfigError: there is no such row; the message begins with ``key``.
        """
        given = label.lower()
        rows = [name for name, row in self.rows.items() if (row.choice_of or name).lower() == given]
        if not rows:
            near = [row for row in self.rows if given in row.lower()] or self.rows
            raise ConfigError(f"{key}={label}: no such row; {self.name} has {', '.join(near)}")
        return rows


def read_table(name: str) -> Table:
    """Read a table, a name in ``configs/tables`` or a YAML file; ``ConfigError`` if it is wrong."""
    files = files_of("table")
    path = files.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"table={name}: no such table; table is one of {', '.join(files)}, or a YAML file"
        )
    try:
        raw: Any = OmegaConf.to_container(OmegaConf.load(path))
        rows = {
            str(label): row if isinstance(row, dict) else {"settings": row}
            for label, row in (raw.get("rows") or {}).items()
        }
        raw |= _split(raw) | {"rows": {label: row | _split(row) for label, row in rows.items()}}
        raw["published"] = raw.get("published") or {}
        checked = OmegaConf.merge(OmegaConf.structured(Table), raw)
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
    rows = {}
    for label, row in table.rows.items():  # each combination of choices becomes a row
        options = [
            [f"{key}={as_text(one)}" for one in values] for key, values in row.choices.items()
        ]
        for chosen in product(*options):
            settings = [*row.settings, *chosen]
            rows[" ".join([label, *chosen])] = replace(row, settings=settings, choice_of=label)
    return replace(table, rows=rows)


def _split(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Split the settings of a table or row into those for ``ltr train`` and the search space."""
    settings = raw.get("settings", [])
    if not isinstance(settings, list):
        raise ValueError(f"{settings}: write a list, such as [loss=listnet]")
    runs, space = split_space(_flat(settings))
    return {"settings": runs, "space": space}


def split_space(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``overrides`` into those for ``ltr train`` and those that say what is searched.

    >>> split_space(["loss=bce", "space=mlp,features", "space.optimizer.lr=null"])
    (['loss=bce'], ['space=mlp,features', 'space.optimizer.lr=null'])
    """
    space = [one for one in overrides if one.startswith(("space=", "space."))]
    return [one for one in overrides if one not in space], space


def key_of(override: str) -> str:
    """Return the key that ``override`` sets."""
    return override.lstrip("+").partition("=")[0]


def _flat(settings: Sequence[Any]) -> list[str]:
    """Flatten nested lists: a YAML list that includes another row's list is nested."""
    parts = [_flat(item) if isinstance(item, list) else [str(item)] for item in settings]
    return [setting for part in parts for setting in part]


def _check(table: Table) -> None:
    """Raise ``ConfigError`` if the file refers to a name that is not defined."""
    named_metrics(table.metrics)
    if not (table.rows and table.metrics and table.conventions):
        raise ConfigError("rows, metrics and conventions: each names at least one")
    trained = [label for label, row in table.rows.items() if not row.ensemble]
    alone = [label for label in trained if label not in table.teachers]
    named = [("conventions", name, [*files_of("metrics_as")]) for name in table.conventions]
    named += [("verdicts", metric, table.metrics) for metric in table.verdicts]
    named += [("baseline", row, [*table.rows]) for row in filter(None, [table.baseline])]
    named += [(f"{label}: teacher", row, alone) for label, row in table.teachers.items()]
    for label, row in table.ensembles.items():
        named += [(f"{label}: ensemble", member, trained) for member in row.ensemble]
        named.append((f"{label}: seeds", row.seeds, ["all", "each"]))
        row.weights = parse_weights(as_list(row.weights), len(row.ensemble))
    for data, published in table.published.items():
        theirs = [*published.beside.values(), *filter(None, [published.others])]
        named += [(f"published.{data}", label, [*published.values]) for label in theirs]
        named += [(f"published.{data}.beside", row, [*table.rows]) for row in published.beside]
        for label, parts in published.values.items() if table.by_fold else ():
            key = f"published.{data}.{label}"
            named += [(key, part, ["test", "vali"]) for part in parts]
            numbers = [number for part in parts.values() for number in part.values()]
            if table.folds != "all" and not all(isinstance(one, list) for one in numbers):
                raise ConfigError(f"{key}: a mean is over all folds: write folds: all")
    for key, name, known in named:
        if name not in known:
            raise ConfigError(f"{key}: {name} is not known; choose of {', '.join(known)}")
