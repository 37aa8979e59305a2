"""Is a difference smaller than a margin? Two one-sided tests."""

import math

from scipy import stats


def equivalence_p(difference: float, error: float, df: float, margin: float) -> float:
    """p of the hypothesis |difference| >= ``margin``; small: the systems are equivalent.

    Two one-sided t tests (TOST), p the larger of

        P(T_df >= (difference + margin) / error)  and  P(T_df <= (difference - margin) / error)

    so that p < alpha just where the 1 - 2 alpha interval lies within the margin. Schuirmann (1987),
    "A comparison of the two one-sided tests procedure and the power approach", Journal of
    Pharmacokinetics and Biopharmaceutics 15. With one seed it is statsmodels' ``ttost_paired``;
    here the error may hold the variance of training as well.

    Args:
        difference: of the means.
        error: its standard error; 0 where nothing varies, inf where nothing is known.
        df: degrees of freedom of the error.
        margin: > 0, in units of the metric.

    >>> equivalence_p(0.001, 0.001, 99, margin=0.005) < 0.001
    True
    >>> round(equivalence_p(0.005, 0.001, 99, margin=0.005), 3)  # at the margin's edge
    0.5
    """
    if error == 0:
        return float(abs(difference) >= margin)
    if math.isinf(error):
        return 1.0
    return float(stats.t.sf((margin - abs(difference)) / error, df))
