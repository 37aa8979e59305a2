"""The weights of an ensemble's members: equal, given, or chosen on vali."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ltr.errors import ConfigError, DataError

EQUAL, VALI = "equal", "vali"
_PICKS = 10  # members picked on each half of vali: weights are tenths, and means of such
_SPLITS = 5  # of vali into halves

# Times each member counts -> the metric of every vali list, NaN where the convention skips it.
Measure = Callable[[tuple[int, ...]], NDArray[np.float64]]


@dataclass(frozen=True)
class Weights:
    """The weights of the members.

    Attributes:
        values: one for each member, >= 0, 1 in sum.
        crossfit: the metric on the halves of vali on which the weights were not chosen; None where
            nothing was chosen.
    """

    values: tuple[float, ...]
    crossfit: float | None = None


def parse_weights(given: Sequence[str], members: int) -> str | tuple[float, ...]:
    """``equal``, ``vali``, or given weights, scaled to 1 in sum.

    Raises:
        ConfigError: it is none of these, or not a weight for each member.
    """
    if len(given) == 1 and given[0] in (EQUAL, VALI):
        return given[0]
    try:
        values = [float(text) for text in given]
    except ValueError:
        values = []
    if not values or not all(math.isfinite(v) and v >= 0 for v in values) or not sum(values):
        raise ConfigError(
            f"weights={','.join(given)}: write equal, vali, or a number >= 0 for each run, such as "
            "[0.7,0.3]"
        )
    if len(values) != members:
        raise ConfigError(f"weights: {len(values)} for {members} runs: give one for each run")
    return tuple(value / sum(values) for value in values)


def chosen_on_vali(measure: Measure, members: int, *, seed: int = 0) -> Weights:
    """Weights by greedy selection with replacement, on random halves of vali.

    On a half, the member is picked ten times that makes the mean of those picked best, and the best
    of the ten sets counts; of equal ones the first (Caruana et al., 2004, "Ensemble selection from
    libraries of models", whose bags are of models; here they are of lists). The weights are the
    mean over both halves of five splits, which a few lists move less than one choice on all.

    Args:
        measure: of the members' standardised scores.
        members: how many.
        seed: of the splits.

    Raises:
        DataError: fewer than two vali lists count.
    """

    @cache
    def reduced(counts: tuple[int, ...]) -> NDArray[np.float64]:
        values = measure(counts)
        return values[~np.isnan(values)]

    def values(counts: tuple[int, ...]) -> NDArray[np.float64]:
        least = math.gcd(*counts)  # scores twice as large are in the same order
        return reduced(tuple(count // least for count in counts))

    def picked(half: NDArray[np.int64]) -> tuple[int, ...]:
        """How often each member was picked in the set that is best on ``half``."""
        counts = best = (0,) * members
        most = -math.inf
        for _ in range(_PICKS):
            options = [(*counts[:i], counts[i] + 1, *counts[i + 1 :]) for i in range(members)]
            found = [float(values(option)[half].mean()) for option in options]
            counts = options[int(np.argmax(found))]
            if max(found) > most:
                best, most = counts, max(found)
        return best

    lists = len(values((1,) * members))
    if lists < 2:
        raise DataError(
            f"weights=vali: {lists} vali list counts under this convention; set weights=equal"
        )
    rng = np.random.default_rng(seed)
    weights, apart = np.zeros(members), []
    for _ in range(_SPLITS):
        order = rng.permutation(lists)
        halves = order[: lists // 2], order[lists // 2 :]
        for own, other in (halves, halves[::-1]):
            counts = picked(own)
            weights += np.array(counts) / sum(counts)
            apart.append(float(values(counts)[other].mean()))
    weights /= weights.sum()
    return Weights(tuple(weights.tolist()), float(np.mean(apart)))
