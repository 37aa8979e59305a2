"""Tables of the measured rows and of the goals: for the terminal and ``docs/benchmarks.md``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate

from ltr.benchmark.comparison import ABSENT, Row, spread
from ltr.benchmark.estimates import ESTIMATES
from ltr.benchmark.worker import OURS
from ltr.errors import ConfigError
from ltr.whole import write_whole

TITLES = {
    "losses": "Losses: forward and backward",
    "reader": "Reading LETOR text",
    "training": "Training",
    "evaluation": "Evaluation",
    "bits": "The same run twice, bit for bit",
    "precision": "float32 beside TF32, bfloat16 and compiled",
    "growth": "How cost grows",
    "serving": "Serving: one list, one thread",
    "quality": "Ranking quality beside allRank",
    "runs": "Whole runs: the neural rows of Table 3",
}
HEAD = ("case", "side", "median", "half of the samples", "n", "rate", "peak memory", "to ours")
SERVING_HEAD = ("case", "side", "p50", "p95", "p99", "n", "rate", "peak memory", "to ours")
VERDICT_HEAD = (
    "case", "metric", "ours", "the other", "seeds", "difference", "interval", "ours is",
)  # fmt: skip
GOAL_HEAD = ("goal", "bound", "reached", "")
ESTIMATE_HEAD = ("estimated, not measured", "", "from", "commit")
ABOUT = """# Benchmarks

