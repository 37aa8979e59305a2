"""``python -m fire``: kills and flips in turn for the given time, then the table."""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import processes
from tabulate import tabulate

from fire import flips, kills
from fire.works import OUTCOMES, Result, Stage, Subject

HELP = """python -m fire [KEY=VALUE ...]: kill the program and damage its files
  minutes=10    in all; left out where tries is given: until these are done
  only=PART     kills or flips; or PART/SUBJECT, as the table names them
  tries=N       of every subject
  seed=1        of all draws: try n of a subject is the same again
  first=1       the number of the first try
Moments of kills that are counted in writes repeat; those in seconds roughly do."""
_FAULTS = OUTCOMES[2:]
_SHOWN = 3  # faults of one subject that are shown
_KEYS = {"minutes": float, "only": str, "tries": int, "seed": int, "first": int}


@dataclass
class Tally:
    """What the tries of one subject came to."""

    subject: Subject
    tries: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Result]] = field(default_factory=list)

    def add(self, number: int, result: Result) -> None:
        """Count the result of the try ``number``."""
        self.counts[result.outcome] += 1
        if result.outcome in _FAULTS:
            self.faults.append((number, result))


def parse(arguments: list[str]) -> dict[str, Any]:
    """The options of a command line; ``SystemExit`` with one line where one is wrong."""
    options: dict[str, Any] = {"only": "", "tries": sys.maxsize, "seed": 1, "first": 1}
    for argument in arguments:
        key, _, value = argument.partition("=")
        try:
            options[key] = _KEYS[key](value)
        except (KeyError, ValueError):
            raise SystemExit(f"error: {argument}: see below\n{HELP}") from None
    return {"minutes": 10.0 if options["tries"] == sys.maxsize else 1e6, **options}


def _work(options: dict[str, Any], tallies: list[Tally]) -> None:
    """Give each part, and in it each subject, the same time, until all is done or it is over."""
    lock, end = threading.Lock(), time.monotonic() + 60 * options["minutes"]
    broken: list[Exception] = []

    def spent(tally: Tally) -> tuple[float, float]:
        same = [one.seconds for one in tallies if one.subject.part == tally.subject.part]
        return sum(same), tally.seconds

    def work() -> None:
        while time.monotonic() < end:
            with lock:
                wanted = [tally for tally in tallies if tally.tries < options["tries"]]
                if not wanted:
                    return
                tally = min(wanted, key=spent)
                number = options["first"] + tally.tries
                tally.tries, tally.seconds = tally.tries + 1, tally.seconds + 1  # a guess
            started, subject = time.monotonic(), tally.subject
            draw = f"{options['seed']} {subject.part} {subject.name} {number}"
            try:
                result = subject.attempt(Random(draw))
            except Exception as error:  # of fire itself
                broken.append(error)
                return
            with lock:
                tally.add(number, result)
                tally.seconds += time.monotonic() - started - 1

    workers = [threading.Thread(target=work, daemon=True) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    if broken:
        raise broken[0]


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
    processes.begin()  # here: it dies with the thread that starts it
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="fire-", dir=memory))
    stage, only = Stage(root), options["only"]
    every = (*kills.subjects(stage), *flips.subjects(stage))
    tallies = [Tally(s) for s in every if only in ("", s.part, f"{s.part}/{s.name}")]
    if not tallies:
        raise SystemExit(f"error: only={only}: no such subject\n{HELP}")
    try:
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
    os._exit(status)  # tries may be under way
