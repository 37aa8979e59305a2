"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all items, which may lie on the GPU. Where that would take
much of the memory, a batch is gathered from the mapped lists and transformed by itself: the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data import machine
from ltr.data.lists import Flags, Ints, Lists
from ltr.data.transforms import FeatureTransform
from ltr.typing import Features, Labels, Mask, Ranks, Scores

_AHEAD = 512  # batches whose items are drawn at once: an epoch of millions of lists has many
_SHARE = 0.5  # of the free memory, which the features of a set may take


@dataclass(frozen=True)
class Batch:
    """Padded lists."""

    features: Features  # [batch, list, feature], 0 where padded
    labels: Labels  # [batch, list], 0 where padded
    mask: Mask  # [batch, list], True where an item exists; nothing else marks padding
    ranks: Ranks  # [batch, list], 1-based place of the item in its list as the data has it
    rows: Tensor  # [batch, list], the item of the data at each place, 0 where padded
    lists: Ints  # [lists], the numbers of the lists; rows beyond them have no items
    weights: Tensor | None = None  # [batch], how much each list counts; None: all the same
    teacher: Scores | None = None  # [batch, list], scores to learn from, 0 where padded

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lists)


@dataclass(frozen=True)
class Slices:
    """The slices of a batch that one process computes."""

    parts: dict[int, Batch | None]  # by its number, the lists of each slice; None: it has none
    shards: int  # how many slices the batch has, all processes together
    lists: Ints  # [lists], the numbers of all its lists
    draw: tuple[int, int, int]  # that, with a slice's number, seed what is drawn at random


Shape = tuple[int, int, bool]  # batch_size, list_size, fixed


class Chosen(NamedTuple):
    """The items of some lists; rows beyond the lists have none."""

    order: Ints  # [lists], the numbers of the lists
    ranks: NDArray[np.int32]  # [rows, list_size], places in the list from 0, any beyond ``lengths``
    lengths: Ints  # [rows], the number of items
    starts: Ints  # [rows], the place in the data of the first item of the list


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

        None: it is where they would take more than half of the memory that is free there.
        """
        device = torch.device(device)
        if mapped is None:
            mapped = 4 * lists.items * transform.outputs > _SHARE * machine.free_memory(device)
        self.mapped, self._transform = mapped, transform
        self._items = (
            lists.features if mapped else torch.from_numpy(transform(lists.features)).to(device)
        )
        self.categories = np.flatnonzero(transform.codes)
        self.labels = torch.from_numpy(np.array(lists.labels, np.float32)).to(device)
        scores = lists.teacher
        self.teacher = (
            None if scores is None else torch.from_numpy(np.array(scores, np.float32)).to(device)
        )
        self.offsets, self.lengths = np.asarray(lists.offsets), lists.lengths
        self.qids = lists.qids
        self.relevant = np.asarray(lists.labels) > 0
        self.weights = None if lists.weights is None else np.array(lists.weights, np.float32)
        self.device = self.labels.device
        self._one = torch.ones(1, dtype=torch.long, device=device)  # makes int64 of int32
        self.early: tuple[Any, Iterator[Chosen], Future[Chosen]] | None = None  # the next epoch's

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
        sent = map(self._sent, (ranks.copy(), lengths, self.offsets[lists]))
        return self._gather(lists, list(sent))

    def _drawn(self, shape: Shape, seed: int, epoch: int, start: int) -> Iterator[Chosen]:
        """The items of an epoch from step ``start`` on; a thread draws the next ones meanwhile."""
        if (left := len(self) - start * shape[0]) <= 0:
            return
        early, self.early = self.early, None
        if early is not None and early[0] == (shape, seed, epoch, start):
            _, values, future = early
        else:
            values = _draws(self.offsets, self.relevant, shape, seed, epoch, start)
            future = _begin(values)
        while left > 0:
            some, future = future.result(), _begin(values)
            left -= len(some.order)
            yield some
        self.early = (shape, seed, epoch + 1, 0), values, future

    def _sent(self, array: NDArray[np.integer]) -> Tensor:
        """``array`` on the device; a GPU receives it in the background."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def _gather(
        self, lists: Ints, sent: Sequence[Tensor], noise: float = 0.0, draw: tuple[int, ...] = ()
    ) -> Batch:
        """The batch of ``lists``; no shape depends on values of tensors.

        ``sent`` are, on the device, their ``ranks``, ``lengths`` and ``starts`` as in ``Chosen``,
        and perhaps their weights. ``draw`` seeds normal ``noise`` on the features that are numbers.
        """
        ranks, lengths, starts, *weights = sent
        mask = torch.arange(ranks.shape[1], device=self.device) < lengths[:, None]
        outside = ~mask
        rows = (starts[:, None] + ranks).masked_fill_(outside, 0)
        teacher = None if self.teacher is None else self.teacher[rows].masked_fill_(outside, 0.0)
        features = self._features_at(rows, outside)
        if noise:
            seed = int(np.random.SeedSequence(draw).generate_state(1, np.uint64)[0])
            generator = torch.Generator(self.device).manual_seed(seed)
            drawn = torch.randn(features.shape, generator=generator, device=self.device)
            drawn[..., self.categories] = 0.0
            features = (features + noise * drawn).masked_fill_(outside[..., None], 0.0)
        return Batch(
            features=features,
            labels=self.labels[rows].masked_fill_(outside, 0.0),
            mask=mask,
            ranks=ranks + self._one,
            rows=rows,
            lists=lists,
            weights=weights[0] if weights else None,
            teacher=teacher,
        )

    def _features_at(self, rows: Tensor, outside: Tensor) -> Features:
        """The features of the items ``rows``, ``[batch, list]``, 0 ``outside`` the lists."""
        if isinstance(self._items, Tensor):
            return self._items[rows].masked_fill_(outside[..., None], 0.0)
        there = ~outside.cpu()
        out = torch.zeros(*rows.shape, self._transform.outputs)
        out[there] = torch.from_numpy(self._transform(self._items[rows.cpu()[there].numpy()]))
        return out.to(self.device)


