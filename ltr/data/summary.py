"""Count the content of lists, for a table and to compare with the published counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

from ltr.data.archives import Known
from ltr.data.lists import Lists
from ltr.data.transforms import column_range

_FEW = 8  # up to so many different labels, each is counted

Place = tuple[int | None, str]  # fold and split


@dataclass(frozen=True)
class Summary:
    """Numbers of one split."""

    rows: int
    lists: int
    empty: int  # lists without a relevant item
    labels: Mapping[float, int]  # number of items of each label
    shortest: int  # items of a list
    mean: float
    longest: int
    constant: int  # columns with a single value, missing values aside
    missing: int  # values: nan, or beyond float32


def summarise(lists: Lists) -> Summary:
    """Count the content of ``lists``; features are read once, in blocks."""
    values, counts = np.unique(lists.labels, return_counts=True)
    low, high = column_range(lists.features)
    return Summary(
        rows=lists.items,
        lists=len(lists),
        empty=int(lists.empty.sum()),
        labels=dict(zip(values.tolist(), counts.tolist(), strict=True)),
        shortest=int(lists.lengths.min()),
        mean=float(lists.lengths.mean()),
        longest=int(lists.lengths.max()),
        constant=int((low >= high).sum()),  # greater where every value is missing
        missing=lists.missing,
    )


def differences(summaries: Mapping[Place, Summary], known: Sequence[Known]) -> list[str]:
    """Every count that is not as published, in words; splits without a summary do not count."""
    found: list[str] = []
    for record in known:
        parts = _parts(summaries, record)
        if len(parts) < len(record.splits):
            continue
        counted = _counts(parts)
        for name in ("rows", "lists", "empty"):
            must = getattr(record, name)
            if must is not None and counted[name] != must:
                what = "empty lists" if name == "empty" else name
                found.append(f"{_where(record)} has {counted[name]:,} {what}, not {must:,}")
        if record.labels is not None:
            must_be = Counter({float(grade): count for grade, count in enumerate(record.labels)})
            is_now = sum((Counter(part.labels) for part in parts), Counter[float]())
            for grade in sorted(must_be | is_now):
                if is_now[grade] != must_be[grade]:
                    found.append(
                        f"{_where(record)} has {is_now[grade]:,} items of grade {grade:g}, "
                        f"not {must_be[grade]:,}"
                    )
    return found


def table(summaries: Mapping[Place, Summary], known: Sequence[Known]) -> str:
    """Two tables: counts beside the published ones, and the rest of the summaries."""
    return f"{_counts_table(summaries, known)}\n\n{_contents_table(summaries)}"


def _counts_table(summaries: Mapping[Place, Summary], known: Sequence[Known]) -> str:
    listed = {(record.fold, record.splits) for record in known}
    places = [(fold, (split,)) for fold, split in summaries]
    records = [*known, *(Known(place[1], place[0]) for place in places if place not in listed)]
    order = {place: number for number, place in enumerate(summaries)}
    rows: list[tuple[tuple[int, int], list[str]]] = []
    for record in records:
        parts = _parts(summaries, record)
        if len(parts) < len(record.splits):
            continue
        counted = _counts(parts)
        row = ["" if record.fold is None else str(record.fold), "+".join(record.splits)]
        for name in ("rows", "lists", "empty"):
            row.append(f"{counted[name]:,}")
            if known:
                row.append("" if getattr(record, name) is None else f"{getattr(record, name):,}")
        last = max(order[record.fold, split] for split in record.splits)
        rows.append(((last, len(record.splits)), row))
    headers = ["fold", "split"]
    for name in ("rows", "lists", "empty lists"):
        headers += [name, "known"] if known else [name]
    return _tabulate([row for _, row in sorted(rows)], headers)


def _contents_table(summaries: Mapping[Place, Summary]) -> str:
    labels = sorted({label for summary in summaries.values() for label in summary.labels})
    few = len(labels) <= _FEW
    headers = ["fold", "split"]
    headers += [f"label {label:g}" for label in labels] if few else ["labels", "least", "most"]
    headers += ["shortest", "mean", "longest list", "constant columns", "missing values"]
    rows = []
    for (fold, split), summary in summaries.items():
        row = ["" if fold is None else str(fold), split]
        if few:
            row += [f"{summary.labels.get(label, 0):,}" for label in labels]
        else:
            row += [f"{len(summary.labels):,}", f"{min(summary.labels):g}"]
            row += [f"{max(summary.labels):g}"]
        row += [f"{summary.shortest:,}", f"{summary.mean:,.1f}", f"{summary.longest:,}"]
        rows.append([*row, f"{summary.constant:,}", f"{summary.missing:,}"])
    return _tabulate(rows, headers)


def _parts(summaries: Mapping[Place, Summary], record: Known) -> list[Summary]:
    places = ((record.fold, split) for split in record.splits)
    return [summaries[place] for place in places if place in summaries]


def _counts(parts: Sequence[Summary]) -> dict[str, int]:
    return {name: sum(getattr(part, name) for part in parts) for name in ("rows", "lists", "empty")}


def _where(record: Known) -> str:
    splits = "+".join(record.splits)
    return splits if record.fold is None else f"Fold{record.fold} {splits}"


def _tabulate(rows: list[list[str]], headers: list[str]) -> str:
    align = ["left", "left"] + ["right"] * (len(headers) - 2)
    return tabulate(rows, headers, disable_numparse=True, colalign=align)
