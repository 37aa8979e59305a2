"""Tests, intervals and verdicts: hand cases, SciPy's and statsmodels' answers, edges.

Then how often they are wrong, by simulation of values such as NDCG gives: skewed and tied, with
many queries on which all systems agree. A rate is held to the range that a binomial of the right
probability leaves once in ten thousand.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from ltr.errors import ConfigError, DataError
from ltr.lab.analysis.values import SystemValues, align, estimate_error
from ltr.lab.analysis.verdicts import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    UNDECIDED,
    WORSE,
    bootstrap_errors,
    compare_systems,
    equivalence_p,
    interval,
    interval_of,
    resolvable_difference,
    rule,
    sign_flip_p,
)  # fmt: skip
from tests.helpers.folders import refused

ONE_PAIR = np.array([[0, 1]])


def system(values, folds: int = 1) -> SystemValues:
    """``values`` ``[seeds, queries]`` or ``[queries]`` of as many folds of equal size."""
    values = np.atleast_2d(np.asarray(values, dtype=float))
    count = values.shape[1]
    queries = [(i * folds // count, f"q{i}") for i in range(count)]
    return SystemValues(values, queries)


def noisy(seeds: int = 3, queries: int = 80, shift: float = 0.0, seed: int = 0, **more):
    """Two systems, the first ``shift`` above the second."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.2, 0.8, queries)

    def simulate(mean: float) -> SystemValues:
        run = rng.normal(0, 0.01, (seeds, 1))
        return system(base + mean + run + rng.normal(0, 0.05, (seeds, queries)), **more)

    return {"a": simulate(shift), "b": simulate(0.0)}


def raw(pair) -> float:
    return max(pair.p_randomisation, pair.p_training)


def only(systems, **settings):
    (pair,) = compare_systems(systems, **{"samples": 1000, **settings})
    return pair


# --- randomisation test


def test_sign_flip_p_tries_all_patterns_of_few_differences() -> None:
    d = np.random.default_rng(0).integers(-3, 4, 9) / 4  # ties and zeros
    sums = [abs(np.dot(signs, d)) for signs in itertools.product([-1, 1], repeat=len(d))]
    p = np.mean(np.array(sums) >= abs(d.sum()) - 1e-12)
    both = np.stack([d, np.zeros_like(d)])
    assert sign_flip_p(both, ONE_PAIR, samples=100)[0] == pytest.approx(p, abs=1e-12)


def test_sign_flip_p_counts_ties_and_is_never_zero(monkeypatch) -> None:
    d = np.array([0.1] * 12 + [-0.1] * 8)  # |sum| = 0.4 is met by chance very often
    both = np.stack([d + 0.3, np.full(20, 0.3)])
    p = sign_flip_p(both, ONE_PAIR, samples=40_000)
    assert p[0] == pytest.approx(2 * stats.binom.sf(11, 20, 0.5), abs=0.01)
    monkeypatch.setattr("ltr.lab.analysis.verdicts._BLOCK", 160)  # 8 patterns at a time
    assert sign_flip_p(both, ONE_PAIR, samples=40_000) == p
    far = np.stack([np.linspace(1, 2, 100), np.zeros(100)])
    assert sign_flip_p(far, ONE_PAIR, samples=999)[0] == 1 / 1000


def test_sign_flip_p_agrees_with_scipy_and_repeats() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal([[0.06], [0.0], [0.03]], 0.2, (3, 60))
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    p = sign_flip_p(values, pairs, samples=20_000, seed=3)
    for got, (i, j) in zip(p, pairs, strict=True):
        want = stats.permutation_test(
            (values[i] - values[j],), np.sum, permutation_type="samples", vectorized=True,
            n_resamples=20_000, rng=np.random.default_rng(0),
        ).pvalue  # fmt: skip
        assert got == pytest.approx(want, abs=5 * math.sqrt(2 * want / 20_000))
    assert (sign_flip_p(values, pairs, samples=20_000, seed=3) == p).all()
    assert (sign_flip_p(values, pairs, samples=20_000, seed=4) != p).any()


