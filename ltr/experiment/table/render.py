"""The table itself: a block per convention, ours with deviation, published numbers below."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from ltr.experiment.table.plan import Run
from ltr.experiment.table.spec import Table
from ltr.metrics import Convention


def over_repeats(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Mean and standard deviation of each column over folds, a seed's mean first, by row.

    Returns:
        Indexed by row, with columns ``(column, "mean")`` and ``(column, "sd")``; the deviation is
        that of the folds' means where there are several folds, else that of the seeds; NaN for one.
    """
    repeat = "fold" if values["fold"].nunique() > 1 else "seed"
    by_repeat = values.groupby(["row", repeat], sort=False)[list(columns)].mean()
    by_row = by_repeat.groupby("row", sort=False)
    return pd.concat({"mean": by_row.mean(), "sd": by_row.std()}, axis=1).swaplevel(axis=1)


def blocks(
    table: Table, values: pd.DataFrame, dataset: str, failed: Mapping[str, str]
) -> dict[str, list[list[str]]]:
    """For each convention the lines of its block, the first is its head."""
    found = {}
    for convention in table.conventions:
        columns = [f"{convention} {metric}" for metric in table.metrics]
        ours = over_repeats(values, columns) if len(values) else None
        lines = [["", *table.metrics]]
        for label in table.rows:
            if ours is not None and label in ours.index:
                own = [
                    (ours[column]["mean"][label], ours[column]["sd"][label]) for column in columns
                ]
                lines.append([label, *(_cell(*pair) for pair in own)])
            else:
                lines.append([label, failed.get(label, "not run"), *[""] * (len(columns) - 1)])
        published = table.published.get(dataset)
        for label, numbers in (published.values if published else {}).items():
            if convention in numbers:
                row = [numbers[convention].get(metric) for metric in table.metrics]
                cells = ["" if number is None else f"{number:.4f}" for number in row]
                lines.append([f"{label} (published)", *cells])
        found[convention] = lines
    return found


def _cell(mean: float, deviation: float) -> str:
    return f"{mean:.4f}" if pd.isna(deviation) else f"{mean:.4f} ± {deviation:.4f}"


def head(table: Table, runs: Sequence[Run], done: int, commit: str | None) -> list[str]:
    """What the numbers are of: data, folds, seeds, selection, commit."""
    config = runs[0].config
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    seeds = [str(seed) for seed in dict.fromkeys(run.seed for run in runs)]
    rule = f"best epoch by {config.select_on} of vali" if config.select == "best" else "last epoch"
    spread = "folds" if len(folds) > 1 else "seeds"
    lines = [
        f"data {config.dataset.name}" + (f", folds {' '.join(folds)}" if folds else "") + ", test",
        f"seeds {' '.join(seeds)}; weights of the {rule}; ± is the deviation over {spread}",
        f"commit {commit or 'unknown'}; {done} of {len(runs)} runs",
    ]
    published = table.published.get(str(config.dataset.name))
    return [*lines, f"published: {published.source}"] if published else lines


def text(
    title: str,
    lines: Sequence[str],
    found: Mapping[str, list[list[str]]],
    described: Mapping[str, Convention],
    *,
    markdown: bool = False,
) -> str:
    """The table for a terminal, or as Markdown."""
    form = "github" if markdown else "simple"
    parts = [f"# {title}" if markdown else title, "\n".join(lines)]
    for name, rows in found.items():
        parts.append(f"{name}: {described[name].describe()}")
        parts.append(tabulate(rows[1:], rows[0], tablefmt=form, disable_numparse=True))
    return "\n\n".join(parts) + "\n"


def write(folder: Path, name: str, content: str) -> Path:
    """Write one form of the table, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    part.write_text(content)
    part.replace(folder / name)
    return folder / name
