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
        say(line(self.done, self.total, name, outcome, seconds, each * (self.total - self.done)))


def line(done: int, total: int, name: str, outcome: str, took: float | None, left: float) -> str:
    """What ``Finished`` says.

    Args:
        done, total: pieces, this one counted.
        name, outcome: of this one.
        took: seconds of this one, None where they are not known.
        left: seconds until all are finished, as those until now took.

    >>> line(2, 3, "ListNet, fold 1, seed 1", "ndcg@5 0.4321 on vali", 40, 400)
    '2 of 3  ListNet, fold 1, seed 1  ndcg@5 0.4321 on vali  took 40 s, about 7 min left'
    >>> line(3, 3, "trial 2", "failed: no memory", None, 0)
    '3 of 3  trial 2  failed: no memory'
    """
    times = [] if took is None else [f"took {in_words(took)}"]
    times += [f"about {in_words(left)} left"] if done < total else []
    return "  ".join(filter(None, [f"{done} of {total}", name, outcome, ", ".join(times)]))


def in_words(seconds: float) -> str:
    """A duration in the unit that fits.

    >>> in_words(40), in_words(400), in_words(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
