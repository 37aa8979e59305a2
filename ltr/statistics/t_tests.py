"""Student's t: paired over queries, and with a standard error that knows the training too."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_CONSTANT = 1e-12  # a deviation below this part of the values' size is rounding


def deviation(values: NDArray[np.float64]) -> float:
    """Standard deviation over the last axis (n - 1); 0 where they vary by rounding only."""
    if values.shape[-1] < 2:
        return math.nan
    found = float(values.std(ddof=1))
    return 0.0 if found <= _CONSTANT * float(np.abs(values).max()) else found


def paired_t_p(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Two-sided p of the paired t test over queries (``scipy.stats.ttest_rel``).

    t = mean(d) / (sd(d) / sqrt(n)) with d = first - second and n - 1 degrees of freedom. Where d
    does not vary, p is 1 if it is 0 and 0 if it is not; a single query tells nothing, p is 1.

    Args:
        first, second: ``[queries]``, mean over seeds.

    >>> paired_t_p(np.array([0.5, 0.7]), np.array([0.5, 0.7]))
    1.0
    """
    differences = first - second
    if len(differences) < 2:
        return 1.0
    if deviation(differences) == 0:
        return float(not differences.any())
    return float(stats.ttest_rel(first, second).pvalue)


def t_p(difference: float, error: float, df: float) -> float:
    """Two-sided p of ``difference`` with its standard error and degrees of freedom.

    An error of 0 gives 1 for no difference and 0 for any other.
    """
    if error == 0:
        return float(difference == 0)
    if math.isinf(error):
        return 1.0
    return float(2 * stats.t.sf(abs(difference) / error, df))
