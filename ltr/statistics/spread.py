"""Standard error of a mean or a difference: over queries, and over trainings where seeds tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ltr.statistics.t_tests import deviation
from ltr.statistics.values import Aligned

FOLDS_AS_REPEATS = 3  # with as many folds, a single seed in each still tells how training varies


@dataclass(frozen=True)
class Spread:
    """What an estimate may be off by.

    Attributes:
        error: standard error; inf with one query.
        df: Satterthwaite's degrees of freedom of the error.
        queries: variance of the estimate from the choice of queries.
        training: variance from the training, as far as it is known.
        covers: ``seeds``, ``folds`` (one seed in each of several folds) or ``queries`` alone.
        uncovered: systems with one seed. Where ``covers`` is ``folds``, what their trainings have
            in common, as all begin from the same weights, is not in ``error``; else nothing is.
        df_queries, df_training: degrees of freedom of the two variances.
    """

    error: float
    df: float
    queries: float
    training: float
    covers: str
    uncovered: tuple[str, ...]
    df_queries: float
    df_training: float


@dataclass(frozen=True)
class SeedVariance:
    """Variance of a system's mean from its seeds.

    Attributes:
        own: what the seeds add on every query alike: the variance of the mean of all runs.
        raw: the same with the seeds' chance agreement with these queries left in.
        df: of ``raw``.
    """

    own: float
    raw: float
    df: int


def seed_variance(aligned: Aligned, system: int) -> SeedVariance | None:
    """The variance that the seeds of ``system`` add to its mean; None with one seed.

    In each fold values y[seed, query] = mean + seed + query + rest, a crossed layout with one
    value per cell. The variance of the run means over seeds is that of ``seed`` plus var(rest) /
    queries; the latter, from the residual mean square, is in the variance over queries already
    and is taken off, but not below 0.

    With several folds a seed may add something of its own in each, or the same in all, as its runs
    begin from the same weights. The runs of all folds tell the variance of the mean in the first
    case, the seeds' means over folds in the second; the larger is taken, and the degrees of freedom
    of the second, seeds - 1, which hold in both.
    """
    values = aligned.values[system]
    seeds, folds = len(values), len(aligned.fold_sizes)
    if seeds < 2:
        return None
    runs = aligned.over_folds(values)  # [seeds, folds]
    effects = runs - runs.mean(0)
    rest = values - values.mean(0) - effects[:, aligned.folds]
    freedom = (seeds - 1) * (aligned.queries - folds)
    residual = float((rest**2).sum()) / freedom if freedom else 0.0
    apart = float((effects**2).sum()) / ((seeds - 1) * folds) / (seeds * folds)
    together = float((effects.mean(1) ** 2).sum()) / (seeds - 1) / seeds
    raw = max(apart, together)
    chance = residual * float((1 / aligned.fold_sizes).mean()) / (seeds * folds)
    return SeedVariance(max(0.0, raw - chance), raw, seeds - 1)


def difference_spread(
    aligned: Aligned, seeds: Sequence[SeedVariance | None], first: int, second: int
) -> Spread:
    """The spread of the difference of two systems' means.

    variance = var over queries of the paired differences / queries + what the seeds of either add,

    the seeds being drawn for each system by itself. Degrees of freedom after Satterthwaite,

        df = variance^2 / (queries^2 / (n - 1) + sum of raw^2 / its df)

    as Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple observer
    ROC analysis", Statistics in Medicine 26, has it for readers (here: seeds) and cases (queries)
    both drawn at random; the model is Obuchowski and Rockette's (1995). It is never below the least
    df among the seeds: where chance makes their variance look like none, it would go to 0.

    A system with one seed says nothing of its training. Where there are ``FOLDS_AS_REPEATS`` folds
    the difference of each fold, of models trained apart, stands for what differs between them
    (their training lists overlap, which this leaves aside: Bengio and Grandvalet, 2004; so does
    that all begin from the same weights); else its training is not covered. In both cases the
    estimate is of these models.
    """
    differences = aligned.differences(first, second)
    by_fold = aligned.over_folds(aligned.by_query[first] - aligned.by_query[second])
    return _spread(aligned, seeds, (first, second), differences, by_fold)


def system_spread(aligned: Aligned, seeds: Sequence[SeedVariance | None], system: int) -> Spread:
    """The spread of one system's mean; see ``difference_spread``."""
    values = aligned.by_query[system]
    centred = aligned.weights * (values - aligned.means[system])
    return _spread(aligned, seeds, (system,), centred, aligned.over_folds(values))


def _spread(
    aligned: Aligned,
    seeds: Sequence[SeedVariance | None],
    systems: tuple[int, ...],
    values: NDArray[np.float64],
    by_fold: NDArray[np.float64],
) -> Spread:
    n, folds = aligned.queries, len(by_fold)
    single = tuple(aligned.names[i] for i in systems if seeds[i] is None)
    if n < 2:
        return Spread(math.inf, 1.0, math.inf, 0.0, "queries", single, 1.0, 1.0)
    queries = deviation(values) ** 2 / n
    known = [found for i in systems if (found := seeds[i]) is not None]
    own, raw = sum(s.own for s in known), sum(s.raw**2 / s.df for s in known)
    known_raw = sum(s.raw for s in known)
    least = min((s.df for s in known), default=n - 1)
    covers = "queries" if single else "seeds"
    if single and folds >= FOLDS_AS_REPEATS:
        between = deviation(by_fold) ** 2 / folds
        own, raw = max(0.0, between - queries), between**2 / (folds - 1)
        least = folds - 1
        known_raw, covers = between, "folds"
    variance = queries + own
    freedom = queries**2 / (n - 1) + raw
    df = max(variance**2 / freedom, min(least, n - 1)) if freedom > 0 else float(n - 1)
    df_training = known_raw**2 / raw if raw > 0 else float(least)
    return Spread(math.sqrt(variance), df, queries, own, covers, single, float(n - 1), df_training)
