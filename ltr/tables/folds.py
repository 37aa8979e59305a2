"""Published rows beside ours, fold by fold: each fold's settings are chosen on its own vali."""

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.progress import say
from ltr.errors import ConfigError
from ltr.experiment.parts import as_list, make_convention
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention
from ltr.search.space import as_text
from ltr.tables.launch import local_launcher
from ltr.tables.measure import conventions_of
from ltr.tables.order import Order, refuse
from ltr.tables.report import PUBLISHED, Block, Cell, Report, terminal, write_table
from ltr.tables.runs import Run, describe, execute, plan
from ltr.tables.sizes import sizes_of, unlike_published
from ltr.tables.spec import FOLD_SPLITS, FoldsTable, Table, row_of


def make_folds(table: FoldsTable, order: Order) -> bool:
    """Run what is missing, choose on vali, print and write the table; return whether all is done.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything runs.
    """
    refuse(order, ("baseline", "margin"), f"{table.name} compares with published rows")
    refuse(order, ("percent",), f"{table.name} has its numbers as they were published")
    refuse(order, ("budget",), f"{table.name} chooses from its own values")
    labels = [row_of(table, "rows", label) for label in order.rows or table.rows]
    tried = {label: _tried(table, label) for label in labels}
    convention = _check(table, tried, order.overrides)
    output_dir = Path(order.output_dir).absolute()
    seeds, absent_ok = range(1, order.seeds + 1), order.dry_run
    runs = {
        label: plan(of_row, order.overrides, seeds, output_dir, absent_ok=absent_ok)
        for label, of_row in tried.items()
    }
    every = [run for of_row in runs.values() for run in of_row]
    if unlike := unlike_published(str(every[0].config.dataset.name), sizes_of(every)):
        raise ConfigError(f"{unlike}; give the published data")
    todo = [run for run in every if not run.done]
    say(f"{table.title}: {len(every)} runs, {len(todo)} to do")
    if order.dry_run:
        for run in todo:
            print(f"  {describe(run)}")
        return True
    folder = output_dir / "tables" / order.name(str(every[0].config.dataset.name))
    workers = min(order.workers or os.cpu_count() or 1, max(1, len(todo)))
    launcher = order.launcher or local_launcher(workers)
    failures = execute(todo, folder / "jobs.yaml", launcher) if todo else {}
    for path, reason in failures.items():
        say(f"{path.name} failed: {reason}")
    if failures:
        return False
    frame = pd.concat([_chosen(label, of_row, table) for label, of_row in runs.items()])
    report = _report(table, order, frame, len(every), convention)
    write_table(folder, report, {"table": frame})
    print(terminal(report))
    print(f"kept in {folder} (table.html, .md, .tex, .csv)")
    return True


def _tried(table: FoldsTable, label: str) -> Table:
    """A table with a row for each combination of the choices of ``label``."""
    row = table.rows[label]
    combinations = product(
        *([f"{key}={as_text(value)}" for value in values] for key, values in row.choices.items())
    )
    rows = {" ".join([label, *chosen]): (*row.settings, *chosen) for chosen in combinations}
    return Table(
        name=table.name, title=table.title, settings=table.settings, rows=rows, folds="all",
        metrics=table.metrics, conventions=(table.convention,), published={},
    )  # fmt: skip


def _check(table: FoldsTable, tried: Mapping[str, Table], given: Sequence[str]) -> Convention:
    """The convention of the published numbers, with which ours can be compared.

    Args:
        table: with the published numbers of the data set that its settings choose.
        tried: by row.
        given: overrides of the user.

    Raises:
        ConfigError: an override does nothing, or ours would be of other data, of another
            convention, or without a metric.
    """
    theirs = run_config(table.settings)[0].dataset.name
    (count,) = {
        len(numbers)
        for of_split in table.published.values()
        for of_metric in of_split.values()
        for numbers in of_metric.values()
    }
    rows = [
        (one, merged(one.settings, given, row))
        for one in tried.values()
        for row in one.rows.values()
    ]
    for override in given:
        if not any(override in row for _, row in rows):
            raise ConfigError(f"{override}: every row of {table.name} sets its own; leave it out")
    for one, row in rows:
        config = run_config(row)[0]
        name, folds = config.dataset.name, config.dataset.get("folds") or 0
        if (name, folds) != (theirs, count):
            raise ConfigError(
                f"dataset={name}, {folds} folds: the published numbers of {table.name} are of "
                f"{theirs}, {count} folds; leave dataset out"
            )
        convention = conventions_of(one, int(config.suggested.levels))[table.convention]
        if make_convention(config) != convention:
            raise ConfigError(
                f"{table.convention} is the convention of the published numbers: leave metrics_as "
                "and convention out"
            )
        if missing := set(table.metrics) - set(as_list(config.metrics)):
            raise ConfigError(f"metrics: {min(missing)} is compared; leave metrics out")
    return convention


