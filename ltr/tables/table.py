"""Make a table: run what is missing of it and write it."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from omegaconf import DictConfig

from ltr.analysis.report import Report, terminal
from ltr.console.arguments import merged
from ltr.console.folders import asked
from ltr.console.process import say
from ltr.errors import ConfigError, as_started
from ltr.experiment.provenance import asked_place, elsewhere
from ltr.tables.config import MARGIN, TableConfig, table_config
from ltr.tables.data_counts import count_data, lists_in_words, sizes_of, unlike_published
from ltr.tables.folds import check_as_published, fold_report
from ltr.tables.linked_rows import kept_gains, make_ensembles
from ltr.tables.measure import check_test_lists, measure
from ltr.tables.plots import pictures
from ltr.tables.render import blocks, facts, unfinished
from ltr.tables.results import Results
from ltr.tables.runs import Run, execute, local_launcher, missing_libraries, plan
from ltr.tables.spec import FOLDS, RUNS, STATISTICS, Table, read_table

if TYPE_CHECKING:
    from ltr.tables.budget import Budget


def table(cfg: DictConfig) -> bool:
    """Run what is missing of a table and write it; whether all that can be done here is done."""
    return make_table(table_config(cfg))


def make_table(order: TableConfig) -> bool:
    """Make the table and print it; return whether all of it that can be done here is done.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything runs.
    """
    table = read_table(order.table)
    if table.kind == STATISTICS:
        return count_data(table, order)
    if table.kind == FOLDS:
        check_as_published(table, order)
    if order.rows:
        table = table.only(order.rows)
    if order.baseline is not None:
        table = replace(table, baseline=table.find("baseline", order.baseline)[0])
    missing = missing_libraries(table, order.overrides)
    for label, reason in missing.items():
        say(f"{label} {reason}: left out")
    output_dir = Path(order.output_dir).absolute()
    can_run = table.without(missing)
    budget = None
    if order.budget is not None:
        from ltr.tables.budget import spend_budget

        budget = spend_budget(can_run, order, output_dir)
    failed = {} if budget is None else budget.failed
    searched = can_run.without(failed)
    missing |= {label: "search failed" for label in can_run.rows if label not in searched.rows}
    if not searched.rows:
        return not failed
    seeds = range(1, order.seeds + 1)

    def planned() -> list[Run]:
        settings = None if budget is None else budget.settings
        given = order.overrides
        return plan(searched, given, seeds, output_dir, absent_ok=order.dry_run, settings=settings)

    runs = planned()
    todo = [run for run in runs if not run.done]
    workers = order.workers_for(runs[0].config)
    together = f", {min(workers.count, len(todo))} at a time" if todo and not order.launcher else ""
    say(f"{table.title}: {len(runs)} runs, {len(todo)} to do{together}")
    data, sizes = str(runs[0].config.dataset.name), sizes_of(runs)
    unlike = unlike_published(data, sizes) if {data, FOLDS} & table.published.keys() else None
    if unlike and table.kind == FOLDS:
        raise ConfigError(f"{unlike}; give the published data")
    if unlike:
        say(f"warning: {unlike}")
    done = list(dict.fromkeys(run.folder for run in runs if run.done))
    if note := elsewhere(done, asked_place(runs[0].config, workers.threads)):
        say(note)
    if order.dry_run:
        for run in todo:
            print(f"  {run.command()}")
        return True
    check_test_lists(table, runs)
    folder = output_dir / "tables" / order.name(data, order.of_table)
    failures: dict[Path, str] = {}
    while ready := [run for run in todo if not (run.done or run.waits or run.folder in failures)]:
        if trained := [run for run in ready if not run.members]:
            launcher = order.launcher or local_launcher(min(workers.count, len(trained)))
            failures |= execute(trained, folder / "jobs.yaml", launcher, workers.extra)
        threads = runs[0].config.threads or workers.threads
        failures |= make_ensembles([run for run in ready if run.members], threads)
        if any(run.teacher for run in todo):  # who learns from a run has an identity after it
            runs = planned()
        todo = [run for run in runs if not run.done]
    for run in todo:
        failures.setdefault(run.folder, "a row that it needs failed")
    for path, reason in failures.items():
        say(f"{path.name} failed: {reason}")
    command = order.command(order.of_table)
    if table.kind == FOLDS and not failures:
        report, frames = fold_report(table, runs, folder.name, command)
    elif table.kind == RUNS:
        missing |= unfinished(runs)
        for label in dict.fromkeys(run.label for run in runs if run.folder in failures):
            missing[label] = ", ".join(filter(None, [missing.get(label), "failed"]))
        margin = MARGIN if order.margin is None else order.margin
        measured, lists = measure(table, runs), lists_in_words(sizes)
        results = Results(table, runs, measured, margin, order.percent, missing, lists, unlike)
        report, frames = _report(results, order, folder.name, budget)
    else:
        return False
    files = report.write(folder, "table", frames)
    print(terminal(report))
    print(f"kept in {folder} ({', '.join(files)})")
    return not failures and not failed


def _report(
    results: Results, order: TableConfig, name: str, budget: "Budget | None"
) -> tuple[Report, dict[str, pd.DataFrame]]:
    """The report of ``results``, and the frames of its CSV files."""
    details = [("Every row", _commands(results.table, order))]
    head = [*facts(results), *kept_gains(results)]
    if budget:
        rows = results.table.rows.items()
        head += budget.facts([label for label, row in rows if not row.ensemble])
        details.append(("Found settings, over those of the row", budget.frame()))
    if results.measured:
        details.append(("Every run", results.by_run.drop(columns=["seconds", "run"])))
    report = Report(
        name,
        title=f"{results.table.title}: {results.runs[0].config.dataset.name}",
        command=order.command(order.of_table),
        facts=head,
        blocks=blocks(results),
        pictures=pictures(results),
        details=details,
    )
    return report, {"table": results.numbers, "runs": results.by_run}


def _commands(table: Table, order: TableConfig) -> pd.DataFrame:
    """What each row is, as it would be typed; folds, seeds and places left out."""
    commands = {}
    for label, row in table.rows.items():
        overrides = merged(table.settings, order.overrides, row.settings)
        words = [item for item in overrides if asked([item])]
        typed = f"{as_started('train')} {shlex.join(words)}"
        commands[label] = row.describe() if row.ensemble else typed
    return pd.DataFrame({"row": list(commands), "command": list(commands.values())})