def test_compare_systems_weights_folds_as_in_the_mean() -> None:
    queries = [("small", f"{i}") for i in range(3)] + [("large", f"{i}") for i in range(9)]
    values = np.random.default_rng(2).random((2, 12))
    pair = only({name: SystemValues(values[[i]], queries) for i, name in enumerate("ab")})
    weighed = values * ([12 / 2 / 3] * 3 + [12 / 2 / 9] * 9)
    assert pair.difference == pytest.approx((weighed[0] - weighed[1]).mean())
    assert pair.p_randomisation == sign_flip_p(weighed, ONE_PAIR, samples=100)[0]  # all patterns
    first, second = np.split(values[0] - values[1], [3])
    within = (first.var(ddof=1) / 3 + second.var(ddof=1) / 9) / 2**2
    assert (pair.standard_error.queries, pair.standard_error.df) == (pytest.approx(within), 12 - 2)


# --- t, TOST, Holm, effect, power


def test_compare_systems_with_one_seed_agrees_with_paired_t_and_tost() -> None:
    systems = noisy(seeds=1, shift=0.01)
    pair = only(systems, margin=0.02)
    a = systems["a"].values[0]
    b = systems["b"].values[0]
    assert pair.p_training == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6)
    assert pair.p_equivalence == pytest.approx(ttost_paired(a, b, -0.02, 0.02)[0], rel=1e-6)
    assert pair.difference == pytest.approx((a - b).mean())
    exact = [equivalence_p(difference, 0, 9, margin=0.1) for difference in (0.05, -0.2)]
    assert [*exact, equivalence_p(0, math.inf, 1, margin=0.1)] == [0, 1, 1]
    assert all(text in rule(0.02, 0.05) for text in ("p < 0.05", "90% interval", "95% interval"))