def _chosen(label: str, runs: Sequence[Run], table: FoldsTable) -> pd.DataFrame:
    """A row for each fold, seed, split and metric: ours as chosen on vali, and the published."""
    lines = []
    for fold, seed in sorted({(run.fold or 0, run.seed) for run in runs}):
        results = {
            run.label: RunFolder(run.folder).results
            for run in runs
            if ((run.fold or 0), run.seed) == (fold, seed)
        }
        chosen, best = max(
            results.items(), key=lambda one: float(one[1]["vali"][one[1]["select_on"]])
        )
        for split, metric in product(FOLD_SPLITS, table.metrics):
            published = table.published[label][split][metric][fold - 1]
            lines.append(
                {
                    "row": label, "fold": fold, "seed": seed, "split": split, "metric": metric,
                    "ours": best[split][metric], "published": published,
                    "chosen": chosen.removeprefix(label).strip(),
                    "epoch": best["selected_epoch"],
                }
            )  # fmt: skip
    return pd.DataFrame(lines)


def _report(
    table: FoldsTable, order: Order, frame: pd.DataFrame, runs: int, convention: Convention
) -> Report:
    folds = sorted(frame.fold.unique())
    head = ("", *(f"fold {fold}" for fold in folds), "mean")
    blocks = [
        Block(
            f"{metric} of {split}",
            "the difference is ours less the published number",
            head,
            tuple(
                line
                for label in frame.row.unique()
                for line in _lines(label, _of(frame, row=label, split=split, metric=metric))
            ),
        )
        for split, metric in product(FOLD_SPLITS, table.metrics)
    ]
    one = _of(frame, split=FOLD_SPLITS[0], metric=table.metrics[0])
    names = [(label, seed) for label, seed in one[["row", "seed"]].drop_duplicates().values]
    chosen = Block(
        "Chosen on vali",
        "settings and epoch, of each fold alone",
        head[:-1],
        tuple(
            (
                Cell(label if order.seeds == 1 else f"{label}, seed {seed}"),
                *(
                    Cell(f"{line.chosen}, {line.epoch}")
                    for line in _of(one, row=label, seed=seed).itertuples()
                ),
            )
            for label, seed in names
        ),
    )
    unknown = Block(
        "Not known of the published rows",
        "what their source does not say",
        ("", "not known"),
        tuple((Cell(name), Cell(table.rows[name].unknown)) for name in frame.row.unique()),
    )
    return Report(
        name=order.name("folds"),
        title=table.title,
        command=order.command(),
        facts=(
            ("runs", f"{runs}, of which {len(names) * len(folds)} are shown: chosen on vali"),
            ("seeds", " ".join(map(str, sorted(frame.seed.unique())))),
            ("convention", f"{table.convention}: {convention.describe()}"),
            (PUBLISHED, table.source),
        ),
        blocks=(*blocks, chosen, unknown),
    )


def _of(frame: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The rows of ``frame`` with these values."""
    kept = np.ones(len(frame), bool)
    for name, value in values.items():
        kept &= (frame[name] == value).to_numpy()
    return frame[kept]


def _lines(label: str, numbers: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """Ours, the published numbers and the differences of one row; ours are means over seeds."""
    means = numbers.groupby("fold")[["ours", PUBLISHED]].mean()
    means.loc["mean"] = means.mean()
    apart = means.ours - means[PUBLISHED]
    return [
        (Cell(label), *(Cell(f"{value:.4f}") for value in means.ours)),
        (Cell(f"{label} ({PUBLISHED})"), *(Cell(f"{value:.4f}") for value in means[PUBLISHED])),
        (Cell("difference"), *(Cell(f"{value:+.4f}") for value in apart)),
    ]
