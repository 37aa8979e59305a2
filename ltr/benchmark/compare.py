"""One case, side against side: agreement first, then time and memory, taking turns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ltr.benchmark import peers
from ltr.benchmark.measuring import spread
from ltr.benchmark.process import Side
from ltr.benchmark.work import OURS, Case, disagreement

MEASURED, ABSENT, FAILED, DIFFERS = "measured", "not installed", "failed", "differs"
AT_LEAST = 0.02  # seconds of one sample: quicker calls are timed several in a row


@dataclass
class Row:
    """What was measured of one side in one case.

    ``seconds`` are samples of one call; ``bytes`` the peak of one call; ``cold``: the one sample is
    of the first call, as it took long. ``text`` says why there are none.
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
    cold: bool = False
    profile: str | None = None

    @property
    def median(self) -> float | None:
        """Of the samples; None if there are none."""
        return spread(self.seconds)[0] if self.seconds else None

    def record(self) -> dict[str, Any]:
        """As it is kept in ``results.json``."""
        return asdict(self) | {"median": self.median}


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        repeats: samples of each side.
        seconds: a side that has used more on its samples takes no further ones.
        long: a first call of more seconds than this is the only sample.
        profile: also profile one call of ours.
    """

    repeats: int
    seconds: float
    long: float
    profile: bool = False


class Comparison:
    """Runs the cases of one subject; a side's process is kept from case to case."""

    def __init__(
        self, module: str, options: Mapping[str, Any], plan: Plan, say: Callable[[str], object]
    ) -> None:
        """``module`` and ``options`` of ``process.Side``; ``say`` is told each row when done."""
        self.module, self.options, self.plan, self.say = module, options, plan, say
        self.subject = module.rpartition(".")[2]
        self._sides: dict[str, Side] = {}

    def close(self) -> None:
        """End the processes."""
        for side in self._sides.values():
            side.close()
        self._sides.clear()

    def run(self, case: Case) -> list[Row]:
        """The rows of a case, one a side."""
        rows = {side: Row(self.subject, case.name, side) for side in case.sides}
        for row in rows.values():
            self._start(row)
        for row in rows.values():
            self._prepare(case, row)
        self._check(case, rows)
        alive = [row for row in rows.values() if row.status == MEASURED]
        times = self._first_calls(alive)
        self._take_turns([row for row in alive if row.status == MEASURED], times)
        if self.plan.profile and OURS in rows and rows[OURS].status == MEASURED:
            rows[OURS].profile = self._ask(rows[OURS], "profile").get("table")
        for row in rows.values():
            self.say(sentence(row))
        return list(rows.values())

    def _ask(self, row: Row, do: str, **request: Any) -> dict[str, Any]:
        """A side's reply; a failure goes into its row."""
        reply = self._sides[row.side].ask(do, **request)
        if "failed" in reply:
            row.status, row.text = FAILED, str(reply["failed"])
        return reply

    def _start(self, row: Row) -> None:
        """Start the process, so that they all import at the same time."""
        if row.side in peers.NEEDS and not peers.installed(row.side):
            row.status, row.text = ABSENT, "not installed: make bench"
            return
        if row.side not in self._sides:
            self._sides[row.side] = Side(self.module, row.side, self.options)
        self._sides[row.side].start()

    def _prepare(self, case: Case, row: Row) -> None:
        if row.status != MEASURED:
            return
        reply = self._ask(row, "prepare", settings=dict(case.settings))
        if row.status == MEASURED:
            row.amount, row.unit, row.note = reply["amount"], reply["unit"], reply["note"]
            row.bytes_needed, row.threads = reply["bytes_needed"], reply["threads"]
            row.flops = reply["flops"]

    def _check(self, case: Case, rows: Mapping[str, Row]) -> None:
        """What differs from ours is not timed."""
        if len(rows) == 1 or OURS not in rows or rows[OURS].status != MEASURED:
            return
        ours = self._ask(rows[OURS], "answer").get("answer")
        for row in rows.values():
            if row.side == OURS or row.status != MEASURED or ours is None:
                continue
            theirs = self._ask(row, "answer").get("answer")
            wrong = None if theirs is None else disagreement(ours, theirs, case.tolerance)
            if wrong is not None:
                row.status, row.text = DIFFERS, wrong

    def _first_calls(self, rows: Sequence[Row]) -> dict[str, int]:
        """Warm up; then the peak, of a second call where the first was short.

        Returns:
            How many calls in a row make a sample, of each side that is to be timed further.
        """
        times: dict[str, int] = {}
        for row in rows:
            reply = self._ask(row, "peak")
            row.cold = reply.get("seconds", 0) > self.plan.long
            if row.cold:
                row.seconds = [reply["seconds"]]
            elif row.status == MEASURED:
                reply = self._ask(row, "peak")
                times[row.side] = max(1, round(AT_LEAST / reply.get("seconds", AT_LEAST)))
            row.bytes = reply.get("bytes")
        return times

    def _take_turns(self, rows: Sequence[Row], times: Mapping[str, int]) -> None:
        used = dict.fromkeys(times, 0.0)
        for _ in range(self.plan.repeats):
            for row in rows:
                side = row.side
                if side not in used or used[side] > self.plan.seconds or row.status != MEASURED:
                    continue
                reply = self._ask(row, "time", times=times[side])
                if row.status == MEASURED:
                    row.seconds.append(reply["seconds"])
                    used[side] += reply["seconds"] * times[side]


def sentence(row: Row) -> str:
    """One line of the log."""
    if row.median is None:
        return f"{row.subject}: {row.case}, {row.side}: {row.status}: {row.text}"
    memory = "" if row.bytes is None else f", {row.bytes / 1e6:,.1f} MB"
    return f"{row.subject}: {row.case}, {row.side}: {1e3 * row.median:,.3g} ms{memory}"
