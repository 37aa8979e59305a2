"""How often tests and verdicts are wrong, by simulation of values such as NDCG gives.

The data are skewed and tied, with many queries on which all systems agree. A rate is held to the
range that a binomial of the right probability leaves once in ten thousand.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ltr.analysis.values import SystemValues
from ltr.analysis.verdicts import (
    BETTER,
    DIFFER,
    EQUIVALENT,
    WORSE,
    compare_systems,
    interval_of,
    sign_flip_p,
)  # fmt: skip

ALPHA = 0.05
QUERIES = 60
SURE = (BETTER, WORSE, DIFFER)


def at_most(rate: float, tries: int) -> float:
    return stats.binom.ppf(0.9999, tries, rate) / tries


def at_least(rate: float, tries: int) -> float:
    return stats.binom.ppf(0.0001, tries, rate) / tries


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
    queries = [(i * folds // QUERIES, str(i)) for i in range(values.shape[2])]
    return {f"s{i}": SystemValues(own, queries) for i, own in enumerate(values)}


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
            own = rng.normal(0, 0.0 if common else 0.05, (systems, seeds, folds))
            values = values + (own + rng.normal(0, common, (systems, seeds, 1)))[:, :, fold]
        yield [pair.word for pair in compare_systems(systems_of(values, folds), samples=400)]


@pytest.mark.slow
def test_randomisation_test_rejects_at_its_level() -> None:
    rng, tries = np.random.default_rng(1), 2000
    pairs = np.arange(2 * tries).reshape(-1, 2)
    values = np.concatenate([ndcg_like(rng, 2, 1)[:, 0] for _ in range(tries)])
    p = sign_flip_p(values, pairs, samples=999)
    for level in (0.01, 0.05, 0.2):
        rate = (p <= level).mean()
        assert at_least(level, tries) <= rate <= at_most(level, tries), level


@pytest.mark.slow
@pytest.mark.parametrize(
    ("systems", "seeds", "how"),
    [
        (2, 3, {"seed_sd": 0.1}),
        (2, 1, {"folds": 5}),
        (2, 2, {"folds": 5, "common": 0.05}),
        (2, 1, {}),
        (4, 3, {"seed_sd": 0.03}),
    ],
)
def test_chance_is_seldom_taken_for_a_difference(systems, seeds, how) -> None:
    """Any wrong word counts, also among six pairs."""
    tries = 250
    wrong = sum(bool(set(SURE) & set(words)) for words in verdicts(tries, systems, seeds, **how))
    assert wrong / tries <= at_most(ALPHA, tries)


@pytest.mark.slow
def test_equivalence_is_seldom_claimed_at_the_margins_edge() -> None:
    rng = np.random.default_rng(5)
    tries, margin, claimed = 500, 0.02, 0
    for _ in range(tries):
        moved = rng.random((2, QUERIES)) < 0.6
        chance = moved * (rng.exponential(0.04, (2, QUERIES)) - 0.04)
        values = rng.random(QUERIES) + chance + [[margin], [0]]
        (pair,) = compare_systems(systems_of(values[:, None]), samples=400, margin=margin)
        claimed += pair.word == EQUIVALENT
    assert 0.02 <= claimed / tries <= at_most(ALPHA, tries)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "training"), [(2, 0.0), (3, 3.0), (2, 30.0)])
def test_interval_of_few_seeds_covers_whatever_dominates(seeds, training) -> None:
    """``training`` is the variance that the seeds add, in those that the queries do."""
    rng = np.random.default_rng([10, seeds, int(10 * training)])
    tries, queries = 500, 40
    run_sd = (training * 0.2**2 / queries * seeds) ** 0.5
    taste = rng.normal(0, 0.2, (tries, 1, queries))
    runs = rng.normal(0, run_sd, (tries, seeds, 1))
    values = taste + runs + rng.normal(0, 0.03, (tries, seeds, queries))
    names = [(0, str(query)) for query in range(queries)]
    found = [interval_of(SystemValues(one, names), samples=400) for one in values]
    covered = sum(one.low <= 0 <= one.high for one in found)
    assert covered / tries >= at_least(0.95, tries)
    if training == 0:  # as narrow as with one seed
        widths = [one.high - one.low for one in found]
        assert np.median(widths) < 1.1 * 2 * 2.02 * 0.2 / queries**0.5
