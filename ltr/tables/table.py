"""Make a table: do the runs that are missing, then write the report."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.report import Report, terminal
from ltr.analysis.style import interval_plot
from ltr.console.arguments import merged
from ltr.console.folders import recorded
from ltr.console.keys import texts
from ltr.console.process import say
from ltr.data.lists import splits_of
from ltr.errors import ConfigError, DataError, as_started
from ltr.experiment.leaks import warn_of_leaks
from ltr.scorers.parts import make_dataset
from ltr.tables.config import TableConfig, table_config
from ltr.tables.published import why_left_out
from ltr.tables.report import blocks, data_counts, facts, fold_report, unfinished
from ltr.tables.results import (
    IN_MEMORY,
    Results,
    check_measured_lists,
    measure,
    split_of_runs,
)
from ltr.tables.runs import Run, complete, plan
from ltr.tables.spec import Table, read_table

if TYPE_CHECKING:
    from ltr.tables.budget import Budget


def make_table(cfg: DictConfig) -> bool:
    """Do the missing runs of a table, then write and print its report; return whether none failed.

    With ``dry_run``, only print the commands of the missing runs.

    Raises:
        ConfigError, DataError: before anything runs, with one line that says what to correct.
    """
    order = table_config(cfg)
    table = read_table(str(cfg.table))
    command, output_dir = order.command(order.of_table), Path(cfg.output_dir).absolute()
    changed = [*order.given("baseline", "margin", "budget"), *order.asked]
    if table.by_fold and changed:
        raise ConfigError(
            f"{changed[0]}: {table.name} stands beside published numbers, under the settings of "
            "its file; leave it out"
        )
    own = [
        one for one in order.overrides if one.startswith("dataset") and one not in table.settings
    ]
    if own:  # the title may name the data of the file
        table = replace(table, title=f"Rows of {table.name} on {' '.join(own)}")
    if rows := texts(cfg, "rows"):
        table = table.only(rows)
    if cfg.baseline is not None:
        table = replace(table, baseline=table.find("baseline", str(cfg.baseline))[0])
    budget = None
    if cfg.budget is not None:
        from ltr.tables.budget import spend_budget

        # before hours of search: whether all folds have a test split, or none
        split_of_runs(plan(table, order.overrides, [1], output_dir, absent_ok=cfg.dry_run))
        budget = spend_budget(table, order, output_dir)
    planned = partial(
        plan, table, order.overrides, range(1, cfg.seeds + 1), output_dir,
        absent_ok=cfg.dry_run, settings=None if budget is None else budget.settings,
    )  # fmt: skip
    runs = planned()
    todo = [run for run in runs if not run.done]
    config = runs[0].config
    workers, data = order.workers(config), str(config.dataset.name)
    parallel = bool(todo) and not workers.launcher
    together = f", {min(workers.count, len(todo))} at a time" * parallel
    say(f"{table.title}: {len(runs)} runs, {len(todo)} to do{together}")
    split, left_out = split_of_runs(runs), None
    try:
        left_out = why_left_out(table, order.asked, runs, split, cfg.budget)
    except DataError:
        if not cfg.dry_run:  # which needs no data
            raise
    if left_out:
        say(f"the published numbers are left out: {left_out}")
    if cfg.dry_run:
        for run in todo:
            print(f"  {run.command()}")
        return True
    check_measured_lists(table, runs)
    folder = order.path(output_dir / "tables", data, order.of_table)
    if todo:
        _warn_of_leaks(runs[0].config)
    runs, failures = complete(runs, planned, folder, workers)
    for run in runs:
        if not run.done:
            failures.setdefault(run.folder, "a row that it needs failed")
    for path, reason in failures.items():
        say(f"{path.name} failed: {reason}")
    if table.by_fold:
        if failures:
            return False
        report, frames = fold_report(table, runs, folder.name, command, left_out)
    else:
        results = results_of(table, runs, failures, float(cfg.margin), left_out)
        report, frames = report_of(results, order, folder.name, command, budget)
    files = report.write(folder, "table", frames)
    print(terminal(report))
    print(f"kept in {folder} ({', '.join(files)})")
    return not failures


def _warn_of_leaks(config: DictConfig) -> None:
    """Warn of leaks in the lists of ``config``, the first run; each run also does, in its log."""
    dataset = make_dataset(config.dataset)
    warn_of_leaks({split: dataset.split(split) for split in splits_of(dataset)})


def results_of(
    table: Table,
    runs: Sequence[Run],
    failures: Mapping[Path, str],
    margin: float,
    left_out: str | None = None,
) -> Results:
    """Return numbers and verdicts of the finished ``runs``; ``left_out`` says why published numbers
    are left out.
    """
    missing = unfinished(runs)
    for label in dict.fromkeys(run.label for run in runs if run.folder in failures):
        missing[label] = ", ".join(filter(None, [missing.get(label), "failed"]))
    split, lists = split_of_runs(runs), data_counts(runs)
    return Results(table, runs, measure(table, runs), margin, missing, lists, split, left_out)


def report_of(
    results: Results, order: TableConfig, name: str, command: str, budget: "Budget | None" = None
) -> tuple[Report, dict[str, pd.DataFrame]]:
    """Return the report of a table, and the frames of its CSV files."""
    head, details = facts(results), [("Every row", _commands(results.table, order))]
    if budget:
        head += budget.facts()
        details.append(("Found settings, over those of the row", budget.frame()))
    report = Report(
        name,
        title=results.table.title,
        command=command,
        facts=head,
        blocks=blocks(results),
        plot=interval_plot(results.judged, results.baseline) if results.judged else "",
        details=details,
    )
    frames = {"table": results.numbers, "runs": results.by_run.drop(columns=IN_MEMORY)}
    return report, frames


def _commands(table: Table, order: TableConfig) -> pd.DataFrame:
    """Return the command or ensemble of each row, without fold, seed and output folders."""
    rows = []
    for label, row in table.rows.items():
        overrides = merged(table.settings, order.overrides, row.settings)
        typed = shlex.join(recorded(overrides))
        command = row.describe() if row.ensemble else f"{as_started('train')} {typed}"
        rows.append({"row": label, "command": command})
    return pd.DataFrame(rows)
