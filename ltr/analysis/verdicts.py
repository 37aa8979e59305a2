"""Compare pairs of systems: intervals and verdicts.

A system is a method as it is trained: its runs differ in the seed alone. Each pair gets one word:
"better", "worse", "differ" (these models do, with one seed), "equivalent" or "undecided".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import nctdtr, ndtri, stdtr, stdtrit

from ltr.analysis.values import Aligned, Spread, SystemValues, align, spread_of
from ltr.arrays import Doubles, Ints
from ltr.errors import ConfigError

BETTER, WORSE, DIFFER = "better", "worse", "differ"
EQUIVALENT, UNDECIDED = "equivalent", "undecided"
WORDS = (BETTER, WORSE, DIFFER, EQUIVALENT, UNDECIDED)
COVERS = {  # Spread.covers in words
    "seeds": "queries and seeds",
    "folds": "queries and trainings, by folds",
    "queries": "queries only",
}

EXACT_UP_TO = 14  # differences other than 0: all 2^n sign patterns are tried
_BLOCK = 1 << 22  # signs at a time: 32 MiB
_TIE = 1e-9  # sums closer than this part of the largest possible sum are the same but for rounding
_POWER = 0.8  # that the report states
_PER_PAIR = 20  # sign patterns for each 1 / (alpha / pairs), Holm's smallest threshold
_WEIGHTS = 1 << 21  # at a time: 16 MiB, and twice that while they are drawn


def rule(margin: float, alpha: float) -> str:
    """The rule of the verdicts in one line, for under a table."""
    sure, inner = f"{1 - alpha:.0%}", f"{1 - 2 * alpha:.0%}"
    return (
        f"equivalent: two one-sided tests (p < {alpha:g}) and the {inner} interval put the "
        f"difference within ±{margin:g}; else better or worse: p < {alpha:g} after Holm, p the "
        "larger of the randomisation test over queries and the t test over queries and trainings, "
        f"and 0 outside the {sure} interval; with one seed of either row not better or worse but "
        "differ: these models do, of the methods one seed cannot tell; else undecided"
    )


def t_p(difference: float, error: float, df: float) -> float:
    """Two-sided p of ``difference``; with an error of 0 it is 1 for no difference, else 0."""
    if error == 0:
        return float(difference == 0)
    return float(2 * stdtr(df, -abs(difference) / error))


def sign_flip_p(by_query: Doubles, pairs: Ints, *, samples: int, seed: int = 0) -> Doubles:
    """Two-sided p, ``[pairs]``, of the hypothesis that a pair's systems are exchangeable.

    With d the differences of a pair and s signs drawn at random (exact for few differences):

        p = (1 + #{b: |sum_q s_bq d_q| >= |sum_q d_q|}) / (samples + 1)

    Smucker, Allan and Carterette (2007), "A comparison of statistical significance tests for
    information retrieval evaluation", CIKM; the added 1 after Phipson and Smyth (2010).

    ``by_query`` is ``[systems, queries]``, mean over seeds (weighted); ``pairs`` ``[pairs, 2]`` are
    rows of it; ``samples`` sign patterns are drawn by ``seed``, the same for all pairs.
    """
    differences = by_query[pairs[:, 0]] - by_query[pairs[:, 1]]
    p = np.array([_exact_p(one[one != 0]) for one in differences])
    drawn = np.flatnonzero(np.isnan(p))
    if not len(drawn):
        return p
    first, second = pairs[drawn].T
    limit = np.abs(differences[drawn].sum(1)) - _TIE * np.abs(differences[drawn]).sum(1)
    # A pair's sum is the difference of two systems' sums: systems are few, pairs many.
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
    """p over all sign patterns of the differences that are not 0; NaN where they are too many."""
    if len(moving) > EXACT_UP_TO:
        return math.nan
    if len(moving) < 2:
        return 1.0  # both signs of one are as far from 0
    bits = np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving)) & 1
    limit = abs(moving.sum()) - _TIE * np.abs(moving).sum()
    return float((np.abs((2.0 * bits - 1) @ moving) >= limit).mean())


def equivalence_p(difference: float, error: float, df: float, margin: float) -> float:
    """p of the hypothesis |difference| >= ``margin``; small: the systems are equivalent.

    The larger p of two one-sided t tests (TOST); it is below alpha just where the 1 - 2 alpha
    interval lies within the margin. Schuirmann (1987), Journal of Pharmacokinetics and
    Biopharmaceutics 15.

    >>> round(equivalence_p(0.005, 0.001, 99, margin=0.005), 3)  # at the margin's edge
    0.5
    """
    if error == 0 or math.isinf(error):
        return float(abs(difference) >= margin or error > 0)
    return float(stdtr(df, (abs(difference) - margin) / error))


def resolvable_difference(error: float, df: float, *, alpha: float = 0.05) -> float:
    """The true difference at which the two-sided t test rejects with probability ``_POWER``.

    From the noncentral t distribution, with the observed standard ``error`` of ``df`` degrees of
    freedom taken for the true one. Sakai (2016), "Topic set size design", Information Retrieval
    Journal.

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
    """A pair of systems; ``first`` is ``word`` beside ``second``."""

    first: str  # names of the systems
    second: str
    difference: float  # mean of first minus mean of second
    interval: tuple[float, float]  # of the difference, 1 - alpha
    inner: tuple[float, float]  # the same, 1 - 2 alpha, for equivalence
    p_randomisation: float  # of the sign-flip test over queries
    p_t: float  # of the paired t test over queries
    p_training: float  # of the t test whose error holds the training's variance as well
    p_holm: float  # the larger of randomisation and training, corrected for all pairs compared
    p_queries: float  # of the randomisation test, corrected likewise
    p_equivalence: float  # of the two one-sided tests, not corrected
    wins: int  # queries on which first is above, at and below second, means over seeds
    ties: int
    losses: int
    queries: int
    spread: Spread  # the standard error and what it covers
    margin: float
    alpha: float

    @property
    def word(self) -> str:
        """The verdict: better, worse, differ, equivalent or undecided.

        ``equivalent`` goes before ``better``: a difference below the margin was said beforehand not
        to matter (Lakens, 2017, Social Psychological and Personality Science 8).
        """
        low, high = self.inner
        if self.p_equivalence < self.alpha and -self.margin < low and high < self.margin:
            return EQUIVALENT
        significant = self.p_holm < self.alpha and not self.interval[0] <= 0 <= self.interval[1]
        if not significant:
            return UNDECIDED
        if self.spread.uncovered:
            return DIFFER
        return BETTER if self.difference > 0 else WORSE

    @property
    def note(self) -> str:
        """What the word leaves out; often nothing."""
        sure_of_queries = self.p_queries < self.alpha
        notes, word = [], self.word
        if word == EQUIVALENT and self.p_holm < self.alpha:
            notes.append("not 0, but smaller than the margin")
        unsure = word == UNDECIDED and self.p_holm >= self.alpha
        if unsure and self.spread.training > 0 and sure_of_queries:
            notes.append("sure of these models, not of the methods: more seeds would tell")
        if self.spread.uncovered and word != UNDECIDED:
            where = ", the same in every fold" if self.spread.covers == "folds" else ""
            notes.append(f"these models, not the methods: one seed{where}")
        return "; ".join(notes)

    def resolvable(self, *, pairs: int = 1) -> float:
        """The true difference found with probability ``_POWER`` at alpha / ``pairs``."""
        return resolvable_difference(self.spread.error, self.spread.df, alpha=self.alpha / pairs)


def compare_systems(
    systems: Mapping[str, SystemValues],
    *,
    margin: float = 0.005,
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
    baseline: str | None = None,
) -> list[Comparison]:
    """Compare every pair of ``systems``, or each with ``baseline``.

    With one seed of either the word is about the trained models, in which a method can be lucky.
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6, keeps the chance of any wrong "better" or "worse" among all pairs below alpha.

    Args:
        systems: by name, on the same queries; of one alone there is no pair.
        margin: the largest difference that does not matter, in units of the metric.
        alpha: of every test; intervals cover 1 - alpha.
        seed: of all draws.
        samples: of the bootstrap, many; of the randomisation test at least ``20 pairs / alpha``.
        baseline: the system that the others are compared with, second in each pair.

    Raises:
        ConfigError: a setting is out of range.
        DataError: the queries differ, or none is left.
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise ConfigError(f"margin={margin:g}: give a number > 0, such as 0.005 for half a point")
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha={alpha:g}: give a number between 0 and 0.5, such as 0.05")
    names = list(systems)
    pairs = list(combinations(range(len(names)), 2))
    if baseline is not None:
        fixed = names.index(baseline)
        pairs = [(i, fixed) for i in range(len(names)) if i != fixed]
    aligned = align(systems)
    if not pairs:
        return []
    draws = draw(aligned, samples=samples, seed=seed)
    weighted = aligned.weights * aligned.by_query
    p_randomisation = sign_flip_p(
        weighted,
        np.array(pairs),
        samples=max(samples, math.ceil(_PER_PAIR * len(pairs) / alpha)),
        seed=seed,
    )
    spreads = [spread_of(aligned, i, j) for i, j in pairs]
    differences = [float(aligned.means[i] - aligned.means[j]) for i, j in pairs]
    p_training = [t_p(d, s.error, s.df) for d, s in zip(differences, spreads, strict=True)]
    p_holm, p_queries = _holm(np.maximum(p_randomisation, p_training)), _holm(p_randomisation)

    found = []
    for n, (i, j) in enumerate(pairs):
        difference, spread, off = differences[n], spreads[n], draws[:, i] - draws[:, j]
        signs = np.sign(aligned.by_query[i] - aligned.by_query[j])
        losses, ties, wins = (int((signs == sign).sum()) for sign in (-1, 0, 1))
        found.append(
            Comparison(
                first=names[i], second=names[j], difference=difference,
                interval=interval(difference, off, spread, alpha=alpha),
                inner=interval(difference, off, spread, alpha=2 * alpha),
                p_randomisation=float(p_randomisation[n]),
                p_t=t_p(difference, math.sqrt(spread.queries), spread.df_queries),
                p_training=p_training[n], p_holm=float(p_holm[n]), p_queries=float(p_queries[n]),
                p_equivalence=equivalence_p(difference, spread.error, spread.df, margin),
                wins=wins, ties=ties, losses=losses, queries=aligned.queries,
                spread=spread, margin=margin, alpha=alpha,
            )
        )  # fmt: skip
    return found


def _holm(p: Doubles) -> Doubles:
    """Holm's correction: statsmodels' ``multipletests``, which collects garbage at every call."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def draw(aligned: Aligned, *, samples: int, seed: int = 0) -> Doubles:
    """The error of each system's mean in samples of the queries, ``[samples, systems]``.

    Queries are drawn with replacement, jointly for all systems, from the means over seeds: drawing
    seeds as well would count the chance agreement of a seed with a query three times (Owen, 2007,
    "The pigeonhole bootstrap", Annals of Applied Statistics 1); ``interval`` adds their variance. A
    weight w becomes 1 + sqrt(n / (n - 1)) (w - 1), as a sample varies less than its population (Rao
    and Wu, 1988). A system's draws do not depend on the other systems.
    """
    n = aligned.queries
    drawn = np.zeros((samples, len(aligned.names)))
    if n == 1:
        return drawn
    centred = (aligned.weights * (aligned.by_query - aligned.means[:, None])).T / n
    rng = np.random.default_rng([seed, 2])
    block = max(1, _WEIGHTS // n)
    for start in range(0, samples, block):
        count = min(block, samples - start)
        chosen = rng.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n)
        drawn[start : start + count] = (1 + math.sqrt(n / (n - 1)) * (counts - 1)) @ centred
    return drawn


def interval(estimate: float, off: Doubles, spread: Spread, *, alpha: float) -> tuple[float, float]:
    """The 1 - ``alpha`` interval: over queries by percentiles, with the training added.

    The percentiles' distances from the estimate are stretched by t / z (Hesterberg, 2015, "What
    teachers should know about the bootstrap", The American Statistician 69). That of the training
    is t with the seeds' df times its standard error; the two add up as the root of their squares
    (Howe, 1974, Journal of the American Statistical Association 69), as one t with Satterthwaite's
    df covers too little with two or three seeds.

    ``off``, ``[samples]``, is the column of a system in ``draw``, or the difference of two.
    """
    if math.isinf(spread.error):
        return -math.inf, math.inf
    tail = 1 - alpha / 2
    stretch = stdtrit(spread.df_queries, tail) / ndtri(tail)
    training = math.sqrt(spread.training)
    if training:
        training *= float(stdtrit(spread.df_training, tail))
    below, above = (math.hypot(stretch * q, training) for q in np.quantile(off, [alpha / 2, tail]))
    return estimate - below, estimate + above


@dataclass(frozen=True)
class SystemInterval:
    """The mean of a system and its 1 - alpha interval, over queries and, of several, seeds."""

    mean: float  # over folds of the mean over queries, mean over seeds
    low: float
    high: float
    deviation: float  # over seeds of the mean of a seed's runs; NaN with one
    seeds: int
    queries: int
    spread: Spread

    def covers(self, number: float) -> str:
        """Whether the interval ``covers`` a number, or is ``above`` or ``below`` it."""
        if self.low <= number <= self.high:
            return "covers"
        return "above" if self.mean > number else "below"


def interval_of(
    system: SystemValues, *, alpha: float = 0.05, seed: int = 0, samples: int = 10_000
) -> SystemInterval:
    """Mean and interval of one system; ``DataError`` where no query has a value."""
    aligned = align({"system": system})
    spread, mean = spread_of(aligned, 0), float(aligned.means[0])
    off = draw(aligned, samples=samples, seed=seed)[:, 0]
    low, high = interval(mean, off, spread, alpha=alpha)
    of_seeds = aligned.over_folds(aligned.values[0]).mean(1)
    sd = float(of_seeds.std(ddof=1)) if len(of_seeds) > 1 else math.nan
    return SystemInterval(mean, low, high, sd, len(of_seeds), aligned.queries, spread)