Written by `make bench`; each section is of one run, on the machine it names, and is replaced by the
next run of its kind. "to ours" is a side's time and memory over ours: above 1, ours is faster, or
smaller. Times are medians of samples that the sides take in turns, each side in its own process;
peak memory is what one call holds at its peak beyond what was held before it. Before anything is
timed, the results are compared; what differs is not timed.
"""
TIME, MEMORY, NEEDED = "whole", "bytes", "bytes_needed"  # of a row
_ELSEWHERE = ("command", "settings")  # the command is above, the settings follow from it


class Figure(NamedTuple):
    """The figure ``what`` of ``side`` in the first case that begins with ``case``.

    ``cases``: its sum over so many of them.
    """

    case: str
    side: str = OURS
    what: str = TIME
    cases: int = 1

    def of(self, rows: Sequence[Row]) -> float | None:
        """The figure; None if it was not measured."""
        of_side = [row for row in rows if row.case.startswith(self.case) and row.side == self.side]
        found = [row for row in of_side[: self.cases] if row.median is not None]
        values = [getattr(row, self.what) for row in found]
        return None if len(found) < self.cases or None in values else sum(values)


@dataclass(frozen=True)
class Goal:
    """A bound on ``top`` over ``bottom``: at most where ``top`` is ours, else at least."""

    text: str  # the claim, in words
    subject: str
    bound: float
    top: Figure
    bottom: Figure | None  # None: the bound is on ``top`` itself, in seconds
    devices: tuple[str, ...] = ("cpu", "cuda")

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str, str]:
        """The bound, the figure reached and the verdict, in words."""
        unit, at_most = " s" if self.bottom is None else " x", self.top.side == OURS
        bound = f"{'<=' if at_most else '>='} {self.bound:g}{unit}"
        top = self.top.of(rows)
        bottom = 1.0 if self.bottom is None else self.bottom.of(rows)
        if top is None or not bottom:
            return bound, "-", "not measured"
        found = top / bottom
        met = found <= self.bound if at_most else found >= self.bound
        cut = any(row.part < 1 for row in rows if row.case.startswith(self.top.case))
        word = f"{'met' if met else 'not met'}{', extrapolated' if cut else ''}"
        return bound, f"{found:.3g}{unit}", word


def _beats(
    text: str, case: str, bound: float, *devices: str,
    subject: str = "losses", peer: str = "allrank", what: str = TIME,
) -> Goal:  # fmt: skip
    """The peer takes at least ``bound`` times what ours takes."""
    top, bottom = Figure(case, peer, what), Figure(case, OURS, what)
    return Goal(text, subject, bound, top, bottom, devices or ("cpu", "cuda"))


_CPU, _GPU = ("cpu",), ("cuda",)
GOALS = [
    _beats("NeuralNDCG faster than allRank", "neuralndcg [64", 10, "cpu"),
    _beats("NeuralNDCG faster than allRank", "neuralndcg [64", 20, "cuda"),
    _beats("NeuralNDCG with less memory than allRank", "neuralndcg [64", 20, "cpu", what=MEMORY),
    Goal(
        "stretch: NeuralNDCG's time within that of LambdaRank", "losses", 3,
        Figure("neuralndcg [64"), Figure("lambdarank [64"),
    ),
    _beats("RankNet faster than allRank", "ranknet [64", 3),
    _beats("LambdaRank faster than allRank", "lambdarank [64", 3),
    Goal(
        "NeuralNDCG's memory from 5,000 to 20,000 items (linear: 4)", "losses", 5,
        Figure("neuralndcg [1, 20000", what=MEMORY), Figure("neuralndcg [1, 5000", what=MEMORY),
    ),
    _beats(
        "first parse faster than scikit-learn", "read", 5, "cpu",
        subject="reader", peer="scikit-learn",
    ),
    Goal(
        "first parse: peak memory over the dense float32 array", "reader", 1.3,
        Figure("read", what=MEMORY), Figure("read", what=NEEDED), _CPU,
    ),
    Goal("a kept Web30K-sized set opens", "reader", 1, Figure("open 18,919"), None, _CPU),
    _beats("training with NeuralNDCG", "neuralndcg", 5, "cpu", subject="training"),
    _beats("training with LambdaRank", "lambdarank", 2, "cpu", subject="training"),
    _beats("training with ListNet", "listnet", 2, "cpu", subject="training"),
    Goal(
        "the paper's 100-epoch Web30K run, synthetic lists", "runs", 60,
        Figure("NeuralNDCG@max"), None, _GPU,
    ),
    Goal(
        "the 16 neural rows of Table 3, synthetic lists", "runs", 900,
        Figure("", cases=16), None, _GPU,
    ),
    _beats("evaluation of full lists", "", 3, subject="evaluation"),
]  # fmt: skip


def section(
    subject: str,
    device: str,
    rows: Sequence[Row],
    about: Mapping[str, Any],
    *,
    with_goals: bool = True,
    why_not: str = "",
    picture: str = "",
    footnote: str = "",
    markdown: bool = True,
    ended: bool = True,
) -> str:
    """One subject on one device, as Markdown or for the terminal.

    Args:
        subject, device, rows: the measurement.
        about: its ``command``, machine, versions and so on.
        with_goals: False where the sizes are not those of the goals.
        why_not: why nothing was measured, where that is so.
        picture: path of a plot, relative to the file.
        footnote: the rule of the verdicts.
        markdown: False: for the terminal, without the command, ``about`` and the picture.
        ended: False: cases are still missing.
    """
    title, form = TITLES[subject], "github" if markdown else "simple"
    told = (f"{key} {value}" for key, value in about.items() if key not in _ELSEWHERE)
    parts = [f"## {title} ({device})\n\n`{about['command']}`" if markdown else f"{title}, {device}"]
    if why_not:
        parts.append(f"Not measured yet: {why_not}")
    else:
        parts.append("" if ended else "Unfinished: the same command goes on.")
        parts.append(f"{', '.join(told)}." if markdown else "")
        head, cells = (
            (SERVING_HEAD, rows_table(rows, latencies=True))
            if subject == "serving"
            else (HEAD, rows_table(rows))
        )
        parts.append(tabulate(cells, head, tablefmt=form, disable_numparse=True))
        absent = {row.side: f"{ABSENT}: {row.text}" for row in rows if row.status == ABSENT}
        said = ((row.side, absent.get(row.side, row.note)) for row in rows)
        notes = dict.fromkeys(f"{side}: {note}" for side, note in said if note)
        parts.append("\n".join(f"- {note}" if markdown else note for note in notes))
    verdicts = [cells for row in rows for cells in row.verdicts]
    if verdicts:
        parts += [tabulate(verdicts, VERDICT_HEAD, form, disable_numparse=True), footnote]
    goals = goals_table(subject, device, rows) if with_goals else []
    parts.append(tabulate(goals, GOAL_HEAD, form, disable_numparse=True) if goals else "")
    guessed = ESTIMATES.get(subject, []) if device == "cuda" and with_goals else []
    parts.append(tabulate(guessed, ESTIMATE_HEAD, form, disable_numparse=True) if guessed else "")
    parts.append(f"![{title}]({picture})" if picture and markdown else "")
    for row in rows:
        if row.profile:
            fenced = f"Where the time of {row.case} goes, ours:\n\n```\n{row.profile}\n```"
            parts.append(fenced if markdown else f"{row.case}, ours\n{row.profile}")
    return "\n\n".join(part for part in parts if part) + "\n"


def rows_table(rows: Sequence[Row], *, latencies: bool = False) -> list[tuple[str, ...]]:
    """The cells under ``HEAD``, a row for each side; the case is named once.

    ``latencies``: under ``SERVING_HEAD``, whose samples are single calls.
    """
    ours = {row.case: row for row in rows if row.side == OURS}
    cells, last = [], ""
    for row in rows:
        if row.status == ABSENT:  # a note says so once
            continue
        case, last = ("" if row.case == last else row.case), row.case
        if row.median is None:
            cells.append((case, row.side, row.text or row.status, *[""] * (6 if latencies else 5)))
            continue
        low, _, high = spread(row.seconds)
        between = f"{duration(low)} to {duration(high)}"
        if row.part < 1:
            between = f"extrapolated: {duration(row.median / row.part)}"
        times: tuple[str, ...] = duration(row.median), between
        if latencies:
            points = np.quantile(row.seconds, (0.5, 0.95, 0.99)).tolist()
            times = tuple(map(duration, points))
        count = f"{len(row.seconds)}{', cold' if row.cold else ''}"
        others = _rate(row, row.median), _memory(row), _to_ours(row, ours.get(row.case))
        cells.append((case, row.side, *times, count, *others))
    return cells


def goals_table(subject: str, device: str, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The cells under ``GOAL_HEAD``, of the goals of a subject on a device."""
    goals = [goal for goal in GOALS if goal.subject == subject and device in goal.devices]
    return [(goal.text, *goal.verdict(rows)) for goal in goals]


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


def put_section(path: Path, subject: str, device: str, text: str) -> None:
    """Replace the section of ``subject`` and ``device`` in ``path``; the others stay as they are.

    A new section goes to the end; a missing file is begun.

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
