"""Learning-rate schedules: pure functions of the epoch, so that resuming needs no state.

Each takes ``(epoch, epochs, *, settings)`` and returns a factor for the optimiser's learning rate.
``epoch`` counts from 0 and is fractional within an epoch; ``epochs`` is the length of the training.
"""

import math


def step_decay(epoch: float, epochs: int, *, step_size: int = 50, gamma: float = 0.1) -> float:
    """Return ``gamma ** floor(epoch / step_size)``, a factor that falls every ``step_size`` epochs.

    NeuralNDCG (Pobrotyn and Bialobrzeski, 2021) was trained with 50 and 0.1.

    >>> [step_decay(e, 100, step_size=50, gamma=0.5) for e in (0, 49.9, 50, 99)]
    [1.0, 1.0, 0.5, 0.5]
    """
    return float(gamma ** math.floor(epoch / step_size))


def cosine(epoch: float, epochs: int, *, final: float = 0.0) -> float:
    """Fall along half a cosine from 1 at the start to ``final`` at the end of training.

    >>> [round(cosine(e, 10, final=0.5), 6) for e in (0, 5, 10)]
    [1.0, 0.75, 0.5]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * min(1.0, epoch / max(1, epochs)))) / 2


def constant(epoch: float, epochs: int) -> float:
    """Return 1, always."""
    return 1.0


def warm_up(epoch: float, warmup: float) -> float:
    """Return a factor for any schedule: it rises from 0 to 1 in ``warmup`` epochs and stays 1.

    >>> [warm_up(e, 2) for e in (0.5, 1, 2, 3)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, epoch / warmup) if warmup > 0 else 1.0
