"""Lengths, hidden properties and grades of the synthetic lists.

An item has a text match, a quality and a popularity, which a pointwise model can read off the
columns, and a deviation from what its list as a whole says. The columns show the deviation only as
``centre + deviation``, with a centre drawn for each list, so that only a model that sees the whole
list can tell it. Relevance is ::

    r = level + 0.45 match + 0.25 quality + 0.2 popular - 1.0 |deviation| + 0.5 noise

where the level is the list's own. About one item in ten is a near copy of a better one: nearly the
same columns, and ``COPY_LOSS`` less relevance, about one grade. Only sums and products of float64
stand here, so that lengths, hidden properties and grades are the same on every machine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST = 1251  # Web30K's longest list
MEAN_LENGTH = 120
LONG = 1000  # every split of at least MANY lists has a longer one, and one of a single item
MANY = 50
RATES = (0.514, 0.325, 0.134, 0.019, 0.008)  # Web30K's share of each grade, 0 first
EMPTY = 0.03  # share of the lists without a relevant item

MATCH, QUALITY, POPULAR, DEVIATION, NOISE, LEVEL = 0.45, 0.25, 0.2, 1.0, 0.5, 0.5
CENTRE = 1.5  # standard deviation of a list's centre; that of the deviation is 1
COPIES, COPY_LOSS = 0.1, 0.8

LATENTS = ("match", "quality", "popular", "shifted", "length", "query", "cover")


@dataclass(frozen=True)
class Latents:
    """Hidden properties of the items of some lists.

    Attributes:
        relevance: ``[items]`` float64, from which grades are made.
        table: ``[items, len(LATENTS)]`` float32, each of variance about 1.
        copy_of: ``[items]`` the item that this one nearly repeats; itself where it is no copy.
    """

    relevance: NDArray[np.float64]
    table: NDArray[np.float32]
    copy_of: NDArray[np.int64]


def draw_lengths(rng: np.random.Generator, lists: int) -> NDArray[np.int64]:
    """Items of each list, ``[lists]``: 1 to ``LONGEST``, skewed, ``MEAN_LENGTH`` in the mean.

    With ``MANY`` lists or more both ends are there: one in a thousand, at least one, has a single
    item, and as many have more than ``LONG``.
    """
    ends = 0 if lists < MANY else 1 + lists // 1000
    long = rng.integers(LONG + 1, LONGEST + 1, ends)
    rest = rng.lognormal(4.5, 0.75, lists - 2 * ends)
    if ends:
        rest *= (MEAN_LENGTH * lists - long.sum() - ends) / rest.sum()
    rest = np.clip(np.rint(rest), 1, LONGEST).astype(np.int64)
    return rng.permutation(np.concatenate([np.ones(ends, np.int64), long, rest]))


def draw_latents(rng: np.random.Generator, lengths: NDArray[np.int64]) -> Latents:
    """Hidden properties of the items of lists of these ``lengths``, list after list."""
    lists, items = len(lengths), int(lengths.sum())
    of = np.repeat(np.arange(lists), lengths)
    level, centre, query = (values[of] for values in rng.standard_normal((3, lists)))
    match, quality, popular, deviation, length, cover, noise = rng.standard_normal((7, items))
    relevance = (
        LEVEL * level
        + MATCH * match
        + QUALITY * quality
        + POPULAR * popular
        - DEVIATION * np.abs(deviation)
        + NOISE * noise
    )
    shifted = (CENTRE * centre + deviation) * (1 + CENTRE**2) ** -0.5
    cover = 0.5 * match + 0.8 * cover
    columns = (match, quality, popular, shifted, length, query, cover)
    first = (np.cumsum(lengths) - lengths)[of]
    other = first + np.floor(rng.random(items) * lengths[of]).astype(np.int64)
    copy = (rng.random(items) < COPIES) & (other != np.arange(items))
    copy &= ~copy[other]  # no copies of copies
    copy_of = np.where(copy, other, np.arange(items))
    return Latents(
        relevance=relevance[copy_of] - COPY_LOSS * copy,
        table=np.stack(columns, axis=1).astype(np.float32),
        copy_of=copy_of,
    )


def grade(relevance: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Grades 0 to 4 of all items of a split, ``[items]``, at the shares ``RATES``.

    The share ``EMPTY`` of the lists, rounded, has no relevant item: those whose best item is worst.
    In every other list the best item has at least grade 1. Grades order as ``relevance`` does.
    """
    items, lists = len(relevance), len(offsets) - 1
    labels = np.zeros(items, np.float32)
    best = np.maximum.reduceat(relevance, offsets[:-1])
    empty = np.zeros(lists, bool)
    empty[np.argsort(best, kind="stable")[: round(EMPTY * lists)]] = True
    alive = np.flatnonzero(~np.repeat(empty, np.diff(offsets)))
    order = alive[np.argsort(-relevance[alive], kind="stable")]
    start = 0
    for value in (4, 3, 2, 1):
        end = start + round(RATES[value] * items)
        labels[order[start:end]] = value
        start = end
    top = np.flatnonzero(relevance == np.repeat(np.where(empty, np.inf, best), np.diff(offsets)))
    labels[top] = np.maximum(labels[top], 1)
    return labels
