"""Bootstrap over queries for all systems at once, and intervals that add the training to it."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ltr.statistics.spread import Spread
from ltr.statistics.values import Aligned

_BLOCK = 1 << 21  # weights at a time: 16 MiB, and twice that while they are drawn


def draw(aligned: Aligned, *, samples: int, seed: int = 0) -> NDArray[np.float64]:
    """By how much the systems' means are off as queries are resampled, ``[samples, systems]``.

    Queries are drawn with replacement, jointly for all systems, so that differences stay paired,
    and from the means over seeds: to draw seeds as well and take the values where they cross would
    count the chance agreement of a seed with a query three times (Owen, 2007, "The pigeonhole
    bootstrap", Annals of Applied Statistics 1), and two or three seeds have no distribution to draw
    from; ``interval`` adds what they vary. A weight w of n drawn becomes 1 + sqrt(n / (n - 1))
    (w - 1), which undoes that a sample varies less than what it is of (Rao and Wu, 1988).

    Args:
        aligned: the systems.
        samples: how many.
        seed: of the generator; a system's draws do not depend on which others stand beside it.
    """
    centred = (aligned.weights * (aligned.by_query - aligned.means[:, None])).T / aligned.queries
    rng = np.random.default_rng([seed, 2])
    drawn = np.empty((samples, len(aligned.names)))
    block = max(1, _BLOCK // aligned.queries)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        drawn[start : start + count] = _weights(rng, count, aligned.queries) @ centred
    return drawn


def _weights(rng: np.random.Generator, samples: int, n: int) -> NDArray[np.float64]:
    """``[samples, n]``: how often each of n is drawn, spread so that variances are right."""
    if n == 1:
        return np.ones((samples, 1))
    chosen = rng.integers(0, n, (samples, n)) + n * np.arange(samples)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=samples * n).reshape(samples, n)
    return np.asarray(1 + math.sqrt(n / (n - 1)) * (counts - 1), dtype=np.float64)


def interval(
    estimate: float, off: NDArray[np.float64], spread: Spread, *, alpha: float
) -> tuple[float, float]:
    """The 1 - ``alpha`` interval: over queries by percentiles, with the training added.

    The percentiles' distances from the estimate are stretched by t_df / z over the queries' n - 1
    df (Hesterberg, 2015, "What teachers should know about the bootstrap", The American Statistician
    69). The training has a distance of its own, t_df times its standard error with the seeds' df,
    and on each side the two add up as the root of their squares (Howe, 1974, "Approximate
    confidence limits on the mean of X + Y where X and Y are two tabled independent random
    variables", Journal of the American Statistical Association 69). One t for the sum, with
    Satterthwaite's df, covers too little with two or three seeds: where they agree by chance, the
    error comes out too small and its df too large at once.

    Args:
        estimate: a mean, or a difference of two.
        off: ``[samples]``, of ``draw``: the column of a system, or the difference of two.
        spread: of the estimate.
        alpha: the interval covers 1 - alpha.
    """
    if math.isinf(spread.error):
        return -math.inf, math.inf
    low, high = np.quantile(off, [alpha / 2, 1 - alpha / 2])
    z = stats.norm.ppf(1 - alpha / 2)
    stretch = float(stats.t.ppf(1 - alpha / 2, spread.df_queries) / z)
    training = math.sqrt(spread.training)
    if training:
        training *= float(stats.t.ppf(1 - alpha / 2, spread.df_training))
    below, above = (math.hypot(stretch * float(side), training) for side in (low, high))
    return estimate - below, estimate + above
