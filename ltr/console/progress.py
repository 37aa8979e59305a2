"""Say on standard error how far a command is: standard output is for its result.

Importing this must stay cheap.
"""

import sys
import time

from tqdm import tqdm


def say(text: str) -> None:
    """Print ``text`` on standard error, above a progress bar where there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


class Finished:
    """Says a line for each finished piece of a command's work, such as a run of a table."""

    def __init__(self, total: int, done: int = 0) -> None:
        """``done`` of ``total`` pieces were finished before; the clock starts."""
        self.total, self.done = total, done
        self._before, self._began = done, time.monotonic()

    def add(self, name: str, outcome: str, seconds: float | None) -> None:
        """Say that ``name`` ended as ``outcome``, such as ``ndcg@5 0.4321``, after ``seconds``."""
        self.done += 1
        each = (time.monotonic() - self._began) / (self.done - self._before)
        left = each * (self.total - self.done)
        times = [] if seconds is None else [f"took {in_words(seconds)}"]
        times += [f"about {in_words(left)} left"] if self.done < self.total else []
        parts = [f"{self.done} of {self.total}", name, outcome, ", ".join(times)]
        say("  ".join(filter(None, parts)))


def in_words(seconds: float) -> str:
    """A duration in the unit that fits.

    >>> in_words(40), in_words(400), in_words(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
