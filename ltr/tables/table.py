"""The command ``table``: run what is missing of a table and write it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from ltr.console.sweep_names import asked, label_of
from ltr.console.values import flag, number, required, text, texts, whole
from ltr.errors import ConfigError
from ltr.experiment.places import asked_place, elsewhere
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
from ltr.tables.spec import StatisticsTable, Table, only, read_table, row_of
from ltr.tables.verdicts import Verdicts, judge
from ltr.training.device import pick_device

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
