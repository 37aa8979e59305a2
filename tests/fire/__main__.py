"""``python -m fire``: all parts at once for the given time, then the table."""

import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy comes: forks must find one thread

from fire import report  # noqa: E402
from fire.children import warm  # noqa: E402
from fire.options import HELP, PARTS, Options, parse  # noqa: E402
from fire.outcomes import FAULTS, Tally  # noqa: E402
from fire.parts import BROKEN, Report, start  # noqa: E402
from ltr.errors import ConfigError  # noqa: E402

_TOLD = 15.0  # seconds between two lines of progress where no terminal shows them in place


def main() -> int:
    """Do what the command line asks for; the exit status."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(HELP)
        return 0
    try:
        options = parse(sys.argv[1:])
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    tallies: dict[tuple[str, str], Tally] = {}
    broken: list[str] = []
    stopped = False
    root = Path(
        tempfile.mkdtemp(prefix="fire-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    try:
        print("fire: starting", file=sys.stderr, flush=True)
        warm()
        for told in _told(options, root, began):
            if told.outcome == BROKEN:
                broken.append(f"{told.part} failed itself: {told.detail}")
                print(f"\n{broken[-1]}", file=sys.stderr)
            else:
                tally = tallies.setdefault(
                    (told.part, told.subject), Tally(told.part, told.subject)
                )
                tally.add(told.number, told.result)
            _progress(tallies, options, began)
    except KeyboardInterrupt:
        stopped = True
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return _ended(
        options, list(tallies.values()), broken, time.monotonic() - began, stopped=stopped
    )


def _told(options: Options, root: Path, began: float) -> Iterator[Report]:
    """The results of all parts as they come, until they are done or the time is over."""
    selector = selectors.DefaultSelector()
    pids: dict[int, int] = {}
    buffers: dict[int, bytes] = {}
    try:
        for part in PARTS:
            if options.part in ("", part):
                pid, pipe = start(part, options, root, list(pids))
                pids[pipe], buffers[pipe] = pid, b""
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = (
                None
                if options.minutes is None
                else 60 * options.minutes - (time.monotonic() - began)
            )
            if left is not None and left <= 0:
                return
            for key, _ in selector.select(left):
                pipe = key.fd
                data = os.read(pipe, 1 << 16)
                if not data:
                    selector.unregister(pipe)
                *lines, buffers[pipe] = (buffers[pipe] + data).split(b"\n")
                yield from (Report(**json.loads(line)) for line in lines)
    finally:
        for pipe, pid in pids.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # its children go with it
            os.waitpid(pid, 0)
            os.close(pipe)


_last = [0.0, 0.0]


def _progress(tallies: dict[tuple[str, str], Tally], options: Options, began: float) -> None:
    """One line, in its place on a terminal, now and then elsewhere."""
    now = time.monotonic()
    terminal = sys.stderr.isatty()
    if now - _last[0] < (0.2 if terminal else _TOLD):
        return
    _last[0] = now
    of = "" if options.minutes is None else f" of {60 * options.minutes:.0f}"
    tries = {part: sum(t.tries for t in tallies.values() if t.part == part) for part in PARTS}
    faults = sum(len(t.faults) for t in tallies.values())
    counts = ", ".join(f"{part} {count:,}" for part, count in tries.items() if count)
    line = f"fire: {now - began:.0f}{of} s; tries: {counts}; faults {faults}"
    print(
        f"\r{line}\x1b[K" if terminal else line,
        end="" if terminal else "\n",
        file=sys.stderr,
        flush=True,
    )


def _ended(
    options: Options, tallies: list[Tally], broken: list[str], seconds: float, *, stopped: bool
) -> int:
    """Print the table and what was found; the exit status."""
    tallies.sort(key=lambda tally: PARTS.index(tally.part))
    found = report.findings(tallies, options.seed)
    how = f"seed {options.seed}, {seconds / 60:.1f} minutes{', stopped' if stopped else ''}"
    print(f"\n\n{report.text(tallies)}\n\n{how}")
    print(f"\n{found}" if found else "nothing silent, lost or left, no traceback, crash or hang")
    print("".join(f"{text.splitlines()[0]} {text.splitlines()[-1]}\n" for text in broken), end="")
    if options.write is not None:
        about = f"`make fire {_given()}`, {date.today()}, {how}:\n\n"
        report.put(options.write, f"{about}{report.text(tallies, markdown=True)}\n")
    faulty = any(tally.counts[kind] for tally in tallies for kind in FAULTS)
    if broken or faulty or not tallies:
        return 1
    return 130 if stopped else 0


def _given() -> str:
    return " ".join(word for word in sys.argv[1:] if not word.startswith("write="))


if __name__ == "__main__":
    sys.exit(main())
