"""Count what data sets hold, and set the counts beside the published ones."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from ltr.analysis.report import PUBLISHED, Block, Report, terminal
from ltr.console.arguments import merged
from ltr.console.compose import run_config
from ltr.console.process import say
from ltr.data.lists import SPLITS, Dataset
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError, DataError
from ltr.experiment.provenance import commit
from ltr.scorers.parts import make_dataset
from ltr.tables.config import TableConfig
from ltr.tables.runs import Run
from ltr.tables.spec import STATISTICS, Table

Size = Mapping[str, tuple[int, int]]  # split -> its lists and items


def count_data(table: Table, order: TableConfig) -> bool:
    """Count, print and write the table; return whether all data sets were there.

    ``dataset=NAME`` counts that data set alone.

    Raises:
        ConfigError: an override is wrong, or asks for runs.
    """
    if wrong := order.own("rows", "seeds", "workers", "baseline", "margin", "percent", "budget"):
        raise ConfigError(f"{wrong[0]}: {table.name} counts data and runs nothing; leave it out")
    given = [item.partition("=")[2] for item in order.overrides if item.startswith("dataset=")]
    labels, published = given[-1:] or list(table.rows), table.published[STATISTICS]
    counts: dict[str, dict[str, int]] = {}
    for label in labels:
        own = table.rows[label].settings if label in table.rows else ()
        config = run_config(merged(table.settings, own, order.overrides))[0]
        if config.dataset.get("folds"):
            config.dataset.fold = table.folds[0]
        if order.dry_run:
            print(f"  would count {label}")
            continue
        try:
            counts[label] = count(make_dataset(config.dataset))
        except DataError as error:
            say(f"{label}: {error}")
    if not counts:
        return order.dry_run
    lines = [
        (label, what, number, published.values.get(label, {}).get(what))
        for label, of_label in counts.items()
        for what, number in of_label.items()
    ]
    frame = pd.DataFrame(lines, columns=["data", "what", "counted", PUBLISHED])
    frame[PUBLISHED] = frame[PUBLISHED].astype("Int64")
    frame["difference"] = frame["counted"] - frame[PUBLISHED]
    name = "_".join([table.name, *given[-1:]])
    facts = (
        ("data", f"{', '.join(counts)}; fold {table.folds[0]} of those that have folds"),
        ("commit", commit() or "unknown"),
        (PUBLISHED, published.source or "nothing"),
    )
    texts = [["" if pd.isna(cell) else str(cell) for cell in line] for line in frame.to_numpy()]
    block = Block("counts", "an empty list has no relevant item", tuple(frame.columns), texts)
    command = order.command(order.of_table)
    report = Report(name, table.title, command, facts, [block], ours="our counts")
    folder = Path(order.output_dir).absolute() / "tables" / name
    files = report.write(folder, "table", {"table": frame})
    print(terminal(report))
    print(f"kept in {folder} ({', '.join(files)})")
    return len(counts) == len(labels)


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


def sizes_of(runs: Sequence[Run]) -> dict[int | None, Size]:
    """Lists and items of each split by fold; of those folds whose data are here."""
    sizes: dict[int | None, Size] = {}
    for fold, run in {run.fold: run for run in runs}.items():
        dataset = make_dataset(run.config.dataset)
        try:
            lists = {split: dataset.split(split) for split in SPLITS}
        except DataError:
            continue
        sizes[fold] = {split: (len(part), part.items) for split, part in lists.items()}
    return sizes


def lists_in_words(sizes: Mapping[int | None, Size]) -> str:
    """The number of lists of each split.

    >>> lists_in_words({1: {"test": (156, 2874)}, 2: {"test": (157, 2933)}})
    'test 156 to 157, 313 in all folds'
    """
    said = []
    for split in next(iter(sizes.values()), {}):
        counts = [size[split][0] for size in sizes.values()]
        more = f" to {max(counts):,}" * (min(counts) != max(counts))
        said.append(f"{split} {min(counts):,}{more}")
        said += [f"{sum(counts):,} in all folds"] * (split == "test" and len(counts) > 1)
    return ", ".join(said)


def unlike_published(name: str, sizes: Mapping[int | None, Size]) -> str | None:
    """Say where the data set ``name`` has not the lists or items of the published one.

    Returns:
        The first difference; None where there is none, or nothing is known.
    """
    known = public_sets()[name].known if name in public_sets() else ()
    published = {(one.fold, one.splits): (one.lists, one.rows) for one in known}
    for (fold, size), split in product(sizes.items(), reversed(SPLITS)):
        counts = zip(size.get(split, ()), published.get((fold, (split,)), ()), strict=False)
        for what, (here, there) in zip(("lists", "items"), counts, strict=False):
            if there is not None and here != there:
                of = name if fold is None else f"{name} Fold{fold}"
                return (
                    f"the published numbers are of other data: {split} of {of} has {here:,} {what} "
                    f"here, {there:,} as published"
                )
    return None
