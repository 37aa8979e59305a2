"""``scripts/table.py``'s work: run what is missing of a table and write it."""

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from ltr.experiment.results import commit
from ltr.experiment.table.execute import describe, execute
from ltr.experiment.table.measure import conventions_of, measure
from ltr.experiment.table.order import Order
from ltr.experiment.table.plan import Run, plan
from ltr.experiment.table.render import blocks, head, text, write
from ltr.experiment.table.spec import only, read_table
from ltr.training.device import pick_device


def make_table(order: Order) -> bool:
    """Make the table and print it; return whether all of its runs are done.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything runs.
    """
    table = read_table(order.table)
    if order.rows:
        table = only(table, order.rows)
    output_dir = Path(order.output_dir).absolute()
    runs = plan(table, order.overrides, range(1, order.seeds + 1), output_dir)
    device = pick_device(runs[0].config.device)
    workers = order.workers or (1 if device.type == "cuda" else os.cpu_count() or 1)
    todo = [run for run in runs if not run.done]
    print(f"{table.title}: {len(runs)} runs, {len(todo)} to do; {_expected(runs, workers)}")
    if order.dry_run:
        for run in todo:
            print(f"  {describe(run)}")
        return not todo
    conventions = conventions_of(table, int(runs[0].config.suggested.levels))

    given = {override.partition("=")[0] for override in order.overrides}
    threads = max(1, (os.cpu_count() or 1) // workers)
    extra = [] if "threads" in given or device.type == "cuda" else [f"threads={threads}"]
    failures = execute(todo, workers=workers, extra=extra)

    values = measure(table, runs)
    failed = {run.label: "failed" for run in runs if run.folder in failures}
    name = str(runs[0].config.dataset.name)
    lines = head(table, runs, sum(run.done for run in runs), commit())
    found = blocks(table, values, name, failed)
    folder = output_dir / "tables" / f"{table.name}_{name}"
    write(folder, "table.md", text(table.title, lines, found, conventions, markdown=True))
    write(folder, "runs.csv", values.to_csv(index=False))
    print("\n" + text(table.title, lines, found, conventions))
    for path, reason in failures.items():
        print(f"{path.name} failed: {reason}")
    print(f"kept in {folder} (table.md, runs.csv)")
    return not failures


def _expected(runs: Sequence[Run], workers: int) -> str:
    """How long what is missing will take, from the finished runs of the same row, or of any."""
    took: dict[str, list[float]] = {}
    for run in runs:
        if run.done:
            results = json.loads((run.folder / "results.json").read_text())
            took.setdefault(run.label, []).append(results["wall_seconds"])
    todo = [run for run in runs if not run.done]
    if not todo:
        return "nothing to run"
    if not took:
        return f"{workers} at a time"
    overall = statistics.median(value for values in took.values() for value in values)
    seconds = sum(statistics.median(took.get(run.label, [overall])) for run in todo) / workers
    return f"{workers} at a time, about {seconds / 60:.0f} min as the finished ones took"
