"""Align systems on the same queries, and estimate the standard errors of their means."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ltr.arrays import Doubles, Ints
from ltr.errors import DataError

_CONSTANT = 1e-12  # a deviation below this fraction of the largest value is rounding
FOLDS_AS_REPEATS = 3  # from this many folds on, their differences show how training varies


def deviation(values: Doubles) -> float:
    """Return the standard deviation (n - 1): NaN for n < 2, 0 if values differ only by rounding."""
    if len(values) < 2:
        return math.nan
    found = float(values.std(ddof=1))
    return 0.0 if found <= _CONSTANT * float(np.abs(values).max()) else found


@dataclass(frozen=True, eq=False)
class SystemValues:
    """A metric of one system: ``values`` ``[seeds, queries]``, NaN if a query is skipped."""

    values: Doubles
    queries: Sequence[tuple[Hashable, str]]  # fold and query id of each column


class SeedVariance(NamedTuple):
    """The variance of a system's mean that comes from its seeds."""

    own: float  # part of ``raw`` from effects that a seed has on all queries alike
    raw: float  # variance between seeds, including chance effects of a seed on single queries
    df: int  # degrees of freedom of ``raw``


@dataclass(frozen=True, eq=False)
class Aligned:
    """Systems on the same queries, without those that are skipped in any system.

    The mean of a system is over folds of the means over queries. With ``weights``, this is also a
    weighted mean over all queries.
    """

    names: tuple[str, ...]
    values: tuple[Doubles, ...]  # [seeds, queries] for each system
    folds: Ints  # [queries], the number of each query's fold, from 0
    dropped: int  # number of queries left out

    @property
    def queries(self) -> int:
        """Number of queries, without those left out."""
        return len(self.folds)

    @cached_property
    def fold_sizes(self) -> Ints:
        """Number of queries in each fold, ``[folds]``, at least 1."""
        return np.bincount(self.folds)

    @cached_property
    def weights(self) -> Doubles:
        """Weight of each query, ``[queries]``: n / (folds * queries in its fold). The mean is 1."""
        return self.queries / (len(self.fold_sizes) * self.fold_sizes[self.folds])

    @cached_property
    def strata(self) -> list[Ints]:
        """The numbers of the queries in each fold; all in one if a fold has a single query.

        Folds are fixed: other queries would fall into the same folds, with the same difficulty.
        """
        folds = self.folds if self.fold_sizes.min() > 1 else np.zeros_like(self.folds)
        return [np.flatnonzero(folds == fold) for fold in range(folds.max() + 1)]

    @cached_property
    def by_query(self) -> Doubles:
        """Mean over seeds, ``[systems, queries]``.

        The values are rounded, so that they do not depend on the order of the seeds.
        """
        return np.stack([values.mean(0) for values in self.values]).round(12)

    @cached_property
    def means(self) -> Doubles:
        """Mean of each system, ``[systems]``."""
        return (self.weights * self.by_query).mean(1)

    def over_folds(self, values: Doubles) -> Doubles:
        """Average ``values`` ``[..., queries]`` over the queries of each fold: ``[..., folds]``."""
        member = np.zeros((self.queries, len(self.fold_sizes)))
        member[np.arange(self.queries), self.folds] = 1 / self.fold_sizes[self.folds]
        return values @ member

    @cached_property
    def seed_variances(self) -> list[SeedVariance | None]:
        """For each system, the variance that seeds add to its mean; None with one seed.

        The model in each fold is crossed: y[seed, query] = mean + seed + query + rest. From the
        variance of the run means, var(rest) / queries is subtracted, because the variance over
        queries includes it. The effect of a seed may differ between folds or be the same in all:
        the larger of the two estimates is used, both with the seeds - 1 degrees of freedom of the
        second.
        """
        return [self._seed_variance(values) for values in self.values]

    def _seed_variance(self, values: Doubles) -> SeedVariance | None:
        seeds, folds = len(values), len(self.fold_sizes)
        if seeds < 2:
            return None
        runs = self.over_folds(values)  # [seeds, folds]
        effects = runs - runs.mean(0)
        rest = values - values.mean(0) - effects[:, self.folds]
        freedom = (seeds - 1) * (self.queries - folds)
        residual = float((rest**2).sum()) / freedom if freedom else 0.0
        apart = float((effects**2).sum()) / ((seeds - 1) * folds) / (seeds * folds)
        together = float((effects.mean(1) ** 2).sum()) / (seeds - 1) / seeds
        raw = max(apart, together)
        chance = residual * float((1 / self.fold_sizes).mean()) / (seeds * folds)
        return SeedVariance(max(0.0, raw - chance), raw, seeds - 1)


