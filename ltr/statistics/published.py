"""One system by itself: the interval of its mean, and whether it covers a published number."""

from dataclasses import dataclass

import numpy as np

from ltr.errors import ConfigError
from ltr.statistics.bootstrap import draw, interval
from ltr.statistics.spread import Spread, seed_variance, system_spread
from ltr.statistics.values import SystemValues, align


@dataclass(frozen=True)
class SystemInterval:
    """The mean of a system, over folds where there are several, and its 1 - alpha interval.

    Attributes:
        mean: mean over folds of the mean over queries, mean over seeds.
        low, high: the interval, over queries and, where there are several, seeds.
        deviation: standard deviation over seeds of the mean of a seed's runs; NaN with one.
        seeds, queries, folds: how many.
        spread: the standard error and what it covers.
    """

    mean: float
    low: float
    high: float
    deviation: float
    seeds: int
    queries: int
    folds: int
    spread: Spread


@dataclass(frozen=True)
class Coverage:
    """Whether an interval of ours covers a number of theirs.

    Attributes:
        covered: whether it does.
        word: ``covers``, ``above`` or ``below``: where ours is.
        text: the same as a sentence.
    """

    covered: bool
    word: str
    text: str


def interval_of(
    system: SystemValues,
    *,
    name: str = "system",
    alpha: float = 0.05,
    seed: int = 0,
    samples: int = 10_000,
) -> SystemInterval:
    """Mean and interval of one system, as another test set and other seeds would give it.

    Raises:
        ConfigError: alpha is out of range.
        DataError: no query has a value.
    """
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha={alpha:g}: give a number between 0 and 0.5, such as 0.05")
    aligned = align({name: system})
    seeds = [seed_variance(aligned, 0)]
    spread = system_spread(aligned, seeds, 0)
    mean = float(aligned.means[0])
    draws = draw(aligned, samples=samples, seed=seed)
    low, high = interval(mean, draws[:, 0], spread, alpha=alpha)
    of_seeds = aligned.over_folds(aligned.values[0]).mean(1)
    return SystemInterval(
        mean=mean,
        low=low,
        high=high,
        deviation=float(np.std(of_seeds, ddof=1)) if len(of_seeds) > 1 else float("nan"),
        seeds=len(of_seeds),
        queries=aligned.queries,
        folds=len(aligned.fold_sizes),
        spread=spread,
    )


def covers(ours: SystemInterval, number: float) -> Coverage:
    """Set ``ours`` beside a published ``number`` of which the values per query are not known.

    Theirs is taken as it is printed: its own uncertainty, and that both saw the same queries,
    cannot be known without their values, so that this says whether ours is in line with the
    number, not whether the systems differ.
    """
    span = f"ours {ours.mean:.4f} ({ours.low:.4f} to {ours.high:.4f})"
    if ours.low <= number <= ours.high:
        return Coverage(True, "covers", f"{span} covers {number:.4f}")
    word = "above" if ours.mean > number else "below"
    return Coverage(False, word, f"{span} is {word} {number:.4f}")
