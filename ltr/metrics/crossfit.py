"""The metric of the best epoch, estimated without selection bias.

The best epoch's mean on the validation lists is the largest of many noisy means, so it is too high
on average. In a crossfit, the epoch is chosen on one half of the validation lists, and its metric
is measured on the other half.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ltr.arrays import Doubles, Flags

HALVINGS = 20  # random splits; more would reduce only the noise of the splits, not of the lists


@dataclass(frozen=True)
class Crossfit:
    """An estimate for new lists: the metric of an epoch chosen on half of the validation lists.

    Attributes:
        value: the estimated metric.
        error: the standard error of ``value`` that is due to the choice of lists.
        measured: the mean metric, on one half, of the epoch chosen on the other half,
            ``[splits][2]``.
    """

    value: float
    error: float
    measured: tuple[tuple[float, ...], ...] = field(repr=False, compare=False)

    @classmethod
    def from_halves(cls, measured: Doubles) -> "Crossfit":
        """Return the ``Crossfit`` for ``measured``, ``[splits, 2]``.

        The row of a split holds two means: the epoch chosen on the first half is measured on the
        second half, and the epoch chosen on the second half is measured on the first half. For n
        lists, the difference of the two means has the variance 4 s^2 / n, where s^2 is the variance
        between lists. So a quarter of the squared difference, averaged over the splits, estimates
        s^2 / n, the squared standard error of a mean over n lists. This error describes the noise
        from the choice of lists. It does not include how much the metric varies from one training
        run to the next.
        """
        differences = measured[:, 0] - measured[:, 1]
        error = float(np.sqrt(np.square(differences).mean()) / 2)
        return cls(float(measured.mean()), error, tuple(map(tuple, measured.tolist())))

    def minus(self, baseline: "Crossfit") -> "Crossfit":
        """Return the paired difference from ``baseline``; noise that both share cancels out."""
        splits = min(len(self.measured), len(baseline.measured))
        return Crossfit.from_halves(
            np.array(self.measured[:splits]) - np.array(baseline.measured[:splits])
        )


@dataclass(frozen=True)
class Halves:
    """Random splits of lists into two halves, each given as list indices, ``[splits, lists]``."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]

    @classmethod
    def split(cls, counted: Flags) -> "Halves":
        """Return random splits of the lists for which ``counted``, ``[lists]``, is True.

        Runs on the same lists get the same splits.
        """
        lists = np.flatnonzero(counted)
        rng = np.random.default_rng(0)
        orders = np.array([rng.permutation(lists) for _ in range(HALVINGS)])
        middle = len(lists) // 2
        return cls(orders[:, :middle], orders[:, middle:])

    def means(self, values: Doubles) -> Doubles:
        """Return the mean of ``values``, ``[lists]``, over each half of each split.

        Returns:
            The means, ``[splits, 2]``; NaN if there are fewer than two lists.
        """
        if not self.first.size:  # fewer than two lists
            return np.full((len(self.first), 2), math.nan)
        return np.stack([values[self.first].mean(-1), values[self.second].mean(-1)], axis=-1)


def crossfit_of_halves(means: Doubles) -> Crossfit | None:
    r"""Return the metric of the best epoch, measured on lists that were not used to choose it.

    .. math::
        e_A = \arg\max_e m_A(e), \qquad e_B = \arg\max_e m_B(e), \qquad
        \mathrm{value} = \frac{m_B(e_A) + m_A(e_B)}{2}

    where A and B are the halves of a random split of the n lists, and m_A(e) is the mean of epoch e
    over A. The result is the mean of this value over the splits. It is an unbiased estimate of the
    metric, on new lists, of an epoch chosen on n/2 lists. For an epoch chosen on all n lists it is,
    if anything, too low.

    Args:
        means: ``[epochs, splits, 2]``, the result of ``Halves.means`` for each epoch.

    Returns:
        The ``Crossfit``; None if there is no epoch, or if a half has no list.
    """
    if not len(means) or np.isnan(means).any():
        return None
    chosen = means.argmax(axis=0)  # [splits, 2], the epoch chosen on each half
    on_opposite_half = means[..., ::-1]
    return Crossfit.from_halves(np.take_along_axis(on_opposite_half, chosen[None], axis=0)[0])
