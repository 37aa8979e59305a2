"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all items, so the whole set can lie on the GPU and nothing
else has to move. Where that tensor would take a large part of the memory, a batch is gathered from
the lists' own features, which are mapped from disk, and transformed by itself: the same values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data.lists import Ints, Lists
from ltr.data.machine import available_memory
from ltr.data.order import Chosen, Drawing, Shape
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
        self.drawing = Drawing(self.offsets, self.relevant)

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
        return self._gather(lists, *map(self.sent, parts))

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

    def _gather(self, lists: Ints, ranks: Tensor, lengths: Tensor, starts: Tensor) -> Batch:
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
    return available_memory()[0]


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
    shape = Shape(batch_size, list_size, fixed)
    for step, first, ahead in _steps(data, shape, seed, epoch, start):
        yield ahead.batch(slice(first, first + batch_size), noise, (seed, epoch, step))


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
    mine, shape = tuple(mine), Shape(batch_size, list_size, fixed)
    for step, first, ahead in _steps(data, shape, seed, epoch, start):
        draw, parts = (seed, epoch, step), {}
        for number in mine:
            begin, end = (first + batch_size * n // shards for n in (number, number + 1))
            there = begin < len(ahead.order)
            rows = slice(begin, end)
            parts[number] = ahead.batch(rows, noise, (*draw, number)) if there else None
        yield Slices(parts, shards, ahead.order[first : first + batch_size], draw)


def _steps(
    data: ItemTensors, shape: Shape, seed: int, epoch: int, start: int
) -> Iterator[tuple[int, int, "_Ahead"]]:
    """The number of each step, the lists at hand with its own, and where its own begin."""
    for chosen in data.drawing.epoch(shape, seed, epoch, start):
        ahead = _Ahead(data, chosen, shape)
        for begin in range(0, len(chosen.order), shape.batch_size):
            yield start, begin, ahead
            start += 1


class _Ahead:
    """The items of some lists on the device of ``data``, for batch after batch."""

    def __init__(self, data: ItemTensors, chosen: Chosen, shape: Shape) -> None:
        self._data, self._lengths, self.order = data, chosen.lengths, chosen.order
        self._width = shape.list_size if shape.fixed else None
        self._sent = [data.sent(part) for part in chosen[1:]]
        self._weights = None
        if data.weights is not None:
            filled = np.zeros(len(chosen.lengths), np.float32)
            filled[: len(self.order)] = data.weights[self.order]
            self._weights = torch.from_numpy(filled).to(data.device)

    def batch(self, rows: slice, noise: float, draw: tuple[int, ...]) -> Batch:
        """The batch of the lists ``rows`` of the order, with noise drawn by ``draw``."""
        width = self._width or int(self._lengths[rows].max())
        ranks, lengths, starts = self._sent
        batch = self._data._gather(
            self.order[rows], ranks[rows, :width], lengths[rows], starts[rows]
        )
        if noise:
            batch = replace(batch, features=self._data.with_noise(batch, noise, draw))
        return batch if self._weights is None else replace(batch, weights=self._weights[rows])


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
