"""A table as data, and what is asked of it.

``configs/tables/*.yaml`` lists its rows and the published numbers.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.console.configs import CONFIGS, hint
from ltr.console.folders import asked, label_of
from ltr.console.values import flag, number, required, text, texts, whole
from ltr.errors import ConfigError

RUNS, STATISTICS = "runs", "statistics"
_KEYS = {
    RUNS: ("title", "settings", "folds", "metrics", "conventions", "rows", "published"),
    STATISTICS: ("title", "kind", "settings", "fold", "rows", "published"),
}
_OPTIONAL = {RUNS: ("kind", "verdicts", "baseline", "history"), STATISTICS: ()}

Numbers = Mapping[str, Mapping[str, float]]  # convention -> metric -> number


@dataclass(frozen=True)
class Published:
    """Numbers that others printed, and which row each stands beside.

    Attributes:
        source: where they stand.
        values: ``values[label][convention][metric]``.
        beside: row of the table -> label in ``values``; a row that is not named stands beside the
            label of its own name, if there is one.
        others: the label that every remaining row is compared with, or None.
    """

    source: str
    values: Mapping[str, Numbers]
    beside: Mapping[str, str] = field(default_factory=dict)
    others: str | None = None

    def of(self, row: str) -> str | None:
        """The label that stands beside ``row``, None where nothing does."""
        return self.own(row) or self.others

    def own(self, row: str) -> str | None:
        """The label that is the row's own published counterpart, None where it has none."""
        return self.beside.get(row, row if row in self.values else None)


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
        verdicts: which of the metrics rows are judged by, under the first convention.
        baseline: the row that the others are compared with; None: the first.
        history: columns of ``history.csv`` shown for the epoch that was tested.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    folds: str | tuple[int, ...]
    metrics: tuple[str, ...]
    conventions: tuple[str, ...]
    published: Mapping[str, Published]
    verdicts: tuple[str, ...] = ()
    baseline: str | None = None
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class StatisticsTable:
    """A table of what data sets hold.

    Attributes:
        name, title, settings: as in ``Table``.
        fold: which fold of a data set that has folds.
        rows: label -> overrides that choose the data set.
        published: label -> quantity -> number, and under ``source`` where they stand.
        source: where they stand.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    fold: int
    rows: Mapping[str, tuple[str, ...]]
    published: Mapping[str, Mapping[str, int]]
    source: str


def tables() -> dict[str, str]:
    """Name and title of every table there is."""
    return {name: str(OmegaConf.load(path).title) for name, path in _files().items()}


def _files() -> dict[str, Path]:
    """The file of every table; one in ``./configs/tables`` goes over the project's own."""
    folders = (CONFIGS / "tables", Path("configs", "tables"))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def read_table(name: str) -> Table | StatisticsTable:
    """The table of that name.

    Raises:
        ConfigError: there is none, or its file lacks something.
    """
    files = _files()
    if name not in files:
        raise ConfigError(
            f"table={name}: no such table; table is one of {', '.join(files)}{hint(name, files)}"
        )
    return parse_table(files[name])


def only(table: Table, labels: Sequence[str]) -> Table:
    """The table with some of its rows only; a baseline that is left out is no longer one.

    Raises:
        ConfigError: a label is not one of its rows.
    """
    chosen = [row_of(table, "rows", label) for label in labels]
    baseline = table.baseline if table.baseline in chosen else None
    return replace(table, rows={label: table.rows[label] for label in chosen}, baseline=baseline)


def row_of(table: Table, key: str, label: str) -> str:
    """The row that the user means by ``label``, upper or lower case.

    Raises:
        ConfigError: ``key`` of the command line names no row of the table.
    """
    known = {row.lower(): row for row in table.rows}
    if label.lower() not in known:
        raise ConfigError(f"{key}={label}: no such row; {table.name} has {', '.join(table.rows)}")
    return known[label.lower()]


def parse_table(path: Path) -> Table | StatisticsTable:
    """The table in a file.

    Raises:
        ConfigError: a key is missing or unknown, or names a row or metric that is not there.
    """
    raw: Any = OmegaConf.to_container(OmegaConf.load(path))
    kind = raw.get("kind", RUNS)
    if kind not in _KEYS:
        raise ConfigError(f"{path}: kind={kind}: write one of {', '.join(_KEYS)}")
    needed = _KEYS[kind]
    wrong = sorted(set(raw) - set(_OPTIONAL[kind]) ^ set(needed))
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]} is missing or unknown; write {', '.join(needed)}")
    common: dict[str, Any] = {
        "name": path.stem,
        "title": raw["title"],
        "settings": tuple(_listed(path, "settings", raw["settings"])),
        "rows": {
            str(label): _flat(_listed(path, str(label), overrides))
            for label, overrides in (raw["rows"] or {}).items()
        },
    }
    published = raw["published"] or {}
    if kind == STATISTICS:
        source = published.get("source", "")
        return StatisticsTable(
            **common, fold=raw["fold"], published=published.get("values", {}), source=source
        )
    table = Table(
        **common,
        folds=raw["folds"] if raw["folds"] == "all" else tuple(raw["folds"]),
        metrics=tuple(_listed(path, "metrics", raw["metrics"])),
        conventions=tuple(_listed(path, "conventions", raw["conventions"])),
        published={name: Published(**values) for name, values in published.items()},
        verdicts=tuple(_listed(path, "verdicts", raw.get("verdicts", raw["metrics"]))),
        baseline=raw.get("baseline"),
        history=tuple(raw.get("history", ())),
    )
    _check(table, path)
    return table


