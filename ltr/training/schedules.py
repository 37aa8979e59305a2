"""Learning-rate schedules: pure functions of the epoch, so a resumed run needs no state.

Each takes ``(epoch, epochs)``, and its settings as keyword arguments. It returns a factor for the
optimiser's learning rate. ``epoch`` is the number of epochs done so far, which is fractional within
an epoch, and ``epochs`` is the length of training. Both leave out the epochs of a warmup.
"""

import math
from collections.abc import Callable

__all__ = ["constant", "cosine", "step_decay"]  # the names that configs/schedule/*.yaml may use


def step_decay(epoch: float, epochs: float, *, step_size: int = 50, gamma: float = 0.1) -> float:
    """Return ``gamma ** floor(epoch / step_size)``, a factor that falls every ``step_size`` epochs.

    Pobrotyn and Bialobrzeski (2021) trained NeuralNDCG with ``step_size`` 50 and ``gamma`` 0.1.

    >>> [step_decay(e, 100, step_size=50, gamma=0.5) for e in (0, 49.9, 50, 99)]
    [1.0, 1.0, 0.5, 0.5]
    """
    return float(gamma ** math.floor(epoch / step_size))


def cosine(epoch: float, epochs: float, *, final: float = 0.0) -> float:
    """Return a factor that falls along half a cosine, from 1 at the start to ``final`` at the end.

    >>> [round(cosine(e, 10, final=0.5), 6) for e in (0, 5, 10)]
    [1.0, 0.75, 0.5]
    """
    done = min(1.0, epoch / epochs) if epochs > 0 else 0.0
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2


def constant(epoch: float, epochs: float) -> float:
    """Return 1 in every epoch."""
    return 1.0


def factor_of_step(
    schedule: Callable[[float, float], float],
    start: float,
    end: float,
    epochs: float,
    warmup: float,
) -> float:
    """Return the factor for the learning rate of a step from epoch ``start`` to epoch ``end``.

    In the first ``warmup`` epochs the factor rises linearly to the first value of ``schedule``. The
    schedule applies to the rest of the ``epochs``.

    >>> steps = [(0, 1), (1, 2), (2, 3), (6, 7), (10, 11)]
    >>> [round(factor_of_step(cosine, *step, epochs=10, warmup=2), 6) for step in steps]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    rising = min(1.0, end / warmup) if warmup > 0 else 1.0
    return schedule(max(0.0, start - warmup), max(0.0, epochs - warmup)) * rising
