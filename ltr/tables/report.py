"""Build the report of a table from its numbers and verdicts."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import pandas as pd

from ltr.analysis.report import NO_TEST, PUBLISHED, Block, Report
from ltr.analysis.verdicts import COVERS, DECIDED, leaders, rule
from ltr.data.lists import splits_of
from ltr.errors import DataError
from ltr.experiment.run_folder import NO_TEST_SPLIT, NO_TEST_VERDICT, RunFolder
from ltr.metrics import Convention
from ltr.scorers.parts import make_dataset
from ltr.tables.results import (
    ALPHA,
    CROSSFIT,
    Results,
    Verdicts,
    conventions_of,
    over_repeats,
)  # fmt: skip
from ltr.tables.runs import Run
from ltr.tables.spec import Published, Table

MARK = "†"  # marks a row that differs from the baseline
_MEAN = "published_mean"  # over the folds, where no number of each fold is published
_BY_FOLD = [
    "row", "fold", "seed", "split", "metric", "ours", PUBLISHED, _MEAN, "chosen", "epoch"
]  # fmt: skip
_COVERED = {"covers": "covered", "above": "ours above", "below": "ours below"}


def number(value: Any, sign: str = "") -> str:
    """Format a metric with four digits; return an empty string for a missing value.

    >>> number(0.12346), number(0.12346, "+"), number(None)
    ('0.1235', '+0.1235', '')
    """
    return "" if pd.isna(value) else f"{value:{sign}.4f}"


def _pair(joint: str, *values: Any) -> str:
    """Format the values that are not missing (mean and deviation, or two ends), with ``joint``."""
    return joint.join(filter(None, map(number, values)))


def blocks(results: Results) -> list[Block]:
    """Return a block of numbers for each convention, then a block of verdicts for each metric."""
    conventions = conventions_of(results.table, results.runs[0])
    made = [_numbers(results, name, convention) for name, convention in conventions.items()]
    for metric, chosen in results.judged.items():
        if chosen[["low", PUBLISHED]].notna().any(axis=None):
            made.append(_verdicts(results, chosen, metric))
    return made


def _numbers(results: Results, name: str, convention: Convention) -> Block:
    """Return the block of means under one convention, our rows first, then published numbers."""
    table, frame = results.table, results.whole
    more = [CROSSFIT] * bool(frame[CROSSFIT].notna().any())
    more = [*more, *table.history] if name == table.conventions[0] and len(frame) else []
    extra = over_repeats(frame) if more else {}
    texts = {}
    for line in results.numbers[results.numbers["convention"] == name].itertuples():
        mark = f" {MARK}" if line.verdict in DECIDED else ""
        texts[line.row, line.metric] = _pair(" ± ", line.ours, line.deviation) + mark
    rows = []
    for label in table.rows:
        cells = [texts.get((label, metric), "") for metric in table.metrics]
        if not cells[0]:
            cells[0] = results.missing.get(label, "not run")
        of_row = extra.get(label, {})
        cells += [_pair(" ± ", *(of_row.get((c, of)) for of in ("mean", "std"))) for c in more]
        rows.append([label, *cells])
    for label, values in results.published.values.items():
        if name in values:
            cells = [number(values[name].get(metric)) for metric in table.metrics]
            rows.append([f"{label} ({PUBLISHED})", *cells, *[""] * len(more)])
    notes = [convention.describe()]
    if CROSSFIT in more:
        notes.append(
            f"{CROSSFIT}: select_on of epochs (and weights) chosen on one half of vali, on the "
            "other half; of the last epoch, on all of vali"
        )
    if MARK in str(rows):
        notes.append(f"{MARK}: differs from {results.baseline}, p < {ALPHA:g} after Holm")
    head = ["", *table.metrics, *(column.replace("_", " ") for column in more)]
    best = [
        (row, metric)
        for metric, of in results.verdicts.items() if name == table.conventions[0]
        for row in leaders(of.intervals, of.against.values())
    ]  # fmt: skip
    title = f"{results.split.capitalize()} metrics, metrics_as={name}"
    return Block(title, "; ".join(notes), head, rows, best)


def _verdicts(results: Results, chosen: pd.DataFrame, metric: str) -> Block:
    """Return the block of one metric's intervals, verdicts and published numbers."""
    row, beside = chosen["row"], chosen["beside"]

    def numbers(column: str, sign: str = "") -> pd.Series:
        return chosen[column].map(lambda value: number(value, sign))

    def intervals(*ends: str) -> list[str]:
        return [_pair(" to ", *values) for values in chosen[[*ends]].to_numpy()]

    columns = [("", row), ("ours", numbers("ours")), ("interval", intervals("low", "high"))]
    about = [f"metrics_as={results.table.conventions[0]}"]
    if chosen["verdict"].notna().any():
        columns.insert(1, ("verdict", chosen["verdict"].fillna("")))
        columns += [
            (f"minus {results.baseline}",
             numbers("less_baseline", "+").mask(row == results.baseline, "the baseline")),
            ("interval", intervals("less_low", "less_high")),
            ("p", numbers("p")),
        ]  # fmt: skip
    if chosen[PUBLISHED].notna().any():
        about.append(NO_TEST)
        of = (" of " + beside.astype(str)).where(beside.notna() & (beside != row), "")
        columns += [
            (PUBLISHED, numbers(PUBLISHED) + of),
            ("difference", numbers("difference", "+")),
            ("covered", chosen["covered"].map(_COVERED).fillna("")),
        ]
    notes: Any = chosen.groupby("note", sort=False)["row"]
    about += [f"{', '.join(labels)}: {why}" for why, labels in notes if why]
    head, cells = zip(*columns, strict=True)
    rows = [[*texts] for texts in zip(*cells, strict=True)]
    of_vali = " of vali" if results.split == "vali" else ""
    return Block(f"Verdicts by {metric}{of_vali}", "; ".join(about), head, rows)


