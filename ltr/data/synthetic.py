"""Synthetic lists, shaped like Web30K, in which relevance depends partly on the rest of the list.

An item has a text match, a quality and a popularity, which a pointwise model can learn from the
columns, and a deviation from its list. The columns show the deviation only as ``centre +
deviation``, with a centre drawn for each list. So only a model that sees the whole list can recover
the deviation. Relevance is ::

    r = level + 0.45 match + 0.25 quality + 0.2 popular - 1.0 |deviation| + 0.5 noise

with one level for each list. About one item in ten is a near copy of a better one: it has nearly
the same columns, but a grade about one lower. Lengths, hidden properties and grades are sums and
products of float64, so they are the same on every machine. The 136 columns imitate those of Web30K,
as ``synthetic_columns.csv`` describes them. Columns that the published preparation of Web30K
negates have negative values.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ltr.arrays import Doubles, Floats, Ints
from ltr.data.assemble import Block, assemble
from ltr.data.cache import cached_lists
from ltr.data.lists import SPLITS, Lists, check_split
from ltr.errors import ConfigError
from ltr.knobs import python_number

VERSION = 1  # raise it when the same seed gives other arrays
LONGEST = 1251  # items of Web30K's longest list
MEAN_LENGTH = 120
LONG = 1000  # a split of MANY lists or more has a list longer than this, and one of a single item
MANY = 50
RATES = (0.514, 0.325, 0.134, 0.019, 0.008)  # Web30K's share of each grade, 0 first
EMPTY = 0.03  # share of the lists without a relevant item
MATCH, QUALITY, POPULAR, DEVIATION, NOISE, LEVEL = 0.45, 0.25, 0.2, 1.0, 0.5, 0.5
CENTRE = 1.5  # standard deviation of a list's centre; the deviation of an item has 1
COPIES, COPY_LOSS = 0.1, 0.8
NOISE_OF_A_COPY = 0.1  # scale of the new noise on a near copy, as a part of the column's own noise
WORSE_COPY = 0.3  # how much lower the quality of a near copy is in QUALITY_COLUMNS
QUALITY_COLUMNS = (129, 130, 131, 132)
LATENTS = ("match", "quality", "popular", "shifted", "length", "query", "cover")
WIDTH = 136
STREAMS = 5  # body, anchor, title, URL, whole page; the columns of a stream share a random term
CONSTANT = {27: 0.0, 53: 0.0, 97: 1.0}
_BLOCK = 64  # lists that are drawn from one random stream; other sizes give other lists

_columns = [
    cells
    for line in Path(__file__).with_name("synthetic_columns.csv").read_text().splitlines()
    if (cells := line.partition("#")[0].strip().split(","))[1:]
    for _ in range(int(cells[1]))
]
_SHAPE = np.array([cells[2] for cells in _columns])
_LATENT = np.array([LATENTS.index(cells[3]) for cells in _columns])
_WEIGHT, _MEAN, _SPREAD, _STREAM, _NOISE = np.array(
    [[float(cell) for cell in cells[4:]] for cells in _columns], np.float32
).T


@dataclass(frozen=True)
class Latents:
    """Hidden properties of the items of some lists."""

    relevance: Doubles  # [items], from which the grade is made
    table: Floats  # [items, len(LATENTS)], each column with a variance of about 1
    copy_of: Ints  # [items], the item of which this one is a near copy; itself if it is no copy


def draw_lengths(rng: np.random.Generator, lists: int) -> Ints:
    """Draw the number of items of each list, ``[lists]``.

    It is from 1 to ``LONGEST``, with a skewed distribution and a mean of about ``MEAN_LENGTH``. If
    there are at least ``MANY`` lists, ``1 + lists // 1000`` of them or more have a single item, and
    as many have more than ``LONG`` items.
    """
    ends = 0 if lists < MANY else 1 + lists // 1000
    long = rng.integers(LONG + 1, LONGEST + 1, ends)
    rest = rng.lognormal(4.5, 0.75, lists - 2 * ends)
    if ends:
        rest *= (MEAN_LENGTH * lists - long.sum() - ends) / rest.sum()
    rest = np.clip(np.rint(rest), 1, LONGEST).astype(np.int64)
    return rng.permutation(np.concatenate([np.ones(ends, np.int64), long, rest]))


def draw_latents(rng: np.random.Generator, lengths: Ints) -> Latents:
    """Draw the hidden properties of the items of lists with these ``lengths``, list after list."""
    lists, items = len(lengths), int(lengths.sum())
    of = np.repeat(np.arange(lists), lengths)
    level, centre, query = (values[of] for values in rng.standard_normal((3, lists)))
    match, quality, popular, deviation, length, cover, noise = rng.standard_normal((7, items))
    relevance = LEVEL * level + MATCH * match + QUALITY * quality + POPULAR * popular
    relevance = relevance - DEVIATION * np.abs(deviation) + NOISE * noise
    shifted = (CENTRE * centre + deviation) * (1 + CENTRE**2) ** -0.5
    columns = (match, quality, popular, shifted, length, query, 0.5 * match + 0.8 * cover)
    first = (np.cumsum(lengths) - lengths)[of]
    other = first + np.floor(rng.random(items) * lengths[of]).astype(np.int64)
    copy = (rng.random(items) < COPIES) & (other != np.arange(items))
    copy &= ~copy[other]  # no copies of copies
    copy_of = np.where(copy, other, np.arange(items))
    table = np.stack(columns, axis=1).astype(np.float32)
    return Latents(relevance[copy_of] - COPY_LOSS * copy, table, copy_of)


def grade(relevance: Doubles, offsets: Ints) -> Floats:
    """Return grades from 0 to 4 for all items of a split, ``[items]``.

    The share of each grade is about that in ``RATES``. In a part ``EMPTY`` of the lists, rounded,
    all grades are 0: those whose best item has the lowest relevance. In every other list the best
    item has at least grade 1. Within a list, grades have the order of ``relevance``.
    """
    items, lengths = len(relevance), np.diff(offsets)
    labels = np.zeros(items, np.float32)
    best = np.maximum.reduceat(relevance, offsets[:-1])
    empty = np.zeros(len(lengths), bool)
    empty[np.argsort(best, kind="stable")[: round(EMPTY * len(lengths))]] = True
    alive = np.flatnonzero(~np.repeat(empty, lengths))
    order = alive[np.argsort(-relevance[alive], kind="stable")]
    start = 0
    for value in (4, 3, 2, 1):
        end = start + round(RATES[value] * items)
        labels[order[start:end]] = value
        start = end
    top = np.flatnonzero(relevance == np.repeat(np.where(empty, np.inf, best), lengths))
    labels[top] = np.maximum(labels[top], 1)
    return labels


def draw_features(rng: np.random.Generator, latents: Latents) -> Floats:
    """Draw the features of items, ``[items, 136]``.

    An item that is a near copy (``latents.copy_of``) gets features close to those of its original.
    """
    items = len(latents.copy_of)
    x = rng.standard_normal((items, WIDTH), np.float32)
    x *= _NOISE
    x += rng.standard_normal((items, STREAMS), np.float32)[:, np.arange(WIDTH) % STREAMS] * _STREAM
    x += latents.table[:, _LATENT] * _WEIGHT
    copies = np.flatnonzero(latents.copy_of != np.arange(items))
    x[copies] = x[latents.copy_of[copies]]
    x[copies] += rng.standard_normal((len(copies), WIDTH), np.float32) * (NOISE_OF_A_COPY * _NOISE)
    x[copies[:, None], QUALITY_COLUMNS] -= WORSE_COPY
    x *= _SPREAD
    x += _MEAN
    linear, ratio, bits = (kind == _SHAPE for kind in ("linear", "ratio", "16_bit"))
    plain, yes_no = x[:, linear].copy(), x[:, _SHAPE == "yes_no"] > 0
    x[:, ratio | bits] *= -1
    np.exp(x, out=x)
    x[:, linear], x[:, _SHAPE == "yes_no"] = plain, yes_no
    x[:, _SHAPE == "negative"] *= -1
    x[:, ratio] = 1 / (1 + x[:, ratio])
    x[:, bits] = np.floor(65535 / (1 + x[:, bits]))
    x[:, _SHAPE == "count"] = np.floor(x[:, _SHAPE == "count"])
    x[:, [*CONSTANT]] = [*CONSTANT.values()]
    return x


class SyntheticLists:
    """Synthetic lists, a function of ``VERSION``, the seed, ``queries`` and the split alone.

    Features may differ in the last bit between processors; grades do not.
    """

    width = WIDTH
    fold = None

    def __init__(
        self, *, queries: int, seed: int, cache_dir: str | Path, name: str = "synthetic"
    ) -> None:
        """Describe the lists, which are made on first use: ``queries`` for training, and a third of
        it, rounded, at least 1, for each other split. Web30K has 18,919 (2.27 million items).
        """
        self.name, self.cache_dir = name, cache_dir
        self.queries, self.seed = python_number(queries), python_number(seed)

    def check(self) -> None:
        """Raise ``ConfigError`` if ``queries`` or ``seed`` is out of range."""
        for key, value, least in (("queries", self.queries, 1), ("seed", self.seed, 0)):
            if type(value) is not int or value < least:
                raise ConfigError(f"dataset.{key}={value}: give a whole number >= {least}")

    def split(self, split: str) -> Lists:
        """Return the lists of ``train``, ``vali`` or ``test``, made once, then mapped."""
        self.check()
        lists = self.queries if check_split(split) == "train" else max(1, round(self.queries / 3))
        recipe = f"synthetic-{VERSION}-seed-{self.seed}-queries-{self.queries}-{split}"

        stream = VERSION, SPLITS.index(split)
        rng = lambda *of: np.random.default_rng([*stream, *of, self.seed])  # noqa: E731
        lengths = draw_lengths(rng(0, 0), lists)

        def latents() -> Iterator[tuple[int, Ints, Latents]]:
            for block, first in enumerate(range(0, lists, _BLOCK)):
                some = lengths[first : first + _BLOCK]
                yield block, some, draw_latents(rng(1, block), some)

        def blocks() -> Iterator[Block]:  # draws twice: grades need the relevance of all items
            relevance = np.concatenate([one.relevance for *_, one in latents()])
            labels = grade(relevance, np.concatenate([[0], np.cumsum(lengths)]))
            for block, some, one in latents():
                places, first = np.repeat(np.arange(len(some)), some), block * _BLOCK
                qids = [f"{split}-{i}" for i in range(first + 1, first + len(some) + 1)]
                own, labels = np.split(labels, [len(places)])
                yield Block(draw_features(rng(2, block), one), own, qids, places)

        digest = hashlib.sha256(recipe.encode()).hexdigest()
        build = lambda file: assemble(blocks(), file, digest=digest)  # noqa: E731
        return cached_lists(self.cache_dir, recipe, build)
