"""The tables of a benchmark: for the terminal, ``docs/benchmarks.md`` and other programs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ltr.benchmark import goals
from ltr.benchmark.compare import Row
from ltr.benchmark.measuring import spread
from ltr.benchmark.work import OURS
from ltr.errors import ConfigError
from ltr.whole import write_csv, write_whole

TITLES = {
    "losses": "Losses: forward and backward",
    "reader": "Reading LETOR text",
    "training": "Training",
    "evaluation": "Evaluation",
    "growth": "How cost grows",
}
HEAD = ("case", "side", "median", "half of the samples", "n", "rate", "peak memory", "to ours")
GOAL_HEAD = ("goal", "bound", "reached", "")
ABOUT = """# Benchmarks

Written by `make bench`; each section is of one run, on the machine it names, and is replaced by the
next run of its kind. "to ours" is a side's time and memory over ours: above 1, ours is faster, or
smaller. Times are medians of samples that the sides take in turns, each side in its own process;
peak memory is what one call holds at its peak beyond what was held before it. Before anything is
timed, the results are compared; what differs is not timed.
"""

_ELSEWHERE = ("command", "settings")  # the one stands above, the others are the command's


def rows_table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The cells under ``HEAD``, one row a side; the case is named once."""
    ours = {(row.subject, row.case): row for row in rows if row.side == OURS}
    cells, last = [], ""
    for row in rows:
        case, last = ("" if row.case == last else row.case), row.case
        if row.median is None:
            cells.append((case, row.side, row.text or row.status, *[""] * 5))
            continue
        _, low, high = spread(row.seconds)
        cells.append(
            (
                case,
                row.side,
                duration(row.median),
                f"{duration(low)} to {duration(high)}",
                f"{len(row.seconds)}{', cold' if row.cold else ''}",
                _rate(row, row.median),
                _memory(row),
                _to_ours(row, ours.get((row.subject, row.case))),
            )
        )
    return cells


def notes(rows: Sequence[Row]) -> list[str]:
    """What is to be said of the sides, each thing once."""
    return list(dict.fromkeys(f"{row.side}: {row.note}" for row in rows if row.note))


def goals_table(subject: str, device: str, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The cells under ``GOAL_HEAD``."""
    return [(goal.text, *goal.verdict(rows)) for goal in goals.of(subject, device)]


def printed(subject: str, device: str, rows: Sequence[Row], *, with_goals: bool = True) -> str:
    """Both tables for the terminal; without goals where the sizes are not theirs."""
    parts = [f"{TITLES[subject]}, {device}"]
    parts.append(tabulate(rows_table(rows), HEAD, tablefmt="simple", disable_numparse=True))
    parts += ["\n".join(notes(rows))] if notes(rows) else []
    found = goals_table(subject, device, rows) if with_goals else []
    if found:
        parts.append(tabulate(found, GOAL_HEAD, tablefmt="simple", disable_numparse=True))
    parts += [f"{row.case}, ours\n{row.profile}" for row in rows if row.profile]
    return "\n\n".join(parts) + "\n"


def section(
    subject: str,
    device: str,
    rows: Sequence[Row],
    about: Mapping[str, Any],
    *,
    with_goals: bool = True,
    why_not: str = "",
    picture: str = "",
) -> str:
    """The Markdown of one subject on one device.

    Args:
        subject, device, rows: what was measured.
        about: what was run, where and with what; ``command`` among it.
        with_goals: False where the sizes are not those of the goals.
        why_not: why nothing was measured, where that is so.
        picture: path of a plot, relative to the file.
    """
    parts = [f"## {TITLES[subject]} ({device})", f"`{about['command']}`"]
    if why_not:
        parts.append(f"Not measured yet: {why_not}")
    else:
        told = (f"{key} {value}" for key, value in about.items() if key not in _ELSEWHERE)
        parts.append(", ".join(told) + ".")
        parts.append(tabulate(rows_table(rows), HEAD, tablefmt="github", disable_numparse=True))
        parts.append("\n".join(f"- {note}" for note in notes(rows)))
    found = goals_table(subject, device, rows) if with_goals else []
    if found:
        parts.append(tabulate(found, GOAL_HEAD, tablefmt="github", disable_numparse=True))
    if picture:
        parts.append(f"![{TITLES[subject]}]({picture})")
    for row in rows:
        if row.profile:
            parts.append(f"Where the time of {row.case} goes, ours:\n\n```\n{row.profile}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def put_section(path: Path, subject: str, device: str, text: str) -> None:
    """Replace the section of ``subject`` and ``device`` in ``path``; the others stay as they are.

    A section that is not there yet goes to the end; a file that is not there is begun.

    Raises:
        ConfigError: the file has the beginning of the section without its end.
    """
    begin, end = f"<!-- {subject} {device} -->\n", f"<!-- end of {subject} {device} -->\n"
    old = path.read_text() if path.is_file() else ABOUT
    before, found, rest = old.partition(begin)
    if found:
        _, ended, after = rest.partition(end)
        if not ended:
            raise ConfigError(
                f"{path} has the line '{begin.strip()}' and no line '{end.strip()}': put it "
                "back behind that section"
            )
    else:
        before, after = old.rstrip("\n") + "\n\n", ""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, before + begin + text + end + after)


def save(folder: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write ``results.json``, with every sample, and ``results.csv``, a line for each row."""
    records = [row.record() for row in rows]
    content = {"about": dict(about), "rows": records}
    write_whole(folder / "results.json", json.dumps(content, indent=1) + "\n")
    names = ("subject", "case", "side", "status", "median", "bytes", "amount", "unit", "text")
    write_csv(folder / "results.csv", records, names)


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> [duration(s) for s in (0.00032, 0.0456, 7.891, 314.2)]
    ['0.32 ms', '45.6 ms', '7.89 s', '314 s']
    """
    value, unit = (1e3 * seconds, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.3g} {unit}"


def _rate(row: Row, seconds: float) -> str:
    rate = row.amount / seconds
    text = f"{rate:,.{0 if rate >= 100 else 1}f} {row.unit}/s"
    if row.flops is not None:
        text += f", {row.flops / seconds / 1e9:,.3g} GFLOP/s"
    return text


def _memory(row: Row) -> str:
    if row.bytes is None:
        return ""
    text = f"{row.bytes / 1e6:,.{0 if row.bytes >= 1e8 else 1}f} MB"
    if row.bytes_needed:
        text += f" ({row.bytes / row.bytes_needed:.2f} of the array)"
    return text


def _to_ours(row: Row, ours: Row | None) -> str:
    if ours is None or row is ours or ours.median is None or row.median is None:
        return ""
    text = f"{row.median / ours.median:.3g} x time"
    if row.bytes and ours.bytes:
        text += f", {row.bytes / ours.bytes:.3g} x memory"
    return text
