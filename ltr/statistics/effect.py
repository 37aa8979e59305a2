"""How large a difference is beside its own spread over queries: Cohen's d_z with an interval."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ltr.statistics.t_tests import deviation


@dataclass(frozen=True)
class Effect:
    """Cohen's d_z and its interval; 0.2 is called small, 0.5 medium, 0.8 large (Cohen, 1988)."""

    value: float
    low: float
    high: float


def effect_size(differences: NDArray[np.float64], *, alpha: float = 0.05) -> Effect:
    """d_z = mean(d) / sd(d) over queries, which does not grow with their number as t does.

    The interval is d_z -+ z sqrt(v / n) with the delta method's

        v = 1 - skewness d_z + (kurtosis - 1) d_z^2 / 4

    which for normal d (skewness 0, kurtosis 3) is Hedges and Olkin's 1 + d_z^2 / 2; per-query
    differences of a ranking metric are far from normal. It is over queries only. Sakai (2018),
    "Laboratory Experiments in Information Retrieval", chapter 5, on effect sizes beside p values.
    Where d does not vary the value is 0 or infinite, with one query NaN.

    Args:
        differences: ``[queries]``.
        alpha: the interval covers 1 - alpha.

    >>> round(effect_size(np.array([0.1, 0.3, 0.2, 0.2])).value, 3)  # 0.2 / 0.0816
    2.449
    """
    spread = deviation(differences)
    if math.isnan(spread):
        return Effect(math.nan, math.nan, math.nan)
    mean = float(differences.mean())
    if spread == 0:
        value = math.copysign(math.inf, mean) if mean else 0.0
        return Effect(value, value, value)
    value = mean / spread
    z = (differences - mean) / differences.std()
    variance = 1 - (z**3).mean() * value + ((z**4).mean() - 1) * value**2 / 4
    half = float(stats.norm.ppf(1 - alpha / 2)) * math.sqrt(max(variance, 0.0) / len(z))
    return Effect(value, value - half, value + half)
