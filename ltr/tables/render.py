"""The blocks and the facts of a table's report, from its numbers and verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from ltr.data.lists import SPLITS
from ltr.experiment.parts import named_metrics
from ltr.experiment.provenance import mixed, short_commit
from ltr.metrics import Convention
from ltr.statistics.compare import BETTER, DIFFER, WORSE
from ltr.tables.measure import CROSSFIT, Measured
from ltr.tables.report import PUBLISHED, Block, Cell, mark_best
from ltr.tables.runs import Run
from ltr.tables.spec import Published, Table
from ltr.tables.units import Units
from ltr.tables.verdicts import ALPHA, Verdicts, interval_covers, most_and_others, over_repeats


def blocks(
    table: Table,
    found: pd.DataFrame,
    frame: pd.DataFrame,
    verdicts: Mapping[str, Verdicts],
    published: Published | None,
    conventions: Mapping[str, Convention],
    missing: Mapping[str, str],
    baseline: str,
    *,
    unlike: str | None = None,
    percent: bool = False,
) -> tuple[Block, ...]:
    """The numbers under each convention, then the verdicts by metric.

    ``found`` comes from ``numbers``, which takes the same ``frame``, ``verdicts`` and
    ``published``; ``missing`` says why a row has no numbers, ``unlike`` why the published numbers
    are of other data.
    """
    units = Units(percent)
    made = [
        _with_notes(
            _numbers(table, found, frame, published, name, convention, missing, units),
            frame,
            published,
            baseline,
            units,
        )
        for name, convention in conventions.items()
    ]
    trained = set(frame.loc[frame["epoch"] != 0, "row"]) if len(frame) else set()
    made = [mark_best(block, trained, table.metrics) for block in made]
    first = table.conventions[0]
    for metric, judged in verdicts.items():
        chosen = found[(found["metric"] == metric) & (found["convention"] == first)]
        block = _verdicts(chosen, judged, first, baseline, units)
        made += [block] if block is not None else []
    return tuple(_of_other_data(block, unlike) for block in made)


def _numbers(
    table: Table,
    found: pd.DataFrame,
    frame: pd.DataFrame,
    published: Published | None,
    name: str,
    convention: Convention,
    missing: Mapping[str, str],
    units: Units,
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
    crossfit = [CROSSFIT] if CROSSFIT in frame and frame[CROSSFIT].notna().any() else []
    kept = (*crossfit, *table.history)
    kept = kept if name == table.conventions[0] else ()
    head = [""]
    for metric in table.metrics:
        head += [metric, *([PUBLISHED, "difference"] if metric in printed else [])]
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
            mark = " " + MARK if line["verdict"] in _APART else ""
            cells.append(units.with_deviation(line["ours"], line["deviation"]) + mark)
            if metric in printed:
                is_own = published is not None and line["beside"] == published.own(label)
                pair = [units.number(line["published"]), units.signed(line["difference"])]
                cells += pair if is_own else ["", ""]
        for column in kept:
            assert extra is not None
            mean, deviation = (extra[column][of][label] for of in ("mean", "sd"))
            of_metric = column == CROSSFIT or column.partition("_")[0] in SPLITS
            cells.append((units if of_metric else Units()).with_deviation(mean, deviation))
        rows.append(tuple(map(Cell, cells)))
    for label, values in (published.values if published else {}).items():
        if label not in own and name in values:
            cells = [f"{label} ({PUBLISHED})"]
            for metric in table.metrics:
                cells += [units.number(values[name].get(metric)), *[""] * (2 * (metric in printed))]
            rows.append(tuple(map(Cell, [*cells, *[""] * len(kept)])))
    head += [column.replace("_", " ") for column in kept]
    parts = {part for metric in named_metrics(table.metrics) for part in metric.parts}
    short = f"{name}: {convention.describe(parts)}"
    note = convention.describe()
    if CROSSFIT in kept:
        note += f"; {CROSSFIT}: select_on of epochs chosen on one half of vali, on the other half"
    return Block(name, note, tuple(head), tuple(rows), short)


MARK = "†"  # of a row that differs from the baseline
_APART = (BETTER, WORSE, DIFFER)


def _with_notes(
    block: Block, frame: pd.DataFrame, published: Published | None, baseline: str, units: Units
) -> Block:
    """``block`` with what its signs mean; the foot, for a paper, has all of it in short."""
    texts = [cell.text for row in block.rows for cell in row]
    notes, short = [], []
    if any(text.endswith(MARK) for text in texts):
        notes = [f"{MARK}: differs from {baseline}, p < {ALPHA:g} after Holm"]
    if units.percent:
        notes.append("in percent")
    if any("±" in text for text in texts):
        seeds, folds = (list(map(str, frame[key].unique())) for key in ("seed", "fold"))
        short.append(f"±: {_deviation(seeds, folds)}")
    if published is not None and _has_published(block):
        short.append(f"published: {' '.join(published.source.split())}")
    foot = "; ".join([block.foot, *short, *notes])
    return replace(block, note="; ".join([block.note, *notes]), foot=foot)


def _has_published(block: Block) -> bool:
    return PUBLISHED in block.head or any(f"({PUBLISHED})" in row[0].text for row in block.rows)


def _of_other_data(block: Block, unlike: str | None) -> Block:
    """``block`` with ``unlike`` in its notes, where it has published numbers."""
    if unlike is None or not _has_published(block):
        return block
    return replace(block, note=f"{block.note}; {unlike}", foot=f"{block.foot}; {unlike}")


def _verdicts(
    chosen: pd.DataFrame, judged: Verdicts, name: str, baseline: str, units: Units
) -> Block | None:
    """The intervals of one metric, what they cover, and the verdict against the baseline."""
    with_published = bool(chosen["published"].notna().any())
    with_baseline = bool(chosen["verdict"].notna().any())
    if not judged.intervals and not with_published:
        return None
    head = ["", "ours", "interval"]
    head += [f"minus {baseline}", "interval", "p", "verdict"] if with_baseline else []
    head += [PUBLISHED, "difference", "covered"] if with_published else []
    rows = []
    stand_in: dict[str, str] = {}
    notes: dict[str, list[str]] = {}
    for line in chosen.to_dict("records"):
        texts = [line["row"], units.number(line["ours"]), units.between(line["low"], line["high"])]
        word = ""
        if with_baseline and line["row"] == baseline:
            texts += ["the baseline", "", ""]
        elif with_baseline:
            interval = units.between(line["less_low"], line["less_high"])
            texts += [units.signed(line["less_baseline"]), interval, Units().number(line["p"])]
            word = line["verdict"] if isinstance(line["verdict"], str) else ""
        cells = [*map(Cell, texts), *([Cell(word, word)] if with_baseline else [])]
        if with_published:
            mark = ""
            if not pd.isna(line["published"]) and line["beside"] != line["row"]:
                mark = stand_in.setdefault(str(line["beside"]), "*" * (len(stand_in) + 1))
            covered = _COVERED.get(line["covered"], "")
            number, gap = units.number(line["published"]), units.signed(line["difference"])
            texts = [number + mark, gap, covered]
            cells += map(Cell, texts)
        rows.append(tuple(cells))
        if isinstance(line["note"], str) and line["note"]:
            notes.setdefault(line["note"], []).append(str(line["row"]))
    note = f"under {name}" + (", in percent" if units.percent else "")
    foot = f"{note}; intervals of {1 - ALPHA:.0%}; p after Holm"
    if with_published:
        note += (
            "; a published number is taken as printed, its values per query are not known: whether "
            "our interval covers it is no test of a difference"
        )
    for theirs, mark in stand_in.items():
        note += f"; {mark}: the number of {theirs}"
        foot += f"; {mark}: the number of {theirs}"
    for said, labels in notes.items():
        note += f"; {', '.join(labels)}: {said}"
    return Block(f"{judged.metric}, verdicts", note, tuple(head), tuple(rows), foot)


_COVERED = {"covers": "covered", "above": "ours above", "below": "ours below"}


def facts(
    table: Table,
    runs: Sequence[Run],
    measured: Sequence[Measured],
    published: Published | None,
    verdicts: Mapping[str, Verdicts],
    baseline: str,
    lists: str = "",
) -> tuple[tuple[str, str], ...]:
    """The head of the report: data, folds, seeds, selection, commits, sources.

    ``lists`` says how many the data have.
    """
    config = runs[0].config
    folds = [str(fold) for fold in dict.fromkeys(run.fold for run in runs) if fold is not None]
    seeds = [str(seed) for seed in dict.fromkeys(run.seed for run in runs)]
    several = f"fold{'s' if len(folds) > 1 else ''} {' '.join(folds)}, " if folds else ""
    made = Counter(str(one.results.get("commit") or "unknown") for one in measured)
    commits = ", ".join(short_commit(commit) for commit in made)
    places = mixed((one.run.label, one.results) for one in measured)
    found = [
        ("data", f"{config.dataset.name}, {several}test"),
        *([("lists", lists)] if lists else []),
        ("selection", _selection(runs)),
        ("seeds", " ".join(seeds)),
        ("runs", f"{len(measured)} of {len(runs)} runs are done"),
        ("commit", commits or "none yet"),
        *([("computed on", places)] if places else []),
        ("±", _deviation(seeds, folds)),
    ]
    if table.ensembles:
        said_of = (f"{label}: {row.describe()}" for label, row in table.ensembles.items())
        found.append(("ensembles", "; ".join(said_of)))
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
        found.append((PUBLISHED, " ".join(published.source.split())))
    return tuple(found)


def _deviation(seeds: Sequence[str], folds: Sequence[str]) -> str:
    if len(seeds) > 1:
        return f"standard deviation over seeds{' of the mean over folds' * (len(folds) > 1)}"
    return "standard deviation over folds" if len(folds) > 1 else "no deviation: one seed"


def _partly(runs: Sequence[Run]) -> list[str]:
    """The rows whose mean leaves seeds out, because those are not done in all folds."""
    found = []
    for label, seeds in _done(runs).items():
        done = sum(map(all, seeds.values()))
        if 0 < done < len(seeds):
            found.append(f"{label} has {done} of {len(seeds)} seeds")
    return found


def unfinished(runs: Sequence[Run]) -> dict[str, str]:
    """How many runs are done of each row that has some, but not all."""
    found = {}
    for label, seeds in _done(runs).items():
        done = [state for states in seeds.values() for state in states]
        if any(done) and not all(done):
            found[label] = f"{sum(done)} of {len(done)} runs"
    return found


def _done(runs: Sequence[Run]) -> dict[str, dict[int, list[bool]]]:
    """Whether each run of a row and seed is done."""
    found: dict[str, dict[int, list[bool]]] = {}
    for run in runs:
        found.setdefault(run.label, {}).setdefault(run.seed, []).append(run.done)
    return found


def _selection(runs: Sequence[Run]) -> str:
    """Which weights are tested; the rows that differ from most are named."""
    rules: dict[str, list[str]] = {}
    for run in runs:
        best = f"best epoch by {run.config.select_on} of vali (select=best)"
        rule = best if run.config.select == "best" else "last epoch (select=last)"
        if run.label not in rules.setdefault(rule, []):
            rules[rule].append(run.label)
    return most_and_others(rules)
