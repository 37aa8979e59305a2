"""Align systems on the same queries, and estimate the standard errors of their means."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ltr.arrays import Doubles, Ints
from ltr.errors import DataError

_CONSTANT = 1e-12  # a deviation below this fraction of the largest value is a rounding error
FOLDS_AS_REPEATS = 3  # with at least this many folds, their differences show how training varies


def deviation(values: Doubles) -> float:
    """Return the standard deviation, with n - 1 in the denominator.

    It is NaN if n < 2, and 0 if the values differ only by rounding.
    """
    if len(values) < 2:
        return math.nan
    estimate = float(values.std(ddof=1))
    return 0.0 if estimate <= _CONSTANT * float(np.abs(values).max()) else estimate


@dataclass(frozen=True, eq=False)
class SystemValues:
    """The values of a metric for each seed and query of one system; NaN if a query is skipped."""

    values: Doubles  # [seeds, queries]
    queries: Sequence[tuple[Hashable, str]]  # fold and query id of each column


class SeedVariance(NamedTuple):
    """The variance of a system's mean that comes from its seeds."""

    shared: float  # part of ``raw`` from effects that a seed has on all queries alike
    raw: float  # variance between seeds, including chance effects of a seed on single queries
    df: int  # degrees of freedom of ``raw``


@dataclass(frozen=True, eq=False)
class Aligned:
    """The values of systems on the same queries, without queries that any system skips.

    The mean of a system is the mean over folds of its means over queries. It equals the mean over
    all queries, weighted by ``weights``.
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
        """The indices of the queries in each fold, or of all queries if some fold has only one.

        The folds are treated as fixed: a new sample of queries would come from the same folds,
        which keep their difficulty.
        """
        folds = self.folds if self.fold_sizes.min() > 1 else np.zeros_like(self.folds)
        return [np.flatnonzero(folds == fold) for fold in range(folds.max() + 1)]

    @cached_property
    def by_query(self) -> Doubles:
        """Mean over seeds, ``[systems, queries]``.

        The values are rounded, because their last bits depend on the order of the seeds.
        """
        return np.stack([values.mean(0) for values in self.values]).round(12)

    @cached_property
    def means(self) -> Doubles:
        """Mean of each system, ``[systems]``."""
        return (self.weights * self.by_query).mean(1)

    def over_folds(self, values: Doubles) -> Doubles:
        """Return the means of ``values``, ``[..., queries]``, over each fold, ``[..., folds]``."""
        member = np.zeros((self.queries, len(self.fold_sizes)))
        member[np.arange(self.queries), self.folds] = 1 / self.fold_sizes[self.folds]
        return values @ member

    @cached_property
    def seed_variances(self) -> list[SeedVariance | None]:
        """For each system, the variance that seeds add to its mean; None if it has one seed.

        The model in each fold is crossed: y[seed, query] = mean + seed + query + residual. The
        variance of the run means contains var(residual) / queries. This part is subtracted, because
        the variance over queries contains it too. The effect of a seed may differ between folds, or
        be the same in all folds. The larger of the estimates for these two cases is used, with the
        ``seeds - 1`` degrees of freedom of the second case.
        """
        return [self._seed_variance(values) for values in self.values]

    def _seed_variance(self, values: Doubles) -> SeedVariance | None:
        seeds = len(values)
        folds = len(self.fold_sizes)
        if seeds < 2:
            return None
        run_means = self.over_folds(values)  # [seeds, folds]
        effects = run_means - run_means.mean(0)
        residuals = values - values.mean(0) - effects[:, self.folds]
        residual_df = (seeds - 1) * (self.queries - folds)
        residual = float((residuals**2).sum()) / residual_df if residual_df else 0.0
        apart = float((effects**2).sum()) / ((seeds - 1) * folds) / (seeds * folds)
        together = float((effects.mean(1) ** 2).sum()) / (seeds - 1) / seeds
        raw = max(apart, together)
        chance = residual * float((1 / self.fold_sizes).mean()) / (seeds * folds)
        return SeedVariance(shared=max(0.0, raw - chance), raw=raw, df=seeds - 1)


def align(systems: Mapping[str, SystemValues]) -> Aligned:
    """Return the values of ``systems`` without the queries that have no value in some system.

    Raises:
        DataError: the systems were measured on different queries, or no query is left.
    """
    reference = next(iter(systems))
    queries = list(systems[reference].queries)
    for name, system in systems.items():
        if list(system.queries) != queries:
            raise DataError(
                f"{reference} and {name} are measured on different queries: compare runs on the "
                "same test lists"
            )
    scored = np.logical_and.reduce(
        [np.isfinite(system.values).all(0) for system in systems.values()]
    )
    if not scored.any():
        raise DataError(
            f"no query has a value in all of {', '.join(systems)}: choose another metric, or a "
            "convention that scores lists without a relevant item"
        )
    folds = [fold for (fold, _), is_scored in zip(queries, scored, strict=True) if is_scored]
    fold_numbers = {fold: number for number, fold in enumerate(dict.fromkeys(folds))}
    return Aligned(
        names=tuple(systems),
        values=tuple(system.values[:, scored] for system in systems.values()),
        folds=np.array([fold_numbers[fold] for fold in folds], dtype=np.int64),
        dropped=int((~scored).sum()),
    )


class StandardError(NamedTuple):
    """The standard error of an estimate, and the variances that make it up."""

    error: float  # standard error; inf with one query
    df: float  # Satterthwaite's degrees of freedom of ``error``
    queries: float  # variance of the estimate from the choice of queries
    training: float  # variance from the training, as far as it is known
    covers: str  # what ``error`` covers: "seeds", "folds" (differences between folds) or "queries"
    # The systems with one seed. If ``covers`` is "queries", ``error`` does not cover training.
    # If it is "folds", ``error`` covers the training variance that differs between folds, but not
    # what the folds share, such as the initial weights.
    uncovered: tuple[str, ...]
    df_queries: float  # degrees of freedom of ``queries``
    df_training: float  # degrees of freedom of ``training``


class _TrainingVariance(NamedTuple):
    """The variance that training adds to an estimate."""

    shared: float  # added to the variance of the estimate
    raw: float  # including the part that the variance over queries already contains
    df_term: float  # the sum of raw^2 / df, in the denominator of Satterthwaite's formula
    least_df: int  # the fewest degrees of freedom of any ``raw`` in the sum
    covers: str  # as in ``StandardError``


def estimate_error(aligned: Aligned, first: int, second: int | None = None) -> StandardError:
    """Estimate the standard error of a mean, or of its difference from the mean of ``second``.

    The variance is a sum. One part, ``queries``, comes from the choice of the n queries within
    their folds (Cochran, 1977, "Sampling techniques", chapter 5). It is computed from the value of
    each query, or from the difference of the two systems on each query:

        queries = sum over folds of (variance in the fold / number of its queries) / folds^2

    The other parts are the variances that come from the seeds of each system (``SeedVariance``).
    The degrees of freedom are Satterthwaite's, but not fewer than seeds - 1 of the system with the
    fewest seeds, or n - folds if that is smaller:

        df = variance^2 / (queries^2 / (n - folds) + sum over systems of raw^2 / df of raw)

    This follows Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple
    observer ROC analysis", Statistics in Medicine 26, with seeds as readers and queries as cases.

    One seed does not show how training varies. In a difference of two systems, the folds can show
    it instead, because their difficulty cancels and their models are trained separately. If there
    are at least ``FOLDS_AS_REPEATS`` folds, the variance between folds beyond ``queries`` is used
    as training variance. The training variance is not covered if there are fewer folds, or in the
    mean of one system, where the difficulty of a fold and the effect of training cannot be told
    apart. In all these cases with one seed, the estimate describes these trained models, not the
    method.

    Args:
        aligned: the systems on the same queries.
        first: the index of the system.
        second: the index of the system to subtract; if None, the error is that of the mean of
            ``first``.
    """
    systems = [first] if second is None else [first, second]
    values = aligned.by_query[first] - (0 if second is None else aligned.by_query[second])
    single_seed = tuple(aligned.names[i] for i in systems if aligned.seed_variances[i] is None)
    if aligned.queries < 2:
        return StandardError(math.inf, 1.0, math.inf, 0.0, "queries", single_seed, 1.0, 1.0)
    by_fold = aligned.over_folds(values)
    queries = _query_variance(aligned, values - by_fold.mean())
    df_queries = aligned.queries - len(aligned.strata)
    if single_seed and second is not None and len(by_fold) >= FOLDS_AS_REPEATS:
        training = _training_from_folds(by_fold, queries)
    else:
        variances = [aligned.seed_variances[i] for i in systems]
        covers = "queries" if single_seed else "seeds"
        training = _training_from_seeds(variances, covers, df_queries)
    variance = queries + training.shared
    denominator = queries**2 / df_queries + training.df_term
    df = float(df_queries)
    if denominator > 0:
        df = max(variance**2 / denominator, min(training.least_df, df_queries))
    return StandardError(
        error=math.sqrt(variance),
        df=df,
        queries=queries,
        training=training.shared,
        covers=training.covers,
        uncovered=single_seed,
        df_queries=float(df_queries),
        df_training=(
            training.raw**2 / training.df_term if training.df_term > 0 else float(training.least_df)
        ),
    )


def _query_variance(aligned: Aligned, centred: Doubles) -> float:
    """Return the part of a mean's variance that comes from the choice of queries within folds."""
    weighted = aligned.weights * centred.round(12)
    sums = sum(len(fold) * deviation(weighted[fold]) ** 2 for fold in aligned.strata)
    return sums / aligned.queries**2


def _training_from_seeds(
    variances: Sequence[SeedVariance | None], covers: str, df_queries: int
) -> _TrainingVariance:
    """Add up the variances of the systems that have several seeds."""
    estimates = [variance for variance in variances if variance is not None]
    return _TrainingVariance(
        shared=sum(estimate.shared for estimate in estimates),
        raw=sum(estimate.raw for estimate in estimates),
        df_term=sum(estimate.raw**2 / estimate.df for estimate in estimates),
        least_df=min((estimate.df for estimate in estimates), default=df_queries),
        covers=covers,
    )


def _training_from_folds(by_fold: Doubles, queries: float) -> _TrainingVariance:
    """Return the variance between folds beyond that of the ``queries``."""
    least_df = len(by_fold) - 1
    raw = deviation(by_fold) ** 2 / len(by_fold)
    return _TrainingVariance(max(0.0, raw - queries), raw, raw**2 / least_df, least_df, "folds")