def align(systems: Mapping[str, SystemValues]) -> Aligned:
    """Restrict ``systems`` to the queries that have a value in all of them.

    Raises:
        DataError: their queries differ, or no query is left.
    """
    reference, queries = next((name, list(one.queries)) for name, one in systems.items())
    for name, system in systems.items():
        if list(system.queries) != queries:
            raise DataError(
                f"{reference} and {name} are measured on different queries: compare runs on the "
                "same test lists"
            )
    scored = np.logical_and.reduce([np.isfinite(one.values).all(0) for one in systems.values()])
    if not scored.any():
        raise DataError(
            f"no query has a value in each of {', '.join(systems)}: choose another metric, or a "
            "convention that scores lists without a relevant item"
        )
    folds = [fold for (fold, _), counts in zip(queries, scored, strict=True) if counts]
    number = {fold: i for i, fold in enumerate(dict.fromkeys(folds))}
    values = tuple(system.values[:, scored] for system in systems.values())
    of_query = np.array([number[fold] for fold in folds], dtype=np.int64)
    return Aligned(tuple(systems), values, of_query, int((~scored).sum()))


class Spread(NamedTuple):
    """The standard error of an estimate, and the variances that make it up."""

    error: float  # standard error; inf with one query
    df: float  # Satterthwaite's degrees of freedom of ``error``
    queries: float  # variance of the estimate from the choice of queries
    training: float  # variance from the training, as far as it is known
    covers: str  # what ``error`` covers: "seeds", "folds" (differences between folds) or "queries"
    # Systems with one seed. With "queries", ``error`` does not include their training; with
    # "folds", it includes all of it except what the folds share, such as the initial weights.
    uncovered: tuple[str, ...]
    df_queries: float  # degrees of freedom of ``queries``
    df_training: float  # degrees of freedom of ``training``


def spread_of(aligned: Aligned, first: int, second: int | None = None) -> Spread:
    """Estimate the error of a system's mean, or of its difference from the mean of ``second``.

    The variance is the sum of two parts: ``queries``, which the choice of n queries adds within
    their folds (Cochran, 1977, "Sampling techniques", chapter 5), from the (paired) values

        queries = sum over folds of variance / number of its queries / folds^2

    and the variances that the seeds of each system add. Its degrees of freedom are Satterthwaite's,
    but not below the smallest seeds - 1 (or n - folds):

        df = variance^2 / (queries^2 / (n - folds) + sum of raw^2 / its df)

    This follows Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple
    observer ROC analysis", Statistics in Medicine 26, with seeds as readers and queries as cases.

    One seed does not show how training varies. In a difference of two systems, the difficulty of
    the folds cancels. With at least ``FOLDS_AS_REPEATS`` folds, whose models are trained
    separately, what it varies between folds more than ``queries`` explains counts as training. In
    the mean of one system, difficulty and training cannot be told apart, and with fewer folds
    there is nothing to tell them by: the variance of training is not covered. In all cases the
    estimate is about these trained models, not about the method.
    """
    systems = [first] if second is None else [first, second]
    values = aligned.by_query[first] - (0 if second is None else aligned.by_query[second])
    n, by_fold = aligned.queries, aligned.over_folds(values)
    single = tuple(aligned.names[i] for i in systems if aligned.seed_variances[i] is None)
    if n < 2:
        return Spread(math.inf, 1.0, math.inf, 0.0, "queries", single, 1.0, 1.0)
    weighted = aligned.weights * (values - by_fold.mean()).round(12)
    queries = sum(len(of) * deviation(weighted[of]) ** 2 for of in aligned.strata) / n**2
    of_queries = n - len(aligned.strata)  # degrees of freedom
    known = [found for i in systems if (found := aligned.seed_variances[i]) is not None]
    own, raw, covers = sum(s.own for s in known), sum(s.raw for s in known), "seeds"
    freedom = sum(s.raw**2 / s.df for s in known)
    least = min((s.df for s in known), default=of_queries)
    if single:
        covers = "queries"
        if second is not None and len(by_fold) >= FOLDS_AS_REPEATS:
            covers, least = "folds", len(by_fold) - 1
            raw = deviation(by_fold) ** 2 / len(by_fold)
            own, freedom = max(0.0, raw - queries), raw**2 / least
    variance = queries + own
    of_both = queries**2 / of_queries + freedom
    df = max(variance**2 / of_both, min(least, of_queries)) if of_both > 0 else float(of_queries)
    df_training = raw**2 / freedom if freedom > 0 else float(least)
    return Spread(
        math.sqrt(variance), df, queries, own, covers, single, float(of_queries), df_training
    )
