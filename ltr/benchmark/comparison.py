"""Compare the sides of a case: first their answers, then time and memory, taking turns."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ltr.benchmark import peers
from ltr.benchmark.kept import Kept
from ltr.benchmark.side import DIED, Side
from ltr.benchmark.worker import OURS, Case, disagreement

MEASURED, ABSENT, FAILED, DIFFERS = "measured", "not installed", "failed", "differs"
NOT_TRIED = "not tried"
STARTING = 600.0  # seconds that importing may take beside the time limit
AT_LEAST = 0.02  # seconds of a sample: several quicker calls in a row make one


@dataclass
class Row:
    """The measurement of one side in one case; the fields that ``Work`` has too are its.

    ``seconds`` are samples of one call, and ``text`` says why there are none; ``bytes`` is the peak
    of one call; ``cold``: the only sample is the first call, as it took long. ``verdicts``: what it
    is beside ours, for each metric, cells under ``sections.VERDICT_HEAD``.
    """

    subject: str
    case: str
    side: str
    status: str = MEASURED
    text: str = ""
    seconds: list[float] = field(default_factory=list)
    bytes: int | None = None
    amount: float = 1
    unit: str = "passes"
    note: str = ""
    bytes_needed: int | None = None
    flops: float | None = None
    threads: int | None = None
    part: float = 1
    cold: bool = False
    date: str = ""
    profile: str | None = None
    verdicts: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """The median of the samples; None if there are none."""
        return spread(self.seconds)[1] if self.seconds else None

    @property
    def whole(self) -> float | None:
        """Seconds of the work that the case names: extrapolated where a call did ``part`` of it."""
        return None if self.median is None else self.median / self.part

    def __str__(self) -> str:
        """The line of the log."""
        start = f"{self.subject}: {self.case}, {self.side}: "
        if self.median is None:
            return f"{start}{self.status}: {self.text}"
        memory = "" if self.bytes is None else f", {self.bytes / 1e6:,.1f} MB"
        return f"{start}{1e3 * self.median:,.3g} ms{memory}"


@dataclass(frozen=True)
class Plan:
    """How much to measure; see ``sizes`` in ``configs/benchmark.yaml``."""

    repeats: int
    seconds: float
    long: float
    profile: bool = False  # also profile one call of ours
    once: bool = False  # the first call is the only sample; making the work has warmed up
    each: int = 0  # calls in a row that are a sample each, of latencies; 0: a sample is their mean


class Comparison:
    """Runs the cases of one subject; the processes are kept from case to case."""

    def __init__(
        self,
        module: str,
        options: Mapping[str, Any],
        plan: Plan,
        say: Callable[[str], object],
        kept: Kept | None = None,
    ) -> None:
        """Arguments as of ``Side``, and how much to measure.

        ``say`` gets the line of each row, once that of a peer which is not installed; ``kept`` has
        the cases that are measured.
        """
        self.module, self.options, self.plan, self.say = module, options, plan, say
        self.kept = kept
        self._sides: dict[str, Side] = {}
        self._spent: dict[str, float] = {}  # seconds of each side in this case
        self._absent: set[str] = set()

    def close(self) -> None:
        """End the processes."""
        while self._sides:
            self._sides.popitem()[1].close()

    def grow(self, cases: Sequence[Case]) -> Iterator[list[Row]]:
        """The rows of each case, from small to large; a side that fails skips the larger ones."""
        out: dict[str, Row] = {}
        for case in cases:
            sides = tuple(side for side in case.sides if side not in out)
            done = self.run(replace(case, sides=sides)) if sides else []
            why: Any = {"case": case.name, "status": NOT_TRIED}
            yield done + [replace(r, **why, text=f"as {r.case}: {r.text}") for r in out.values()]
            out |= {row.side: row for row in done if row.status not in (MEASURED, ABSENT)}

    def run(self, case: Case) -> list[Row]:
        """The rows of a case, one for each side: those that are kept, or measured now."""
        subject = self.module.rpartition(".")[2]
        name, depends_on = f"{subject} {case.name}", self._depends_on(case)
        found = self.kept.get(name, depends_on) if self.kept else None
        rows = [Row(**each) for each in found or ()] or self._measured(case, subject)
        if self.kept and not any(row.text.startswith(DIED) for row in rows):
            self.kept.put(name, depends_on, [asdict(row) for row in rows])
        for row in rows:
            if row.side not in self._absent:
                self.say(f"{row}{f' (kept, {row.date})' if found else ''}")
            self._absent |= {row.side} if row.status == ABSENT else set()
        return rows

    def _depends_on(self, case: Case) -> Any:
        theirs = {side: peers.installed(side) for side in case.sides if side in peers.NEEDS}
        found = {side: version for side, version in peers.versions().items() if side in theirs}
        place = {key: self.options[key] for key in ("device", "threads")}
        return [self.module, asdict(case), asdict(self.plan), place, theirs, found]

    def _measured(self, case: Case, subject: str) -> list[Row]:
        rows = {side: Row(subject, case.name, side) for side in case.sides}
        self._spent = dict.fromkeys(case.sides, -STARTING)
        for row in rows.values():
            self._start(row)  # all import at the same time
        for row in _alive(rows):
            self._ask(row, "start")
        self._spent.clear()  # the time limit is of the work
        for row in _alive(rows):
            for key, value in self._ask(row, "prepare", settings=dict(case.settings)).items():
                setattr(row, key, value)
        self._check(case, rows)
        times = self._first_calls(_alive(rows))
        self._take_turns(_alive(rows), times)
        if self.plan.profile and OURS in rows and rows[OURS].status == MEASURED:
            rows[OURS].profile = self._ask(rows[OURS], "profile").get("profile")
        for row in rows.values():
            row.date = now()
        return list(rows.values())

    def _ask(self, row: Row, do: str, **request: Any) -> dict[str, Any]:
        """The reply of a side; empty after a failure, which goes into its row."""
        began, spent = time.monotonic(), self._spent.get(row.side, 0.0)
        reply = self._sides[row.side].ask(do, spent=spent, **request)
        self._spent[row.side] = spent + time.monotonic() - began
        if "failed" not in reply:
            return reply
        row.status, row.text = FAILED, str(reply["failed"])
        return {}

    def _start(self, row: Row) -> None:
        if row.side in peers.NEEDS and not peers.installed(row.side):
            row.status, row.text = ABSENT, peers.ABSENT
            return
        if row.side not in self._sides:
            self._sides[row.side] = Side(self.module, row.side, self.options)
        self._sides[row.side].start()

    def _check(self, case: Case, rows: Mapping[str, Row]) -> None:
        """Mark the sides whose answers differ from ours; they are not timed."""
        if len(rows) == 1 or OURS not in rows or rows[OURS].status != MEASURED:
            return
        ours = self._ask(rows[OURS], "answer")
        for row in _alive(rows) if ours else []:
            if row.side != OURS and (theirs := self._ask(row, "answer")):
                wrong = disagreement(ours["answer"], theirs["answer"], case.tolerance)
                if wrong is not None:
                    row.status, row.text = DIFFERS, wrong

    def _first_calls(self, rows: Sequence[Row]) -> dict[str, int]:
        """Warm up; measure the peak memory, of a second call where the first was short.

        On a GPU a call before these compiles its kernels, which may take longer than all calls.

        Returns:
            How many calls in a row make a sample, for each side to be timed further.
        """
        times: dict[str, int] = {}
        for row in rows:
            if self.options["device"] == "cuda" and not self.plan.once:
                self._ask(row, "time", times=1)
            reply = self._ask(row, "peak") if row.status == MEASURED else {}
            row.cold = reply.get("seconds", 0) > self.plan.long and not self.plan.once
            if row.cold or (self.plan.once and row.status == MEASURED):
                row.seconds = [reply["seconds"]]
            elif row.status == MEASURED:
                reply = self._ask(row, "peak")
                times[row.side] = max(1, round(AT_LEAST / reply.get("seconds", AT_LEAST)))
            row.bytes = reply.get("bytes")
        return times

    def _take_turns(self, rows: Sequence[Row], times: Mapping[str, int]) -> None:
        for _ in range(self.plan.repeats):
            for row in rows:
                calls = times.get(row.side, 0)
                spent = sum(row.seconds) * (1 if self.plan.each else calls)
                used = spent > self.plan.seconds
                if not calls or used or row.status != MEASURED:
                    continue
                if self.plan.each:
                    row.seconds += self._ask(row, "each", times=self._burst(row)).get("each", [])
                    continue
                if reply := self._ask(row, "time", times=calls):
                    row.seconds.append(reply["seconds"])

    def _burst(self, row: Row) -> int:
        """So many calls that all turns together take about the plan's seconds."""
        share = self.plan.seconds / self.plan.repeats
        return max(1, min(self.plan.each, int(share / max(np.median(row.seconds or [0.0]), 1e-6))))


def _alive(rows: Mapping[str, Row]) -> list[Row]:
    return [row for row in rows.values() if row.status == MEASURED]


def spread(samples: list[float]) -> tuple[float, float, float]:
    """The quartiles: half of the samples lie between the first and the last.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75)).tolist()
    return low, middle, high


def now() -> str:
    """Date and time, to the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
