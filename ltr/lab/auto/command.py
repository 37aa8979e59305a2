"""``ltr auto``: train the rows of a table, build ensembles of them, and keep the best on vali."""

import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from ltr.cli.compose import run_config
from ltr.cli.folders import recorded
from ltr.cli.keys import as_list
from ltr.cli.options import collected, option
from ltr.cli.process import say
from ltr.errors import ConfigError, as_started
from ltr.lab.auto.choice import Choice, choose_run
from ltr.lab.tables.config import LaunchOptions, TableOptions, Workers
from ltr.lab.tables.results import OWN, Results, check_measured_lists
from ltr.lab.tables.runs import Run, complete, plan
from ltr.lab.tables.spec import Table, read_table
from ltr.lab.tables.table import build_report, collect_results

_FOLD = "dataset.fold="
_MINUTE = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class AutoOptions(LaunchOptions):
    """Find a good ranker for your lists in one command. It trains several kinds of models, builds
    ensembles of them, chooses the best single model or ensemble on the validation lists, and copies
    it to a folder that predict, export and evaluate accept.

      ltr auto dataset=letor dataset.folder=MY_LISTS
      ltr auto dataset=letor dataset.folder=MY_LISTS minutes=5 output=outputs/ranker
      ltr auto dataset=mq2008 dataset.fold=1

    Any other key is passed to ltr train, for example select_on=ndcg@10 'metrics=[ndcg@10,map]'. It
    applies to all models, except where the table of models (table=NAME) itself sets the key. The
    best ensemble is chosen, unless single models are better on the validation lists by more than
    two standard errors. In that case, the best of these models is chosen. The choice does not use
    test lists, so you need not have any. If the command is stopped, type it again to continue; it
    does not repeat finished runs.
    """

    minutes: float = option(
        30,
        help="no further training starts after this many minutes; models are trained in the order "
        "of the table; table=recipes begins with the fastest models",
    )
    output: str | None = option(
        None,
        help="a new folder for the chosen ranker; null = a folder in output_dir, named after the "
        "date and time",
    )
    seeds: int = option(
        1,
        at_least=1,
        help="the number of seeds; each kind of model is trained with the seeds 1, 2, ..., up to "
        "this number. Three seeds improve the result only slightly and take three times as long",
    )
    table: str = option(
        "recipes",
        help="the table whose rows are the kinds of models to try: a name in configs/tables, or "
        "the path of your own YAML file",
    )
    rows: tuple[str, ...] = option(
        (), help="train only these rows of the table, such as rows=recommended,AdaRank; [] = all"
    )
    train: tuple[str, ...] = collected("others")  # overrides for ``ltr train``, and the folds

    def __post_init__(self) -> None:
        """Check the values."""
        if self.minutes <= 0:
            raise ConfigError(f"minutes={self.minutes:g}: expected a number > 0, such as 30")

    @property
    def folds(self) -> list[str] | None:
        """The folds that the user typed, as strings; None means all folds of the data set."""
        typed = [
            override.removeprefix(_FOLD).split(",")
            for override in self.train
            if override.startswith(_FOLD)
        ]
        return typed[-1] if typed else None

    @property
    def table_options(self) -> TableOptions:
        """The same options, for the functions of ``ltr table``."""
        return TableOptions(
            table=self.table,
            rows=self.rows,
            seeds=self.seeds,
            workers=self.workers,
            launcher=self.launcher,
            output_dir=self.output_dir,
            train=tuple(override for override in self.train if not override.startswith(_FOLD)),
        )


class _Task(NamedTuple):
    """The runs to train, and where their results are written."""

    table: Table  # all rows, with the metrics and the convention of their runs as columns
    options: TableOptions
    runs: list[Run]  # the training runs of all rows
    workers: Workers
    arguments: Sequence[str]  # the arguments of the command, without overrides
    output: Path  # the folder of the chosen ranker
    folder: Path  # the folder of the table

    def plan(self, table: Table) -> list[Run]:
        """Return the runs of ``table``, which has some or all of the rows."""
        return _plan_runs(table, self.options)


def run_auto(options: AutoOptions) -> str:
    """Train several kinds of rankers and keep the best; return a description of the choice.

    Raises:
        ConfigError, DataError: for the same reasons as in ``find_ranker``.
    """
    return find_ranker(options).describe()


