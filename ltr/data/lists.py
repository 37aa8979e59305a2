"""``Lists``, the ragged arrays that every data set becomes, and the protocol of a data set."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.str_]


@dataclass(frozen=True)
class Lists:
    """The items of many queries, one list after the other, without padding.

    Attributes:
        features: ``[items, width]``, often memory-mapped and read-only. NaN marks a missing value
            (the file's number does not fit float32); it is never inf.
        labels: ``[items]``, graded relevance, 0 = not relevant.
        offsets: ``[lists + 1]``; list ``i`` is items ``offsets[i]:offsets[i + 1]``, at least one.
        qids: ``[lists]``; the query id as the file writes it.
        digest: SHA-256 of the source of the arrays (file content, or the synthetic recipe).
        missing: how many values of ``features`` are NaN because they did not fit float32.
    """

    features: Floats
    labels: Floats
    offsets: Ints
    qids: Texts
    digest: str = ""
    missing: int = 0

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[str, Floats, Floats]]:
        """Yield ``(qid, features [n, width], labels [n])`` list by list."""
        for i, qid in enumerate(self.qids):
            rows = slice(self.offsets[i], self.offsets[i + 1])
            yield str(qid), self.features[rows], self.labels[rows]

    @property
    def items(self) -> int:
        """Number of items of all lists."""
        return len(self.labels)

    @property
    def width(self) -> int:
        """Number of features of an item."""
        return self.features.shape[1]

    @cached_property
    def lengths(self) -> Ints:
        """Items of each list, ``[lists]``."""
        return np.diff(self.offsets)

    @cached_property
    def empty(self) -> Flags:
        """True where a list has no relevant item, ``[lists]``."""
        return np.maximum.reduceat(self.labels, self.offsets[:-1]) <= 0


SPLITS = ("train", "vali", "test")


class Dataset(Protocol):
    """A named set of lists in three splits; ``configs/dataset/*.yaml`` builds one."""

    @property
    def name(self) -> str:
        """The name of its config file, such as ``web30k``."""

    @property
    def fold(self) -> int | None:
        """The fold, 1-based; None for a set without folds."""

    @property
    def width(self) -> int:
        """Number of features of an item, the same in every split."""

    def check(self) -> None:
        """Raise ``DataError`` with the remedy if a split is missing; read no data."""

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``; parsed or made once, then mapped."""
