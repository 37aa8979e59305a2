"""The process of one part: it tries its subjects in turn and reports every result as a line."""

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fire import disks, flips, kills, reader
from fire.children import adopt_orphans, die_with_parent, fork
from fire.options import Options
from fire.outcomes import Result, Subject
from fire.stage import Stage

_SUBJECTS = {
    "kills": kills.subjects,
    "flips": flips.subjects,
    "reader": reader.subjects,
    "disks": disks.subjects,
}


@dataclass(frozen=True)
class Report:
    """One result, as it comes through the pipe of a part; no result: what was tried in vain."""

    part: str
    subject: str
    number: int
    outcome: str
    detail: str

    @property
    def result(self) -> Result:
        """How the try ended."""
        return Result(self.outcome, self.detail)


_REST = {"reader": 4.0}  # times that a part rests for what a try took: it has tries enough
BROKEN = "broken"  # the outcome of a part that failed by itself


def start(part: str, options: Options, root: Path, also_close: list[int]) -> tuple[int, int]:
    """Start the process of a part; its process id, and the end of the pipe to read from."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = fork()
    if pid:
        os.close(write)
        return pid, read
    try:
        die_with_parent()
        os.setsid()
        for other in (read, *also_close):
            os.close(other)
        adopt_orphans()
        for report in _reports(part, options, Stage(root)):
            os.write(write, (json.dumps(vars(report)) + "\n").encode())
    except Exception:
        told = Report(part, "", 0, BROKEN, traceback.format_exc())
        os.write(write, (json.dumps(vars(told)) + "\n").encode())
    finally:
        os._exit(0)


def _reports(part: str, options: Options, stage: Stage) -> Iterator[Report]:
    wanted = [s for s in _SUBJECTS[part](stage) if options.subject in ("", s.name)]
    if not wanted:
        known = ", ".join(s.name for s in _SUBJECTS[part](stage))
        raise ValueError(f"only={options.only}: the subjects of {part} are {known}")
    spent = dict.fromkeys((s.name for s in wanted), 0.0)
    done = dict.fromkeys(spent, 0)
    calls = dict.fromkeys(spent, 0)
    while True:
        left = [
            s for s in wanted if options.tries is None or done[s.name] < _asked(s, options.tries)
        ]
        if not left:
            return
        subject = min(left, key=lambda s: spent[s.name])  # each gets the same time
        number = options.first + calls[subject.name]
        started = time.perf_counter()
        results = subject.attempt(Random(f"{options.seed} {part} {subject.name} {number}"))
        took = time.perf_counter() - started
        spent[subject.name] += took
        calls[subject.name] += 1
        done[subject.name] += len(results)
        yield from (Report(part, subject.name, number, r.outcome, r.detail) for r in results)
        time.sleep(_REST.get(part, 0.0) * took)


def _asked(subject: Subject, tries: int) -> int:
    return max(1, round(tries * subject.share))