@pytest.mark.slow
def test_compare_systems_corrects_all_pairs_or_those_with_the_baseline() -> None:
    systems = noisy(shift=0.02) | {"c": noisy(shift=0.01, seed=0)["a"]}
    pairs = compare_systems(systems, samples=1000)
    assert [(p.first, p.second) for p in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    want = multipletests([raw(p) for p in pairs], method="holm")[1]
    assert [p.p_holm for p in pairs] == pytest.approx(want)
    fewer = compare_systems(systems, samples=1000, baseline="b")
    assert [(p.first, p.second) for p in fewer] == [("a", "b"), ("c", "b")]
    alone = only({name: systems[name] for name in "ab"})  # a third changes it by Holm only
    assert pairs[0].interval == pytest.approx(alone.interval, abs=1e-12)
    assert pairs[0].p_training == alone.p_training
    assert min(p.p_holm for p in fewer) == pytest.approx(2 * min(map(raw, fewer)))


def test_resolvable_difference_agrees_with_statsmodels() -> None:
    want = TTestPower().solve_power(None, nobs=784, alpha=0.05, power=0.8) * 0.17
    assert resolvable_difference(0.17 / 28, 783) == pytest.approx(want, rel=1e-5)
    with_few_degrees = resolvable_difference(0.01, 3)  # seeds decide: the same error, few degrees
    assert with_few_degrees > 1.3 * resolvable_difference(0.01, 783)
    assert 0.05 < resolvable_difference(0.01, 1.2, alpha=0.05 / 100) < math.inf
    assert resolvable_difference(0, 9) == 0
    assert resolvable_difference(math.inf, 1) == math.inf


# --- spread and bootstrap


def test_seed_variances_agree_with_a_hand_made_case() -> None:
    values = np.array([[0.1, 0.5], [0.3, 0.5]])  # run means 0.3, 0.4; residuals -+0.05
    (variance,) = align({"a": system(values)}).seed_variances
    assert variance.raw == pytest.approx(0.005 / 2)
    residual = 4 * 0.05**2 / (1 * 1)
    assert variance.shared == pytest.approx(max(0, 0.005 - residual / 2) / 2)
    assert variance.df == 1
    assert align({"a": system(values[:1])}).seed_variances == [None]


@pytest.mark.slow
@pytest.mark.parametrize(("folds", "common"), [(1, False), (2, False), (5, True)])
def test_seed_variances_estimate_the_variance_of_the_mean(folds, common) -> None:
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(1000):
        run = rng.normal(0, 0.05, (4, 1 if common else folds)) * np.ones((4, folds))
        run = np.repeat(run, 30 // folds, axis=1)
        values = run + rng.normal(0, 0.1, (4, 30)) + rng.random(30)
        estimates.append(align({"a": system(values, folds)}).seed_variances[0].shared)
    truth = 0.05**2 / (4 if common else 4 * folds)
    # the larger of two estimates: somewhat too large where a seed differs by fold
    assert truth * 0.93 <= np.mean(estimates) <= truth * (1.07 if common or folds == 1 else 1.5)


@pytest.mark.parametrize(("seeds", "folds"), [(1, 1), (3, 1), (2, 4), (1, 5)])
def test_bootstrap_errors_vary_as_the_standard_error_says(seeds, folds) -> None:
    systems = noisy(seeds=seeds, queries=100, folds=folds)
    unequal = (np.arange(100) * folds // 100) ** 2 / 10  # folds differ in difficulty
    hard = {
        name: SystemValues(values.values + unequal, values.queries)
        for name, values in systems.items()
    }
    aligned = align(hard)
    errors = bootstrap_errors(aligned, samples=20_000)
    pair_error = estimate_error(aligned, 0, 1)
    pair_errors = errors[:, 0] - errors[:, 1]
    assert pair_errors.mean() == pytest.approx(0, abs=4 * pair_error.error / math.sqrt(20_000))
    assert pair_errors.var() == pytest.approx(pair_error.queries, rel=0.06)
    mean_error = estimate_error(aligned, 0)
    assert errors[:, 0].var() == pytest.approx(mean_error.queries, rel=0.06)


def test_interval_of_one_run_in_each_fold_is_that_of_its_t_test() -> None:
    systems = noisy(seeds=1, folds=4)
    systems["a"].values[0] += np.repeat([0.0, 0.04, 0.1, 0.02], 20)  # some trainings are luckier
    error = estimate_error(align(systems), 0, 1)
    sampling_errors = stats.norm.ppf((np.arange(9999) + 0.5) / 9999) * error.queries**0.5
    half = stats.t.ppf(0.975, error.df) * error.error
    assert interval(0, sampling_errors, error, alpha=0.05) == pytest.approx((-half, half), rel=1e-3)
    assert error.training > error.queries


def test_estimate_error_says_what_it_covers() -> None:
    pairs = {
        "seeds": only(noisy(seeds=3)),
        "queries": only(noisy(seeds=1, shift=0.2)),
        "folds": only(noisy(seeds=1, folds=5, shift=0.2)),
    }
    assert {key: pair.standard_error.covers for key, pair in pairs.items()} == {
        key: key for key in pairs
    }
    covered_by_means = [
        interval_of(noisy(seeds=n, folds=5)["a"]).standard_error.covers for n in (1, 2)
    ]
    assert covered_by_means == ["queries", "seeds"]  # difficulty and training of a fold are one
    assert pairs["queries"].standard_error.uncovered == ("a", "b")
    assert pairs["queries"].word == pairs["folds"].word == DIFFER
    assert pairs["queries"].note == "holds for these models, not for the methods: one seed"
    assert pairs["folds"].standard_error.uncovered == ("a", "b")
    assert pairs["folds"].note == f"{pairs['queries'].note}, the same in every fold"
    assert pairs["seeds"].standard_error.uncovered == ()
    mixed = {"a": noisy(seeds=3, shift=0.2)["a"], "b": noisy(seeds=1)["b"]}
    assert only(mixed).standard_error.uncovered == ("b",)
    assert only(mixed).word == DIFFER


# --- verdicts


def test_word_is_the_verdict() -> None:
    assert only(noisy(shift=0.1)).word == BETTER
    assert only(noisy(seeds=1, shift=-0.1)).word == DIFFER
    assert only(noisy(shift=0.0), margin=0.1).word == EQUIVALENT
    assert only(noisy(shift=0.0), margin=0.001).word == UNDECIDED
    # a sure difference below the margin
    pair = only(noisy(seeds=1, queries=2000, shift=0.02), margin=0.05)
    assert pair.p_holm < 0.05
    assert pair.word == EQUIVALENT
    assert pair.note.startswith("not 0, but smaller than the margin")


@pytest.mark.parametrize("seeds", [1, 3])
def test_compare_systems_mirrors_swapped_systems(seeds) -> None:
    systems = noisy(seeds=seeds, shift=0.015)
    pair = only(systems)
    mirrored = only(dict(reversed(systems.items())))
    assert (mirrored.first, mirrored.second) == ("b", "a")
    opposite = {"better": "worse", "worse": "better"}
    assert opposite.get(mirrored.word, mirrored.word) == pair.word
    assert (mirrored.losses, mirrored.ties, mirrored.wins) == (pair.wins, pair.ties, pair.losses)
    assert mirrored.difference == pytest.approx(-pair.difference)
    assert mirrored.interval[::-1] == pytest.approx([-end for end in pair.interval])
    for name in ("p_randomisation", "p_training", "p_holm"):
        assert getattr(mirrored, name) == pytest.approx(getattr(pair, name), abs=1e-12), name


# --- values


def test_align_leaves_out_queries_that_one_system_skips() -> None:
    systems = noisy(seeds=2)
    values = systems["a"].values.copy()
    values[1, 3] = values[:, 5] = np.nan
    with_gaps = {"a": SystemValues(values, systems["a"].queries), "b": systems["b"]}
    scored = np.delete(np.arange(80), [3, 5])
    queries = [systems["a"].queries[i] for i in scored]
    without = {
        name: SystemValues(both_seeds.values[:, scored], queries)
        for name, both_seeds in systems.items()
    }
    assert align(with_gaps).dropped == 2
    assert only(with_gaps) == only(without)


def test_compare_systems_accepts_constant_differences_and_one_query() -> None:
    same = noisy()["a"]
    pair = only({"a": same, "b": SystemValues(same.values[::-1], same.queries)})
    assert (pair.difference, pair.p_randomisation, pair.p_training) == (0, 1, 1)
    assert (pair.wins, pair.ties, pair.losses) == (0, 80, 0)
    constant = system(same.values[0])
    pair = only({"a": constant, "b": constant})
    assert (pair.word, pair.interval, pair.p_holm) == (EQUIVALENT, (0, 0), 1)
    pair = only({"a": system(same.values[0] + 0.1), "b": constant})
    assert (pair.word, pair.p_training) == (DIFFER, 0)
    assert pair.interval == pytest.approx((0.1, 0.1))
    for seeds in (1, 2):
        values = np.array([[[0.9], [0.8]], [[0.1], [0.2]]])[:, :seeds]
        pair = only(
            {name: system(system_values) for name, system_values in zip("ab", values, strict=True)}
        )
        assert (pair.word, raw(pair), pair.resolvable()) == (UNDECIDED, 1, math.inf)
        assert pair.interval == (-math.inf, math.inf)


def test_interval_of_is_around_the_mean_of_folds() -> None:
    queries = [(1, "a"), (1, "b"), (1, "c"), (2, "d")]
    folds = SystemValues(np.array([[0.0, 0.3, 0.6, 0.9]]), queries)
    estimate = interval_of(folds, samples=100)
    higher = interval_of(SystemValues(folds.values + 1, queries), samples=100)
    assert estimate.mean == pytest.approx((0.3 + 0.9) / 2)
    assert higher.standard_error.queries == pytest.approx(
        estimate.standard_error.queries
    )  # one fold has one query
    estimate = interval_of(system(np.linspace(0.4, 0.6, 100)), samples=2000)
    assert math.isnan(estimate.deviation)
    answers = [estimate.covers(number) for number in (0.5, estimate.low, estimate.high, 0.7, 0.3)]
    assert answers == ["covers", "covers", "covers", "below", "above"]
    apart = system(np.array([[0.1, 0.2], [0.9, 1.0]]))  # two seeds
    estimate = [interval_of(apart, metric) for metric in ("ndcg@5", "dcg@5")]
    assert (estimate[0].low, estimate[0].high) == (0, 1)
    assert estimate[1].low < 0 < 1 < estimate[1].high


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [("margin", 0, "> 0"), ("margin", math.nan, "> 0"), ("alpha", 0.5, "between")],
)
def test_compare_systems_refuses_settings_out_of_range(key, value, remedy) -> None:
    message = refused(lambda: only(noisy(), **{key: value}), ConfigError)
    assert message.startswith(f"{key}={value}: expected ")
    assert remedy in message


def test_align_refuses_systems_without_shared_queries() -> None:
    systems = noisy(seeds=1)
    fewer = SystemValues(systems["b"].values[:, :79], systems["b"].queries[:79])
    assert "a and b are measured on different queries" in refused(
        lambda: only(systems | {"b": fewer}), DataError
    )
    skipped = {"a": system([np.nan, np.nan])}
    assert "choose another metric" in refused(lambda: align(skipped), DataError)


# --- how often they are wrong

QUERIES = 60


def between(rate: float, tries: int) -> NDArray[np.float64]:
    """The least and the largest share of so many tries."""
    return stats.binom.ppf([0.0001, 0.9999], tries, rate) / tries


def ndcg_like(
    rng: np.random.Generator, systems: int, seeds: int, *, seed_sd: float = 0.0
) -> NDArray[np.float64]:
    """``[systems, seeds, queries]`` of systems that are equal but for chance.

    On a third of the queries all are 0 or 1; elsewhere a system has its own skewed taste, a seed
    its own, and a run is ``seed_sd`` better or worse on all; values stand on a grid from 0 to 1.
    """
    easy = rng.beta(0.7, 0.5, QUERIES)
    taste = rng.exponential(0.1, (systems, 1, QUERIES))
    chance = rng.exponential(0.1, (systems, seeds, QUERIES)) - 0.1
    run = rng.normal(0, seed_sd, (systems, seeds, 1))
    values = np.clip(np.round((easy + taste + chance + run) * 20) / 20, 0, 1)
    agreed = rng.random(QUERIES) < 1 / 3
    return np.where(agreed, np.round(easy), values)


def systems_of(values: NDArray[np.float64], folds: int = 1) -> dict[str, SystemValues]:
    return {f"s{i}": system(system_values, folds) for i, system_values in enumerate(values)}


def verdicts(
    tries: int, systems: int, seeds: int, *, folds: int = 1, common: float = 0.0, **more
) -> Iterator[list[str]]:
    """The words of all pairs, once per try; with folds every fold's runs are trained apart.

    A seed is better or worse in all folds alike by ``common``, as its runs begin alike.
    """
    rng = np.random.default_rng(systems + 10 * seeds + 100 * folds)
    for _ in range(tries):
        values = ndcg_like(rng, systems, seeds, **more)
        if folds > 1:
            fold = np.arange(QUERIES) * folds // QUERIES
            fold_effects = rng.normal(0, 0.0 if common else 0.05, (systems, seeds, folds))
            values = (
                values + (fold_effects + rng.normal(0, common, (systems, seeds, 1)))[:, :, fold]
            )
        yield [pair.word for pair in compare_systems(systems_of(values, folds), samples=400)]


@pytest.mark.slow
def test_sign_flip_p_rejects_at_its_level() -> None:
    rng = np.random.default_rng(1)
    tries = 2000
    pairs = np.arange(2 * tries).reshape(-1, 2)
    values = np.concatenate([ndcg_like(rng, 2, 1)[:, 0] for _ in range(tries)])
    p = sign_flip_p(values, pairs, samples=999)
    for level in (0.01, 0.05, 0.2):
        least, largest = between(level, tries)
        assert least <= (p <= level).mean() <= largest, level


@pytest.mark.slow
@pytest.mark.parametrize(
    ("systems", "seeds", "options"),
    [
        (2, 3, {"seed_sd": 0.1}),
        (2, 1, {"folds": 5}),
        (2, 2, {"folds": 5, "common": 0.05}),
        (2, 1, {}),
        (4, 3, {"seed_sd": 0.03}),
    ],
)
def test_compare_systems_seldom_finds_differences_by_chance(systems, seeds, options) -> None:
    """Any wrong word counts, also among six pairs."""
    tries = 250
    outcomes = verdicts(tries, systems, seeds, **options)
    wrong = sum(bool({BETTER, WORSE, DIFFER} & set(words_of_try)) for words_of_try in outcomes)
    assert wrong / tries <= between(0.05, tries)[1]


@pytest.mark.slow
def test_compare_systems_seldom_claims_equivalence_at_the_margin() -> None:
    rng = np.random.default_rng(5)
    tries = 500
    margin = 0.02
    claimed = 0
    for _ in range(tries):
        moved = rng.random((2, QUERIES)) < 0.6
        chance = moved * (rng.exponential(0.04, (2, QUERIES)) - 0.04)
        values = rng.random(QUERIES) + chance + [[margin], [0]]
        (pair,) = compare_systems(systems_of(values[:, None]), samples=400, margin=margin)
        claimed += pair.word == EQUIVALENT
    assert 0.02 <= claimed / tries <= between(0.05, tries)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "training"), [(2, 0.0), (3, 3.0), (2, 30.0)])