def facts(results: Results) -> list[tuple[str, str]]:
    """Return the head of the report as (key, text): data, folds, seeds, selection, commits, ..."""
    table, runs, finished = results.table, results.runs, results.by_run
    seeds = list(dict.fromkeys(run.seed for run in runs))
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    several = "s" * (len(folds) > 1)
    if len(seeds) > 1:
        deviation = f"standard deviation over seeds{' of the mean over folds' * bool(several)}"
    else:
        deviation = "standard deviation over folds" if several else "no deviation: one seed"
    weights = dict.fromkeys(
        f"best epoch by {run.config.select_on} of vali (select=best)"
        if run.config.select == "best" else "last epoch (select=last)"
        for run in runs
    )  # fmt: skip
    commits = finished["commit"].fillna("unknown").unique()
    judged = next(iter(results.verdicts.values()), Verdicts({}, {}))
    spreads = dict.fromkeys(COVERS[of.spread.covers] for of in judged.intervals.values())
    not_there = "" if judged.against else " is not finished: no row is compared with it"
    published = " ".join(results.published.source.split())
    found = {
        "data": f"{runs[0].config.dataset.name}, {f'fold{several} ' * bool(folds)}"
        f"{' '.join(folds)}{', ' * bool(folds)}{results.split}",
        "lists": results.lists,
        "NOTE": f"{NO_TEST_SPLIT}; {NO_TEST_VERDICT}" if results.split == "vali" else "",
        "selection": "; ".join(weights),
        "seeds": " ".join(map(str, seeds)),
        "runs": f"{len(finished)} of {len(runs)} runs are done",
        "commit": ", ".join(commits) or "none yet",
        "±": deviation,
        "ensembles": "; ".join(f"{of}: {row.describe()}" for of, row in table.ensembles.items()),
        "incomplete": "; ".join(f"{row} has {done}" for row, done in unfinished(runs).items()),
        "interval": spreads and f"{1 - ALPHA:.0%}, over {' or '.join(spreads)}",
        "baseline": len(judged.intervals) > 1 and f"{results.baseline}{not_there}",
        "verdict": judged.against and rule(results.margin, ALPHA),
        PUBLISHED: f"left out: {results.left_out}" if results.left_out else published,
    }
    return [(key, str(value)) for key, value in found.items() if value]


def unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """Return ``"N of M runs"`` for each row that has some but not all of its runs."""
    done = pd.Series([run.done for run in runs]).groupby([run.label for run in runs], sort=False)
    counts = done.agg(["sum", "size"]).query("0 < sum < size")
    return {row: f"{some} of {every} runs" for row, some, every in counts.itertuples()}


def data_counts(runs: Sequence[Run]) -> str:
    """Return the number of lists of each split in words."""
    counts: dict[str, list[int]] = {}
    for run in {run.fold: run for run in runs}.values():
        dataset = make_dataset(run.config.dataset)
        for split in splits_of(dataset):
            with suppress(DataError):  # the data are missing
                counts.setdefault(split, []).append(len(dataset.split(split)))
    ends = {split: dict.fromkeys((min(of), max(of))) for split, of in counts.items()}
    words = [f"{split} {' to '.join(map('{:,}'.format, of))}" for split, of in ends.items()]
    return ", ".join(words)


