"""``python -m fire``: kills and flips in turn for the given time, then the table."""

import multiprocessing
import os
import queue
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy comes: forks must find one thread

from tabulate import tabulate  # noqa: E402

from fire import flips, kills  # noqa: E402
from fire.children import warm  # noqa: E402
from fire.works import OUTCOMES, Result, Stage, Subject  # noqa: E402

HELP = """python -m fire [KEY=VALUE ...]: kill the program and damage its files
  minutes=10    in all; left out where tries is given: until these are done
  only=PART     kills or flips; or PART/SUBJECT, as the table names them
  tries=N       of every subject; of a command that reads damaged files a twentieth
  seed=1        of all draws: try n of a subject is the same again
  first=1       the number of the first try
Moments of kills that are counted in writes repeat; those in seconds roughly do."""
_FAULTS = OUTCOMES[2:]
_SHOWN = 3  # faults of one subject that are shown
_BATCH = {"kills": 1, "flips": 20}  # tries of a call; of a command that reads damaged files it is 1
_GUESS = 1.0  # seconds of a call, until it has ended
_KEYS = {"minutes": float, "only": str, "tries": int, "seed": int, "first": int}
_STOP = (signal.SIGINT, signal.SIG_IGN)  # in a worker: the main process ends it
_subjects: list[Subject] = []  # before the fork: a worker is told a place in it


@dataclass
class Tally:
    """What the tries of one subject came to."""

    subject: Subject
    calls: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Result]] = field(default_factory=list)

    def add(self, number: int, results: list[Result]) -> None:
        """Count the results of the try ``number``."""
        self.counts.update(result.outcome for result in results)
        self.faults += [(number, result) for result in results if result.outcome in _FAULTS]


def parse(arguments: list[str]) -> dict[str, Any]:
    """The options of a command line; ``SystemExit`` with one line where one is wrong."""
    options: dict[str, Any] = {"only": "", "tries": None, "seed": 1, "first": 1}
    for argument in arguments:
        key, _, value = argument.partition("=")
        try:
            options[key] = _KEYS[key](value)
        except (KeyError, ValueError):
            raise SystemExit(f"error: {argument}: see below\n{HELP}") from None
    return {"minutes": 10.0 if options["tries"] is None else 1e6, **options}


def _attempt(place: int, number: int, seed: int) -> tuple[int, int, list[Result], float]:
    subject, started = _subjects[place], time.perf_counter()
    results = subject.attempt(Random(f"{seed} {subject.part} {subject.name} {number}"))
    return place, number, results, time.perf_counter() - started


def _work(options: dict[str, Any], tallies: list[Tally]) -> None:
    """Give each part, and in it each subject, the same time, until all is done or it is over."""
    ended: queue.Queue[Any] = queue.Queue()
    began, busy, workers = time.monotonic(), 0, os.cpu_count() or 1
    asked = {part: (options["tries"] or sys.maxsize) / size for part, size in _BATCH.items()}

    def spent(tally: Tally) -> tuple[float, float]:
        same = [one.seconds for one in tallies if one.subject.part == tally.subject.part]
        return sum(same), tally.seconds

    with multiprocessing.get_context("fork").Pool(workers, signal.signal, _STOP) as pool:
        while (left := 60 * options["minutes"] - (time.monotonic() - began)) > 0:
            wanted = [tally for tally in tallies if tally.calls < asked[tally.subject.part]]
            if wanted and busy < workers:
                tally = min(wanted, key=spent)
                try_ = tallies.index(tally), options["first"] + tally.calls, options["seed"]
                pool.apply_async(_attempt, try_, {}, ended.put, ended.put)
                tally.calls, tally.seconds, busy = tally.calls + 1, tally.seconds + _GUESS, busy + 1
                continue
            try:
                done = ended.get(timeout=left if busy else 0)
            except queue.Empty:
                return
            if isinstance(done, BaseException):
                raise done
            place, number, results, seconds = done
            busy -= 1
            tallies[place].add(number, results)
            tallies[place].seconds += seconds - _GUESS


def table(tallies: list[Tally]) -> str:
    """A row for each subject."""
    rows = [
        [t.subject.part, t.subject.name, t.counts.total(), *(t.counts[name] for name in OUTCOMES)]
        for t in tallies
    ]
    return tabulate(rows, ["part", "what", "tries", *OUTCOMES], "github")


def findings(tallies: list[Tally], seed: int) -> str:
    """For each fault a line, and the command that shows it again."""
    lines = []
    for tally in tallies:
        only = f"only={tally.subject.part}/{tally.subject.name}"
        for number, result in tally.faults[:_SHOWN]:
            lines.append(f"{result.outcome}: {only[5:]}: {result.detail}")
            lines.append(f"  make fire ARGS='{only} seed={seed} first={number} tries=1'")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Do what the command line asks for; the exit status."""
    if {"-h", "--help"} & {*arguments}:
        print(HELP)
        return 0
    options, began, status = parse(arguments), time.monotonic(), 0
    print("fire: starting", file=sys.stderr, flush=True)
    warm()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="fire-", dir=memory))
    try:
        stage = Stage(root)
        for subject in (*kills.subjects(stage), *flips.subjects(stage)):
            if options["only"] in ("", subject.part, f"{subject.part}/{subject.name}"):
                _subjects.append(subject)
        tallies = [Tally(subject) for subject in _subjects]
        if not tallies:
            raise SystemExit(f"error: only={options['only']}: no such subject\n{HELP}")
        _work(options, tallies)
    except KeyboardInterrupt:
        status = 130
    finally:
        shutil.rmtree(root, ignore_errors=True)
    how = f"seed {options['seed']}, {(time.monotonic() - began) / 60:.1f} minutes"
    found = findings(tallies, options["seed"])
    print(f"\n{table(tallies)}\n\n{how}\n{found or 'no fault'}")
    return 1 if found else status


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # Triton would report types that it leaks
