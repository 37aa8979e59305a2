"""Systems on the same queries, and the standard errors of their means."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ltr.arrays import Doubles, Ints
from ltr.errors import DataError

_CONSTANT = 1e-12  # a deviation below this part of the values' size is rounding
FOLDS_AS_REPEATS = 3  # with so many folds one seed in each tells how training varies


def deviation(values: Doubles) -> float:
    """Standard deviation (n - 1) of ``[n]``; 0 where they vary by rounding only, NaN of one."""
    if len(values) < 2:
        return math.nan
    found = float(values.std(ddof=1))
    return 0.0 if found <= _CONSTANT * float(np.abs(values).max()) else found


@dataclass(frozen=True, eq=False)
class SystemValues:
    """A metric of one system, ``[seeds, queries]``: a row per seed; NaN where it does not count."""

    values: Doubles
    queries: Sequence[tuple[Hashable, str]]  # fold and query id of each column


class SeedVariance(NamedTuple):
    """Variance of a system's mean from its seeds."""

    own: float  # what the seeds add on every query alike
    raw: float  # the same with the seeds' chance agreement with these queries
    df: int  # of ``raw``


@dataclass(frozen=True, eq=False)
class Aligned:
    """Systems on the same queries, without those that are skipped in any of them.

    A mean is that of the folds' means over queries; ``weights`` make it a mean over queries.
    """

    names: tuple[str, ...]
    values: tuple[Doubles, ...]  # [seeds, queries] of each system
    folds: Ints  # [queries], the number of the fold that each query is in
    dropped: int  # how many queries are left out

    @property
    def queries(self) -> int:
        """Number of queries that count."""
        return len(self.folds)

    @cached_property
    def fold_sizes(self) -> Ints:
        """Queries of each fold, ``[folds]``, each at least 1."""
        return np.bincount(self.folds)

    @cached_property
    def weights(self) -> Doubles:
        """``[queries]``, n / (folds * queries of the fold); their mean is 1."""
        return self.queries / (len(self.fold_sizes) * self.fold_sizes[self.folds])

    @cached_property
    def by_query(self) -> Doubles:
        """Mean over seeds, ``[systems, queries]``, rounded so that their order is indifferent."""
        return np.stack([values.mean(0) for values in self.values]).round(12)

    @cached_property
    def means(self) -> Doubles:
        """Mean of each system, ``[systems]``."""
        return (self.weights * self.by_query).mean(1)

    def over_folds(self, values: Doubles) -> Doubles:
        """Mean over each fold's queries: ``[..., queries]`` to ``[..., folds]``."""
        member = np.zeros((self.queries, len(self.fold_sizes)))
        member[np.arange(self.queries), self.folds] = 1 / self.fold_sizes[self.folds]
        return values @ member

    @cached_property
    def seed_variances(self) -> list[SeedVariance | None]:
        """The variance that its seeds add to the mean of each system; None with one seed.

        In each fold y[seed, query] = mean + seed + query + rest, a crossed layout. From the
        variance of the run means var(rest) / queries is taken off, as that over queries has it
        already. A seed may add something else in each fold, or the same in all: the larger
        estimate is taken, with the degrees of freedom of the second, seeds - 1, for both.
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
    """Put ``systems`` on the queries that count in all of them.

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
    """The standard error of an estimate and its parts."""

    error: float  # standard error; inf with one query
    df: float  # Satterthwaite's degrees of freedom of the error
    queries: float  # variance of the estimate from the choice of queries
    training: float  # variance from the training, as far as it is known
    covers: str  # "seeds", "folds" (one seed in each of several folds) or "queries" alone
    # Systems with one seed. ``error`` holds nothing of their training, or, where it covers folds,
    # all but the initial weights that the folds share.
    uncovered: tuple[str, ...]
    df_queries: float  # degrees of freedom of the two variances
    df_training: float


def spread_of(aligned: Aligned, first: int, second: int | None = None) -> Spread:
    """The spread of a system's mean, or of the difference of two systems' means.

    variance = var over queries of the (paired) values / queries + what the seeds of either add,

    with Satterthwaite's degrees of freedom, at least the least among the seeds,

        df = variance^2 / (queries^2 / (n - 1) + sum of raw^2 / its df)

    as Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple observer
    ROC analysis", Statistics in Medicine 26, for random readers (here: seeds) and cases (queries).

    One seed says nothing of a system's training. With ``FOLDS_AS_REPEATS`` folds the differences
    between folds, of models trained apart, stand in for it; else the training is not covered. In
    both cases the estimate is about these models.
    """
    systems = [first] if second is None else [first, second]
    values = aligned.by_query[first] - (0 if second is None else aligned.by_query[second])
    n, by_fold = aligned.queries, aligned.over_folds(values)
    single = tuple(aligned.names[i] for i in systems if aligned.seed_variances[i] is None)
    if n < 2:
        return Spread(math.inf, 1.0, math.inf, 0.0, "queries", single, 1.0, 1.0)
    if second is None:  # fold sizes say nothing of how a mean varies
        values = values - aligned.means[first]
    queries = deviation(aligned.weights * values) ** 2 / n
    known = [found for i in systems if (found := aligned.seed_variances[i]) is not None]
    own, raw, covers = sum(s.own for s in known), sum(s.raw for s in known), "seeds"
    freedom = sum(s.raw**2 / s.df for s in known)
    least = min((s.df for s in known), default=n - 1)
    if single:
        covers = "queries"
        if len(by_fold) >= FOLDS_AS_REPEATS:
            covers, least = "folds", len(by_fold) - 1
            raw = deviation(by_fold) ** 2 / len(by_fold)
            own, freedom = max(0.0, raw - queries), raw**2 / least
    variance = queries + own
    of_both = queries**2 / (n - 1) + freedom
    df = max(variance**2 / of_both, min(least, n - 1)) if of_both > 0 else float(n - 1)
    df_training = raw**2 / freedom if freedom > 0 else float(least)
    return Spread(math.sqrt(variance), df, queries, own, covers, single, float(n - 1), df_training)
