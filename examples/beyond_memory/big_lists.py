"""A data set of any size: the same random rows over and over, in other lists."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ltr.data.assemble import Block, assemble
from ltr.data.cache import cached_lists
from ltr.data.lists import Lists

_AT_ONCE = 500  # lists


class BigLists:
    """``lists`` lists of ``items`` items in train, a hundredth of them in vali and in test."""

    fold = None

    def __init__(self, *, name: str, lists: int, items: int, width: int, cache_dir: str) -> None:
        """Describe the lists; they are made on first use."""
        self.name, self.lists, self.items, self.width = name, lists, items, width
        self.cache_dir = Path(cache_dir)

    def check(self) -> None:
        """There is nothing that could be missing."""

    def split(self, split: str) -> Lists:
        """The lists of a split, made once and then mapped."""
        count = self.lists if split == "train" else max(1, self.lists // 100)
        key = f"big {count} {self.items} {self.width} {split}"

        def build(file: Path) -> Lists:
            return assemble(self._blocks(count, seed=len(split)), file, digest=key)

        return cached_lists(self.cache_dir, key, build)

    def _blocks(self, count: int, seed: int) -> Iterator[Block]:
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(_AT_ONCE * self.items, self.width)).astype(np.float32)
        noise = rng.normal(size=len(features))
        labels = np.clip(np.round(features[:, 0] + noise + 0.5), 0, 4).astype(np.float32)
        for begin in range(0, count, _AT_ONCE):
            qids = [str(i) for i in range(begin, min(begin + _AT_ONCE, count))]
            rows = len(qids) * self.items
            places = np.repeat(np.arange(len(qids)), self.items)
            yield Block(features[:rows], labels[:rows], qids, places)
