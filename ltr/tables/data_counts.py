"""Count what data sets hold, and set the counts beside the published ones."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.progress import say
from ltr.data.lists import SPLITS, Dataset
from ltr.errors import ConfigError, DataError
from ltr.experiment.parts import make_dataset
from ltr.experiment.provenance import commit
from ltr.tables.order import Order, refuse
from ltr.tables.report import Block, Cell, Report, terminal, write_table
from ltr.tables.spec import StatisticsTable

_OF_RUNS = ("rows", "seeds", "launcher", "workers", "baseline", "margin", "percent", "budget")
_HEAD = ("", "what", "counted", "published", "verdict")


def make_statistics(table: StatisticsTable, order: Order) -> bool:
    """Count, print and write the table; return whether all data sets were there.

    ``dataset=NAME`` counts that data set alone.

    Raises:
        ConfigError: an override is wrong, or asks for runs.
    """
    refuse(order, _OF_RUNS, f"{table.name} counts data and runs nothing")
    rows = dict(table.rows)
    if chosen := [item for item in order.overrides if item.startswith("dataset=")]:
        rows = {chosen[-1].partition("=")[2]: ()}
    frames, complete, cells = [], True, []
    for label, overrides in rows.items():
        config = run_config(merged(table.settings, overrides, order.overrides))[0]
        if config.dataset.get("folds"):
            config.dataset.fold = table.fold
        if order.dry_run:
            print(f"  would count {label}")
            continue
        try:
            counted = count(make_dataset(config.dataset))
        except DataError as error:
            complete = False
            cells.append((Cell(label), Cell("not here", "missing"), *[Cell("")] * 3))
            say(f"{label}: {error}")
            continue
        numbers = beside(label, counted, table.published.get(label, {}))
        cells += cells_of(numbers)
        frames.append(numbers)
    if order.dry_run:
        return True
    name = f"{table.name}_{'_'.join(rows)}" if chosen else table.name
    report = Report(
        name=name,
        title=table.title,
        command=order.command(),
        facts=(
            ("data", f"{', '.join(rows)}; fold {table.fold} of those that have folds"),
            ("commit", commit() or "unknown"),
            ("published", table.source or "nothing"),
        ),
        blocks=(Block("counts", "an empty list has no relevant item", _HEAD, tuple(cells)),),
        ours="our counts",
    )
    folder = Path(order.output_dir).absolute() / "tables" / name
    counts = pd.concat(frames) if frames else pd.DataFrame(columns=["data", "what", "counted"])
    write_table(folder, report, {"table": counts})
    print(terminal(report))
    print(f"kept in {folder} (table.md, .tex, .html, .csv)")
    return complete


def count(dataset: Dataset) -> dict[str, int]:
    """Features, lists and items of each split, empty lists, and the longest list.

    Raises:
        DataError: the data are not there.
    """
    dataset.check()
    splits = {split: dataset.split(split) for split in SPLITS}
    found = {"features": splits["train"].width}
    found |= {f"lists {split}": len(lists) for split, lists in splits.items()}
    found["lists train+vali"] = found["lists train"] + found["lists vali"]
    found |= {f"items {split}": lists.items for split, lists in splits.items()}
    found["empty lists"] = sum(int(lists.empty.sum()) for lists in splits.values())
    found["longest list"] = max(int(lists.lengths.max()) for lists in splits.values())
    return found


def beside(label: str, counted: Mapping[str, int], published: Mapping[str, int]) -> pd.DataFrame:
    """A line for each quantity: data, what, counted, published, difference.

    Raises:
        ConfigError: the published numbers name a quantity that is not counted.
    """
    for what in published:
        if what not in counted:
            raise ConfigError(f"published.{label}.{what}: choose of {', '.join(counted)}")
    lines = [
        {"data": label, "what": what, "counted": value, "published": published.get(what)}
        for what, value in counted.items()
    ]
    frame = pd.DataFrame(lines).astype({"published": "Int64"})
    return frame.assign(difference=frame["counted"] - frame["published"])


def cells_of(numbers: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """The lines of ``beside`` as they are printed; the name of the data set stands once."""
    lines: list[tuple[Cell, ...]] = []
    for line in numbers.to_dict("records"):
        published, verdict = "", Cell("")
        if not pd.isna(line["published"]):
            gap = int(line["difference"])
            published = f"{int(line['published']):,}"
            verdict = Cell(f"differs by {gap:+,}", "bad") if gap else Cell("equal", "good")
        texts = ["" if lines else line["data"], line["what"], f"{line['counted']:,}", published]
        lines.append((*map(Cell, texts), verdict))
    return lines
