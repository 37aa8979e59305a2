"""Compare pairs of systems: intervals and verdicts.

A system is the set of all runs that differ only in seed and fold. A verdict is "better", "worse",
"differ", "equivalent" or "undecided". "differ" means that the trained models differ, but that one
of the systems has a single seed, so the methods might not differ.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import nctdtr, ndtri, stdtr, stdtrit

from ltr.arrays import Doubles, Ints
from ltr.errors import ConfigError
from ltr.lab.analysis.values import (
    Aligned,
    StandardError,
    SystemValues,
    align,
    deviation,
    estimate_error,
)
from ltr.metrics.spec import METRICS

BETTER = "better"
WORSE = "worse"
DIFFER = "differ"
EQUIVALENT = "equivalent"
UNDECIDED = "undecided"
DECIDED = (BETTER, WORSE, DIFFER)
WORDS = (*DECIDED, EQUIVALENT, UNDECIDED)
# What the interval of a mean covers, by ``StandardError.covers``
COVERS = {"seeds": "queries and seeds", "queries": "queries only (these models)"}

EXACT_UP_TO = 14  # up to this many differences other than 0, all 2^n sign patterns are tried
_BLOCK = 1 << 22  # signs drawn at a time: 32 MiB
_TIE = 1e-9  # sums closer than this fraction of the largest possible sum differ only by rounding
_POWER = 0.8  # the power for which the report states a resolvable difference
_PER_PAIR = 20  # sign patterns per 1 / t; t = alpha / pairs is Holm's smallest threshold
_WEIGHTS = 1 << 21  # weights drawn at a time: 16 MiB, and twice that while drawing


def rule(margin: float, alpha: float) -> str:
    """Return the rule for the verdicts as one line of text, to print below a table."""
    level = f"{1 - alpha:.0%}"
    inner_level = f"{1 - 2 * alpha:.0%}"
    return (
        f"equivalent: two one-sided tests have p < {alpha:g}, and the {inner_level} interval lies "
        f"within ±{margin:g}; otherwise better or worse: p < {alpha:g} after Holm's correction "
        "(the larger p of the randomisation test over queries and of the t test over queries and "
        f"training runs), and 0 lies outside the {level} interval; differ, not better or worse, if "
        "a row has only one seed: these models differ, but one seed says nothing about the "
        "methods; otherwise undecided"
    )


def t_p(difference: float, error: float, df: float) -> float:
    """Return the two-sided p-value of a t test.

    If ``error`` is 0, it is 1 if ``difference`` is 0, and 0 otherwise.
    """
    if error == 0:
        return float(difference == 0)
    return float(2 * stdtr(df, -abs(difference) / error))


def sign_flip_p(by_query: Doubles, pairs: Ints, *, samples: int, seed: int = 0) -> Doubles:
    """Test for each pair whether its systems are exchangeable; return p-values, ``[pairs]``.

    If d_q are the differences of a pair, and s_bq are random signs, the two-sided p-value is

        p = (1 + #{b: |sum_q s_bq d_q| >= |sum_q d_q|}) / (samples + 1)

    If at most ``EXACT_UP_TO`` differences are not 0, p is exact: all sign patterns are tried.
    Source: Smucker, Allan and Carterette (2007), "A comparison of statistical significance tests
    for information retrieval evaluation", CIKM. The added 1 is from Phipson and Smyth (2010).

    Args:
        by_query: ``[systems, queries]``, the (weighted) means over seeds.
        pairs: ``[pairs, 2]``, the two rows of ``by_query`` in each pair.
        samples: number of sign patterns to draw, which are the same for all pairs.
        seed: seed of the draws.
    """
    differences = by_query[pairs[:, 0]] - by_query[pairs[:, 1]]
    p = np.array([_exact_p(pair[pair != 0]) for pair in differences])
    drawn = np.flatnonzero(np.isnan(p))
    if not len(drawn):
        return p
    first, second = pairs[drawn].T
    limit = np.abs(differences[drawn].sum(1)) - _TIE * np.abs(differences[drawn]).sum(1)
    # A pair's sum is the difference of two systems' sums, and there are fewer systems than pairs.
    centred = (by_query - by_query.mean(0)).T
    queries = by_query.shape[1]
    rng = np.random.default_rng([seed, 1])
    reached = np.zeros(len(drawn), dtype=np.int64)
    block = max(1, _BLOCK // queries)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        bits = np.frombuffer(rng.bytes(count * -(-queries // 8)), np.uint8).reshape(count, -1)
        signs = np.unpackbits(bits, axis=1, count=queries).astype(np.float64) * 2 - 1
        sums = signs @ centred
        reached += (np.abs(sums[:, first] - sums[:, second]) >= limit).sum(0)
    p[drawn] = (1 + reached) / (samples + 1)
    return p


def _exact_p(moving: Doubles) -> float:
    """Return p over all sign patterns of the non-zero differences; NaN if there are too many."""
    if len(moving) > EXACT_UP_TO:
        return math.nan
    if len(moving) < 2:
        return 1.0  # both signs of a single difference are equally far from 0
    bits = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
    limit = abs(moving.sum()) - _TIE * np.abs(moving).sum()
    return float((np.abs((2.0 * bits - 1) @ moving) >= limit).mean())


def equivalence_p(difference: float, error: float, df: float, margin: float) -> float:
    """Return the p-value of the null hypothesis |true difference| >= ``margin``.

    A small p-value means equivalence. It is the larger p-value of two one-sided t tests (TOST), and
    it is below alpha if and only if the 1 - 2 alpha interval of the t test is within the margin.
    Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15.

    >>> round(equivalence_p(0.005, 0.001, 99, margin=0.005), 3)  # at the margin's edge
    0.5
    """
    if error == 0 or math.isinf(error):
        return float(abs(difference) >= margin or error > 0)
    return float(stdtr(df, (abs(difference) - margin) / error))


def resolvable_difference(error: float, df: float, *, alpha: float = 0.05) -> float:
    """Return the true difference that a two-sided t test detects with probability 0.8.

    It is computed from the noncentral t distribution, as if the observed standard ``error``, with
    ``df`` degrees of freedom, were the true one. Sakai (2016), "Topic set size design", Information
    Retrieval Journal.

    >>> round(resolvable_difference(0.17 / 784**0.5, 783), 4)
    0.017
    """
    if error == 0 or math.isinf(error):
        return error
    from scipy.optimize import brentq  # slow to import

    critical = float(stdtrit(df, 1 - alpha / 2))
    shift = brentq(lambda t: nctdtr(df, t, critical) - 1 + _POWER, 0, 4 * critical + 4)
    return error * float(shift)


@dataclass(frozen=True)
class Comparison:
    """The comparison of two systems; ``word`` says how ``first`` compares with ``second``."""

    first: str  # name of the first system
    second: str  # name of the second system
    difference: float  # mean of first minus mean of second
    interval: tuple[float, float]  # 1 - alpha interval of the difference
    equivalence_interval: tuple[float, float]  # 1 - 2 alpha interval of the difference
    p_randomisation: float  # of the sign-flip test over queries
    p_training: float  # of the t test whose error includes the variance of training
    p_holm: float  # the larger of p_randomisation and p_training, Holm-corrected for all pairs
    p_queries: float  # p_randomisation, Holm-corrected for all pairs
    p_equivalence: float  # of the two one-sided tests, not corrected
    wins: int  # number of queries on which first is better (by the mean over seeds)
    ties: int
    losses: int
    queries: int
    standard_error: StandardError  # of the difference, and what it covers
    margin: float
    alpha: float

    @property
    def word(self) -> str:
        """The verdict: better, worse, differ, equivalent or undecided.

        ``equivalent`` has priority over ``better``, because a difference below the margin was
        declared irrelevant in advance (Lakens, 2017, Social Psychological and Personality Science
        8).
        """
        low, high = self.equivalence_interval
        if self.p_equivalence < self.alpha and -self.margin < low and high < self.margin:
            return EQUIVALENT
        significant = self.p_holm < self.alpha and not self.interval[0] <= 0 <= self.interval[1]
        if not significant:
            return UNDECIDED
        if self.standard_error.uncovered:
            return DIFFER
        return BETTER if self.difference > 0 else WORSE

    @property
    def note(self) -> str:
        """What the verdict leaves open, in words; often empty."""
        notes = []
        verdict = self.word
        error = self.standard_error
        if verdict == EQUIVALENT and self.p_holm < self.alpha:
            notes.append("not 0, but smaller than the margin")
        unsure = verdict == UNDECIDED and self.p_holm >= self.alpha
        if unsure and error.training > 0 and self.p_queries < self.alpha:
            notes.append("these models differ, but perhaps not the methods: train more seeds")
        if error.uncovered and verdict != UNDECIDED:
            seeds = "one seed, the same in every fold" if error.covers == "folds" else "one seed"
            notes.append(f"holds for these models, not for the methods: {seeds}")
        return "; ".join(notes)

    def resolvable(self, *, pairs: int = 1) -> float:
        """Return the true difference that a test at alpha / ``pairs`` finds in 80 % of cases."""
        error = self.standard_error
        return resolvable_difference(error.error, error.df, alpha=self.alpha / pairs)


def compare_systems(
    systems: Mapping[str, SystemValues],
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
    baseline: str | None = None,
) -> list[Comparison]:
    """Compare every pair of ``systems``, or each system with ``baseline``.

    If one system of a pair has only one seed, the verdict is about the trained models, because a
    method can be lucky with one seed. Holm's correction keeps the probability of any wrong "better"
    or "worse" among all pairs below alpha (Holm, 1979, "A simple sequentially rejective multiple
    test procedure", Scandinavian Journal of Statistics 6).

    Args:
        systems: the values of each system by its name, all on the same queries.
        margin: the largest difference that does not matter, in units of the metric.
        alpha: significance level of every test; the confidence level of intervals is 1 - alpha.
        seed: seed of all draws.
        samples: number of bootstrap samples, and of sign patterns (of which at least
            20 * pairs / alpha are drawn).
        baseline: name of the system to compare the others with, which is second in each pair; None:
            compare every pair.

    Returns:
        A comparison for each pair; none if there is only one system.

    Raises:
        ConfigError: ``margin`` or ``alpha`` is out of range.
        DataError: the systems have different queries, or no query has a value in all of them.
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise ConfigError(f"margin={margin:g}: expected a number > 0, such as 0.005 (half a point)")
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha={alpha:g}: expected a number between 0 and 0.5, such as 0.05")
    pairs = _pairs_to_compare(list(systems), baseline)
    aligned = align(systems)
    if not pairs:
        return []
    sampling_errors = bootstrap_errors(aligned, samples=samples, seed=seed)
    p_randomisation = sign_flip_p(
        aligned.weights * aligned.by_query,
        np.array(pairs),
        samples=max(samples, math.ceil(_PER_PAIR * len(pairs) / alpha)),
        seed=seed,
    )
    errors = [estimate_error(aligned, first, second) for first, second in pairs]
    differences = [float(aligned.means[first] - aligned.means[second]) for first, second in pairs]
    p_training = [
        t_p(difference, error.error, error.df)
        for difference, error in zip(differences, errors, strict=True)
    ]
    p_holm = _holm(np.maximum(p_randomisation, p_training))
    p_queries = _holm(p_randomisation)
    comparisons = []
    for n, (first, second) in enumerate(pairs):
        pair_errors = sampling_errors[:, first] - sampling_errors[:, second]
        signs = np.sign(aligned.by_query[first] - aligned.by_query[second])
        comparison = Comparison(
            first=aligned.names[first],
            second=aligned.names[second],
            difference=differences[n],
            interval=interval(differences[n], pair_errors, errors[n], alpha=alpha),
            equivalence_interval=interval(differences[n], pair_errors, errors[n], alpha=2 * alpha),
            p_randomisation=float(p_randomisation[n]),
            p_training=p_training[n],
            p_holm=float(p_holm[n]),
            p_queries=float(p_queries[n]),
            p_equivalence=equivalence_p(differences[n], errors[n].error, errors[n].df, margin),
            wins=int((signs == 1).sum()),
            ties=int((signs == 0).sum()),
            losses=int((signs == -1).sum()),
            queries=aligned.queries,
            standard_error=errors[n],
            margin=margin,
            alpha=alpha,
        )
        comparisons.append(comparison)
    return comparisons


def _pairs_to_compare(names: list[str], baseline: str | None) -> list[tuple[int, int]]:
    """Return the indices of the two systems of each pair: all pairs, or each with ``baseline``."""
    if baseline is None:
        return list(combinations(range(len(names)), 2))
    fixed = names.index(baseline)
    return [(number, fixed) for number in range(len(names)) if number != fixed]


def _holm(p: Doubles) -> Doubles:
    """Apply Holm's correction. (statsmodels' ``multipletests`` is slow: it calls gc.collect().)"""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def bootstrap_errors(aligned: Aligned, *, samples: int, seed: int = 0) -> Doubles:
    """Draw bootstrap samples of the queries; return the error of each mean, ``[samples, systems]``.

    The queries of each fold are drawn with replacement from that fold, and are the same for all
    systems; the value of a query is its mean over seeds. Seeds are not drawn, because this would
    count chance effects of a seed on a query three times (Owen, 2007, "The pigeonhole bootstrap",
    Annals of Applied Statistics 1). ``interval`` adds the variance of the seeds instead. A query
    that is drawn w times has the weight 1 + sqrt(n / (n - 1)) (w - 1) in a fold of n queries,
    because a sample varies less than its population (Rao and Wu, 1988). The draws of a system do
    not depend on the other systems.
    """
    n = aligned.queries
    errors = np.zeros((samples, len(aligned.names)))
    if n == 1:
        return errors
    centred = (aligned.weights * (aligned.by_query - aligned.means[:, None])).T / n
    rng = np.random.default_rng([seed, 2])
    block = max(1, _WEIGHTS // n)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        for fold in aligned.strata:
            m = len(fold)
            drawn = rng.integers(0, m, (count, m)) + m * np.arange(count)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=count * m).reshape(count, m)
            weights = 1 + math.sqrt(m / (m - 1)) * (counts - 1)
            errors[start : start + count] += weights @ centred[fold]
    return errors


def interval(
    estimate: float, sampling_errors: Doubles, error: StandardError, *, alpha: float
) -> tuple[float, float]:
    """Return the ends of the 1 - ``alpha`` interval of a mean, or of a difference of two means.

    The distance of each end from the estimate is sqrt(a^2 + b^2) (Howe, 1974, Journal of the
    American Statistical Association 69):

    - a comes from the queries. It is the distance of a bootstrap percentile from the estimate,
      multiplied by t / z, where t is the quantile of Student's t with ``error.df_queries`` degrees
      of freedom, and z is the quantile of the normal distribution (Hesterberg, 2015, "What teachers
      should know about the bootstrap", The American Statistician 69).
    - b comes from the training. It is the standard error that the training adds, times the
      quantile of Student's t with ``error.df_training`` degrees of freedom.

    The usual method, one t quantile with Satterthwaite's degrees of freedom, gives intervals that
    are too narrow if there are only two or three seeds. If ``error.covers`` is "folds", b is chosen
    to make the distance equal to that of the usual method. In this case, the variance of the
    training is the variance between folds minus the variance of the queries.
    Howe's formula would give too short a distance here, because it assumes that the two parts are
    independent, and they are not.

    Args:
        estimate: the mean, or the difference.
        sampling_errors: the errors of the estimate in the bootstrap samples, ``[samples]``: a
            column of the result of ``bootstrap_errors``, or the difference of two columns.
        error: the variances and the degrees of freedom.
        alpha: 0.05 for a 95 % interval.

    Returns:
        The lower and the upper end.
    """
    if math.isinf(error.error):
        return -math.inf, math.inf
    tail = 1 - alpha / 2
    t_queries = float(stdtrit(error.df_queries, tail))
    t_training = float(stdtrit(error.df_training, tail))
    t_both = float(stdtrit(error.df, tail))
    stretch = t_queries / ndtri(tail)
    training = t_training * math.sqrt(error.training)
    if error.covers == "folds":
        remainder = (t_both * error.error) ** 2 - t_queries**2 * error.queries
        training = math.sqrt(max(0.0, remainder))
    quantiles = np.quantile(sampling_errors, [alpha / 2, tail])
    below, above = (math.hypot(stretch * quantile, training) for quantile in quantiles)
    return estimate - below, estimate + above


@dataclass(frozen=True)
class SystemInterval:
    """The mean of a system and its interval over queries and, if there are several, seeds."""

    mean: float  # mean over seeds, folds and the queries of each fold
    low: float
    high: float
    deviation: float  # standard deviation over seeds of the mean over folds; NaN with one seed
    seeds: int
    queries: int
    standard_error: StandardError

    def covers(self, number: float) -> str:
        """Return "covers" if the interval contains ``number``.

        Otherwise return "above" if the interval lies above ``number``, and "below" if it lies
        below.
        """
        if self.low <= number <= self.high:
            return "covers"
        return "above" if self.mean > number else "below"


def interval_of(
    system: SystemValues,
    metric: str = "",
    *,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
) -> SystemInterval:
    """Return the mean of one system and its confidence interval.

    If all values of ``metric`` are between 0 and 1 by definition, the interval is cut at 0 and 1.
    This does not change how often it covers the true mean, which cannot be in the part that is cut
    off.

    Args:
        system: the values of the metric.
        metric: the name of the metric, such as ``ndcg@5``.
        alpha: 0.05 for a 95 % interval.
        seed: seed of all draws.
        samples: number of bootstrap samples.

    Raises:
        DataError: no query has a value.
    """
    aligned = align({"system": system})
    error = estimate_error(aligned, 0)
    mean = float(aligned.means[0])
    sampling_errors = bootstrap_errors(aligned, samples=samples, seed=seed)[:, 0]
    low, high = interval(mean, sampling_errors, error, alpha=alpha)
    if metric.partition("@")[0] in {*METRICS} - {"dcg"}:
        low = max(low, 0.0)
        high = min(high, 1.0)
    seed_means = aligned.over_folds(aligned.values[0]).mean(1)
    return SystemInterval(
        mean=mean,
        low=low,
        high=high,
        deviation=deviation(seed_means),
        seeds=len(seed_means),
        queries=aligned.queries,
        standard_error=error,
    )


def significant_best(
    systems: Mapping[str, SystemInterval], pairs: Iterable[Comparison]
) -> list[str]:
    """Return the best of ``systems``, in a list, if all verdicts on it say that it differs.

    The list is empty if a verdict on the best system is "equivalent" or "undecided", or if there is
    no verdict on it.
    """
    best = max(systems, key=lambda name: systems[name].mean, default="")
    verdicts = {pair.word for pair in pairs if best in (pair.first, pair.second)}
    return [best] if verdicts and verdicts.issubset(DECIDED) else []
