"""Which lists and items each step of an epoch takes: pure functions of seed, epoch and list."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Flags, Ints

_AHEAD = 512  # batches whose items are drawn at once: an epoch of millions of lists has many


class Shape(NamedTuple):
    """Of the batches of an epoch.

    Attributes:
        batch_size: the most lists.
        list_size: the most items of a list; of a longer one so many are drawn.
        fixed: whether the last batch is filled up with rows without items.
    """

    batch_size: int
    list_size: int
    fixed: bool


class Chosen(NamedTuple):
    """The items of some lists; rows beyond the lists have none.

    Attributes:
        order: ``[lists]``, the numbers of the lists.
        ranks: ``[rows, list_size]``, the places of the items in their list, from 0, ascending; any
            number beyond ``lengths``. In half the bytes of int64 until they are on the device.
        lengths: ``[rows]``, the number of items.
        starts: ``[rows]``, the place in the data of the first item of the list.
    """

    order: Ints
    ranks: NDArray[np.int32]
    lengths: Ints
    starts: Ints


class Drawing:
    """Draws the order and the items of epochs, the next ones in a thread: no step waits for them.

    Args:
        offsets: ``[lists + 1]``, where the items of each list begin.
        relevant: ``[items]``.
    """

    def __init__(self, offsets: Ints, relevant: Flags) -> None:
        self._offsets, self._relevant = offsets, relevant
        self._kept: tuple[tuple[object, ...], _Parts] | None = None

    def epoch(self, shape: Shape, seed: int, epoch: int, start: int) -> Iterator[Chosen]:
        """The lists from step ``start`` on, those of ``_AHEAD`` batches at a time."""
        left = len(self._offsets) - 1 - start * shape.batch_size
        if left <= 0:
            return
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == (shape, seed, epoch, start):
            parts = kept[1]
        else:
            parts = _Parts(self._drawn(shape, seed, epoch, start))
        while left > 0:
            some = parts.next()
            left -= len(some.order)
            yield some
        self._kept = (shape, seed, epoch + 1, 0), parts

    def _drawn(self, shape: Shape, seed: int, epoch: int, start: int) -> Iterator[Chosen]:
        """As ``epoch``, and then the epochs after it without an end."""
        offsets, span = self._offsets, _AHEAD * shape.batch_size
        lengths = np.diff(offsets)
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(len(lengths))
            for first in range(start * shape.batch_size, len(order), span):
                some = order[first : first + span]
                rows = len(some) + (-len(some) % shape.batch_size if shape.fixed else 0)
                sizes, starts = np.zeros((2, rows), np.int64)
                sizes[: len(some)] = np.minimum(lengths[some], shape.list_size)
                starts[: len(some)] = offsets[some]
                ranks = np.empty((rows, shape.list_size), np.int32)
                ranks[:] = np.arange(shape.list_size)
                for row in np.flatnonzero(lengths[some] > shape.list_size):
                    i = int(some[row])
                    relevant = self._relevant[offsets[i] : offsets[i + 1]]
                    rng = np.random.default_rng([seed, epoch, i])
                    ranks[row] = subsample(relevant, shape.list_size, rng)
                yield Chosen(some, ranks, sizes, starts)
            epoch, start = epoch + 1, 0


class _Parts:
    """The next value of an iterator, which a thread computes while the last one is used."""

    def __init__(self, values: Iterator[Chosen]) -> None:
        self._values = values
        self._begin()

    def _begin(self) -> None:
        pool = ThreadPoolExecutor(1)
        self._next: Future[Chosen] = pool.submit(next, self._values)
        pool.shutdown(wait=False)  # the thread ends with the call

    def next(self) -> Chosen:
        value = self._next.result()
        self._begin()
        return value


def subsample(relevant: Flags, list_size: int, rng: np.random.Generator) -> Ints:
    """Choose ``list_size`` of the items at random without replacement, ascending places.

    Where an item is ``relevant`` (``[n]``), at least one relevant item is kept: the sample has the
    distribution of drawing again until that holds, as published for Web30K. The number of relevant
    items is drawn first (hypergeometric, 0 left out), then the items.
    """
    good, bad = np.flatnonzero(relevant), np.flatnonzero(~relevant)
    if len(good) == 0:
        return np.sort(rng.choice(len(relevant), list_size, replace=False))
    kept = 0
    while kept == 0:
        kept = int(rng.hypergeometric(len(good), len(bad), list_size))
    chosen = rng.choice(good, kept, replace=False)
    others = rng.choice(bad, list_size - kept, replace=False)
    return np.sort(np.concatenate([chosen, others]))
