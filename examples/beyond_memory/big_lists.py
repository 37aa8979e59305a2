"""A data set of any size: the same random rows over and over, in other lists."""

from functools import partial
from pathlib import Path

import numpy as np

from ltr.data.assemble import Assembler
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
        build = partial(self._build, count=count, seed=len(split), digest=key)
        return cached_lists(self.cache_dir, key, build)

    def _build(self, into: Assembler, *, count: int, seed: int, digest: str) -> Lists:
        rng = np.random.default_rng(seed)
        block = rng.normal(size=(_AT_ONCE * self.items, self.width)).astype(np.float32)
        noise = rng.normal(size=len(block))
        labels = np.clip(np.round(block[:, 0] + noise + 0.5), 0, 4).astype(np.float32)
        for begin in range(0, count, _AT_ONCE):
            rows = min(_AT_ONCE, count - begin) * self.items
            into.append(block[:rows], labels[:rows])
        offsets = np.arange(count + 1) * self.items
        return into.finish(offsets, np.arange(count).astype(str), digest=digest)
