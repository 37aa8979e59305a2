"""The command ``table``: run what is missing of a table and write it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ltr.console.folders import asked
from ltr.experiment.provenance import asked_place, elsewhere
from ltr.metrics import Convention
from ltr.tables.cost import estimate, expected
from ltr.tables.data_counts import make_statistics
from ltr.tables.formats import terminal
from ltr.tables.measure import (
    Measured,
    by_run,
    check_test_lists,
    conventions_of,
    measure,
    whole_rows,
)
from ltr.tables.numbers import numbers
from ltr.tables.output import write_table
from ltr.tables.page import Picture
from ltr.tables.render import blocks, facts, unfinished
from ltr.tables.report import Report
from ltr.tables.runs import Run, describe, execute, local_launcher, merged, missing_libraries, plan
from ltr.tables.spec import MARGIN, Order, StatisticsTable, Table, only, read_table, row_of
from ltr.tables.verdicts import Verdicts, judge
from ltr.training.device import pick_device


def make_table(order: Order) -> bool:
    """Make the table and print it; return whether all of it that can be done here is done.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything runs.
    """
    table = read_table(order.table)
    if isinstance(table, StatisticsTable):
        return make_statistics(table, order)
    if order.rows:
        table = only(table, order.rows)
    if order.baseline is not None:
        table = replace(table, baseline=row_of(table, "baseline", order.baseline))
    return _make_runs(table, order)


def _make_runs(table: Table, order: Order) -> bool:
    missing = missing_libraries(table, order.overrides)
    can_run = {label: row for label, row in table.rows.items() if label not in missing}
    output_dir = Path(order.output_dir).absolute()
    runs = plan(
        replace(table, rows=can_run),
        order.overrides,
        range(1, order.seeds + 1),
        output_dir,
        absent_ok=order.dry_run,
    )
    for label, reason in missing.items():
        print(f"{label} {reason}: left out")
    if not runs:
        return True
    device = pick_device(runs[0].config.device)
    workers = order.workers or (1 if device.type == "cuda" else os.cpu_count() or 1)
    todo = [run for run in runs if not run.done]
    for run in todo:
        if run.damaged:
            print(f"{run.folder.name}: its results are damaged, or of an earlier version: redone")
    print(f"{table.title}: {len(runs)} runs, {len(todo)} to do; {expected(runs, workers)}")
    threads = max(1, (os.cpu_count() or 1) // workers)
    done = list(dict.fromkeys(run.folder for run in runs if run.done))
    if note := elsewhere(done, asked_place(runs[0].config, threads)):
        print(note)
    if order.dry_run:
        for run in todo:
            print(f"  {describe(run)}")
        if todo:
            print("\n" + estimate(runs, workers=workers, threads=threads))
        return True
    conventions = conventions_of(table, int(runs[0].config.suggested.levels))
    check_test_lists(table, runs)
    data = str(runs[0].config.dataset.name)
    folder = output_dir / "tables" / order.name(data)
    failures: dict[Path, str] = {}
    if todo:
        given = {override.partition("=")[0] for override in order.overrides}
        alone = "threads" in given or order.launcher or device.type == "cuda"
        failures = execute(
            todo,
            folder / "jobs.yaml",
            order.launcher or local_launcher(min(workers, len(todo))),
            [] if alone else [f"threads={threads}"],
        )

    measured = measure(table, runs)
    missing |= unfinished(runs)
    for run in runs:
        if run.folder in failures:
            there = missing.get(run.label, "")
            missing[run.label] = f"{there}, failed" if there.endswith("runs") else "failed"
    report = _report(table, order, runs, measured, conventions, missing)
    print("\n" + terminal(report))
    for path, reason in failures.items():
        print(f"{path.name} failed: {reason}")
    print(f"kept in {folder} (table.html, .md, .tex, .csv, runs.csv)")
    return not failures


def _report(
    table: Table,
    order: Order,
    runs: Sequence[Run],
    measured: Sequence[Measured],
    conventions: Mapping[str, Convention],
    missing: Mapping[str, str],
) -> Report:
    """Put the table together and write it in every format."""
    data = str(runs[0].config.dataset.name)
    published = table.published.get(data)
    baseline = table.baseline or next(iter(table.rows))
    folds = list(dict.fromkeys(run.fold for run in runs))
    every, verdicts = by_run(table, measured), _verdicts(table, measured, folds, baseline, order)
    frame = whole_rows(every, len(folds))
    found = numbers(table, frame, verdicts, published, baseline)
    report = Report(
        name=order.name(data),
        title=f"{table.title}: {data}",
        command=order.command(),
        facts=facts(table, runs, measured, published, verdicts, baseline),
        blocks=blocks(table, found, frame, verdicts, published, conventions, missing, baseline),
    )
    drawn: tuple[Picture, ...] = ()
    if measured:
        from ltr.tables.plots import pictures  # matplotlib, when there is what to draw

        drawn = pictures(measured, verdicts, found, baseline)
    shown = every.drop(columns=["seconds", "run"], errors="ignore")
    write_table(
        Path(order.output_dir).absolute() / "tables" / report.name,
        report,
        {"table": found, "runs": every},
        drawn,
        (("Every row", _rows(table, order)), *((("Every run", shown),) if len(shown) else ())),
    )
    return report


def _rows(table: Table, order: Order) -> pd.DataFrame:
    """What each row is, as it would be typed; folds, seeds and places left out."""
    commands = [
        shlex.join(["python", "train.py", *(item for item in overrides if asked([item]))])
        for row in table.rows.values()
        for overrides in [merged(table.settings, order.overrides, row)]
    ]
    return pd.DataFrame({"row": list(table.rows), "command": commands})


def _verdicts(
    table: Table,
    measured: Sequence[Measured],
    folds: Sequence[int | None],
    baseline: str,
    order: Order,
) -> dict[str, Verdicts]:
    margin = MARGIN if order.margin is None else order.margin
    first = table.conventions[0]
    if not measured:
        return {}
    return {
        metric: judge(measured, first, metric, folds=folds, baseline=baseline, margin=margin)
        for metric in table.verdicts
    }
