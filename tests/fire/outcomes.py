"""How a try can end, and the count of tries by subject."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

# From the best to the worst; a try that ends in several ways counts as the worst of them.
NOTICED = "noticed"  # one line of error, or repaired with a warning
HARMLESS = "harmless"  # what the program gives is what it gives undisturbed
LEFT = "left"  # a part of a file, or a lock, stays behind
TRACEBACK = "traceback"
CRASH = "crash"  # ended by a signal, or with a status that nobody promised
HANG = "hang"
LOST = "lost"  # finished work is gone, or the run cannot go on
SILENT = "silent"  # another result, without a word
KINDS = (NOTICED, HARMLESS, LEFT, TRACEBACK, CRASH, HANG, LOST, SILENT)
FAULTS = KINDS[2:]


@dataclass(frozen=True)
class Result:
    """The end of one try, and what was found where it is a fault."""

    outcome: str
    detail: str = ""


def worst(results: list[Result]) -> Result:
    """The worst of several ends, with the details of all that are as bad.

    >>> worst([Result("noticed"), Result("lost", "a"), Result("lost", "b")])
    Result(outcome='lost', detail='a; b')
    """
    outcome = max((result.outcome for result in results), key=KINDS.index)
    said = dict.fromkeys(r.detail for r in results if r.outcome == outcome and r.detail)
    return Result(outcome, "; ".join(said))


@dataclass(frozen=True)
class Subject:
    """One thing that is tried again and again.

    Attributes:
        name: without blanks, so that it can be typed after ``only=``.
        attempt: a try, all of it drawn from the generator; a batch gives several results.
        share: of the tries that were asked for, where one of this subject takes long.
    """

    name: str
    attempt: Callable[[Random], list[Result]]
    share: float = 1.0


@dataclass
class Tally:
    """What the tries of one subject came to."""

    part: str
    subject: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Result]] = field(default_factory=list)

    def add(self, number: int, result: Result) -> None:
        """Count the try ``number``."""
        self.counts[result.outcome] += 1
        if result.outcome in FAULTS:
            self.faults.append((number, result))

    @property
    def tries(self) -> int:
        """How many there were."""
        return self.counts.total()
