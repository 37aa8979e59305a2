"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all items, so the whole set can lie on the GPU and nothing
else has to move. Where that tensor would take a large part of the memory, a batch is gathered from
the lists' own features, which are mapped from disk, and transformed by itself: the same values.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data import machine
from ltr.data.lists import Flags, Ints, Lists
from ltr.data.transforms import FeatureTransform
from ltr.typing import Features, Labels, Mask, Ranks, Scores


@dataclass(frozen=True)
class Batch:
    """Padded lists.

    Attributes:
        features: ``[batch, list, feature]``, 0 where padded.
        labels: ``[batch, list]``, 0 where padded.
        mask: ``[batch, list]``, True where an item exists; nothing else marks padding.
        ranks: ``[batch, list]``, 1-based place of the item in its list as the data has it.
        rows: ``[batch, list]``, the item of the data at each place, 0 where padded.
        lists: ``[lists]``, the numbers of the lists; rows beyond them have no items.
        weights: ``[batch]``, how much each list counts; None: all the same.
        teacher: ``[batch, list]``, the scores of the model to learn from, 0 where padded; None:
            there is none.
    """

    features: Features
    labels: Labels
    mask: Mask
    ranks: Ranks
    rows: Tensor
    lists: Ints
    weights: Tensor | None = None
    teacher: Scores | None = None

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lists)


_AHEAD = 512  # batches whose items are drawn at once: an epoch of millions of lists has many
_SHARE = 0.5  # of the free memory, which the features of a set may take


@dataclass(frozen=True)
class Slices:
    """The slices of a batch that one process computes.

    Attributes:
        parts: by its number, the lists of each slice; None: it has none.
        shards: how many slices the batch has, all processes together.
        lists: ``[lists]``, the numbers of all its lists.
        draw: the numbers that, with that of a slice, seed what is drawn at random.
    """

    parts: dict[int, Batch | None]
    shards: int
    lists: Ints
    draw: tuple[int, int, int]


Shape = tuple[int, int, bool]  # batch_size, list_size, fixed


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


