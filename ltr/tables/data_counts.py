"""Count what data sets hold, and set the counts beside the published ones."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ltr.analysis.report import PUBLISHED, Block, Report, terminal
from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.progress import say
from ltr.data.lists import SPLITS, Dataset
from ltr.errors import ConfigError, DataError
from ltr.experiment.provenance import commit
from ltr.scorers.parts import make_dataset
from ltr.tables.config import TableConfig
from ltr.tables.spec import STATISTICS, Table


def count_data(table: Table, order: TableConfig) -> bool:
    """Count, print and write the table; return whether all data sets were there.

    ``dataset=NAME`` counts that data set alone.

    Raises:
        ConfigError: an override is wrong, or asks for runs.
    """
    if wrong := order.own("rows", "seeds", "workers", "baseline", "margin", "percent", "budget"):
        raise ConfigError(f"{wrong[0]}: {table.name} counts data and runs nothing; leave it out")
    chosen = [item.partition("=")[2] for item in order.overrides if item.startswith("dataset=")]
    rows = {label: table.rows[label].settings if label in table.rows else []
            for label in chosen[-1:] or table.rows}  # fmt: skip
    frames, cells = list[pd.DataFrame](), list[tuple[str, ...]]()
    for label, settings in rows.items():
        config = run_config(merged(table.settings, settings, order.overrides))[0]
        if config.dataset.get("folds"):
            config.dataset.fold = table.folds[0]
        if order.dry_run:
            print(f"  would count {label}")
            continue
        try:
            counted = count(make_dataset(config.dataset))
        except DataError as error:
            cells.append((label, "not here", "", "", ""))
            say(f"{label}: {error}")
            continue
        frames.append(beside(label, counted, table.published[STATISTICS].values.get(label, {})))
        cells += cells_of(frames[-1])
    if order.dry_run:
        return True
    name = f"{table.name}_{'_'.join(rows)}" if chosen else table.name
    facts = (
        ("data", f"{', '.join(rows)}; fold {table.folds[0]} of those that have folds"),
        ("commit", commit() or "unknown"),
        (PUBLISHED, table.published[STATISTICS].source or "nothing"),
    )
    head = ("", "what", "counted", PUBLISHED, "verdict")
    blocks = (Block("counts", "an empty list has no relevant item", head, cells),)
    command = order.command(order.of_table)
    report = Report(name, table.title, command, facts, blocks, ours="our counts")
    folder = Path(order.output_dir).absolute() / "tables" / name
    counts = pd.concat(frames) if frames else pd.DataFrame(columns=["data", "what", "counted"])
    files = report.write(folder, "table", {"table": counts})
    print(terminal(report))
    print(f"kept in {folder} ({', '.join(files)})")
    return len(frames) == len(rows)


def count(dataset: Dataset) -> dict[str, int]:
    """Features, lists and items of each split, empty lists, and the longest list.

    Raises:
        DataError: the data are not there.
    """
    dataset.check()
    splits = {split: dataset.split(split) for split in SPLITS}
    lists = {f"lists {split}": len(part) for split, part in splits.items()}
    return {
        "features": splits["train"].width,
        **lists,
        "lists train+vali": lists["lists train"] + lists["lists vali"],
        **{f"items {split}": part.items for split, part in splits.items()},
        "empty lists": sum(int(part.empty.sum()) for part in splits.values()),
        "longest list": max(int(part.lengths.max()) for part in splits.values()),
    }


def beside(label: str, counted: Mapping[str, int], published: Mapping[str, int]) -> pd.DataFrame:
    """A line for each quantity: data, what, counted, published, difference.

    Raises:
        ConfigError: the published numbers name a quantity that is not counted.
    """
    if unknown := [what for what in published if what not in counted]:
        raise ConfigError(f"published.{label}.{unknown[0]}: choose of {', '.join(counted)}")
    frame = pd.DataFrame({"data": label, "what": list(counted), "counted": list(counted.values())})
    frame[PUBLISHED] = frame["what"].map(dict(published)).astype("Int64")
    return frame.assign(difference=frame["counted"] - frame[PUBLISHED])


def cells_of(numbers: pd.DataFrame) -> list[tuple[str, ...]]:
    """The lines of ``beside`` as they are printed; the name of the data set stands once."""
    lines: list[tuple[str, ...]] = []
    for line in numbers.to_dict("records"):
        number = verdict = ""
        if not pd.isna(line[PUBLISHED]):
            number, gap = f"{line[PUBLISHED]:,}", line["difference"]
            verdict = f"differs by {gap:+,}" if gap else "equal"
        texts = ["" if lines else line["data"], line["what"], f"{line['counted']:,}", number]
        lines.append((*texts, verdict))
    return lines