def find_ranker(options: AutoOptions) -> Choice:
    """Train the rows of a table, choose one, and keep it in a folder; return the choice.

    Raises:
        ConfigError, DataError: an option or a file is invalid (this is raised before any training),
            or no row was finished in time.
    """
    deadline = time.monotonic() + _MINUTE * options.minutes
    task = _define_task(options)
    finished, left_out = _train_rows(task, options.minutes, deadline)
    plan_finished = partial(task.plan, finished)
    runs, failures = complete(plan_finished(), plan_finished, task.folder, task.workers)
    _say_failures(failures)
    results = collect_results(finished, runs, failures, task.options.margin)
    _write_report(task, results, left_out)
    chosen = {
        fold: choose_run([run for run in runs if run.fold == fold and run.done])
        for fold in dict.fromkeys(run.fold for run in runs)
    }
    choice = Choice(results, chosen, task.output, task.folder, left_out)
    choice.keep()
    return choice


def _plan_runs(table: Table, options: TableOptions) -> list[Run]:
    seeds = range(1, options.seeds + 1)
    return plan(table, options.overrides, seeds, options.absolute_output_dir)


def _define_task(options: AutoOptions) -> _Task:
    """Read the table and plan its runs, without training anything."""
    table_options = options.table_options
    start = datetime.now()
    table = _select_rows(read_table(options.table), options.rows)
    folds = options.folds
    if folds is not None:
        table, table_options = _set_folds(table, table_options, folds)
    runs = _plan_runs(_without_ensembles(table), table_options)
    _check_alike(runs, folds is not None)
    config = runs[0].config
    table = _set_columns(table, config.select_on, config.metrics)
    output_dir = table_options.absolute_output_dir
    data = str(config.dataset.name)
    new_name = f"auto_{data}_{start:%Y-%m-%d_%H-%M-%S}_{secrets.token_hex(2)}"
    output = Path(options.output or output_dir / new_name)
    if output.exists():
        raise ConfigError(f"output={output} already exists: choose the name of a new folder")
    check_measured_lists(table, runs)
    arguments = table_options.table_arguments
    if folds is not None:
        arguments.append(f"{_FOLD}{','.join(folds)}")
    return _Task(
        table=table,
        options=table_options,
        runs=runs,
        workers=table_options.choose_workers(config.device, config.threads),
        arguments=arguments,
        output=output,
        folder=table_options.path(output_dir / "tables", data, ["auto", *arguments]),
    )


def _train_rows(task: _Task, minutes: float, deadline: float) -> tuple[Table, str]:
    """Train the rows until ``deadline``.

    Returns:
        The table of the finished rows and their ensembles, and a note that says which rows are left
        out and why.

    Raises:
        ConfigError: no row was finished.
    """
    trained = _without_ensembles(task.table)
    missing_count = sum(not run.done for run in task.runs)
    say(
        f"{len(task.runs)} runs of {len(trained.rows)} rows, {missing_count} to do, "
        f"{minutes:g} min at most"
    )
    plan_trained = partial(task.plan, trained)
    runs, failures = complete(task.runs, plan_trained, task.folder, task.workers, deadline)
    _say_failures(failures)
    finished = _finished_rows(task.table, runs)
    is_late = time.monotonic() >= deadline
    if not finished.rows:
        raise ConfigError(
            f"no row was finished within {minutes:g} minutes: repeat the command with a larger "
            "value of minutes= (training then continues), or with fewer rows"
        )
    left_out = _describe_left_out(runs, failures, f"{minutes:g}", is_late=is_late)
    if left_out:
        say(left_out)
    return finished, left_out


def _without_ensembles(table: Table) -> Table:
    rows = {label: row for label, row in table.rows.items() if not row.ensemble}
    return replace(table, rows=rows)


def _set_folds(
    table: Table, table_options: TableOptions, folds: Sequence[str]
) -> tuple[Table, TableOptions]:
    """Return ``table`` with only these ``folds``, and options for a data set that has them."""
    if not all(re.fullmatch("[0-9]{1,9}", fold) for fold in folds):
        raise ConfigError(f"{_FOLD}{','.join(folds)}: expected a whole number, such as 1")
    largest = max(map(int, folds))
    dataset = run_config([*table.settings, *table_options.overrides])[0].dataset
    home = Path(str(dataset.get("data_dir")), str(dataset.get("folder")))
    if dataset.get("folds") == 0 and (home / f"Fold{largest}").is_dir():
        # the number of folds of this folder is not in the config
        train = (*table_options.train, f"dataset.folds={largest}")
        table_options = replace(table_options, train=train)
    return replace(table, folds=folds), table_options