def test_interval_of_few_seeds_covers_the_truth_whatever_dominates(seeds, training) -> None:
    """``training`` is the variance that the seeds add, in those that the queries do."""
    rng = np.random.default_rng([10, seeds, int(10 * training)])
    tries = 500
    queries = 40
    run_sd = (training * 0.2**2 / queries * seeds) ** 0.5
    taste = rng.normal(0, 0.2, (tries, 1, queries))
    runs = rng.normal(0, run_sd, (tries, seeds, 1))
    values = taste + runs + rng.normal(0, 0.03, (tries, seeds, queries))
    intervals = [interval_of(system(interval), samples=400) for interval in values]
    covered = sum(interval.low <= 0 <= interval.high for interval in intervals)
    assert covered / tries >= between(0.95, tries)[0]
    if training == 0:  # as narrow as with one seed
        widths = [interval.high - interval.low for interval in intervals]
        assert np.median(widths) < 1.1 * 2 * 2.02 * 0.2 / queries**0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("difficulty", "training", "common"),
    [(0, 0, 0), (0.06, 0, 0), (0, 0.02, 0), (0.06, 0.02, 0), (0.06, 0.02, 0.02)],
)
def test_compare_systems_is_valid_on_folds_of_different_difficulty(
    difficulty, training, common
) -> None:
    """Methods m and n, three seeds each, and ensembles of their seeds, M and N, one in each fold.

    All are equal but for what chance adds, with these standard deviations: ``difficulty`` to a
    fold, ``training`` to a run, ``common`` to the runs of a seed in all folds. The interval of M is
    about these models. With ``-s`` it prints coverage, median width and share of wrong verdicts.
    """
    tries = 250
    fold = np.repeat(np.arange(5), [30, 42, 55, 68, 80])
    rng = np.random.default_rng([11, round(100 * difficulty), round(100 * training)])
    covered = {}
    widths = {}
    wrong = {}

    def note(name, low, high, truth=0.0) -> None:
        covered.setdefault(name, []).append(low <= truth <= high)
        widths.setdefault(name, []).append(high - low)

    for _ in range(tries):
        base = rng.beta(0.7, 0.5, len(fold)) - 0.7 / 1.2
        base += difficulty * stats.zscore(rng.permutation(5))[fold]
        systems = {}
        truth = {"m": 0.0}
        for name in "mn":
            taste = rng.exponential(0.1, (2, len(fold))) - 0.1  # of the members, of their ensemble
            runs = rng.normal(0, training, (3, 5)) + rng.normal(0, common, (3, 1))
            chance = rng.exponential(0.1, (3, len(fold))) - 0.1
            values = base + taste[0] + runs[:, fold] + chance
            mixed = values.mean(0) + (taste[1] - taste[0]) / 2
            systems[name] = SystemValues(values, [(k, f"q{i}") for i, k in enumerate(fold)])
            systems[name.upper()] = SystemValues(mixed[None], systems[name].queries)
            truth[name.upper()] = runs.mean()
        for name in "mM":
            interval_of_mean = interval_of(systems[name], samples=400)
            note(name, interval_of_mean.low, interval_of_mean.high, truth[name])
        for pair in compare_systems(systems, samples=400):
            name = pair.first + pair.second
            note(name, *pair.interval)
            differs = raw(pair) < 0.05 and not pair.interval[0] <= 0 <= pair.interval[1]
            wrong.setdefault(name, []).append(differs)
    print(f"\n{difficulty} {training} {common}:", end="")
    for name, hits in covered.items():
        share = f" {np.mean(wrong[name]):.3f}" if name in wrong else ""
        print(f"  {name} {np.mean(hits):.3f} {np.median(widths[name]):.4f}{share}", end="")
    sound = {"m", "M", "mM", "mn"} if common else covered  # one run does not show what is common
    assert {n for n in sound if np.mean(covered[n]) < between(0.95, tries)[0]} == set()
    assert {n for n in wrong if np.mean(wrong[n]) > between(0.05, tries)[1]} <= wrong.keys() - sound
    assert np.median(widths["M"]) < np.median(widths["m"])  # no wider than that of the members


def test_compare_systems_finds_differences_among_many_pairs() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(60)
    levels = {f"s{i}": system(base + 0.2 * i + rng.normal(0, 0.01, 60)) for i in range(16)}
    pairs = compare_systems(levels, samples=100)  # of 120 pairs: 1 / 101 would be too coarse
    assert {pair.word for pair in pairs} == {DIFFER}
