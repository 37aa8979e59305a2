"""What the choice of the best epoch is worth: choose on one half of vali, measure on the other.

The best epoch's mean on vali is the largest of many noisy means, and so too high.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ltr.arrays import Doubles, Flags

HALVINGS = 20  # more make the value steadier; it stays an estimate from these lists


@dataclass(frozen=True)
class Crossfit:
    """The value of choosing an epoch, and the standard error that the lists give it."""

    value: float
    error: float


@dataclass(frozen=True)
class Halves:
    """Random halves of the lists that count, which, ``[splits, lists of a half]``."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]

    @classmethod
    def of(cls, counted: Flags) -> "Halves":
        """Halves of the lists where ``counted``, ``[lists]``; runs on the same lists share them."""
        lists = np.flatnonzero(counted)
        draws = np.random.default_rng(0)
        orders = np.array([draws.permutation(lists) for _ in range(HALVINGS)])
        middle = len(lists) // 2
        return cls(orders[:, :middle], orders[:, middle:])

    def means(self, values: Doubles) -> Doubles:
        """The mean of ``values``, ``[lists]``, over both halves of every split: ``[splits, 2]``."""
        if not self.first.size:  # fewer than two lists
            return np.full((len(self.first), 2), math.nan)
        return np.stack([values[self.first].mean(-1), values[self.second].mean(-1)], axis=-1)


def crossfit_of_halves(means: Doubles) -> Crossfit | None:
    """The value of choosing the best epoch, measured on lists that did not choose it.

    For a random split of the n lists into halves A and B, with m_A(e) the mean of epoch e over A:

        e_A = argmax_e m_A(e),  e_B = argmax_e m_B(e),  value = (m_B(e_A) + m_A(e_B)) / 2

    and the mean of that over the splits: without bias what an epoch that is chosen on n/2 lists is
    worth on new lists, so for one chosen on all n, if anything, too low.

    The standard error is that of a mean over n lists: the two terms of a split have a difference of
    variance 4 s^2 / n, so that a quarter of its square, averaged over splits, estimates s^2 / n.
    It is the noise of these lists, not of another training.

    ``means``, ``[epochs, splits, 2]``, are of ``Halves.means``; without an epoch, or where a half
    has no list, the result is None.
    """
    if not len(means) or np.isnan(means).any():
        return None
    chosen = means.argmax(axis=0)  # [splits, 2], by each half
    measured = np.take_along_axis(means[..., ::-1], chosen[None], axis=0)[0]  # by the other
    difference = measured[:, 0] - measured[:, 1]
    return Crossfit(float(measured.mean()), float(np.sqrt(np.square(difference).mean()) / 2))
