"""Synthetic lists, shaped like Web30K, in which relevance depends partly on the rest of the list.

An item has a text match, a quality and a popularity, which a pointwise model can learn from the
columns, and a deviation from its list. The columns show the deviation only as ``centre +
deviation``, where the centre is drawn once for each list. So only a model that sees the whole list
can recover the deviation. The relevance is ::

    r = level + 0.45 match + 0.25 quality + 0.2 popular - 1.0 |deviation| + 0.5 noise

where the level is drawn once for each list. About one item in ten is a near copy of a better item:
its columns are nearly the same, but its grade is about one lower. Lengths, hidden properties and
grades are sums and products in float64, so they are the same on every machine. The 136 columns
imitate those of Web30K, as described in ``synthetic_columns.csv``. The columns that the
transform ``web30k`` negates have negative values.
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

VERSION = 1  # raise it if the same seed gives different arrays
LONGEST = 1251  # items of Web30K's longest list
MEAN_LENGTH = 120
LONG = 1000  # a split with MANY lists has one longer than this, and one with a single item
MANY = 50
RATES = (0.514, 0.325, 0.134, 0.019, 0.008)  # the share of each grade in Web30K, grade 0 first
EMPTY = 0.03  # share of the lists without a relevant item
# Weights of the terms of the relevance.
MATCH = 0.45
QUALITY = 0.25
POPULAR = 0.2
DEVIATION = 1.0
NOISE = 0.5
LEVEL = 0.5
CENTRE = 1.5  # standard deviation of a list's centre; that of an item's deviation is 1
COPIES = 0.1  # share of the items that are near copies
COPY_LOSS = 0.8  # how much lower the relevance of a near copy is
NOISE_OF_A_COPY = 0.1  # scale of the noise on a near copy, as a fraction of the column's noise
WORSE_COPY = 0.3  # how much lower the quality of a near copy is in QUALITY_COLUMNS
QUALITY_COLUMNS = (129, 130, 131, 132)
LATENTS = ("match", "quality", "popular", "shifted", "length", "query", "cover")
WIDTH = 136
STREAMS = 5  # body, anchor, title, URL, whole page; the columns of a stream share a random term
CONSTANT = {27: 0.0, 53: 0.0, 97: 1.0}
_BLOCK = 64  # lists that are drawn from one random stream; another size gives other lists


def _read_columns() -> list[list[str]]:
    """Return the cells of ``synthetic_columns.csv`` for each column of the features."""
    columns = []
    for line in Path(__file__).with_name("synthetic_columns.csv").read_text().splitlines():
        cells = line.partition("#")[0].strip().split(",")
        if len(cells) > 1:  # the second cell is the number of columns with this description
            columns += [cells] * int(cells[1])
    return columns


_columns = _read_columns()
_SHAPE = np.array([cells[2] for cells in _columns])
_LATENT = np.array([LATENTS.index(cells[3]) for cells in _columns])
_WEIGHT, _MEAN, _SPREAD, _STREAM, _NOISE = np.array(
    [[float(cell) for cell in cells[4:]] for cells in _columns], np.float32
).T


@dataclass(frozen=True)
class Latents:
    """Hidden properties of the items of some lists."""

    relevance: Doubles  # [items], the grades are made from it
    table: Floats  # [items, len(LATENTS)], each column with a variance of about 1
    copy_of: Ints  # [items], index of the item that this one copies; its own index if none


def draw_lengths(rng: np.random.Generator, lists: int) -> Ints:
    """Draw the number of items of each list, ``[lists]``.

    The lengths are from 1 to ``LONGEST``. Their distribution is skewed, and its mean is about
    ``MEAN_LENGTH``. If there are at least ``MANY`` lists, at least ``1 + lists // 1000`` of them
    have a single item, and at least the same number have more than ``LONG`` items.
    """
    ends = 0 if lists < MANY else 1 + lists // 1000
    long = rng.integers(LONG + 1, LONGEST + 1, ends)
    usual = rng.lognormal(4.5, 0.75, lists - 2 * ends)
    if ends:
        usual *= (MEAN_LENGTH * lists - long.sum() - ends) / usual.sum()
    usual = np.clip(np.rint(usual), 1, LONGEST).astype(np.int64)
    return rng.permutation(np.concatenate([np.ones(ends, np.int64), long, usual]))


def draw_latents(rng: np.random.Generator, lengths: Ints) -> Latents:
    """Return random hidden properties of the items of lists with these ``lengths``, in order."""
    lists = len(lengths)
    items = int(lengths.sum())
    list_numbers = np.repeat(np.arange(lists), lengths)
    list_values = rng.standard_normal((3, lists))
    level, centre, query = (values[list_numbers] for values in list_values)
    match, quality, popular, deviation, length, cover, noise = rng.standard_normal((7, items))
    relevance = LEVEL * level + MATCH * match + QUALITY * quality + POPULAR * popular
    relevance = relevance - DEVIATION * np.abs(deviation) + NOISE * noise
    shifted = (CENTRE * centre + deviation) * (1 + CENTRE**2) ** -0.5
    columns = (match, quality, popular, shifted, length, query, 0.5 * match + 0.8 * cover)
    first = (np.cumsum(lengths) - lengths)[list_numbers]
    positions = np.floor(rng.random(items) * lengths[list_numbers]).astype(np.int64)
    originals = first + positions
    is_copy = (rng.random(items) < COPIES) & (originals != np.arange(items))
    is_copy &= ~is_copy[originals]  # no copies of copies
    copy_of = np.where(is_copy, originals, np.arange(items))
    table = np.stack(columns, axis=1).astype(np.float32)
    return Latents(relevance[copy_of] - COPY_LOSS * is_copy, table, copy_of)


def grade(relevance: Doubles, offsets: Ints) -> Floats:
    """Return grades from 0 to 4 for all items of a split, ``[items]``.

    The share of each grade is about that in ``RATES``. In a fraction ``EMPTY`` of the lists, all
    grades are 0; these are the lists whose best item has the lowest relevance. In every other list,
    the best item has at least grade 1. Within a list, the grades have the order of ``relevance``.
    """
    items = len(relevance)
    lengths = np.diff(offsets)
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
    """Return random features of the items, ``[items, 136]``.

    An item that is a near copy (see ``latents.copy_of``) has features close to its original's.
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
    linear = _SHAPE == "linear"
    ratio = _SHAPE == "ratio"
    bits = _SHAPE == "16_bit"
    yes_no = _SHAPE == "yes_no"
    linear_values = x[:, linear].copy()
    yes_no_values = x[:, yes_no] > 0
    x[:, ratio | bits] *= -1
    np.exp(x, out=x)
    x[:, linear] = linear_values
    x[:, yes_no] = yes_no_values
    x[:, _SHAPE == "negative"] *= -1
    x[:, ratio] = 1 / (1 + x[:, ratio])
    x[:, bits] = np.floor(65535 / (1 + x[:, bits]))
    x[:, _SHAPE == "count"] = np.floor(x[:, _SHAPE == "count"])
    x[:, [*CONSTANT]] = [*CONSTANT.values()]
    return x


