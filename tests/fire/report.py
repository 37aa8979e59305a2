"""The table of a fire: tries and outcomes by subject, each fault with the command that shows it."""

import os
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from fire.outcomes import (
    CRASH,
    FAULTS,
    HANG,
    HARMLESS,
    LEFT,
    LOST,
    NOTICED,
    SILENT,
    TRACEBACK,
    Tally,
)

BEGIN, END = "<!-- fire -->\n", "<!-- end of fire -->\n"
_COLUMNS = (NOTICED, HARMLESS, SILENT, LOST, LEFT, TRACEBACK)
_SHOWN = 3  # faults of one subject and outcome that are shown


def rows(tallies: Sequence[Tally]) -> list[list[str | int]]:
    """A row for each subject, and their sum."""
    table: list[list[str | int]] = [[t.part, t.subject, t.tries, *_counts(t)] for t in tallies]
    sums = [sum(int(row[i]) for row in table) for i in range(2, 3 + len(_COLUMNS) + 1)]
    return [*table, ["all", "", *sums]]


def _counts(tally: Tally) -> list[int]:
    return [*(tally.counts[name] for name in _COLUMNS), tally.counts[CRASH] + tally.counts[HANG]]


def text(tallies: Sequence[Tally], *, markdown: bool = False) -> str:
    """The table as text, or as Markdown."""
    heads = ["part", "what", "tries", *_COLUMNS, "crash, hang"]
    return tabulate(rows(tallies), heads, tablefmt="github" if markdown else "simple")


def findings(tallies: Sequence[Tally], seed: int) -> str:
    """A line for each fault: what it was, and the command that shows it again."""
    lines = []
    for tally in tallies:
        for outcome in FAULTS:
            found = [(number, r.detail) for number, r in tally.faults if r.outcome == outcome]
            for number, detail in found[:_SHOWN]:
                lines.append(f"{outcome}: {tally.part}/{tally.subject}: {detail}")
                lines.append(f"  {command(tally, number, seed)}")
            if len(found) > _SHOWN:
                lines.append(f"{outcome}: {tally.part}/{tally.subject}: {len(found) - _SHOWN} more")
    return "\n".join(lines)


def command(tally: Tally, number: int, seed: int) -> str:
    """The command that makes one try again."""
    only = f"only={tally.part}/{tally.subject}"
    return f"make fire ARGS='{only} seed={seed} first={number} tries=1'"


def put(path: Path, body: str) -> None:
    """Put ``body`` between the marks in ``path``.

    Raises:
        ValueError: the marks are not there.
    """
    before, begun, rest = path.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(
            f"{path} has no lines '{BEGIN.strip()}' and '{END.strip()}': put them back"
        )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(f"{before}{BEGIN}{body}{END}{after}")
    part.replace(path)
