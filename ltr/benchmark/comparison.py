"""Compare the sides of a case: first their answers, then time and memory, taking turns."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ltr.benchmark import peers
from ltr.benchmark.worker import OURS, Case, disagreement

MEASURED, ABSENT, FAILED, DIFFERS = "measured", "not installed", "failed", "differs"
NOT_TRIED = "not tried"
AT_LEAST = 0.02  # seconds of a sample: several quicker calls in a row make one
_ROOT = Path(__file__).resolve().parents[2]


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
    cold: bool = False
    profile: str | None = None
    verdicts: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """The median of the samples; None if there are none."""
        return spread(self.seconds)[1] if self.seconds else None

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
    each: int = 0  # calls in a row that are a sample each, of latencies; 0: a sample is their mean


class Side:
    """The process of one side; it is started again after it died.

    Each side has a process of its own, so that their memory is apart; only one of them works at a
    time, so that they do not compete for the cores.
    """

    def __init__(self, subject: str, name: str, options: Mapping[str, Any]) -> None:
        """Arguments as of ``Worker``; ``options`` also has time_limit, seconds for a request."""
        self.subject, self.name, self.options = subject, name, options
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The reply; ``{"failed": why}`` where the process takes too long or dies."""
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        limit = float(self.options["time_limit"])
        if not select.select([process.stdout], [], [], limit)[0]:
            process.kill()
            self._end()
            return {"failed": f"takes over {limit:,.0f} s"}
        line = process.stdout.readline()
        return json.loads(line) if line else self._died()

    def close(self) -> None:
        """End the process for good."""
        self._end()
        self._log.close()

    def start(self) -> subprocess.Popen[str]:
        """The process, which waits for requests; start it if it does not run."""
        if self._process is not None:
            return self._process
        places = filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])
        more = {"PYTHONPATH": os.pathsep.join(places)}
        if self.options["device"] == "cpu":
            more["CUDA_VISIBLE_DEVICES"] = ""  # allRank takes any GPU it sees
        if self.options["threads"] is not None:
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
            more |= dict.fromkeys(names, str(self.options["threads"]))
        code = "from ltr.benchmark.worker import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, self.subject, self.name, json.dumps(dict(self.options))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=os.environ | more,
        )  # fmt: skip
        return self._process

    def _end(self) -> int:
        """Close the pipes and wait; return the status of the process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(BrokenPipeError), process:
            pass  # leaving closes the pipes and waits
        return int(process.returncode)

    def _died(self) -> dict[str, Any]:
        status = self._end()
        self._log.seek(0)
        said = [line for line in self._log.read().splitlines() if line.strip()][-1:]
        if status in (-9, 137) or "bad_alloc" in "".join(said):
            return {"failed": "does not fit into memory"}
        return {"failed": f"its process ended with status {status}: {' '.join(said)[:160]}"}


class Comparison:
    """Runs the cases of one subject; the processes are kept from case to case."""

    def __init__(
        self, module: str, options: Mapping[str, Any], plan: Plan, say: Callable[[str], object]
    ) -> None:
        """``module`` and ``options`` as for ``Side``; ``say`` gets the line of each row."""
        self.module, self.options, self.plan, self.say = module, options, plan, say
        self._sides: dict[str, Side] = {}

    def close(self) -> None:
        """End the processes."""
        while self._sides:
            self._sides.popitem()[1].close()

    def grow(self, cases: Sequence[Case]) -> list[Row]:
        """Run cases from small to large; a side that fails at one skips the larger ones."""
        rows: list[Row] = []
        out: dict[str, Row] = {}
        for case in cases:
            sides = tuple(side for side in case.sides if side not in out)
            done = self.run(replace(case, sides=sides)) if sides else []
            why: Any = {"case": case.name, "status": NOT_TRIED}
            rows += done
            rows += [replace(r, **why, text=f"as {r.case}: {r.text}") for r in out.values()]
            out |= {row.side: row for row in done if row.status != MEASURED}
        return rows

    def run(self, case: Case) -> list[Row]:
        """The rows of a case, one for each side."""
        subject = self.module.rpartition(".")[2]
        rows = {side: Row(subject, case.name, side) for side in case.sides}
        for row in rows.values():
            self._start(row)  # all import at the same time
        for row in _alive(rows):
            for key, value in self._ask(row, "prepare", settings=dict(case.settings)).items():
                setattr(row, key, value)
        self._check(case, rows)
        times = self._first_calls(_alive(rows))
        self._take_turns(_alive(rows), times)
        if self.plan.profile and OURS in rows and rows[OURS].status == MEASURED:
            rows[OURS].profile = self._ask(rows[OURS], "profile").get("profile")
        for row in rows.values():
            self.say(str(row))
        return list(rows.values())

    def _ask(self, row: Row, do: str, **request: Any) -> dict[str, Any]:
        """The reply of a side; empty after a failure, which goes into its row."""
        reply = self._sides[row.side].ask(do, **request)
        if "failed" not in reply:
            return reply
        row.status, row.text = FAILED, str(reply["failed"])
        return {}

    def _start(self, row: Row) -> None:
        if row.side in peers.NEEDS and not peers.installed(row.side):
            row.status, row.text = ABSENT, "not installed: make bench"
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

        Returns:
            How many calls in a row make a sample, for each side to be timed further.
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
