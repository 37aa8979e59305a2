"""Intervals over queries and trainings by the bootstrap, also beside a published number."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ltr.errors import ConfigError
from ltr.statistics.values import Aligned, Spread, SystemValues, align, seed_variance, system_spread

_BLOCK = 1 << 21  # weights at a time: 16 MiB, and twice that while they are drawn


def check_alpha(alpha: float) -> None:
    """Raise ``ConfigError`` where intervals of 1 - ``alpha`` or 1 - 2 ``alpha`` mean nothing."""
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha={alpha:g}: give a number between 0 and 0.5, such as 0.05")


def draw(aligned: Aligned, *, samples: int, seed: int = 0) -> NDArray[np.float64]:
    """The error of each system's mean in samples of the queries, ``[samples, systems]``.

    Queries are drawn with replacement, jointly for all systems, so that differences stay paired,
    and from the means over seeds: drawing seeds as well would count the chance agreement of a seed
    with a query three times (Owen, 2007, "The pigeonhole bootstrap", Annals of Applied Statistics
    1), and two or three seeds are no distribution; ``interval`` adds their variance. A weight w of
    n drawn becomes 1 + sqrt(n / (n - 1)) (w - 1), as a sample varies less than its population (Rao
    and Wu, 1988). A system's draws do not depend on the other systems.
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
    """``[samples, n]``: how often each of n is drawn, rescaled so that variances are right."""
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
    69). The distance of the training is t_df times its standard error with the seeds' df, and on
    each side the two add up as the root of their squares (Howe, 1974, "Approximate confidence
    limits on the mean of X + Y where X and Y are two tabled independent random variables", Journal
    of the American Statistical Association 69). One t for the sum, with Satterthwaite's df, covers
    too little with two or three seeds: where they agree by chance, the error is too small and its
    df too large at once.

    Args:
        estimate: a mean, or a difference of two.
        off: ``[samples]``: the column of a system in ``draw``, or the difference of two.
        spread: of the estimate.
        alpha: the interval covers 1 - alpha.
    """
    if math.isinf(spread.error):
        return -math.inf, math.inf
    low, high = np.quantile(off, [alpha / 2, 1 - alpha / 2])
    z = ndtri(1 - alpha / 2)
    stretch = float(stdtrit(spread.df_queries, 1 - alpha / 2) / z)
    training = math.sqrt(spread.training)
    if training:
        training *= float(stdtrit(spread.df_training, 1 - alpha / 2))
    below, above = (math.hypot(stretch * float(side), training) for side in (low, high))
    return estimate - below, estimate + above


@dataclass(frozen=True)
class SystemInterval:
    """The mean of a system and its 1 - alpha interval.

    Attributes:
        mean: mean over folds of the mean over queries, mean over seeds.
        low, high: the interval, over queries and, where there are several, seeds.
        deviation: standard deviation over seeds of the mean of a seed's runs; NaN with one.
        seeds, queries, folds: how many.
        spread: the standard error and what it covers.
    """

    mean: float
    low: float
    high: float
    deviation: float
    seeds: int
    queries: int
    folds: int
    spread: Spread


class Coverage(NamedTuple):
    """Where our interval is: it ``covers`` the number, or is ``above`` or ``below``; in words."""

    word: str
    text: str


def interval_of(
    system: SystemValues,
    *,
    name: str = "system",
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
) -> SystemInterval:
    """Mean and interval of one system, for other queries and other seeds.

    Raises:
        ConfigError: alpha is out of range.
        DataError: no query has a value.
    """
    check_alpha(alpha)
    aligned = align({name: system})
    spread = system_spread(aligned, [seed_variance(aligned, 0)], 0)
    mean = float(aligned.means[0])
    off = draw(aligned, samples=samples, seed=seed)[:, 0]
    low, high = interval(mean, off, spread, alpha=alpha)
    of_seeds = aligned.over_folds(aligned.values[0]).mean(1)
    return SystemInterval(
        mean=mean,
        low=low,
        high=high,
        deviation=float(np.std(of_seeds, ddof=1)) if len(of_seeds) > 1 else float("nan"),
        seeds=len(of_seeds),
        queries=aligned.queries,
        folds=len(aligned.fold_sizes),
        spread=spread,
    )


def covers(ours: SystemInterval, number: float) -> Coverage:
    """Set ``ours`` beside a published ``number`` without values per query.

    The number is taken as printed, without its own uncertainty: this says whether ours is in line
    with it, not whether the systems differ.
    """
    span = f"ours {ours.mean:.4f} ({ours.low:.4f} to {ours.high:.4f})"
    if ours.low <= number <= ours.high:
        return Coverage("covers", f"{span} covers {number:.4f}")
    word = "above" if ours.mean > number else "below"
    return Coverage(word, f"{span} is {word} {number:.4f}")