def train_batches(data: ItemTensors, *, batch_size: int, **how: Any) -> Iterator[Batch]:
    """The batches of one epoch from step ``start`` on, every list once.

    ``how`` is ``list_size``, ``seed``, ``epoch``, ``start=0``, ``fixed=False``, ``noise=0.0``.

    Order and subsampling are a pure function of ``seed``, ``epoch`` and the list's number, noise of
    ``seed``, ``epoch`` and the step, so a run that resumes at step ``start`` gets the same batches.
    ``noise`` is the standard deviation of normal noise on the features of every item, categories
    apart (the data augmentation of Qin et al., 2021, DASALC).

    With ``fixed`` every batch is ``[batch_size, list_size]``; the last one is filled up with rows
    without items, which are not in ``Batch.lists``. Else a batch is as wide as its longest list.
    """
    for _, _, parts in _cut(data, {(): (0, batch_size)}, batch_size=batch_size, **how):
        yield from parts.values()  # type: ignore[misc]


def train_slices(
    data: ItemTensors, *, shards: int, mine: Iterable[int], batch_size: int, **how: Any
) -> Iterator[Slices]:
    """Of each batch of ``train_batches``, with these knobs, the slices ``mine`` of ``shards``.

    A slice is consecutive lists of the batch, as a batch of its own: as wide as its longest list,
    with noise of its own (of ``seed``, ``epoch``, the step and its number). In the last batch of an
    epoch the last slices may have no list.
    """
    ends = {(n,): (batch_size * n // shards, batch_size * (n + 1) // shards) for n in mine}
    for lists, draw, parts in _cut(data, ends, batch_size=batch_size, **how):
        yield Slices({number: part for (number,), part in parts.items()}, shards, lists, draw)


def _cut(
    data: ItemTensors, ends: Mapping[Any, tuple[int, int]], *, batch_size: int,
    list_size: int, seed: int, epoch: int, start: int = 0, fixed: bool = False, noise: float = 0.0,
) -> Iterator[tuple[Ints, tuple[int, int, int], dict[Any, Batch | None]]]:  # fmt: skip
    """The lists of each batch, what seeds it, its parts between ``ends``, which keys seed too."""
    for chosen in data._drawn((batch_size, list_size, fixed), seed, epoch, start):
        sent = [data._sent(part) for part in chosen[1:]]
        if data.weights is not None:
            more = len(chosen.lengths) - len(chosen.order)  # rows without items
            filled = np.pad(data.weights[chosen.order], (0, more))
            sent.append(torch.from_numpy(filled).to(data.device))
        for first in range(0, len(chosen.order), batch_size):
            lists = chosen.order[first : first + batch_size]
            draw, parts = (seed, epoch, start), dict[Any, Batch | None]()
            for key, (begin, end) in ends.items():
                parts[key] = None
                if begin < len(lists):
                    rows = slice(first + begin, first + end)
                    width = list_size if fixed else int(chosen.lengths[rows].max())
                    some = [sent[0][rows, :width], *(part[rows] for part in sent[1:])]
                    parts[key] = data._gather(chosen.order[rows], some, noise, (*draw, *key))
            yield lists, draw, parts
            start += 1


def _draws(
    offsets: Ints, relevant: Flags, shape: Shape, seed: int, epoch: int, start: int
) -> Iterator[Chosen]:
    """The items of ``_AHEAD`` batches at a time from step ``start`` of an epoch on, without end."""
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


def _begin(values: Iterator[Chosen]) -> Future[Chosen]:
    """The next of ``values``, which a thread computes."""
    pool = ThreadPoolExecutor(1)
    future: Future[Chosen] = pool.submit(next, values)
    pool.shutdown(wait=False)  # the thread ends with the call
    return future


def subsample(relevant: Flags, list_size: int, rng: np.random.Generator) -> Ints:
    """Choose ``list_size`` of the items at random without replacement, ascending places.

    Where an item is ``relevant``, ``[n]``, at least one of the sample is: its distribution is that
    of drawing again until it holds, as published for Web30K. Their number is drawn first.
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

    A batch has at most so many padded ``items``, and ``pairs`` of them (None: any number), but for
    a longer list, which comes alone: it is never cut. ``lengths`` are ``[lists]``.
    """
    order = np.ascontiguousarray(np.argsort(lengths, kind="stable")[::-1])
    first = 0
    while first < len(order):
        width = int(lengths[order[first]])
        fit = items // width if pairs is None else min(items // width, pairs // width**2)
        yield order[first : first + max(1, fit)]
        first += max(1, fit)
