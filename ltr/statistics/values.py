"""Systems on the same queries, and the standard errors of their means."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ltr.errors import DataError
from ltr.statistics.significance import deviation

Query = tuple[Hashable, str]


@dataclass(frozen=True, eq=False)
class SystemValues:
    """A metric of one system.

    Attributes:
        values: ``[seeds, queries]``, a row per seed (its runs in all folds); NaN where the
            convention skips the list.
        queries: ``(fold, query id)`` of each column; the fold is None where there are no folds.
        seeds: names of the rows; empty: 0, 1, ...

    Raises:
        DataError: the shapes do not fit, a value is infinite, or two rows have one name.
    """

    values: NDArray[np.float64]
    queries: Sequence[Query]
    seeds: Sequence[Hashable] = ()

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 2 or not len(values) or values.shape[1] != len(self.queries):
            raise DataError(
                f"values of shape {values.shape} for {len(self.queries)} queries: give [seeds, "
                "queries], a row for each training run"
            )
        if np.isinf(values).any():
            raise DataError("values hold infinity: give finite values, NaN where a list is skipped")
        if self.seeds and len(self.seeds) != len(values):
            raise DataError(
                f"{len(self.seeds)} seeds for {len(values)} rows of values: name each row or none"
            )
        if len(set(map(str, self.seeds))) < len(self.seeds):
            raise DataError(
                f"seeds {', '.join(map(str, self.seeds))} name two rows the same: give each row "
                "a name of its own"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "seeds", tuple(self.seeds) or tuple(range(len(values))))


@dataclass(frozen=True, eq=False)
class Aligned:
    """Systems on the same queries, without those that are skipped in any of them.

    The mean of a system is the mean over folds of the mean over a fold's queries, as in LETOR's
    evaluation; ``weights`` make it a mean over queries: ``mean(weights * values)``.

    Attributes:
        names: of the systems.
        values: of each ``[seeds, queries]``, finite; the number of seeds may vary.
        folds: ``[queries]``, 0-based.
        dropped: how many queries were left out.
    """

    names: tuple[str, ...]
    values: tuple[NDArray[np.float64], ...]
    folds: NDArray[np.int64]
    dropped: int

    @property
    def queries(self) -> int:
        """Number of queries that count."""
        return len(self.folds)

    @cached_property
    def fold_sizes(self) -> NDArray[np.int64]:
        """Queries of each fold, ``[folds]``, each at least 1."""
        return np.bincount(self.folds)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """``[queries]``, n / (folds * queries of the fold); their mean is 1."""
        return self.queries / (len(self.fold_sizes) * self.fold_sizes[self.folds])

    @cached_property
    def by_query(self) -> NDArray[np.float64]:
        """Mean over seeds, ``[systems, queries]``."""
        # rounded, so that the order in which seeds are summed makes no difference
        return np.stack([values.mean(0) for values in self.values]).round(12)

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Mean of each system, ``[systems]``."""
        return (self.weights * self.by_query).mean(1)

    def over_folds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean over each fold's queries: ``[..., queries]`` to ``[..., folds]``."""
        member = np.zeros((self.queries, len(self.fold_sizes)))
        member[np.arange(self.queries), self.folds] = 1 / self.fold_sizes[self.folds]
        return values @ member

    def differences(self, first: int, second: int) -> NDArray[np.float64]:
        """``[queries]``: first less second, mean over seeds, weighted; its mean is the estimate."""
        return self.weights * (self.by_query[first] - self.by_query[second])


def align(systems: Mapping[str, SystemValues]) -> Aligned:
    """Put ``systems`` on the same queries in the same order.

    Raises:
        DataError: there is none, their queries differ, or no query is left.
    """
    if not systems:
        raise DataError("there is no system to compare: give at least one")
    (reference, first), *others = systems.items()
    queries = list(first.queries)
    columns = [first.values]
    for name, system in others:
        columns.append(system.values[:, _order(queries, system, reference, name)])
    scored = np.logical_and.reduce([np.isfinite(values).all(0) for values in columns])
    if not scored.any():
        raise DataError(
            f"no query has a value in each of {', '.join(systems)}: all are skipped; choose "
            "another metric, or a convention that scores lists without a relevant item"
        )
    kept = [query for query, ok in zip(queries, scored, strict=True) if ok]
    number = {fold: i for i, fold in enumerate(dict.fromkeys(fold for fold, _ in kept))}
    return Aligned(
        names=tuple(systems),
        values=tuple(values[:, scored] for values in columns),
        folds=np.array([number[fold] for fold, _ in kept], dtype=np.int64),
        dropped=int((~scored).sum()),
    )


def _order(
    queries: list[Query], system: SystemValues, reference: str, name: str
) -> NDArray[np.int64]:
    """The column of ``system`` for each of ``queries``."""
    own = list(system.queries)
    if own == queries:
        return np.arange(len(own))
    column = {query: i for i, query in enumerate(own)}
    missing = [query for query in queries if query not in column]
    if missing or len(own) != len(queries) or len(column) != len(own):
        extra = set(own) - set(queries)
        others = [*missing, *sorted(extra, key=str)]
        example = f"{others[0]} is in one only" if others else "one stands twice"
        raise DataError(
            f"{reference} and {name} are measured on different queries ({len(queries)} and "
            f"{len(own)}; {example}): compare runs on the same test lists"
        )
    return np.array([column[query] for query in queries])


FOLDS_AS_REPEATS = 3  # with so many folds one seed in each tells how training varies


@dataclass(frozen=True)
class Spread:
    """The standard error of an estimate and its parts.

    Attributes:
        error: standard error; inf with one query.
        df: Satterthwaite's degrees of freedom of the error.
        queries: variance of the estimate from the choice of queries.
        training: variance from the training, as far as it is known.
        covers: ``seeds``, ``folds`` (one seed in each of several folds) or ``queries`` alone.
        uncovered: systems with one seed. ``error`` holds nothing of their training, or, where
            ``covers`` is ``folds``, all but the initial weights that the folds share.
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
        own: what the seeds add on every query alike.
        raw: the same with the seeds' chance agreement with these queries.
        df: of ``raw``.
    """

    own: float
    raw: float
    df: int


def seed_variance(aligned: Aligned, system: int) -> SeedVariance | None:
    """The variance that the seeds of ``system`` add to its mean; None with one seed.

    In each fold y[seed, query] = mean + seed + query + rest, a crossed layout with one value per
    cell. The variance of the run means over seeds is that of ``seed`` plus var(rest) / queries; the
    latter, from the residual mean square, is in the variance over queries already and is taken off,
    but not below 0.

    With several folds a seed may add something different in each, or the same in all, as its runs
    begin from the same weights. The runs of all folds give the variance of the mean in the first
    case, the seeds' means over folds in the second; the larger is taken, with the degrees of
    freedom of the second, seeds - 1, which hold in both.
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

    as each system draws its own seeds. Degrees of freedom after Satterthwaite,

        df = variance^2 / (queries^2 / (n - 1) + sum of raw^2 / its df)

    as Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple observer
    ROC analysis", Statistics in Medicine 26, for random readers (here: seeds) and cases (queries);
    the model is Obuchowski and Rockette's (1995). It is never below the least df among the seeds:
    where their variance is 0 by chance, it would go to 0.

    One seed says nothing of a system's training. With ``FOLDS_AS_REPEATS`` folds the differences
    between folds, of models trained apart, stand in for it (leaving aside that their training lists
    overlap, Bengio and Grandvalet, 2004, and that all begin from the same weights); else the
    training is not covered. In both cases the estimate is about these models.
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
