"""Tests of one difference, its size, and the smallest difference that a test set resolves."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, ndtri, stdtr, stdtrit

from ltr.analysis.values import Array, deviation

EXACT_UP_TO = 14  # differences other than 0: all 2^n sign patterns are tried
_BLOCK = 1 << 22  # signs at a time: 32 MiB
_TIE = 1e-9  # sums closer than this part of the largest possible sum are the same but for rounding


def t_p(difference: float, error: float, df: float) -> float:
    """Two-sided p of ``difference`` with its standard error and degrees of freedom.

    An error of 0 gives 1 for no difference and 0 for any other.
    """
    if error == 0 or math.isinf(error):
        return float(difference == 0 or error > 0)
    return float(2 * stdtr(df, -abs(difference) / error))


def sign_flip_p(by_query: Array, pairs: NDArray[np.int64], *, samples: int, seed: int = 0) -> Array:
    """Two-sided p values, ``[pairs]``, of the hypothesis that a pair's systems are exchangeable.

    With d the differences of a pair and s signs drawn at random:

        p = (1 + #{b: |sum_q s_bq d_q| >= |sum_q d_q|}) / (samples + 1)

    Where at most ``EXACT_UP_TO`` differences are not 0, it is exact. The hypothesis is about these
    models over queries, not about other trainings (see ``Spread``).

    Sources: Fisher (1935); Smucker, Allan and Carterette (2007), "A comparison of statistical
    significance tests for information retrieval evaluation", CIKM; Urbano, Lima and Hanjalic
    (2019), "Statistical significance testing in information retrieval", SIGIR; the added 1 after
    Phipson and Smyth (2010), without which p could be 0.

    Args:
        by_query: ``[systems, queries]``, mean over seeds (weighted).
        pairs: ``[pairs, 2]``, rows of ``by_query``.
        samples: sign patterns drawn, the same for all pairs.
        seed: of the generator; the same seed gives the same p values.
    """
    differences = by_query[pairs[:, 0]] - by_query[pairs[:, 1]]
    p = np.array([_exact_p(one[one != 0]) for one in differences])
    drawn = np.flatnonzero(np.isnan(p))
    if not len(drawn):
        return p
    first, second = pairs[drawn].T
    limit = np.abs(differences[drawn].sum(1)) - _TIE * np.abs(differences[drawn]).sum(1)
    # A pair's sum is the difference of two systems' sums: systems are few, pairs many.
    centred = (by_query - by_query.mean(0)).T
    queries = by_query.shape[1]
    rng = np.random.default_rng([seed, 1])
    reached = np.zeros(len(drawn), dtype=np.int64)
    block = max(1, _BLOCK // queries)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        bits = np.frombuffer(rng.bytes(count * -(-queries // 8)), np.uint8).reshape(count, -1)
        signs = np.unpackbits(bits, axis=1, count=queries).astype(np.float64) * 2 - 1
        sums = signs @ centred
        reached += (np.abs(sums[:, first] - sums[:, second]) >= limit).sum(0)
    p[drawn] = (1 + reached) / (samples + 1)
    return p


def _exact_p(moving: Array) -> float:
    """p over all sign patterns of the differences that are not 0; NaN where they are too many."""
    if len(moving) > EXACT_UP_TO:
        return math.nan
    if len(moving) < 2:
        return 1.0  # both signs of one are as far from 0
    bits = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
    limit = abs(moving.sum()) - _TIE * np.abs(moving).sum()
    return float((np.abs((2.0 * bits - 1) @ moving) >= limit).mean())


def equivalence_p(difference: float, error: float, df: float, margin: float) -> float:
    """p of the hypothesis |difference| >= ``margin``; small: the systems are equivalent.

    Two one-sided t tests (TOST), p the larger of

        P(T_df >= (difference + margin) / error)  and  P(T_df <= (difference - margin) / error)

    so that p < alpha just where the 1 - 2 alpha interval lies within the margin. Schuirmann (1987),
    "A comparison of the two one-sided tests procedure and the power approach", Journal of
    Pharmacokinetics and Biopharmaceutics 15. With one seed it is statsmodels' ``ttost_paired``.

    >>> round(equivalence_p(0.005, 0.001, 99, margin=0.005), 3)  # at the margin's edge
    0.5
    """
    if error == 0 or math.isinf(error):
        return float(abs(difference) >= margin or error > 0)
    return float(stdtr(df, (abs(difference) - margin) / error))


class Effect(NamedTuple):
    """Cohen's d_z and its interval; 0.2 is called small, 0.5 medium, 0.8 large (Cohen, 1988)."""

    value: float
    low: float
    high: float


def effect_size(differences: Array, *, alpha: float = 0.05) -> Effect:
    """d_z = mean(d) / sd(d) over queries, which does not grow with their number as t does.

    The interval is d_z -+ z sqrt(v / n) with the delta method's

        v = 1 - skewness d_z + (kurtosis - 1) d_z^2 / 4

    which for normal d (skewness 0, kurtosis 3) is Hedges and Olkin's 1 + d_z^2 / 2; per-query
    differences of a ranking metric are far from normal. It is over queries only. Sakai (2018),
    "Laboratory Experiments in Information Retrieval", chapter 5, on effect sizes beside p values.
    Where d, ``[queries]``, does not vary the value is 0 or infinite, with one query NaN.

    >>> round(effect_size(np.array([0.1, 0.3, 0.2, 0.2])).value, 3)  # 0.2 / 0.0816
    2.449
    """
    spread, mean = deviation(differences), float(differences.mean())
    if spread == 0 or math.isnan(spread):
        value = math.copysign(math.inf, mean) if mean else 0.0
        return Effect(*[value + spread] * 3)
    value = mean / spread
    z = (differences - mean) / differences.std()
    variance = 1 - (z**3).mean() * value + ((z**4).mean() - 1) * value**2 / 4
    half = float(ndtri(1 - alpha / 2)) * math.sqrt(max(variance, 0.0) / len(z))
    return Effect(value, value - half, value + half)


def resolvable_difference(
    error: float, df: float, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The true difference at which the two-sided t test rejects with probability ``power``.

    From the noncentral t distribution (as statsmodels' ``TTestPower``), with the observed standard
    ``error`` of ``df`` degrees of freedom taken for the true one; for many queries and one pair
    about 2.8 errors. The chance of a significant difference in the wrong direction is left out.
    Cohen (1988), chapter 2; Sakai (2016), "Topic set size design", Information Retrieval Journal.

    >>> round(resolvable_difference(0.17 / 784**0.5, 783), 4)
    0.017
    """
    if error == 0 or math.isinf(error):
        return error
    from scipy.optimize import brentq  # slow to import

    critical = float(stdtrit(df, 1 - alpha / 2))
    shift = brentq(lambda t: nctdtr(df, t, critical) - 1 + power, 0, 4 * critical + 4)
    return error * float(shift)
