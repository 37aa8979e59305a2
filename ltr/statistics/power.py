"""What a test set can resolve: the smallest true difference that a test is likely to find."""

import math

from scipy.optimize import brentq
from statsmodels.stats.power import TTestPower


def resolvable_difference(
    error: float, queries: int, df: float, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The true difference at which the two-sided t test rejects with probability ``power``.

    From the noncentral t distribution (statsmodels' ``TTestPower``), with the observed standard
    error taken for the true one; for many queries and one pair about 2.8 errors. Smaller
    differences will more often than not be missed. Cohen (1988), chapter 2; Sakai (2016), "Topic
    set size design", Information Retrieval Journal 19.

    Args:
        error: standard error of the difference; 0 gives 0, inf gives inf.
        queries: how many it is over.
        df: degrees of freedom of the error.
        alpha: of the test; divided by the number of pairs it is Holm's first step.
        power: probability to find the difference.

    >>> round(resolvable_difference(0.17 / 784**0.5, 784, 783), 4)
    0.017
    """
    if error == 0 or math.isinf(error):
        return error
    test = TTestPower()

    def excess(difference: float) -> float:
        effect = difference / (error * math.sqrt(queries))
        # of a significant difference in the right direction; the other tail counts for nothing
        found = test.power(effect, queries, alpha / 2, df=df, alternative="larger")
        return float(found) - power

    high = 3 * error
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0, high))
