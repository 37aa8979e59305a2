"""Build the report of a table from its numbers and verdicts."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from ltr.data.lists import splits_of
from ltr.errors import DataError
from ltr.experiment.run_folder import NO_TEST_SPLIT, NO_TEST_VERDICT, RunFolder
from ltr.lab.analysis.verdicts import COVERS, DECIDED, rule, significant_best
from ltr.lab.tables.results import (
    ALPHA,
    CROSSFIT,
    Results,
    Verdicts,
    conventions_of,
    over_repeats,
)
from ltr.lab.tables.runs import Run
from ltr.lab.tables.spec import Published, Table
from ltr.metrics import Convention
from ltr.pages.report import NOT_A_TEST, PUBLISHED, ReportBlock, ResultsPage
from ltr.parts.components import build_dataset

MARK = "†"  # marks a row that differs significantly from the baseline
_MEAN = "published_mean"  # the published mean over the folds, if only that is published
_BY_FOLD = [
    "row", "fold", "seed", "split", "metric", "ours", PUBLISHED, _MEAN, "chosen", "epoch"
]  # fmt: skip
_COVERED = {"covers": "covered", "above": "ours above", "below": "ours below"}


def format_number(value: Any, sign: str = "") -> str:
    """Format a metric with four digits; return an empty string for a missing value.

    >>> format_number(0.12346), format_number(0.12346, "+"), format_number(None)
    ('0.1235', '+0.1235', '')
    """
    return "" if pd.isna(value) else f"{value:{sign}.4f}"


def _join_numbers(joint: str, *values: Any) -> str:
    """Format the values that are not missing, and join them with ``joint``."""
    return joint.join(filter(None, map(format_number, values)))


def build_blocks(results: Results) -> list[ReportBlock]:
    """Return a block of numbers for each convention, then a block of verdicts for each metric."""
    conventions = conventions_of(results.table, results.runs[0])
    blocks = [_numbers_block(results, name, convention) for name, convention in conventions.items()]
    for metric, lines in results.judged.items():
        if lines[["low", PUBLISHED]].notna().any(axis=None):
            blocks.append(_verdicts_block(results, lines, metric))
    return blocks


def _numbers_block(results: Results, name: str, convention: Convention) -> ReportBlock:
    """Return the block of means under one convention: our rows, then the published numbers."""
    table = results.table
    extra_columns = _extra_columns(results, name)
    rows = [
        *_rows_of_ours(results, name, extra_columns),
        *_rows_of_published(results, name, extra_columns),
    ]
    notes = [convention.describe()]
    if CROSSFIT in extra_columns:
        notes.append(
            f"{CROSSFIT}: the metric select_on, with epochs (and weights) chosen on one half of "
            "vali and measured on the other half (with select=last, measured on all of vali)"
        )
    if MARK in str(rows):
        notes.append(
            f"{MARK}: differs from {results.baseline} (p < {ALPHA:g} after Holm's correction)"
        )
    head = ["", *table.metrics, *(column.replace("_", " ") for column in extra_columns)]
    best = []
    if name == table.conventions[0]:
        best = [
            (row, metric)
            for metric, verdicts in results.verdicts.items()
            for row in significant_best(verdicts.intervals, verdicts.against.values())
        ]
    title = f"{results.split.capitalize()} metrics, convention={name}"
    return ReportBlock(title, "; ".join(notes), head, rows, best)


def _extra_columns(results: Results, convention: str) -> list[str]:
    """Return the columns to show after those of the metrics."""
    table = results.table
    if convention != table.conventions[0] or not len(results.complete):
        return []
    has_crossfit = results.complete[CROSSFIT].notna().any()
    return [CROSSFIT, *table.history] if has_crossfit else [*table.history]


def _rows_of_ours(
    results: Results, convention: str, extra_columns: Sequence[str]
) -> list[list[str]]:
    """Return the cells of our rows under one convention."""
    table = results.table
    extra = over_repeats(results.complete) if extra_columns else {}
    texts = {}
    lines = results.numbers[results.numbers["convention"] == convention]
    for line in lines.itertuples():
        mark = f" {MARK}" if line.verdict in DECIDED else ""
        texts[line.row, line.metric] = _join_numbers(" ± ", line.ours, line.deviation) + mark
    rows = []
    for label in table.rows:
        cells = [texts.get((label, metric), "") for metric in table.metrics]
        if not cells[0]:
            cells[0] = results.missing.get(label, "not run")
        repeats = extra.get(label, {})
        for column in extra_columns:
            mean = repeats.get((column, "mean"))
            deviation = repeats.get((column, "std"))
            cells.append(_join_numbers(" ± ", mean, deviation))
        rows.append([label, *cells])
    return rows


def _rows_of_published(
    results: Results, convention: str, extra_columns: Sequence[str]
) -> list[list[str]]:
    """Return the cells of the published numbers under one convention."""
    rows = []
    for label, values in results.published.values.items():
        if convention in values:
            cells = [
                format_number(values[convention].get(metric)) for metric in results.table.metrics
            ]
            rows.append([f"{label} ({PUBLISHED})", *cells, *("" for _ in extra_columns)])
    return rows


def _verdicts_block(results: Results, lines: pd.DataFrame, metric: str) -> ReportBlock:
    """Return the block with the intervals, verdicts and published numbers for one metric."""
    row = lines["row"]

    def numbers(column: str, sign: str = "") -> pd.Series:
        return lines[column].map(lambda value: format_number(value, sign))

    def intervals(low: str, high: str) -> list[str]:
        return [_join_numbers(" to ", *ends) for ends in lines[[low, high]].to_numpy()]

    columns: list[tuple[str, Any]] = [("", row)]
    notes = [f"convention={results.table.conventions[0]}"]
    has_verdicts = lines["verdict"].notna().any()
    if has_verdicts:
        columns.append(("verdict", lines["verdict"].fillna("")))
    columns += [("ours", numbers("ours")), ("interval", intervals("low", "high"))]
    if has_verdicts:
        differences = numbers("less_baseline", "+").mask(row == results.baseline, "the baseline")
        columns += [
            (f"minus {results.baseline}", differences),
            ("interval", intervals("less_low", "less_high")),
            ("p", numbers("p")),
        ]
    if lines[PUBLISHED].notna().any():
        notes.append(NOT_A_TEST)
        beside = lines["beside"]
        has_other_label = beside.notna() & (beside != row)
        labels = (" of " + beside.astype(str)).where(has_other_label, "")
        columns += [
            (PUBLISHED, numbers(PUBLISHED) + labels),
            ("difference", numbers("difference", "+")),
            ("covered", lines["covered"].map(_COVERED).fillna("")),
        ]
    rows_by_note: Any = lines.groupby("note", sort=False)["row"]
    notes += [f"{', '.join(labels)}: {note}" for note, labels in rows_by_note if note]
    head = [name for name, _ in columns]
    rows = [[*cells] for cells in zip(*(texts for _, texts in columns), strict=True)]
    title = f"Verdicts by {metric} on vali" if results.split == "vali" else f"Verdicts by {metric}"
    return ReportBlock(title, "; ".join(notes), head, rows)


def build_facts(results: Results) -> list[tuple[str, str]]:
    """Return the entries at the head of the report, such as the seeds, as pairs (key, text)."""
    runs = results.runs
    seeds = list(dict.fromkeys(run.seed for run in runs))
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    judged = next(iter(results.verdicts.values()), Verdicts({}, {}))
    commits = results.by_run["commit"].fillna("unknown").unique()
    ensembles = results.table.ensembles
    incomplete = count_unfinished(runs)
    facts = {
        "data": _describe_data(results, folds),
        "lists": results.lists,
        "NOTE": f"{NO_TEST_SPLIT}; {NO_TEST_VERDICT}" if results.split == "vali" else "",
        "selection": "; ".join(dict.fromkeys(map(_describe_selection, runs))),
        "seeds": " ".join(map(str, seeds)),
        "runs": f"{len(results.by_run)} of {len(runs)} runs are done",
        "commit": ", ".join(commits) or "none yet",
        "±": _describe_deviation(len(seeds), len(folds)),
        "ensembles": "; ".join(f"{label}: {row.describe()}" for label, row in ensembles.items()),
        "incomplete": "; ".join(f"{row} has {done}" for row, done in incomplete.items()),
        **_facts_of_verdicts(results, judged),
        PUBLISHED: (
            f"left out: {results.left_out}"
            if results.left_out
            else " ".join(results.published.source.split())
        ),
    }
    return [(key, text) for key, text in facts.items() if text]


def _describe_data(results: Results, folds: Sequence[str]) -> str:
    """Describe the data set, its folds and the split."""
    name = results.runs[0].config.dataset.name
    if not folds:
        return f"{name}, {results.split}"
    noun = "folds" if len(folds) > 1 else "fold"
    return f"{name}, {noun} {' '.join(folds)}, {results.split}"


def _describe_selection(run: Run) -> str:
    """Describe which epoch of the run is tested."""
    if run.config.select == "best":
        return f"best epoch by {run.config.select_on} on vali (select=best)"
    return "last epoch (select=last)"


def _describe_deviation(seeds: int, folds: int) -> str:
    """Describe the deviations in the table."""
    if seeds > 1 and folds > 1:
        return "standard deviation over seeds of the mean over folds"
    if seeds > 1:
        return "standard deviation over seeds"
    return "standard deviation over folds" if folds > 1 else "no deviation: one seed"


def _facts_of_verdicts(results: Results, judged: Verdicts) -> dict[str, str]:
    """Return the entries of the head about intervals and verdicts; values may be empty."""
    interval = ""
    baseline = ""
    covers = dict.fromkeys(
        COVERS[system.standard_error.covers] for system in judged.intervals.values()
    )
    if covers:
        interval = f"{1 - ALPHA:.0%}, over {' or '.join(covers)}"
    if len(judged.intervals) > 1:
        baseline = results.baseline
        if not judged.against:
            baseline += " is not finished, so no row is compared with it"
    return {
        "interval": interval,
        "baseline": baseline,
        "verdict": rule(results.margin, ALPHA) if judged.against else "",
    }


def count_unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """Return ``"N of M runs"`` for each row that has some but not all of its runs."""
    done = pd.Series([run.done for run in runs]).groupby([run.label for run in runs], sort=False)
    counts = done.agg(["sum", "size"]).query("0 < sum < size")
    return {row: f"{finished} of {total} runs" for row, finished, total in counts.itertuples()}


def describe_counts(runs: Sequence[Run]) -> str:
    """Describe the number of lists in each split."""
    counts: dict[str, list[int]] = {}
    for run in {run.fold: run for run in runs}.values():
        dataset = build_dataset(run.config.dataset)
        for split in splits_of(dataset):
            with suppress(DataError):  # the data are missing
                counts.setdefault(split, []).append(len(dataset.split(split)))
    texts = []
    for split, lengths in counts.items():
        ends = dict.fromkeys((min(lengths), max(lengths)))  # a single number if both are equal
        texts.append(f"{split} {' to '.join(f'{end:,}' for end in ends)}")
    return ", ".join(texts)


class _FoldResults(NamedTuple):
    """The results of those runs of a ``by_fold`` table that were chosen on vali."""

    frame: pd.DataFrame  # a line for each row, fold, seed, split and metric
    splits: Sequence[str]
    folds: Sequence[str]  # the heads of the columns


def build_fold_report(
    table: Table, runs: Sequence[Run], name: str, command: str, left_out: str | None = None
) -> tuple[ResultsPage, dict[str, pd.DataFrame]]:
    """Return the report of a ``by_fold`` table, and the frame of its CSV file.

    If a row has choices, the report shows, for each fold and seed, the choice whose metric
    ``select_on`` is best on vali. A published mean over folds is compared with our mean.

    Args:
        table: the table.
        runs: the runs of the table, all finished.
        name: the name of the report's folder.
        command: the command that makes the table.
        left_out: the reason why published numbers are left out; None if they are shown.
    """
    published = Published(source="", values={})
    if left_out is None:
        published = table.published.get(str(runs[0].config.dataset.name), published)
    results = _choose_on_vali(table, runs, published)
    blocks = [
        _fold_block(f"{metric} of {split}", lines, results.folds)
        for (split, metric), lines in results.frame.groupby(["split", "metric"], sort=False)
    ]
    is_first = (results.frame.split == results.splits[0]) & (
        results.frame.metric == table.metrics[0]
    )
    chosen = results.frame[is_first]
    blocks.append(_choices_block(chosen, results.folds))
    ((convention_name, convention),) = conventions_of(table, runs[0]).items()
    facts = [
        ("runs", f"{len(runs)}; the {len(chosen)} that were chosen on vali are shown"),
        ("seeds", " ".join(map(str, sorted(set(chosen.seed))))),
        ("convention", f"{convention_name}: {convention.describe()}"),
    ]
    if "test" not in results.splits:
        facts.append(("NOTE", NO_TEST_SPLIT))
    if published.source:
        facts.append((PUBLISHED, published.source))
    if left_out is not None:
        facts.append((PUBLISHED, f"left out: {left_out}"))
    return ResultsPage(name, table.title, command, facts, blocks), {"table": results.frame}


def _choose_on_vali(table: Table, runs: Sequence[Run], published: Published) -> _FoldResults:
    """Choose, for each row, fold and seed, the run that is best on vali; return the numbers."""
    results = [RunFolder(run.folder).results for run in runs]
    splits = [split for split in ("test", "vali") if split in results[0]]
    candidates = pd.DataFrame(
        {
            "row": [table.rows[run.label].choice_of for run in runs],
            "fold": [run.fold or 1 for run in runs],
            "seed": [run.seed for run in runs],
            "value": [RunFolder(run.folder).value_that_chooses for run in runs],
        }
    )
    groups: Any = candidates.groupby(["row", "fold", "seed"], sort=False)["value"]
    lines = [
        {
            "row": row,
            "fold": fold,
            "seed": seed,
            "split": split,
            "metric": metric,
            "ours": results[best][split][metric],
            "chosen": runs[best].label.removeprefix(row).strip(),
            "epoch": results[best]["selected_epoch"],
            **_published_in_fold(published, row, split, metric, fold),
        }
        for (row, fold, seed), best in groups.idxmax().items()
        for split, metric in product(splits, table.metrics)
    ]
    frame = pd.DataFrame(lines, columns=_BY_FOLD).astype({PUBLISHED: float, _MEAN: float})
    return _FoldResults(frame, splits, [f"fold {fold}" for fold in sorted(set(frame.fold))])


def _published_in_fold(
    published: Published, row: str, split: str, metric: str, fold: int
) -> dict[str, Any]:
    """Return the published number of a fold or, if there is none, the published mean over folds."""
    label = str(published.label_for(row))
    number = published.values.get(label, {}).get(split, {}).get(metric)
    if isinstance(number, list):
        return {PUBLISHED: dict(enumerate(number, 1)).get(fold)}
    return {_MEAN: number}


def _fold_block(title: str, lines: pd.DataFrame, folds: Sequence[str]) -> ReportBlock:
    """Return the block for a split and metric: our numbers, published numbers, differences."""
    values = ["ours", PUBLISHED, _MEAN]
    cells: Any = lines.pivot_table(values, "row", "fold", sort=False, dropna=False)
    ours = cells["ours"].assign(mean=cells["ours"].mean(axis=1))
    mean_of_folds = cells[PUBLISHED].mean(axis=1, skipna=False)
    published_mean = mean_of_folds.fillna(cells[_MEAN].mean(axis=1))
    published = cells[PUBLISHED].assign(mean=published_mean)
    difference = ours - published
    rows = []
    for label in ours.index:
        for text, numbers, sign in (
            (str(label), ours, ""),
            (f"{label} ({PUBLISHED})", published, ""),
            ("difference", difference, "+"),
        ):
            if numbers.loc[label].notna().any():
                rows.append([text, *(format_number(value, sign) for value in numbers.loc[label])])
    has_published = len(rows) > len(ours)
    note = "the difference is our number minus the published one" if has_published else ""
    return ReportBlock(title, note, ["", *folds, "mean"], rows)


def _choices_block(chosen: pd.DataFrame, folds: Sequence[str]) -> ReportBlock:
    """Return the block with the settings and epochs that were chosen on vali."""
    several_seeds = chosen.seed.nunique() > 1
    settings = chosen.chosen + ", " + chosen.epoch.astype(str)
    rows = [
        [f"{label}, seed {seed}" if several_seeds else str(label), *texts]
        for (label, seed), texts in settings.groupby([chosen.row, chosen.seed], sort=False)
    ]
    note = "the settings and the epoch, chosen separately for each fold"
    return ReportBlock("Chosen on vali", note, ["", *folds], rows)
