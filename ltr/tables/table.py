"""Make a table: run what is missing of it and write it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from omegaconf import DictConfig

from ltr.console.arguments import merged
from ltr.console.folders import asked
from ltr.console.progress import say
from ltr.errors import as_started
from ltr.experiment.gpus import gpus_here, offer
from ltr.experiment.provenance import asked_place, elsewhere
from ltr.metrics import Convention
from ltr.tables.budget import Budget, describe_budget, found_file, known_already, spend
from ltr.tables.data_counts import make_statistics
from ltr.tables.distilled import kept_gains
from ltr.tables.ensembles import make_ensembles, planned
from ltr.tables.folds import make_folds
from ltr.tables.launch import local_launcher
from ltr.tables.measure import by_run, check_test_lists, conventions_of, measure, whole_rows
from ltr.tables.order import MARGIN, Order
from ltr.tables.plots import pictures
from ltr.tables.render import blocks, facts, unfinished
from ltr.tables.report import Report, terminal, write_table
from ltr.tables.runs import Run, describe, execute, missing_libraries, plan, trained_rows
from ltr.tables.searches import plan_searches
from ltr.tables.sizes import lists_in_words, sizes_of, unlike_published
from ltr.tables.spec import (
    FoldsTable,
    StatisticsTable,
    Table,
    only,
    read_table,
    row_of,
    with_rows,
    without,
)
from ltr.tables.verdicts import judge, numbers
from ltr.training.device import pick_device


def make_table(order: Order) -> bool:
    """Make the table and print it; return whether all of it that can be done here is done.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything runs.
    """
    table = read_table(order.table)
    if isinstance(table, StatisticsTable):
        return make_statistics(table, order)
    if isinstance(table, FoldsTable):
        return make_folds(table, order)
    if order.rows:
        table = only(table, order.rows)
    if order.baseline is not None:
        table = replace(table, baseline=row_of(table, "baseline", order.baseline))
    missing = missing_libraries(table, order.overrides)
    can_run = with_rows(table, [label for label in table.rows if label not in missing])
    output_dir = Path(order.output_dir).absolute()
    for label, reason in missing.items():
        say(f"{label} {reason}: left out")
    if not can_run.rows:
        return True
    budget = None if order.budget is None else _budget(can_run, order, output_dir)
    failed = {} if budget is None else budget.failed
    if failed:
        kept = without(can_run, failed)
        missing |= dict.fromkeys(can_run.rows.keys() - kept.rows.keys(), "search failed")
        can_run = kept
    settings = {} if budget is None else budget.settings
    runs = _plan(can_run, order, output_dir, settings)
    if not runs:
        return not failed
    place = _place(order, runs[0].config)
    workers, threads = place.workers, place.threads
    todo = [run for run in runs if not run.done]
    for run in todo:
        if run.damaged:
            say(f"{run.folder.name}: its results are damaged, or of an earlier version: redone")
    together = f", {min(workers, len(todo))} at a time" if todo else ""
    say(f"{table.title}: {len(runs)} runs, {len(todo)} to do{together}")
    done = list(dict.fromkeys(run.folder for run in runs if run.done))
    sizes = sizes_of(runs)
    data = str(runs[0].config.dataset.name)
    unlike = unlike_published(data, sizes) if data in table.published else None
    if unlike:
        say(f"warning: {unlike}")
    if note := elsewhere(done, asked_place(runs[0].config, threads)):
        say(note)
    if order.dry_run:
        for run in todo:
            print(f"  {describe(run)}")
        return True
    conventions = conventions_of(table, int(runs[0].config.suggested.levels))
    check_test_lists(table, runs)
    folder = output_dir / "tables" / order.name(data)

    def train() -> dict[Path, str]:
        """Train what waits for no teacher; why a run is not done, by folder."""
        ready = [run for run in todo if not run.members and not run.waits]
        if not ready:
            return {}
        launcher = order.launcher or local_launcher(min(workers, len(ready)))
        return execute(ready, folder / "jobs.yaml", launcher, place.extra)

    late = any(run.waits for run in todo)
    failures = train()
    if late:  # the teachers are there: those that learn from them have their identity
        runs = _plan(can_run, order, output_dir, settings)
        todo = [run for run in runs if not run.done and run.folder not in failures]
        failures |= train()
        failures |= {run.folder: "its teacher failed" for run in todo if run.waits}
    as_trained = runs[0].config.threads or (None if place.on_gpu else threads)
    failures |= make_ensembles([run for run in todo if run.members], as_trained)
    missing |= unfinished(runs)
    for run in runs:
        if run.folder in failures:
            there = missing.get(run.label, "")
            missing[run.label] = f"{there}, failed" if there.endswith("runs") else "failed"
    lists = lists_in_words(sizes)
    report = _write(table, order, runs, conventions, missing, folder, lists, unlike, budget)
    print(terminal(report))
    for path, reason in failures.items():
        say(f"{path.name} failed: {reason}")
    print(f"kept in {folder} (table.html, .md, .tex, .csv, runs.csv)")
    return not failures and not failed


def _plan(
    table: Table, order: Order, output_dir: Path, settings: Mapping[Any, Sequence[str]]
) -> list[Run]:
    """The trainings of ``table`` and its ensembles; ``settings`` are those found."""
    seeds = range(1, order.seeds + 1)
    trained = plan(
        table, order.overrides, seeds, output_dir, absent_ok=order.dry_run, found=settings
    )
    return [*trained, *planned(table, trained, output_dir)]


@dataclass(frozen=True)
class _Place:
    """How many jobs run at a time, with how many threads, and what a job is told of it."""

    workers: int
    threads: int
    on_gpu: bool
    extra: tuple[str, ...]


def _place(order: Order, config: DictConfig) -> _Place:
    on_gpu = pick_device(config.device).type == "cuda"
    gpus = gpus_here(torch.cuda.device_count()) if on_gpu else []
    workers = order.workers or (len(gpus) or 1 if on_gpu else os.cpu_count() or 1)
    if workers > 1:
        offer(gpus)
    threads = max(1, (os.cpu_count() or 1) // workers)
    given = {override.partition("=")[0] for override in order.overrides}
    alone = "threads" in given or order.launcher or on_gpu
    return _Place(workers, threads, on_gpu, () if alone else (f"threads={threads}",))


def _budget(table: Table, order: Order, output_dir: Path) -> Budget | None:
    """Find the settings of the rows; None where no row has any to search."""
    searches = plan_searches(table, order, output_dir, absent_ok=order.dry_run)
    if not searches:
        return None
    config = searches[0].search.config
    place, path = _place(order, config), found_file(searches, order)
    found = known_already(searches, path)
    todo = len(searches) - len(found)
    say(f"{table.title}: {len(searches)} searches of {order.budget} trials each, {todo} to do")
    if order.dry_run:
        print(describe_budget(searches, found) + "\n")
        return Budget(int(order.budget or 0), path, found, {})
    launcher = order.launcher or local_launcher(min(place.workers, max(1, todo)))
    folder = output_dir / "tables" / order.name(str(config.dataset.name))
    budget = spend(searches, order, path, found, folder, launcher, place.extra)
    for label, reason in budget.failed.items():
        say(f"{label}: its search failed: {reason}")
    return budget


def _write(
    table: Table,
    order: Order,
    runs: Sequence[Run],
    conventions: Mapping[str, Convention],
    missing: Mapping[str, str],
    folder: Path,
    lists: str,
    unlike: str | None,
    budget: Budget | None,
) -> Report:
    """Compute the table from the finished runs and write it in every format."""
    measured = measure(table, runs)
    data = str(runs[0].config.dataset.name)
    published = table.published.get(data)
    baseline = table.baseline or next(iter(table.rows))
    folds = list(dict.fromkeys(run.fold for run in runs))
    margin = MARGIN if order.margin is None else order.margin
    how: Any = {"baseline": baseline, "margin": margin, "percent": order.percent}
    verdicts = {
        metric: judge(measured, table.conventions[0], metric, folds=folds, **how)
        for metric in table.verdicts
        if measured
    }
    every = by_run(table, measured)
    frame = whole_rows(every, len(folds))
    found = numbers(table, frame, verdicts, published, baseline)
    report = Report(
        name=folder.name,
        title=f"{table.title}: {data}",
        command=order.command(),
        facts=(
            *facts(table, runs, measured, published, verdicts, baseline, lists),
            *kept_gains(table, verdicts, baseline),
            *(budget.facts([row for row, _ in trained_rows(table)]) if budget else ()),
        ),
        blocks=blocks(
            table,
            found,
            frame,
            verdicts,
            published,
            conventions,
            missing,
            baseline,
            unlike=unlike,
            percent=order.percent,
        ),
    )
    details = [("Every row", _commands(table, order))]
    if budget:
        details.append(("Found settings, over those of the row", budget.frame()))
    if measured:
        details.append(("Every run", every.drop(columns=["seconds", "run"])))
    drawn = pictures(measured, verdicts, found, baseline) if measured else ()
    write_table(folder, report, {"table": found, "runs": every}, drawn, details)
    return report


def _commands(table: Table, order: Order) -> pd.DataFrame:
    """What each row is, as it would be typed; folds, seeds and places left out."""
    commands = {}
    for label, row in table.rows.items():
        overrides = merged(table.settings, order.overrides, row)
        words = [item for item in overrides if asked([item])]
        ensemble = table.ensembles.get(label)
        typed = f"{as_started('train')} {shlex.join(words)}"
        commands[label] = typed if ensemble is None else ensemble.describe()
    return pd.DataFrame({"row": list(commands), "command": list(commands.values())})
