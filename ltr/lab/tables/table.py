"""Make a table: start the missing runs, then write the report."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from ltr.cli.arguments import merged
from ltr.cli.folders import recorded
from ltr.cli.process import say
from ltr.data.lists import splits_of
from ltr.errors import ConfigError, DataError, as_started
from ltr.experiment.leaks import warn_of_leaks
from ltr.lab.tables.config import TableOptions, Workers
from ltr.lab.tables.found import FoundSettings, load_found
from ltr.lab.tables.published import why_left_out
from ltr.lab.tables.report import (
    build_blocks,
    build_facts,
    build_fold_report,
    count_unfinished,
    describe_counts,
)
from ltr.lab.tables.results import (
    IN_MEMORY,
    Results,
    check_measured_lists,
    measure_rows,
    split_of_runs,
)
from ltr.lab.tables.runs import Run, complete, plan
from ltr.lab.tables.spec import Table, read_table
from ltr.pages.report import ResultsPage, terminal
from ltr.pages.style import interval_plot
from ltr.parts.components import build_dataset


def make_table(options: TableOptions) -> bool:
    """Train the missing runs of a table, and write and print its report.

    If ``dry_run`` is set, only print the commands of the missing runs.

    Returns:
        True if no run failed.

    Raises:
        ConfigError, DataError: an option, the table or a data file is invalid, or a search failed;
            the message says what to correct.
    """
    table = _select_rows(read_table(options.table), options)
    output_dir = options.absolute_output_dir
    found_settings = _find_settings(table, options, output_dir)
    plan_runs = _planner(table, options, found_settings)
    runs = plan_runs()
    config = runs[0].config
    workers = options.choose_workers(config.device, config.threads)
    missing = [run for run in runs if not run.done]
    _say_counts(table, runs, missing, workers)
    left_out = _why_published_left_out(table, runs, options)
    if options.dry_run:
        for run in missing:
            print(f"  {run.command()}")
        return True
    check_measured_lists(table, runs)
    folder = options.path(output_dir / "tables", str(config.dataset.name), options.table_arguments)
    if missing:
        _warn_of_leaks(config.dataset)
    runs, failures = _complete(runs, plan_runs, folder, workers)
    if table.by_fold and failures:
        return False
    command = options.command(options.table_arguments)
    if table.by_fold:
        report, frames = build_fold_report(table, runs, folder.name, command, left_out)
    else:
        results = collect_results(table, runs, failures, options.margin, left_out)
        report, frames = build_report(results, options, folder.name, command, found_settings)
    files = report.write(folder, "table", frames)
    print(terminal(report))
    print(f"kept in {folder} ({', '.join(files)})")
    if options.budget is not None and found_settings is not None:
        print(found_settings.describe_use())
    return not failures


def _select_rows(table: Table, options: TableOptions) -> Table:
    """Return ``table`` with the rows and the baseline that ``options`` name.

    Raises:
        ConfigError: there is no such row, or the table does not allow one of the options.
    """
    changed = [
        *options.non_defaults("baseline", "margin", "budget", "found_settings"),
        *options.result_overrides,
    ]
    if table.by_fold and changed:
        raise ConfigError(
            f"{changed[0]}: {table.name} reproduces published numbers with the settings in its "
            "file; leave this argument out"
        )
    dataset_overrides = [
        override
        for override in options.overrides
        if override.startswith("dataset") and override not in table.settings
    ]
    if dataset_overrides:  # the title in the file may name other data
        table = replace(table, title=f"Rows of {table.name} on {' '.join(dataset_overrides)}")
    if options.rows:
        table = table.select_rows(options.rows)
    if options.baseline is not None:
        table = replace(table, baseline=table.find_rows("baseline", options.baseline)[0])
    return table


def _find_settings(table: Table, options: TableOptions, output_dir: Path) -> FoundSettings | None:
    """Return the settings in the file ``found_settings``, or those that a search with ``budget``
    finds; None if neither key is set.
    """
    if options.found_settings is not None:
        return load_found(Path(options.found_settings), table, options.overrides)
    if options.budget is None:
        return None
    from ltr.lab.tables.budget import spend_budget  # needs optuna

    # check, before a search that may take hours, that all folds or none have a test split
    split_of_runs(plan(table, options.overrides, [1], output_dir, absent_ok=options.dry_run))
    return spend_budget(table, options, output_dir)


def _planner(
    table: Table, options: TableOptions, found_settings: FoundSettings | None
) -> Callable[[], list[Run]]:
    """Return the function that plans the runs of ``table``."""
    return partial(
        plan,
        table,
        options.overrides,
        range(1, options.seeds + 1),
        options.absolute_output_dir,
        absent_ok=options.dry_run,
        settings=None if found_settings is None else found_settings.settings,
    )


def _say_counts(
    table: Table, runs: Sequence[Run], missing: Sequence[Run], workers: Workers
) -> None:
    """Print how many runs the table has, and how many are not finished."""
    line = f"{table.title}: {len(runs)} runs, {len(missing)} to do"
    if missing and not workers.launcher:
        line += f", {min(workers.count, len(missing))} at a time"
    say(line)


def _why_published_left_out(table: Table, runs: Sequence[Run], options: TableOptions) -> str | None:
    """Return, and print, why the published numbers are left out; None if they are not."""
    split = split_of_runs(runs)
    left_out = None
    try:
        left_out = why_left_out(table, options.result_overrides, runs, split, options.searched)
    except DataError:
        if not options.dry_run:  # a dry run needs no data
            raise
    if left_out:
        say(f"the published numbers are left out: {left_out}")
    return left_out


def _complete(
    runs: list[Run], plan_runs: Callable[[], list[Run]], folder: Path, workers: Workers
) -> tuple[list[Run], dict[Path, str]]:
    """Train the missing runs; return all runs, and a dict with the reasons for failures.

    The failures are printed too. The keys of the dict are run folders.
    """
    runs, failures = complete(runs, plan_runs, folder, workers)
    for run in runs:
        if not run.done:
            failures.setdefault(run.folder, "it needs a run that failed")
    for path, reason in failures.items():
        say(f"{path.name} failed: {reason}")
    return runs, failures


def _warn_of_leaks(dataset_node: DictConfig) -> None:
    """Warn of leaks between the splits of a data set; each run also warns of them in its log."""
    dataset = build_dataset(dataset_node)
    warn_of_leaks({split: dataset.split(split) for split in splits_of(dataset)})


def collect_results(
    table: Table,
    runs: Sequence[Run],
    failures: Mapping[Path, str],
    margin: float,
    left_out: str | None = None,
) -> Results:
    """Return the numbers and verdicts of the finished ``runs``.

    Args:
        table: the table.
        runs: all runs of the table.
        failures: why each failed run failed, by run folder.
        margin: differences below this value do not matter.
        left_out: the reason why the published numbers are left out; None if they are shown.
    """
    missing = count_unfinished(runs)
    for label in dict.fromkeys(run.label for run in runs if run.folder in failures):
        missing[label] = ", ".join(filter(None, [missing.get(label), "failed"]))
    return Results(
        table=table,
        runs=runs,
        by_run=measure_rows(table, runs),
        margin=margin,
        missing=missing,
        lists=describe_counts(runs),
        split=split_of_runs(runs),
        left_out=left_out,
    )


def build_report(
    results: Results,
    options: TableOptions,
    name: str,
    command: str,
    found_settings: FoundSettings | None = None,
) -> tuple[ResultsPage, dict[str, pd.DataFrame]]:
    """Return the report of a table, and the frames of its CSV files.

    Args:
        results: the numbers and verdicts.
        options: the options of ``ltr table``.
        name: the name of the report's folder.
        command: the command that makes the table.
        found_settings: the results of the table's searches, if any.
    """
    facts = build_facts(results)
    details = [("Every row", _commands_frame(results.table, options))]
    if found_settings is not None:
        facts += found_settings.facts()
        details.append(("Settings found by the searches", found_settings.frame()))
    report = ResultsPage(
        name,
        title=results.table.title,
        command=command,
        facts=facts,
        blocks=build_blocks(results),
        plot=interval_plot(results.judged, results.baseline) if results.judged else "",
        details=details,
    )
    frames = {"table": results.numbers, "runs": results.by_run.drop(columns=IN_MEMORY)}
    return report, frames


def _commands_frame(table: Table, options: TableOptions) -> pd.DataFrame:
    """Return the command or ensemble of each row, without fold, seed and output folders."""
    rows = []
    for label, row in table.rows.items():
        overrides = merged(table.settings, options.overrides, row.settings)
        command = f"{as_started('train')} {shlex.join(recorded(overrides))}"
        rows.append({"row": label, "command": row.describe() if row.ensemble else command})
    return pd.DataFrame(rows)