class ItemTensors:
    """Lists ready for a model: transformed features and labels as tensors on ``device``.

    Attributes:
        mapped: the features are gathered from those of the lists, batch by batch.
    """

    def __init__(
        self,
        lists: Lists,
        transform: FeatureTransform,
        device: torch.device | str = "cpu",
        *,
        mapped: bool | None = None,
    ) -> None:
        """Transform ``lists`` and send their items to ``device``, unless ``mapped``.

        ``mapped`` None: where they would take more than half of the memory that is free there.
        """
        device = torch.device(device)
        if mapped is None:
            mapped = 4 * lists.items * transform.outputs > _SHARE * _free_memory(device)
        self.mapped, self._transform = mapped, transform
        self._items = (
            lists.features if mapped else torch.from_numpy(transform(lists.features)).to(device)
        )
        self.categories = np.flatnonzero(transform.codes)
        self.labels = torch.from_numpy(np.array(lists.labels, np.float32)).to(device)
        self.teacher: Tensor | None = None
        if lists.teacher is not None:
            self.teacher = torch.from_numpy(np.array(lists.teacher, np.float32)).to(device)
        self.offsets = np.asarray(lists.offsets)
        self.lengths = np.diff(self.offsets)
        self.qids = lists.qids
        self.relevant = np.asarray(lists.labels) > 0
        self.weights = None if lists.weights is None else np.array(lists.weights, np.float32)
        self.device = self.labels.device
        self._one = torch.ones(1, dtype=torch.long, device=device)  # makes int64 of int32
        self.early: tuple[tuple[object, ...], _Early] | None = None  # the next epoch's items

    @property
    def features(self) -> Tensor:
        """The features of all items, ``[items, outputs]``; of mapped ones made anew, for trees."""
        if isinstance(self._items, Tensor):
            return self._items
        return torch.from_numpy(self._transform(self._items)).to(self.device)

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lengths)

    def batch(self, lists: Ints) -> Batch:
        """All items of ``lists``, padded to the longest."""
        lengths = self.lengths[lists]
        ranks = np.broadcast_to(np.arange(lengths.max()), (len(lists), lengths.max()))
        parts = np.array(ranks), lengths, self.offsets[lists]
        return self.gather(lists, *map(self.sent, parts))

    def drawn(self, shape: Shape, seed: int, epoch: int, start: int) -> Iterator[Chosen]:
        """The items of an epoch from step ``start`` on; a thread draws the next ones meanwhile."""
        left = len(self) - start * shape[0]
        if left <= 0:
            return
        early, self.early = self.early, None
        if early is not None and early[0] == (shape, seed, epoch, start):
            values = early[1]
        else:
            values = _Early(_draws(self.offsets, self.relevant, shape, seed, epoch, start))
        while left > 0:
            some = values.next()
            left -= len(some.order)
            yield some
        self.early = (shape, seed, epoch + 1, 0), values

    def with_noise(self, batch: Batch, noise: float, draw: tuple[int, ...]) -> Features:
        """The features of ``batch`` with normal noise, of its numbers alone; 0 where padded.

        The noise is a pure function of ``draw``, the shape and the kind of the device.
        """
        seed = int(np.random.SeedSequence(draw).generate_state(1, np.uint64)[0])
        generator = torch.Generator(self.device).manual_seed(seed)
        drawn = torch.randn(batch.features.shape, generator=generator, device=self.device)
        drawn[..., self.categories] = 0.0
        return (batch.features + noise * drawn).masked_fill_(~batch.mask[..., None], 0.0)

    def sent(self, array: NDArray[np.integer]) -> Tensor:
        """``array`` on the device; a GPU receives it in the background."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def gather(
        self, lists: Ints, ranks: Tensor, lengths: Tensor, starts: Tensor,
        weights: Tensor | None = None,
    ) -> Batch:  # fmt: skip
        """The batch of the items ``ranks`` (from 0) of lists that begin at ``starts``.

        All tensors are on the device, and no shape depends on their values.
        """
        places = torch.arange(ranks.shape[1], device=self.device)
        mask = places < lengths[:, None]
        outside = ~mask
        rows = (starts[:, None] + ranks).masked_fill_(outside, 0)
        taught = None if self.teacher is None else self.teacher[rows].masked_fill_(outside, 0.0)
        return Batch(
            features=self._features_at(rows, outside),
            labels=self.labels[rows].masked_fill_(outside, 0.0),
            mask=mask,
            ranks=ranks + self._one,
            rows=rows,
            lists=lists,
            weights=weights,
            teacher=taught,
        )

    def _features_at(self, rows: Tensor, outside: Tensor) -> Features:
        """The features of the items ``rows``, ``[batch, list]``, 0 ``outside`` the lists."""
        if isinstance(self._items, Tensor):
            return self._items[rows].masked_fill_(outside[..., None], 0.0)
        there = ~outside.cpu()
        out = torch.zeros(*rows.shape, self._transform.outputs)
        out[there] = torch.from_numpy(self._transform(self._items[rows.cpu()[there].numpy()]))
        return out.to(self.device)


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = machine.free_memory()
    return 1 << 62 if free is None else free  # else NumPy raises where it does not fit


def train_batches(
    data: ItemTensors,
    *,
    batch_size: int,
    list_size: int,
    seed: int,
    epoch: int,
    start: int = 0,
    fixed: bool = False,
    noise: float = 0.0,
) -> Iterator[Batch]:
    """The batches of one epoch from step ``start`` on, every list once.

    Order and subsampling are a pure function of ``seed``, ``epoch`` and the list's number, noise of
    ``seed``, ``epoch`` and the step, so a run that resumes at step ``start`` gets the same batches.
    The indices of many batches go to the device at once; a thread draws them while earlier ones are
    computed.

    With ``noise`` normal noise of that standard deviation is added to the features of every item,
    categories apart (the data augmentation of Qin et al., 2021, DASALC).

    With ``fixed`` every batch is ``[batch_size, list_size]``; the last one is filled up with rows
    without items, which are not in ``Batch.lists``. Else a batch is as wide as its longest list.
    """
    for step, _, batch in _steps(data, (batch_size, list_size, fixed), seed, epoch, start):
        yield batch(0, batch_size, noise, (seed, epoch, step))


def train_slices(
    data: ItemTensors,
    *,
    shards: int,
    mine: Iterable[int],
    batch_size: int,
    list_size: int,
    seed: int,
    epoch: int,
    start: int = 0,
    fixed: bool = False,
    noise: float = 0.0,
) -> Iterator[Slices]:
    """Of each batch of ``train_batches`` the slices ``mine`` of ``shards``.

    A slice is consecutive lists of the batch, as a batch of its own: as wide as its longest list,
    with noise of its own (of ``seed``, ``epoch``, the step and its number). In the last batch of an
    epoch the last slices may have no list.
    """
    ends = {number: [batch_size * n // shards for n in (number, number + 1)] for number in mine}
    for step, lists, batch in _steps(data, (batch_size, list_size, fixed), seed, epoch, start):
        draw = (seed, epoch, step)
        parts = {
            number: batch(begin, end, noise, (*draw, number)) if begin < len(lists) else None
            for number, (begin, end) in ends.items()
        }
        yield Slices(parts, shards, lists, draw)


def _steps(
    data: ItemTensors, shape: Shape, seed: int, epoch: int, start: int
) -> Iterator[tuple[int, Ints, Callable[..., Batch]]]:
    """The number of each step, its lists, and what makes the batch of some of them (``_batch``)."""
    for chosen in data.drawn(shape, seed, epoch, start):
        sent = [data.sent(part) for part in chosen[1:]]
        if data.weights is not None:
            filled = np.zeros(len(chosen.lengths), np.float32)
            filled[: len(chosen.order)] = data.weights[chosen.order]
            sent.append(torch.from_numpy(filled).to(data.device))
        for first in range(0, len(chosen.order), shape[0]):
            lists = chosen.order[first : first + shape[0]]
            yield start, lists, partial(_batch, data, chosen, sent, shape, first)
            start += 1


def _batch(
    data: ItemTensors, chosen: Chosen, sent: list[Tensor], shape: Shape, first: int,
    begin: int, end: int, noise: float, draw: tuple[int, ...],
) -> Batch:  # fmt: skip
    """The lists from ``begin`` to ``end`` behind ``first``, with noise that ``draw`` seeds."""
    rows = slice(first + begin, first + end)
    width = shape[1] if shape[2] else int(chosen.lengths[rows].max())
    ranks, *others = (part[rows] for part in sent)
    batch = data.gather(chosen.order[rows], ranks[:, :width], *others)
    return replace(batch, features=data.with_noise(batch, noise, draw)) if noise else batch


def _draws(
    offsets: Ints, relevant: Flags, shape: Shape, seed: int, epoch: int, start: int
) -> Iterator[Chosen]:
    """The items of ``_AHEAD`` batches at a time from step ``start`` of an epoch on, without an end.

    Args:
        offsets: ``[lists + 1]``, where the items of each list begin.
        relevant: ``[items]``.
        shape, seed, epoch, start: as for ``train_batches``.
    """
    batch_size, list_size, fixed = shape
    span, lengths = _AHEAD * batch_size, np.diff(offsets)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(lengths))
        for first in range(start * batch_size, len(order), span):
            some = order[first : first + span]
            rows = len(some) + (-len(some) % batch_size if fixed else 0)
            sizes, starts = np.zeros((2, rows), np.int64)
            sizes[: len(some)] = np.minimum(lengths[some], list_size)
            starts[: len(some)] = offsets[some]
            ranks = np.empty((rows, list_size), np.int32)
            ranks[:] = np.arange(list_size)
            for row in np.flatnonzero(lengths[some] > list_size):
                i = int(some[row])
                rng = np.random.default_rng([seed, epoch, i])
                ranks[row] = subsample(relevant[offsets[i] : offsets[i + 1]], list_size, rng)
            yield Chosen(some, ranks, sizes, starts)
        epoch, start = epoch + 1, 0


class _Early:
    """The next value of an iterator, which a thread computes while the last one is used."""

    def __init__(self, values: Iterator[Chosen]) -> None:
        self._values = values
        self._begin()

    def _begin(self) -> None:
        pool = ThreadPoolExecutor(1)
        self.future: Future[Chosen] = pool.submit(next, self._values)
        pool.shutdown(wait=False)  # the thread ends with the call

    def next(self) -> Chosen:
        value = self.future.result()
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


def steps_in_epoch(lists: int, batch_size: int) -> int:
    """Number of batches that ``train_batches`` yields for ``lists`` lists from step 0."""
    return -(-lists // batch_size)


def batches_by_length(lengths: Ints, *, items: int, pairs: int | None = None) -> Iterator[Ints]:
    """The lists of each batch: every list whole and once, the longest first.

    Args:
        lengths: ``[lists]``, the items of each list.
        items: the most padded items of a batch.
        pairs: the most padded pairs of items of a batch; None: any number.

    A list longer than either comes alone: it is never cut.
    """
    order = np.ascontiguousarray(np.argsort(lengths, kind="stable")[::-1])
    first = 0
    while first < len(order):
        width = int(lengths[order[first]])
        fit = items // width if pairs is None else min(items // width, pairs // width**2)
        yield order[first : first + max(1, fit)]
        first += max(1, fit)