def fold_report(
    table: Table, runs: Sequence[Run], name: str, command: str, left_out: str | None = None
) -> tuple[Report, dict[str, pd.DataFrame]]:
    """Return the report of a ``by_fold`` table of finished ``runs``, and the frame of its CSV file.

    If a row has choices, it shows the one with the best ``select_on`` on vali per fold and seed.
    A number that is published as a mean alone stands beside our mean. ``left_out`` says why
    published numbers are left out.
    """
    published = Published(source="", values={})
    if left_out is None:
        published = table.published.get(str(runs[0].config.dataset.name), published)

    def theirs_of(row: str, split: str, metric: str, fold: int) -> dict[str, Any]:
        found = published.values.get(str(published.of(row)), {}).get(split, {}).get(metric)
        if isinstance(found, list):
            return {PUBLISHED: dict(enumerate(found, 1)).get(fold)}
        return {_MEAN: found}

    every = [RunFolder(run.folder).results for run in runs]
    splits = [split for split in ("test", "vali") if split in every[0]]
    tried = pd.DataFrame({
        "row": [table.rows[run.label].choice_of for run in runs],
        "fold": [run.fold or 1 for run in runs],
        "seed": [run.seed for run in runs],
        "worth": [RunFolder(run.folder).value_that_chooses for run in runs],
    })  # fmt: skip
    groups: Any = tried.groupby(["row", "fold", "seed"], sort=False)["worth"]
    frame = pd.DataFrame([
        {
            "row": row, "fold": fold, "seed": seed, "split": split, "metric": metric,
            "ours": every[best][split][metric],
            "chosen": runs[best].label.removeprefix(row).strip(),
            "epoch": every[best]["selected_epoch"],
            **theirs_of(row, split, metric, fold),
        }
        for (row, fold, seed), best in groups.idxmax().items()
        for split, metric in product(splits, table.metrics)
    ], columns=_BY_FOLD).astype({PUBLISHED: float, _MEAN: float})  # fmt: skip
    folds = [f"fold {fold}" for fold in sorted(set(frame.fold))]
    made = []
    for (split, metric), numbers in frame.groupby(["split", "metric"], sort=False):
        values = ["ours", PUBLISHED, _MEAN]
        both: Any = numbers.pivot_table(values, "row", "fold", sort=False, dropna=False)
        ours = both["ours"].assign(mean=both["ours"].mean(axis=1))
        whole = both[PUBLISHED].mean(axis=1, skipna=False)
        theirs = both[PUBLISHED].assign(mean=whole.fillna(both[_MEAN].mean(axis=1)))
        rows = [
            [text, *(number(value, sign) for value in of.loc[label])]
            for label in ours.index
            for text, of, sign in (
                (str(label), ours, ""),
                (f"{label} ({PUBLISHED})", theirs, ""),
                ("difference", ours - theirs, "+"),
            )
            if of.loc[label].notna().any()
        ]
        note = "the difference is ours less the published number" * (len(rows) > len(ours))
        made.append(Block(f"{metric} of {split}", note, ["", *folds, "mean"], rows))
    one = frame[(frame.split == splits[0]) & (frame.metric == table.metrics[0])]
    seeds = sorted(set(one.seed))
    settings = one.chosen + ", " + one.epoch.astype(str)
    rows = [
        [f"{label}, seed {seed}" if len(seeds) > 1 else str(label), *of_row]
        for (label, seed), of_row in settings.groupby([one.row, one.seed], sort=False)
    ]
    made.append(
        Block("Chosen on vali", "settings and epoch, of each fold alone", ["", *folds], rows)
    )
    ((convention, described),) = conventions_of(table, runs[0]).items()
    head = [
        ("runs", f"{len(runs)}, of which {len(one)} are shown: chosen on vali"),
        ("seeds", " ".join(map(str, seeds))),
        ("convention", f"{convention}: {described.describe()}"),
        *[("NOTE", NO_TEST_SPLIT)] * ("test" not in splits),
        *[(PUBLISHED, published.source)] * bool(published.source),
        *[(PUBLISHED, f"left out: {left_out}")] * (left_out is not None),
    ]
    return Report(name, table.title, command, head, made), {"table": frame}
