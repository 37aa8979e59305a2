"""The blocks and the facts of a table's report, from its numbers and verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from ltr.analysis.report import NO_TEST, PUBLISHED, Block
from ltr.analysis.verdicts import BETTER, DIFFER, WORSE, SystemInterval, rule
from ltr.data.lists import SPLITS
from ltr.experiment.provenance import mixed, short_commit
from ltr.metrics import Convention
from ltr.scorers.parts import named_metrics
from ltr.tables.measure import CROSSFIT
from ltr.tables.results import ALPHA, Results, over_repeats
from ltr.tables.runs import Run

MARK = "†"  # of a row that differs from the baseline
_COVERED = {"covers": "covered", "above": "ours above", "below": "ours below"}
_OTHERS = {  # what an interval allows for
    "seeds": "other queries and other seeds",
    "folds": "other queries and, as far as the folds differ, other trainings",
    "queries": "other queries, but these trained models: there is one seed",
}


def number(value: Any, sign: str = "", *, percent: bool = False) -> str:
    """A metric with four digits, or times 100 with two; empty where there is no value.

    >>> number(0.12346), number(0.12346, "+", percent=True), number(None)
    ('0.1235', '+12.35', '')
    """
    if pd.isna(value):
        return ""
    return f"{100 * value:{sign}.2f}" if percent else f"{value:{sign}.4f}"


def _pair(joint: str, text: Callable[..., str], *values: Any) -> str:
    """A mean and its deviation, or the ends of an interval."""
    return joint.join(filter(None, map(text, values)))


def blocks(results: Results) -> list[Block]:
    """The numbers under each convention, then the verdicts by metric."""
    table, found, published = results.table, results.numbers, results.published
    text = partial(number, percent=results.percent)
    whole = results.whole
    trained = set(whole.loc[whole["epoch"] != 0, "row"]) if len(whole) else set()
    made = []
    for name, convention in results.conventions.items():
        block = _numbers(results, name, convention, text)
        cells = [cell for row in block.rows for cell in row]
        notes = []
        if any(cell.endswith(MARK) for cell in cells):
            notes.append(f"{MARK}: differs from {results.baseline}, p < {ALPHA:g} after Holm")
        notes += ["in percent"] if results.percent else []
        short = []
        if any("±" in cell for cell in cells):
            short.append(f"±: {_deviation(results.whole)}")
        if published is not None and block.has_published:
            short.append(f"{PUBLISHED}: {' '.join(published.source.split())}")
        block = replace(
            block,
            note="; ".join([block.note, *notes]),
            foot="; ".join([block.foot, *short, *notes]),
        )
        made.append(block.mark_best(trained, table.metrics))
    first = table.conventions[0]
    for metric, judged in results.verdicts.items():
        chosen = found[(found["metric"] == metric) & (found["convention"] == first)]
        if judged.intervals or chosen["published"].notna().any():
            made.append(_verdicts(results, chosen, metric))
    if unlike := results.unlike:
        made = [
            replace(block, note=f"{block.note}; {unlike}", foot=f"{block.foot}; {unlike}")
            if block.has_published
            else block
            for block in made
        ]
    return made


def _numbers(
    results: Results, name: str, convention: Convention, text: Callable[..., str]
) -> Block:
    """The means under one convention, the published numbers beside them or below."""
    table, published, frame = results.table, results.published, results.whole
    theirs = {
        label: of_name[name]
        for label, of_name in (published.values.items() if published else ())
        if name in of_name
    }
    own = {row: mine for row in table.rows if published and (mine := published.own(row))}
    if 2 * len(own) < len(table.rows):  # few rows have a published number: it stands below
        own = {}
    printed = {metric for label in own.values() for metric in theirs.get(label, {})}
    more = [CROSSFIT] if CROSSFIT in frame and frame[CROSSFIT].notna().any() else []
    more = [*more, *table.history] if name == table.conventions[0] and len(frame) else []
    head = [""]
    for metric in table.metrics:
        head += [metric, *([PUBLISHED, "difference"] if metric in printed else [])]
    head += [column.replace("_", " ") for column in more]
    extra = over_repeats(frame, more) if more else {}
    lines = (
        results.numbers[results.numbers["convention"] == name]
        .set_index(["row", "metric"])
        .to_dict("index")
    )
    rows = []
    for label in table.rows:
        if (label, table.metrics[0]) not in lines:
            rows.append([label, results.missing.get(label, "not run"), *[""] * (len(head) - 2)])
            continue
        cells = [label]
        for metric in table.metrics:
            line = lines[label, metric]
            mark = f" {MARK}" if line["verdict"] in (BETTER, WORSE, DIFFER) else ""
            cells.append(_pair(" ± ", text, line["ours"], line["deviation"]) + mark)
            if metric in printed:
                is_own = published is not None and line["beside"] == published.own(label)
                pair = [text(line[PUBLISHED]), text(line["difference"], "+")]
                cells += pair if is_own else ["", ""]
        for column in more:
            of_metric = column == CROSSFIT or column.partition("_")[0] in SPLITS
            cells.append(
                _pair(
                    " ± ",
                    text if of_metric else number,
                    *(extra[label][column, of] for of in ("mean", "std")),
                )
            )
        rows.append(cells)
    for label, values in theirs.items():
        if label not in own.values():
            cells = [f"{label} ({PUBLISHED})"]
            for metric in table.metrics:
                cells += [text(values.get(metric)), *[""] * (2 * (metric in printed))]
            rows.append([*cells, *[""] * len(more)])
    parts = {part for metric in named_metrics(table.metrics) for part in metric.parts}
    note = convention.describe()
    if CROSSFIT in more:
        note += f"; {CROSSFIT}: select_on of epochs chosen on one half of vali, on the other half"
    return Block(name, note, head, rows, f"{name}: {convention.describe(parts)}")


def _verdicts(results: Results, chosen: pd.DataFrame, metric: str) -> Block:
    """The intervals of one metric, what they cover, and the verdict against the baseline."""
    percent, baseline = results.percent, results.baseline
    text = partial(number, percent=percent)
    with_published = bool(chosen[PUBLISHED].notna().any())
    with_baseline = bool(chosen["verdict"].notna().any())
    head = ["", "ours", "interval"]
    head += [f"minus {baseline}", "interval", "p", "verdict"] if with_baseline else []
    head += [PUBLISHED, "difference", "covered"] if with_published else []
    rows, marks, notes = [], dict[str, str](), dict[str, list[str]]()
    for line in chosen.astype(object).where(chosen.notna(), None).to_dict("records"):
        cells = [line["row"], text(line["ours"]), _pair(" to ", text, line["low"], line["high"])]
        if with_baseline and line["row"] == baseline:
            cells += ["the baseline", "", "", ""]
        elif with_baseline:
            cells += [
                text(line["less_baseline"], "+"),
                _pair(" to ", text, line["less_low"], line["less_high"]),
                number(line["p"]),
                line["verdict"] or "",
            ]
        if with_published:
            theirs, mark = line["beside"], ""
            if theirs not in (None, line["row"]):
                mark = marks.setdefault(theirs, "*" * (len(marks) + 1))
            cells += [text(line[PUBLISHED]) + mark, text(line["difference"], "+")]
            cells.append(_COVERED.get(line["covered"], ""))
        rows.append(cells)
        if line["note"]:
            notes.setdefault(line["note"], []).append(line["row"])
    note = f"under {results.table.conventions[0]}" + (", in percent" if percent else "")
    foot = f"{note}; intervals of {1 - ALPHA:.0%}; p after Holm"
    if with_published:
        note += f"; {NO_TEST}"
    stand_in = "".join(f"; {mark}: the number of {theirs}" for theirs, mark in marks.items())
    more = "".join(f"; {', '.join(labels)}: {why}" for why, labels in notes.items())
    return Block(f"{metric}, verdicts", note + stand_in + more, head, rows, foot + stand_in)


def facts(results: Results) -> list[tuple[str, str]]:
    """The head of the report: data, folds, seeds, selection, commits, sources."""
    table, runs, measured = results.table, results.runs, results.measured
    published, baseline = results.published, results.baseline
    planned = pd.DataFrame({"seed": [run.seed for run in runs], "fold": [run.fold for run in runs]})
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    several = f"fold{'s' if len(folds) > 1 else ''} {' '.join(folds)}, " if folds else ""
    commits = dict.fromkeys(str(one.results.get("commit") or "unknown") for one in measured)
    ensembles = [f"{label}: {row.describe()}" for label, row in table.ensembles.items()]
    partly = [
        f"{label} has {done} of {count} seeds" for label, done, count in _partly(runs, by_seed=True)
    ]
    judged = next(iter(results.verdicts.values()), None)
    against = ""
    if judged is not None and len(judged.intervals) > 1:
        against = (
            baseline
            if judged.against
            else (f"{baseline} is not finished: no row is compared with it")
        )
    found = {
        "data": f"{runs[0].config.dataset.name}, {several}test",
        "lists": results.lists,
        "selection": _most_and_others([(_selection(run), run.label) for run in runs]),
        "seeds": " ".join(map(str, planned["seed"].unique())),
        "runs": f"{len(measured)} of {len(runs)} runs are done",
        "commit": ", ".join(map(short_commit, commits)) or "none yet",
        "computed on": mixed((one.run.label, one.results) for one in measured),
        "±": _deviation(planned),
        "ensembles": "; ".join(ensembles),
        "incomplete": "; ".join(partly),
        "interval": _covered(judged.intervals) if judged is not None and judged.intervals else "",
        "baseline": against,
        "verdict": rule(results.margin * (100 if results.percent else 1), ALPHA)
        if judged is not None and judged.against
        else "",
        PUBLISHED: " ".join(published.source.split()) if published is not None else "",
    }
    return [(key, value) for key, value in found.items() if value]


def _covered(intervals: Mapping[str, SystemInterval]) -> str:
    """What the intervals allow for."""
    texts = [(_OTHERS[of.spread.covers], label) for label, of in intervals.items()]
    return f"{1 - ALPHA:.0%}, for {_most_and_others(texts)}"


def _most_and_others(texts: Sequence[tuple[str, str]]) -> str:
    """The text that holds for most rows, then those of the others with their rows.

    >>> _most_and_others([("last epoch", "A"), ("best epoch", "B"), ("best epoch", "C")])
    'best epoch; of A: last epoch'
    """
    rows: dict[str, dict[str, None]] = {}
    for text, row in texts:
        rows.setdefault(text, {})[row] = None
    (most, _), *others = sorted(rows.items(), key=lambda pair: -len(pair[1]))
    return "; ".join([most, *(f"of {', '.join(labels)}: {text}" for text, labels in others)])


def _deviation(repeats: pd.DataFrame) -> str:
    folds = repeats["fold"].nunique() > 1
    if repeats["seed"].nunique() > 1:
        return f"standard deviation over seeds{' of the mean over folds' * folds}"
    return "standard deviation over folds" if folds else "no deviation: one seed"


def _partly(runs: Sequence[Run], *, by_seed: bool) -> list[tuple[str, int, int]]:
    """The rows that have some but not all of their runs, or seeds in all folds; how many."""
    done = pd.DataFrame([(run.label, run.seed, run.done) for run in runs], columns=list("rsd"))
    if by_seed:
        done = done.groupby(["r", "s"], sort=False)["d"].all().reset_index()
    counts = done.groupby("r", sort=False)["d"].agg(["sum", "size"])
    return [row for row in counts.itertuples(name=None) if 0 < row[1] < row[2]]


def unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """How many runs are done of each row that has some, but not all."""
    return {row: f"{done} of {count} runs" for row, done, count in _partly(runs, by_seed=False)}


def _selection(run: Run) -> str:
    """Which weights are tested."""
    best = f"best epoch by {run.config.select_on} of vali (select=best)"
    return best if run.config.select == "best" else "last epoch (select=last)"