class SyntheticLists:
    """Synthetic lists, which depend only on ``VERSION``, ``seed``, ``queries`` and the split.

    Features may differ in the last bit between processors; grades do not.
    """

    width = WIDTH
    fold = None

    def __init__(
        self, *, queries: int, seed: int, cache_dir: str | Path, name: str = "synthetic"
    ) -> None:
        """Describe the lists, which are made on first use.

        Args:
            queries: the number of training lists. Each other split has a third of this number,
                rounded, but at least 1. Web30K has 18,919 training lists (2.27 million items).
            seed: the seed of all random draws.
            cache_dir: the folder of the cached arrays.
            name: the name of the data set in results.
        """
        self.name = name
        self.cache_dir = cache_dir
        self.queries = python_number(queries)
        self.seed = python_number(seed)

    def check(self) -> None:
        """Raise ``ConfigError`` if ``queries`` or ``seed`` is out of range."""
        for key, value, minimum in (("queries", self.queries, 1), ("seed", self.seed, 0)):
            if type(value) is not int or value < minimum:
                raise ConfigError(f"dataset.{key}={value}: give a whole number >= {minimum}")

    def split(self, split: str) -> Lists:
        """Return the lists of a split, which are made once and then mapped from the cache."""
        self.check()
        lists = self.queries if check_split(split) == "train" else max(1, round(self.queries / 3))
        recipe = f"synthetic-{VERSION}-seed-{self.seed}-queries-{self.queries}-{split}"
        digest = hashlib.sha256(recipe.encode()).hexdigest()

        def build(file: Path) -> Lists:
            return assemble(self._blocks(split, lists), file, digest=digest)

        return cached_lists(self.cache_dir, recipe, build)

    def _rng(self, split: str, *stream: int) -> np.random.Generator:
        """Return the random generator of one stream of a split."""
        return np.random.default_rng([VERSION, SPLITS.index(split), *stream, self.seed])

    def _latents(self, split: str, lengths: Ints) -> Iterator[tuple[int, Ints, Latents]]:
        """Yield each block of lists: its index, the lengths, and the hidden properties."""
        for block, first in enumerate(range(0, len(lengths), _BLOCK)):
            block_lengths = lengths[first : first + _BLOCK]
            yield block, block_lengths, draw_latents(self._rng(split, 1, block), block_lengths)

    def _blocks(self, split: str, lists: int) -> Iterator[Block]:
        """Yield the rows of a split.

        The hidden properties are drawn twice, because the grades depend on the relevance of all
        items.
        """
        lengths = draw_lengths(self._rng(split, 0, 0), lists)
        relevance = [latents.relevance for _, _, latents in self._latents(split, lengths)]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        labels = grade(np.concatenate(relevance), offsets)
        for block, block_lengths, latents in self._latents(split, lengths):
            first = block * _BLOCK
            last = first + len(block_lengths)
            query_indices = np.repeat(np.arange(len(block_lengths)), block_lengths)
            block_labels, labels = np.split(labels, [len(query_indices)])
            features = draw_features(self._rng(split, 2, block), latents)
            qids = [f"{split}-{number}" for number in range(first + 1, last + 1)]
            yield Block(features, block_labels, qids, query_indices)
