"""Hierarchical bootstrap over seeds and queries, for all systems at once."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ltr.statistics.spread import SeedVariance, Spread
from ltr.statistics.values import Aligned

_BLOCK = 1 << 21  # weights at a time: 16 MiB, and twice that while they are drawn


@dataclass(frozen=True)
class Draws:
    """Deviations of the systems' means from what was observed, a row for each sample.

    Attributes:
        queries: ``[samples, systems]``, the queries resampled, the same for all systems.
        seeds: ``[samples, systems]``, the seeds of each system resampled by themselves; 0 with one.
        folds: ``[samples, systems]``, the folds' means resampled, the same for all systems.
    """

    queries: NDArray[np.float64]
    seeds: NDArray[np.float64]
    folds: NDArray[np.float64]


def draw(
    aligned: Aligned, seeds: Sequence[SeedVariance | None], *, samples: int, seed: int = 0
) -> Draws:
    """Resample queries and seeds, each with replacement.

    Queries are drawn jointly for all systems, so that differences stay paired; the seeds of each
    system apart from those of the others, and in each fold apart where they differ by fold. To draw
    both and take the values where they cross would count the chance agreement of a seed with a
    query three times (Owen, 2007, "The pigeonhole bootstrap", Annals of Applied Statistics 1), so
    the queries are drawn from the
    means over seeds, and the seeds from run effects shrunk to their own variance (Davison and
    Hinkley, 1997, "Bootstrap Methods and their Application", section 3.8). A weight w of n drawn
    becomes 1 + sqrt(n / (n - 1)) (w - 1), which undoes that a sample varies less than what it is
    of (Rao and Wu, 1988): with 3 seeds a third of the variance would be lost.

    Args:
        aligned: the systems.
        seeds: ``seed_variance`` of each.
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
    of_seeds = np.zeros_like(drawn)
    folds = len(aligned.fold_sizes)
    for i, (name, found) in enumerate(zip(aligned.names, seeds, strict=True)):
        if found is None:
            continue
        rng = np.random.default_rng([seed, 3, zlib.crc32(name.encode())])
        for effects in found.effects.T:
            own = _weights(rng, samples, len(effects)) @ effects / len(effects)
            of_seeds[:, i] += own / found.effects.shape[1]
    by_fold = aligned.over_folds(aligned.by_query)  # [systems, folds]
    rng = np.random.default_rng([seed, 4])
    of_folds = _weights(rng, samples, folds) @ (by_fold - by_fold.mean(1, keepdims=True)).T / folds
    return Draws(drawn, of_seeds, of_folds)


def _weights(rng: np.random.Generator, samples: int, n: int) -> NDArray[np.float64]:
    """``[samples, n]``: how often each of n is drawn, spread so that variances are right."""
    if n == 1:
        return np.ones((samples, 1))
    chosen = rng.integers(0, n, (samples, n)) + n * np.arange(samples)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=samples * n).reshape(samples, n)
    return np.asarray(1 + math.sqrt(n / (n - 1)) * (counts - 1), dtype=np.float64)


def deviations(draws: Draws, spread: Spread, first: int, second: int | None) -> NDArray[np.float64]:
    """``[samples]``: by how much a mean, or a difference, was off in each sample."""

    def of(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[:, first] - (0 if second is None else values[:, second])

    if spread.covers == "folds":
        return of(draws.queries) + spread.shrink * of(draws.folds)
    return of(draws.queries) + of(draws.seeds)


def interval(
    estimate: float, off: NDArray[np.float64], spread: Spread, *, alpha: float
) -> tuple[float, float]:
    """The 1 - ``alpha`` percentile interval, as wide as Student's t asks for.

    The percentiles' distances from the estimate are stretched by t_df / z: percentiles of few
    seeds are as those of the normal where t's are wider (Hesterberg, 2015, "What teachers should
    know about the bootstrap", The American Statistician 69, on the percentile interval's narrowness
    in small samples). With hundreds of queries and one seed it is the plain percentile interval.
    """
    if math.isinf(spread.error):
        return -math.inf, math.inf
    low, high = np.quantile(off, [alpha / 2, 1 - alpha / 2])
    stretch = float(stats.t.ppf(1 - alpha / 2, spread.df) / stats.norm.ppf(1 - alpha / 2))
    return estimate + stretch * float(low), estimate + stretch * float(high)
