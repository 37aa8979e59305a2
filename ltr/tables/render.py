"""From the numbers of a table to the report: ours with deviation, published beside, verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ltr.experiment.provenance import mixed, short_commit
from ltr.metrics import Convention
from ltr.tables.measure import Measured
from ltr.tables.numbers import over_repeats
from ltr.tables.report import Block, Cell, plain
from ltr.tables.runs import Run
from ltr.tables.spec import Published, Table
from ltr.tables.verdicts import Verdicts, interval_covers


def blocks(
    table: Table,
    found: pd.DataFrame,
    frame: pd.DataFrame,
    verdicts: Mapping[str, Verdicts],
    published: Published | None,
    conventions: Mapping[str, Convention],
    missing: Mapping[str, str],
    baseline: str,
) -> tuple[Block, ...]:
    """The blocks of the table: the numbers under each convention, then the verdicts by metric.

    Args:
        table: which rows and metrics.
        found: of ``numbers``.
        frame: of ``by_run``, those that are ``whole``.
        verdicts: by metric, under the first convention.
        published: of the data set, or None.
        conventions: by name.
        missing: why a row has no numbers.
        baseline: the row that the others are compared with.
    """
    made = [
        _numbers(table, found, frame, published, name, convention, missing)
        for name, convention in conventions.items()
    ]
    first = table.conventions[0]
    for metric, judged in verdicts.items():
        chosen = found[(found["metric"] == metric) & (found["convention"] == first)]
        block = _verdicts(chosen, judged, first, baseline)
        made += [block] if block is not None else []
    return tuple(made)


def _numbers(
    table: Table,
    found: pd.DataFrame,
    frame: pd.DataFrame,
    published: Published | None,
    name: str,
    convention: Convention,
    missing: Mapping[str, str],
) -> Block:
    beside = {row: mine for row in table.rows if published and (mine := published.own(row))}
    # Where only some rows have one of their own, the published rows stand below instead.
    own: set[str] = set(beside.values()) if 2 * len(beside) >= len(table.rows) else set()
    printed = {
        metric
        for label in own
        if published
        for metric in published.values[label].get(name, {})
        if metric in table.metrics
    }
    kept = table.history if name == table.conventions[0] else ()
    head = [""]
    for metric in table.metrics:
        head += [metric, *(["published", "difference"] if metric in printed else [])]
    chosen = {
        (line["row"], line["metric"]): line
        for line in found[found["convention"] == name].to_dict("records")
    }
    extra = over_repeats(frame, kept) if kept and len(frame) else None
    rows: list[tuple[Cell, ...]] = []
    for label in table.rows:
        if (label, table.metrics[0]) not in chosen:
            blank = [Cell("")] * (len(head) + len(kept) - 2)
            rows.append((Cell(label), Cell(missing.get(label, "not run"), "missing"), *blank))
            continue
        cells = [label]
        for metric in table.metrics:
            line = chosen[label, metric]
            cells.append(with_deviation(line["ours"], line["deviation"]))
            if metric in printed:
                is_own = published is not None and line["beside"] == published.own(label)
                cells += (
                    [number(line["published"]), signed(line["difference"])] if is_own else ["", ""]
                )
        for column in kept:
            assert extra is not None
            cells.append(with_deviation(extra[column]["mean"][label], extra[column]["sd"][label]))
        rows.append(plain(cells))
    for label, values in (published.values if published else {}).items():
        if label not in own and name in values:
            cells = [f"{label} (published)"]
            for metric in table.metrics:
                cells += [
                    number(values[name].get(metric)),
                    *(["", ""] if metric in printed else []),
                ]
            rows.append(plain([*cells, *[""] * len(kept)]))
    head += [column.replace("_", " ") for column in kept]
    return Block(name, convention.describe(), tuple(head), tuple(rows))


def _verdicts(chosen: pd.DataFrame, judged: Verdicts, name: str, baseline: str) -> Block | None:
    """The intervals of one metric, what they cover, and the verdict against the baseline."""
    with_published = bool(chosen["published"].notna().any())
    with_baseline = bool(chosen["verdict"].notna().any())
    if not judged.intervals and not with_published:
        return None
    head = ["", "ours", "interval"]
    head += [f"less {baseline}", "interval", "p", "verdict"] if with_baseline else []
    head += ["published", "difference", "covered"] if with_published else []
    rows = []
    stand_in: dict[str, str] = {}
    for line in chosen.to_dict("records"):
        cells = [Cell(line["row"]), Cell(number(line["ours"])), Cell(between(line, "low", "high"))]
        if with_baseline and line["row"] == baseline:
            cells += [Cell("the baseline"), *[Cell("")] * 3]
        elif with_baseline:
            p = "" if pd.isna(line["p"]) else f"{line['p']:.4f}"
            word = line["verdict"] if isinstance(line["verdict"], str) else ""
            cells += [
                Cell(signed(line["less_baseline"])),
                Cell(between(line, "less_low", "less_high")),
                Cell(p),
                Cell(word, word),
            ]
        if with_published:
            mark = ""
            if not pd.isna(line["published"]) and line["beside"] != line["row"]:
                mark = stand_in.setdefault(str(line["beside"]), "*" * (len(stand_in) + 1))
            cells.append(Cell(number(line["published"]) + mark))
            cells += [Cell(signed(line["difference"])), _covered(line)]
        rows.append(tuple(cells))
    note = f"under {name}"
    if with_published:
        note += (
            "; a published number is taken as printed, its values per query are not known: whether "
            "our interval covers it is no test of a difference"
        )
    for theirs, mark in stand_in.items():
        note += f"; {mark}: the number of {theirs}"
    for said, labels in _notes(chosen).items():
        note += f"; {', '.join(labels)}: {said}"
    return Block(f"{judged.metric}, verdicts", note, tuple(head), tuple(rows))


def _notes(chosen: pd.DataFrame) -> dict[str, list[str]]:
    """What the words of the verdicts leave out, with the rows it is of."""
    found: dict[str, list[str]] = {}
    for line in chosen.to_dict("records"):
        if isinstance(line["note"], str) and line["note"]:
            found.setdefault(line["note"], []).append(str(line["row"]))
    return found


def _covered(line: Mapping[Any, Any]) -> Cell:
    """Whether the interval of ours covers the published number, in words."""
    words = {"covers": "covered", "above": "ours above", "below": "ours below"}
    return Cell(words.get(str(line["covered"]), ""))


def number(value: float | None) -> str:
    """Four digits after the point; nothing for what is not known."""
    return "" if value is None or pd.isna(value) else f"{value:.4f}"


def signed(value: float) -> str:
    """A difference, with its sign."""
    return "" if pd.isna(value) else f"{value:+.4f}"


def with_deviation(mean: float, deviation: float) -> str:
    """A mean, and its deviation where there is one."""
    return number(mean) if pd.isna(deviation) else f"{mean:.4f} ± {deviation:.4f}"


def between(line: Mapping[Any, Any], low: str, high: str) -> str:
    """The bounds of an interval."""
    bounds = [float(str(line[key])) for key in (low, high)]
    return "" if any(pd.isna(bound) for bound in bounds) else "{:.4f} to {:.4f}".format(*bounds)


def facts(
    table: Table,
    runs: Sequence[Run],
    measured: Sequence[Measured],
    published: Published | None,
    verdicts: Mapping[str, Verdicts],
    baseline: str,
) -> tuple[tuple[str, str], ...]:
    """What the numbers are of: data, folds, seeds, selection, commits, sources."""
    config = runs[0].config
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    seeds = [str(seed) for seed in dict.fromkeys(run.seed for run in runs)]
    several = f"fold{'s' if len(folds) > 1 else ''} {' '.join(folds)}, " if folds else ""
    made = Counter(str(one.results.get("commit") or "unknown") for one in measured)
    commits = ", ".join(short_commit(commit) for commit in made)
    places = mixed((one.run.label, one.results) for one in measured)
    found = [
        ("data", f"{config.dataset.name}, {several}test"),
        ("selection", _selection(runs)),
        ("seeds", " ".join(seeds)),
        ("runs", f"{len(measured)} of {len(runs)} runs are done"),
        ("commit", commits or "none yet"),
        *([("computed on", places)] if places else []),
        ("±", _deviation(seeds, folds)),
    ]
    if partly := _partly(runs):
        found.append(("incomplete", "; ".join(partly)))
    said = next(iter(verdicts.values()), None)
    if said is not None and said.intervals:
        found.append(("interval", interval_covers(said.intervals)))
    if said is not None and said.against:
        found += [("baseline", baseline), ("verdict", said.rule)]
    elif said is not None and len(said.intervals) > 1:
        found.append(("baseline", f"{baseline} is not finished: no row is compared with it"))
    if published is not None:
        found.append(("published", " ".join(published.source.split())))
    return tuple(found)


def _deviation(seeds: Sequence[str], folds: Sequence[str]) -> str:
    if len(seeds) > 1:
        return f"standard deviation over seeds{' of the mean over folds' * (len(folds) > 1)}"
    return "standard deviation over folds" if len(folds) > 1 else "no deviation: one seed"


def _partly(runs: Sequence[Run]) -> list[str]:
    """The rows with a mean of which some seed is not done in all folds, and is not in the mean."""
    found = []
    for label in dict.fromkeys(run.label for run in runs):
        of_seed: dict[int, list[bool]] = {}
        for run in runs:
            if run.label == label:
                of_seed.setdefault(run.seed, []).append(run.done)
        done = sum(all(states) for states in of_seed.values())
        if 0 < done < len(of_seed):
            found.append(f"{label} has {done} of {len(of_seed)} seeds")
    return found


def unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """What is there of the rows that have no seed done in all folds, by row."""
    states: dict[str, list[bool]] = {}
    for run in runs:
        states.setdefault(run.label, []).append(run.done)
    return {
        label: f"{sum(done)} of {len(done)} runs"
        for label, done in states.items()
        if any(done) and not all(done)
    }


def _selection(runs: Sequence[Run]) -> str:
    """Which weights are tested; the rows that differ from most are named."""
    rules: dict[str, list[str]] = {}
    for run in runs:
        best = f"best epoch by {run.config.select_on} of vali (select=best)"
        rule = best if run.config.select == "best" else "last epoch (select=last)"
        if run.label not in rules.setdefault(rule, []):
            rules[rule].append(run.label)
    (most, _), *others = sorted(rules.items(), key=lambda pair: -len(pair[1]))
    return "; ".join([most, *(f"of {', '.join(rows)}: {rule}" for rule, rows in others)])
