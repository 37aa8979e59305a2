"""``python -m scripts.fire``: tries of every subject in turn for the given time, then the table."""

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

from tabulate import tabulate

from scripts.fire.parts import subjects
from scripts.fire.works import OUTCOMES, Result, Stage, Subject
from tests.helpers import processes

HELP = """python -m scripts.fire [KEY=VALUE ...]: kill the program and damage its files
  minutes=10    in all; left out where tries is given: until these are done
  only=PART     kills or flips; or PART/SUBJECT, as the table names them
  tries=N       of every subject
  seed=1        of all draws: try n of a subject is the same again
  first=1       the number of the first try
Moments of kills that are counted in writes repeat; those in seconds roughly do."""
_SHOWN = 3  # faults of one subject that are shown
_KEYS = {"minutes": float, "only": str, "tries": int, "seed": int, "first": int}


@dataclass
class Tally:
    """What the tries of one subject came to, by their numbers."""

    subject: Subject
    begun: int = 0
    results: dict[int, Result] = field(default_factory=dict)


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
    """Try each subject equally often, until all is done or the time is over."""
    lock, end = threading.Lock(), time.monotonic() + 60 * options["minutes"]
    broken: list[Exception] = []

    def work() -> None:
        while time.monotonic() < end and not broken:
            with lock:
                tally = min(tallies, key=lambda tally: tally.begun)
                if tally.begun == options["tries"]:
                    return
                number = options["first"] + tally.begun
                tally.begun += 1
            part, name, attempt = tally.subject
            try:
                result = attempt(Random(f"{options['seed']} {part} {name} {number}"))
            except Exception as error:  # of fire itself
                broken.append(error)
                return
            tally.results[number] = result

    workers = [threading.Thread(target=work, daemon=True) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    if broken:
        raise broken[0]


def table(tallies: list[Tally]) -> str:
    """A row for each subject."""
    rows = []
    for tally in tallies:
        counts = Counter(result.outcome for result in tally.results.values())
        numbers = (counts[outcome] for outcome in OUTCOMES)
        rows.append([*tally.subject[:2], counts.total(), *numbers])
    return tabulate(rows, ["part", "what", "tries", *OUTCOMES], "github")


def findings(tallies: list[Tally], seed: int) -> str:
    """For each fault a line, and the command that shows it again."""
    lines = []
    for tally in tallies:
        only = f"{tally.subject.part}/{tally.subject.name}"
        faults = [one for one in tally.results.items() if one[1].outcome in OUTCOMES[2:]]
        for number, (outcome, detail) in faults[:_SHOWN]:
            lines.append(f"{outcome}: {only}: {detail}")
            lines.append(f"  make fire ARGS='only={only} seed={seed} first={number} tries=1'")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Do what the command line asks for; the exit status."""
    if {"-h", "--help"} & {*arguments}:
        print(HELP)
        return 0
    options, began, status = parse(arguments), time.monotonic(), 0
    print("fire: starting", file=sys.stderr, flush=True)
    processes.begin()  # it imports while this process prepares
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root, only = Path(tempfile.mkdtemp(prefix="fire-", dir=memory)), options["only"]
    every = subjects(Stage(root))
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
    processes.kill_all()
    os._exit(status)  # threads may be about to try again
