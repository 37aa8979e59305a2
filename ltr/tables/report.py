"""The report of a table: its blocks, facts and plots, from its numbers and verdicts."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import pandas as pd

from ltr.analysis.report import NO_TEST, PUBLISHED, Block, Picture, Report
from ltr.analysis.style import interval_picture
from ltr.analysis.verdicts import BETTER, COVERS, DIFFER, WORSE, rule
from ltr.data.lists import SPLITS
from ltr.data.public_sets import public_sets
from ltr.errors import DataError
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention
from ltr.scorers.parts import make_dataset
from ltr.tables.results import ALPHA, CROSSFIT, Results, conventions_of, over_repeats
from ltr.tables.runs import Run
from ltr.tables.spec import Table

MARK = "†"  # of a row that differs from the baseline
_COVERED = {"covers": "covered", "above": "ours above", "below": "ours below"}


def number(value: Any, sign: str = "") -> str:
    """A metric with four digits; empty where there is no value.

    >>> number(0.12346), number(0.12346, "+"), number(None)
    ('0.1235', '+0.1235', '')
    """
    return "" if pd.isna(value) else f"{value:{sign}.4f}"


def _pair(joint: str, *values: Any) -> str:
    """A mean and its deviation, or the ends of an interval."""
    return joint.join(filter(None, map(number, values)))


def blocks(results: Results) -> list[Block]:
    """The numbers under each convention, then the verdicts by metric."""
    table, found = results.table, results.numbers
    conventions = conventions_of(table, results.runs[0])
    made = [_numbers(results, name, conventions[name]) for name in conventions]
    first = found[found["convention"] == table.conventions[0]]
    for metric, judged in results.verdicts.items():
        chosen = first[first["metric"] == metric]
        if judged.intervals or chosen[PUBLISHED].notna().any():
            made.append(_verdicts(results, chosen, metric))
    return made


def _numbers(results: Results, name: str, convention: Convention) -> Block:
    """The means under one convention; published numbers stand below ours."""
    table, frame = results.table, results.whole
    more = [CROSSFIT] * bool(frame[CROSSFIT].notna().any())
    more = [*more, *table.history] if name == table.conventions[0] and len(frame) else []
    extra = over_repeats(frame) if more else {}
    of_name = results.numbers[results.numbers["convention"] == name]
    lines = of_name.set_index(["row", "metric"]).to_dict("index")
    rows, width = [], len(table.metrics) + len(more)
    for label in table.rows:
        if (label, table.metrics[0]) not in lines:
            rows.append([label, results.missing.get(label, "not run"), *[""] * (width - 1)])
            continue
        cells = [label]
        for line in (lines[label, metric] for metric in table.metrics):
            mark = f" {MARK}" if line["verdict"] in (BETTER, WORSE, DIFFER) else ""
            cells.append(_pair(" ± ", line["ours"], line["deviation"]) + mark)
        for column in more:
            cells.append(_pair(" ± ", *(extra[label][column, of] for of in ("mean", "std"))))
        rows.append(cells)
    for label, values in results.published.values.items() if results.published else ():
        if name in values:
            cells = [number(values[name].get(metric)) for metric in table.metrics]
            rows.append([f"{label} ({PUBLISHED})", *cells, *[""] * len(more)])
    notes = [convention.describe()]
    if CROSSFIT in more:
        notes.append(
            f"{CROSSFIT}: select_on of epochs chosen on one half of vali, on the other half"
        )
    if any(cell.endswith(MARK) for row in rows for cell in row):
        notes.append(f"{MARK}: differs from {results.baseline}, p < {ALPHA:g} after Holm")
    head = ["", *table.metrics, *(column.replace("_", " ") for column in more)]
    trained = set(frame.loc[frame["epoch"] != 0, "row"])
    return Block(name, "; ".join(notes), head, rows).mark_best(trained, table.metrics)


def _verdicts(results: Results, chosen: pd.DataFrame, metric: str) -> Block:
    """The intervals of one metric, what they cover, and the verdict against the baseline."""
    baseline = results.baseline
    with_published = bool(chosen[PUBLISHED].notna().any())
    with_baseline = bool(chosen["verdict"].notna().any())
    head = ["", "ours", "interval"]
    head += [f"minus {baseline}", "interval", "p", "verdict"] if with_baseline else []
    head += [PUBLISHED, "difference", "covered"] if with_published else []
    rows, notes = [], dict[str, list[str]]()
    for line in chosen.astype(object).where(chosen.notna(), None).to_dict("records"):
        cells = [line["row"], number(line["ours"]), _pair(" to ", line["low"], line["high"])]
        if with_baseline and line["row"] == baseline:
            cells += ["the baseline", "", "", ""]
        elif with_baseline:
            interval = _pair(" to ", line["less_low"], line["less_high"])
            cells += [number(line["less_baseline"], "+"), interval]
            cells += [number(line["p"]), line["verdict"] or ""]
        if with_published:
            theirs = line["beside"]
            of = "" if theirs in (None, line["row"]) else f" of {theirs}"
            cells += [number(line[PUBLISHED]) + of, number(line["difference"], "+")]
            cells.append(_COVERED.get(line["covered"], ""))
        rows.append(cells)
        if line["note"]:
            notes.setdefault(line["note"], []).append(line["row"])
    about = [f"under {results.table.conventions[0]}", *[NO_TEST] * with_published]
    about += [f"{', '.join(labels)}: {why}" for why, labels in notes.items()]
    return Block(f"{metric}, verdicts", "; ".join(about), head, rows)


def facts(results: Results) -> list[tuple[str, str]]:
    """The head of the report: data, folds, seeds, selection, commits, sources."""
    table, runs, measured = results.table, results.runs, results.measured
    seeds = list(dict.fromkeys(run.seed for run in runs))
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    several = f"fold{'s' * (len(folds) > 1)} {' '.join(folds)}, " if folds else ""
    if len(seeds) > 1:
        deviation = f"standard deviation over seeds{' of the mean over folds' * (len(folds) > 1)}"
    else:
        deviation = "standard deviation over folds" if folds[1:] else "no deviation: one seed"
    best = "best epoch by {} of vali (select=best)".format
    weights = dict.fromkeys(
        best(run.config.select_on) if run.config.select == "best" else "last epoch (select=last)"
        for run in runs
    )
    commits = dict.fromkeys(str(one.results.get("commit") or "unknown") for one in measured)
    judged = next(iter(results.verdicts.values()), None)
    intervals, against = (judged.intervals, judged.against) if judged else ({}, {})
    spreads = dict.fromkeys(COVERS[of.spread.covers] for of in intervals.values())
    not_there = "" if against else " is not finished: no row is compared with it"
    ensembles = [f"{label}: {row.describe()}" for label, row in table.ensembles.items()]
    found = {
        "data": f"{runs[0].config.dataset.name}, {several}test",
        "lists": results.lists,
        "NOTE": results.unlike,
        "selection": "; ".join(weights),
        "seeds": " ".join(map(str, seeds)),
        "runs": f"{len(measured)} of {len(runs)} runs are done",
        "commit": ", ".join(commits) or "none yet",
        "±": deviation,
        "ensembles": "; ".join(ensembles),
        "incomplete": "; ".join(f"{row} has {done}" for row, done in unfinished(runs).items()),
        "interval": spreads and f"{1 - ALPHA:.0%}, over {' or '.join(spreads)}",
        "baseline": f"{results.baseline}{not_there}" if len(intervals) > 1 else "",
        "verdict": against and rule(results.margin, ALPHA),
        PUBLISHED: results.published and " ".join(results.published.source.split()),
    }
    return [(key, str(value)) for key, value in found.items() if value]


def unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """How many runs are done of each row that has some, but not all."""
    done = pd.Series([run.done for run in runs]).groupby([run.label for run in runs], sort=False)
    counts = zip(done.sum().items(), done.size(), strict=True)
    return {
        str(row): f"{some} of {count} runs" for (row, some), count in counts if 0 < some < count
    }


def data_counts(runs: Sequence[Run]) -> tuple[str, str | None]:
    """The lists of each split in words, and where they are not those of the published data set."""
    name = str(runs[0].config.dataset.name)
    known = public_sets()[name].known if name in public_sets() else ()
    published = {(one.fold, one.splits): one.lists for one in known}
    counts: dict[str, list[int]] = {}
    unlike = None
    for fold, run in {run.fold: run for run in runs}.items():
        dataset = make_dataset(run.config.dataset)
        for split in SPLITS:
            with suppress(DataError):  # they are not here
                here = len(dataset.split(split))
                counts.setdefault(split, []).append(here)
                there = published.get((fold, (split,)), here)
                if here != there:
                    unlike = (
                        f"the published numbers are of other data: {split} of fold {fold} has "
                        f"{here:,} lists here, {there:,} as published"
                    )
    words = []
    for split, of_folds in counts.items():
        ends = dict.fromkeys(f"{end:,}" for end in (min(of_folds), max(of_folds)))
        words.append(f"{split} {' to '.join(ends)}")
    return ", ".join(words), unlike


def pictures(results: Results) -> list[Picture]:
    """The intervals of each metric of verdicts."""
    baseline, found, metrics = results.baseline, results.numbers, list(results.verdicts)
    if found.empty or not metrics:
        return []
    lines = found[found["convention"] == results.table.conventions[0]]
    panels = {metric: lines[lines["metric"] == metric].set_index("row") for metric in metrics}
    caption = (
        "The mean of ours and its interval; a diamond is the published number. The band is the "
        f"interval of {baseline}. Rows far below are cut off at the left."
    )
    return [interval_picture("Intervals", caption, panels, baseline)]


def fold_report(
    table: Table, runs: Sequence[Run], name: str, command: str
) -> tuple[Report, dict[str, pd.DataFrame]]:
    """The report of a table fold by fold, of finished ``runs``, and the frame of its CSV file.

    Of the choices of a row the best ``select_on`` of vali counts, in each fold and seed alone.
    """
    published = table.published[str(runs[0].config.dataset.name)]
    groups: dict[tuple[str, int, int], list[Run]] = {}
    for run in runs:
        place = table.rows[run.label].choice_of, run.fold or 1, run.seed
        groups.setdefault(place, []).append(run)
    lines = []
    for (row, fold, seed), tried in groups.items():
        every = {run.label: RunFolder(run.folder).results for run in tried}
        chosen = max(every, key=lambda label: every[label]["vali"][every[label]["select_on"]])
        for split, metric in product(("test", "vali"), table.metrics):
            lines.append(
                {
                    "row": row, "fold": fold, "seed": seed, "split": split, "metric": metric,
                    "ours": every[chosen][split][metric],
                    PUBLISHED: published.values[row][split][metric][fold - 1],
                    "chosen": chosen.removeprefix(row).strip(),
                    "epoch": every[chosen]["selected_epoch"],
                }
            )  # fmt: skip
    frame = pd.DataFrame(lines)
    folds = [f"fold {fold}" for fold in sorted(set(frame.fold))]
    made = []
    for (of_split, of_metric), numbers in frame.groupby(["split", "metric"], sort=False):
        both: Any = numbers.pivot_table(["ours", PUBLISHED], "row", "fold", sort=False)
        ours, theirs = (both[of].assign(mean=both[of].mean(axis=1)) for of in ("ours", PUBLISHED))
        rows: list[list[str]] = []
        for label in map(str, ours.index):
            rows.append([label, *map("{:.4f}".format, ours.loc[label])])
            rows.append([f"{label} ({PUBLISHED})", *map("{:.4f}".format, theirs.loc[label])])
            rows.append(["difference", *map("{:+.4f}".format, (ours - theirs).loc[label])])
        note = "the difference is ours less the published number"
        made.append(Block(f"{of_metric} of {of_split}", note, ("", *folds, "mean"), rows))
    one = frame[(frame.split == "test") & (frame.metric == table.metrics[0])]
    seeds = sorted(set(one.seed))
    settings = one.chosen + ", " + one.epoch.astype(str)
    rows = [
        [f"{label}, seed {seed}" if len(seeds) > 1 else str(label), *of_row]
        for (label, seed), of_row in settings.groupby([one.row, one.seed], sort=False)
    ]
    note = "settings and epoch, of each fold alone"
    made.append(Block("Chosen on vali", note, ("", *folds), rows))
    unknown = dict.fromkeys((row.choice_of, row.unknown) for row in table.rows.values())
    note = "what their source does not say"
    made.append(Block("Not known of the published rows", note, ("", "not known"), [*unknown]))
    ((convention, described),) = conventions_of(table, runs[0]).items()
    head = (
        ("runs", f"{len(runs)}, of which {len(one)} are shown: chosen on vali"),
        ("seeds", " ".join(map(str, seeds))),
        ("convention", f"{convention}: {described.describe()}"),
        (PUBLISHED, published.source),
    )
    return Report(name, table.title, command, head, made), {"table": frame}
