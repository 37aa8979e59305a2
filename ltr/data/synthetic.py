"""Seeded lists shaped like Web30K, in which relevance depends partly on the rest of the list."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ltr.data.cache import cached_lists
from ltr.data.dataset import SPLITS
from ltr.data.lists import Lists
from ltr.data.lists_writer import ListsWriter
from ltr.data.synthetic_columns import WIDTH, draw_features
from ltr.data.synthetic_relevance import Latents, draw_latents, draw_lengths, grade
from ltr.errors import ConfigError

VERSION = 1  # raise it when the same seed gives other arrays
_BLOCK = 64  # lists drawn at once, each block from its own random stream: part of the recipe
_LENGTHS, _LATENTS, _FEATURES = range(3)


class SyntheticLists:
    """Made-up train, vali and test lists; ``ltr.data.synthetic_relevance`` says how.

    The arrays are a function of ``VERSION``, the seed, ``queries`` and the split alone. Grades are
    the same on every machine; features may differ between processors in the last bit.
    """

    width = WIDTH
    fold = None

    def __init__(
        self, *, queries: int, seed: int, cache_dir: str | Path, name: str = "synthetic"
    ) -> None:
        """Describe the lists; they are made on first use.

        Args:
            queries: Number of train lists, >= 1; vali and test have a third of it each, rounded, at
                least 1. 18,919 is the size of Web30K: 2.27 million train items.
            seed: Of the data, >= 0; 0 is a seed as any other.
            cache_dir: Where the arrays are kept.
            name: What results call the set.
        """
        self.name = name
        self.queries = queries
        self.seed = seed
        self.cache_dir = Path(str(cache_dir))

    def check(self) -> None:
        """Raise ``ConfigError`` if ``queries`` or ``seed`` is out of its range."""
        for key, value, least in (("queries", self.queries, 1), ("seed", self.seed, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"dataset.{key}={value}: give a whole number >= {least}")

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``, made once and then mapped from the cache.

        Raises:
            ConfigError: as ``check``, or there is no such split.
        """
        self.check()
        if split not in SPLITS:
            raise ConfigError(f"split={split}: choose one of {', '.join(SPLITS)}")
        lists = self.queries if split == "train" else max(1, round(self.queries / 3))
        recipe = f"synthetic-{VERSION}-seed-{self.seed}-queries-{self.queries}-{split}"

        def build(writer: ListsWriter) -> None:
            make_lists(writer, lists=lists, seed=self.seed, split=split, recipe=recipe)

        return cached_lists(self.cache_dir, recipe, build, width=WIDTH)


def make_lists(writer: ListsWriter, *, lists: int, seed: int, split: str, recipe: str) -> None:
    """Make one split, block by block; what is hidden is drawn twice, so that it need not be kept.

    Grades need the relevance of every item of the split (8 bytes an item); features are drawn after
    them, 4 MB at a time.
    """
    lengths = draw_lengths(_rng(seed, split, _LENGTHS), lists)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    labels = grade(np.concatenate([h.relevance for h in _blocks(seed, split, lengths)]), offsets)
    start = 0
    for block, latents in enumerate(_blocks(seed, split, lengths)):
        end = start + len(latents.relevance)
        features = draw_features(_rng(seed, split, _FEATURES, block), latents)
        writer.append(features, labels[start:end])
        start = end
    qids = np.array([f"{split}-{i}" for i in range(1, lists + 1)])
    writer.finish(offsets, qids, digest=hashlib.sha256(recipe.encode()).hexdigest())


def _blocks(seed: int, split: str, lengths: NDArray[np.int64]) -> Iterator[Latents]:
    for block, first in enumerate(range(0, len(lengths), _BLOCK)):
        rng = _rng(seed, split, _LATENTS, block)
        yield draw_latents(rng, lengths[first : first + _BLOCK])


def _rng(seed: int, split: str, stage: int, block: int = 0) -> np.random.Generator:
    """The seed stands last: it may be of any size, the others are one word each."""
    return np.random.default_rng([VERSION, SPLITS.index(split), stage, block, seed])