def _set_columns(table: Table, select_on: Any, metrics: Any) -> Table:
    """Return ``table`` with the metrics of its runs as columns, under the runs' convention."""
    columns = list(dict.fromkeys([str(select_on), *map(str, as_list(metrics))]))
    return replace(table, metrics=columns, verdicts=columns, conventions=[OWN], published={})


def _write_report(task: _Task, results: Results, left_out: str) -> None:
    """Write the report of all rows to the folder of the table."""
    arguments = [*recorded(task.options.overrides), *task.arguments]
    command = f"{as_started('auto')} {shlex.join(arguments)}"
    report, frames = build_report(results, task.options, task.folder.name, command)
    if left_out:
        report = replace(report, facts=[*report.facts, ("left out", left_out)])
    report.write(task.folder, "table", frames)


def _select_rows(table: Table, labels: Sequence[str]) -> Table:
    """Return ``table`` with the rows ``labels``, all rows that these need, and the ensembles.

    If ``labels`` is empty, the table keeps all rows.
    """
    if table.by_fold:
        raise ConfigError(
            f"table={table.name}: this table reproduces published numbers fold by fold: choose "
            "table=recipes, or a table whose file does not set by_fold"
        )
    if not labels:
        return table
    selected = {*table.ensembles}
    for label in labels:
        for row in table.find_rows("rows", label):
            selected |= {*table.with_needed_rows(row)}
    rows = {label: row for label, row in table.rows.items() if label in selected}
    return replace(table, rows=rows)


def _check_alike(runs: Sequence[Run], by_fold: bool) -> None:
    """Raise ``ConfigError`` if the values of ``runs`` cannot be compared."""
    configs: list[Any] = [OmegaConf.to_container(run.config, resolve=True) for run in runs]
    for key in ("dataset", "select_on", "convention"):
        nodes = {(run.fold, str(config[key])) for run, config in zip(runs, configs, strict=True)}
        if len(nodes) > len({run.fold for run in runs}):
            raise ConfigError(
                f"the rows differ in {key}: remove it from the rows of the table and set it for "
                "all of them on the command line"
            )
    if by_fold and runs[0].fold is None:
        raise ConfigError(f"{_FOLD}...: this data set has no folds: leave out dataset.fold")


def _say_failures(failures: Mapping[Path, str]) -> None:
    for path, reason in failures.items():
        say(f"{path.name} failed and is left out: {reason}")


def _describe_left_out(
    runs: Sequence[Run], failures: Mapping[Path, str], minutes: str, *, is_late: bool
) -> str:
    """Describe which rows have a run that did not start, and why; return "" if none have.

    If ``is_late``, there was no time for them; otherwise a run that they depend on failed.
    """
    rows = dict.fromkeys(run.label for run in runs if not run.done and run.folder not in failures)
    if not rows:
        return ""
    if not is_late:
        return f"left out, because they need a row that failed: {', '.join(rows)}"
    return (
        f"left out, because they did not start within {minutes} minutes: {', '.join(rows)}; repeat "
        "the command with a larger value of minutes= to train them"
    )


def _finished_rows(table: Table, runs: Sequence[Run]) -> Table:
    """Return ``table`` with the rows that are finished in all folds and seeds, and with each
    ensemble that has at least two runs of these rows.
    """
    finished = {run.label for run in runs} - {run.label for run in runs if not run.done}
    rows = {label: row for label, row in table.rows.items() if label in finished}
    seed_count = len({run.seed for run in runs})
    for label, row in table.ensembles.items():
        members = [member for member in row.ensemble if member in finished]
        member_count = len(members) * (seed_count if row.seeds == "all" else 1)
        # weights that are numbers fit only the full set of members
        weights_fit = isinstance(row.weights, str) or members == row.ensemble
        if weights_fit and member_count > 1:
            rows[label] = replace(row, ensemble=members)
    baseline = table.baseline if table.baseline in rows else None
    return replace(table, rows=rows, baseline=baseline)
