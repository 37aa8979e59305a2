"""Learning-rate schedules: pure functions of the epoch, so that resuming needs no state.

Each is ``(epoch, epochs, *, knobs) -> factor`` on the optimiser's learning rate; ``epoch`` counts
from 0 and is fractional inside an epoch.
"""

import math


def step_decay(epoch: float, epochs: int, *, step_size: int = 50, gamma: float = 0.1) -> float:
    """``gamma ** floor(epoch / step_size)``; the paper's schedule is 50 and 0.1.

    >>> [step_decay(e, 100, step_size=50, gamma=0.5) for e in (0, 49.9, 50, 99)]
    [1.0, 1.0, 0.5, 0.5]
    """
    return float(gamma ** math.floor(epoch / step_size))


def cosine(epoch: float, epochs: int, *, final: float = 0.0) -> float:
    """Half a cosine from 1 at the start to ``final`` at the end of training.

    >>> [round(cosine(e, 10, final=0.5), 6) for e in (0, 5, 10)]
    [1.0, 0.75, 0.5]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * min(1.0, epoch / max(1, epochs)))) / 2


def constant(epoch: float, epochs: int) -> float:
    """Always 1."""
    return 1.0


def warm_up(epoch: float, warmup: float) -> float:
    """Linear from near 0 to 1 over the first ``warmup`` epochs, then 1; multiplies a schedule.

    >>> [warm_up(e, 2) for e in (0.5, 1, 2, 3)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, epoch / warmup) if warmup > 0 else 1.0