def _listed(path: Path, key: str, value: Any) -> list[Any]:
    """``value``, which has to be a list."""
    if not isinstance(value, list):
        raise ConfigError(f"{path}: {key}: {value}: write a list, such as [loss=listnet]")
    return value


def _flat(overrides: Sequence[Any]) -> tuple[str, ...]:
    """One list of what may be written as lists in a list: ``[*like_another_row, key=value]``."""
    parts = [_flat(item) if isinstance(item, list) else (item,) for item in overrides]
    return tuple(str(override) for part in parts for override in part)


def _check(table: Table, path: Path) -> None:
    """Raise ``ConfigError`` where a name in the file stands for nothing in it."""
    from ltr.metrics import parse_metric  # torch, which --help does without

    for metric in table.metrics:
        parse_metric(metric)
    if not (table.rows and table.verdicts):
        raise ConfigError(f"{path}: rows and verdicts: each names at least one")
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


MARGIN = 0.005  # half a point: differences smaller than this count as none


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        table: name of the table.
        overrides: for ``train.py``, over the table's settings.
        rows: labels of the rows wanted; empty: all.
        seeds: how many, from 1 on.
        output_dir: the folder of ``runs/`` and ``tables/``.
        workers: runs at a time; None: one on a GPU, else one per core.
        launcher: overrides of Hydra's launcher, in place of ``workers``.
        dry_run: only say what would run, and for how long.
        baseline: the row that the others are compared with; None: the table's own.
        margin: differences smaller than this count as none; None: ``MARGIN``.
    """

    table: str
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int = 1
    output_dir: str = "outputs"
    workers: int | None = None
    launcher: tuple[str, ...] = ()
    dry_run: bool = False
    baseline: str | None = None
    margin: float | None = None

    def command(self) -> str:
        """The command that makes this table, but for where it is kept and how many run at once."""
        return shlex.join(
            ["python", "scripts/table.py", f"table={self.table}", *self._asked(), *self._own()]
        )

    def name(self, data: str) -> str:
        """What the folder of the table of ``data`` is called: another order, another folder.

        >>> Order("softrank_slides").name("mq2008")
        'softrank_slides_mq2008'
        >>> Order("softrank_slides", ("dataset=mq2008", "epochs=1"), seeds=3).name("mq2008")
        'softrank_slides_mq2008_seeds-3_epochs-1'
        """
        more = [*self._own(), *(item for item in self._asked() if item != f"dataset={data}")]
        return "_".join([self.table, data, *([label_of(more)] if more else [])])

    def _asked(self) -> list[str]:
        return [item for item in self.overrides if asked([item])]

    def _own(self) -> list[str]:
        parts = [f"rows={','.join(self.rows)}"] if self.rows else []
        parts += [f"seeds={self.seeds}"] if self.seeds != 1 else []
        parts += [f"baseline={self.baseline}"] if self.baseline is not None else []
        parts += [f"margin={self.margin:g}"] if self.margin is not None else []
        return parts


def table_order(cfg: DictConfig) -> Order:
    """The order in a config.

    Raises:
        ConfigError: no table is named, or a value is wrong.
    """
    required(cfg, "table")
    overrides, launcher = texts(cfg, "train"), texts(cfg, "launcher")
    if launcher and cfg.workers is not None:
        raise ConfigError(f"workers={cfg.workers}: {launcher[0]} says how many; leave one out")
    for override in overrides:
        if override.lstrip("+").partition("=")[0] in ("seed", "dataset.fold"):
            raise ConfigError(f"{override}: a table runs its folds and seeds itself; set seeds=N")
    return Order(
        table=str(cfg.table),
        overrides=overrides,
        rows=texts(cfg, "rows"),
        seeds=whole(cfg, "seeds", least=1),
        output_dir=str(cfg.output_dir),
        workers=None if cfg.workers is None else whole(cfg, "workers", least=1),
        launcher=launcher,
        dry_run=flag(cfg, "dry_run"),
        baseline=text(cfg, "baseline"),
        margin=None if cfg.margin is None else _margin(cfg),
    )


def _margin(cfg: DictConfig) -> float:
    margin = number(cfg, "margin")
    if not 0 < margin < 1:
        raise ConfigError(f"margin={margin:g}: give a number between 0 and 1, such as 0.005")
    return margin
