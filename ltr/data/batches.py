"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all transformed items. If that would take up too much
memory, each batch is gathered from the memory-mapped lists and then transformed; results are equal.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.arrays import Flags, Floats, Ints
from ltr.data import machine
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.typing import Features, Labels, Mask, Ranks, Scores

_AHEAD = 32  # batches whose items a thread draws in one go, which takes some milliseconds
_SHARE = 0.5  # the part of the free memory that the features of a set may take


@dataclass(frozen=True)
class Batch:
    """Padded lists."""

    features: Features  # [batch, list, feature], 0 where padded
    labels: Labels  # [batch, list], 0 where padded
    mask: Mask  # [batch, list], True where an item exists; nothing else marks padding
    ranks: Ranks  # [batch, list], 1-based position of the item in its list, as in the data
    rows: Tensor  # [batch, list], index of each item among all items, 0 where padded
    lists: Ints  # [lists], the numbers of the lists; any further rows of the batch have no items
    weights: Tensor | None = None  # [batch], how much each list counts; None: all the same
    teacher: Scores | None = None  # [batch, list], scores to learn from, 0 where padded

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.lists)


class Chosen(NamedTuple):
    """The items chosen from some lists, and the weights of the lists.

    There may be more rows than lists; the rows after the last list have no items.
    """

    order: Ints  # [lists], the numbers of the lists
    ranks: NDArray[np.int32]  # [rows, list_size], 0-based positions in the list, then any numbers
    lengths: Ints  # [rows], the number of items: so many of ``ranks`` are valid
    starts: Ints  # [rows], index among all items of the list's first item
    weights: Floats | None = None  # [rows]


class ItemTensors:
    """Transformed features and labels as tensors; if ``mapped``, each batch is transformed anew."""

    def __init__(
        self,
        lists: Lists,
        transform: FeatureTransform,
        device: torch.device | str = "cpu",
        *,
        mapped: bool | None = None,
    ) -> None:
        """Transform ``lists`` and send their items to ``device``, now or batch by batch.

        Args:
            lists: what the batches are made of.
            transform: the transform of the features.
            device: where the batches are used.
            mapped: True: transform and send each batch when it is drawn; False: all items now;
                None: batch by batch if the features would take more than half of the device's free
                memory.
        """
        device = torch.device(device)
        if mapped is None:
            mapped = 4 * lists.items * transform.outputs > _SHARE * machine.free_memory(device)
        self.mapped, self._transform = mapped, transform
        self._items = (
            lists.features if mapped else torch.from_numpy(transform(lists.features)).to(device)
        )
        self.categories = np.flatnonzero(transform.codes)
        send = lambda values: torch.from_numpy(np.array(values, np.float32)).to(device)  # noqa: E731
        self.labels = send(lists.labels)
        self.teacher = None if lists.teacher is None else send(lists.teacher)
        self.offsets, self.lengths, self.qids = lists.offsets, lists.lengths, lists.qids
        self.relevant = lists.labels > 0
        self.weights = None if lists.weights is None else np.array(lists.weights, np.float32)
        self.device = self.labels.device
        self._one = torch.ones(1, dtype=torch.long, device=device)  # makes int64 of int32

    @property
    def features(self) -> Tensor:
        """The transformed features of all items, ``[items, outputs]``; made anew if ``mapped``."""
        if isinstance(self._items, Tensor):
            return self._items
        return torch.from_numpy(self._transform(self._items)).to(self.device)

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.lengths)

    def batch(self, lists: Ints) -> Batch:
        """Return all items of the lists with the numbers ``lists``, padded to the longest list."""
        lengths = self.lengths[lists]
        ranks = np.broadcast_to(np.arange(lengths.max()), (len(lists), lengths.max()))
        sent = self._sent(Chosen(lists, ranks.copy(), lengths, self.offsets[lists]))
        return self._gather(lists, sent)

    def _drawn(
        self, batch_size: int, list_size: int, fixed: bool, seed: int, epoch: int, start: int
    ) -> Iterator[Chosen]:
        """Yield the chosen items of an epoch from step ``start`` on, which a thread draws ahead."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self))

        def draw(first: int) -> Chosen:
            lists = order[first : first + _AHEAD * batch_size]
            more = -len(lists) % batch_size if fixed else 0
            lengths = np.pad(np.minimum(self.lengths[lists], list_size), (0, more))
            ranks = np.empty((len(lengths), list_size), np.int32)
            ranks[:] = np.arange(list_size)
            for row in np.flatnonzero(self.lengths[lists] > list_size):
                i = int(lists[row])
                relevant = self.relevant[self.offsets[i] : self.offsets[i + 1]]
                rng = np.random.default_rng([seed, epoch, i])
                ranks[row] = subsample(relevant, list_size, rng)
            weights = None if self.weights is None else np.pad(self.weights[lists], (0, more))
            return Chosen(lists, ranks, lengths, np.pad(self.offsets[lists], (0, more)), weights)

        with ThreadPoolExecutor(1) as pool:
            firsts = range(start * batch_size, len(order), _AHEAD * batch_size)
            futures: Iterator[Any] = (pool.submit(draw, first) for first in firsts)
            for future, _ in pairwise(chain(futures, [None])):  # the next one has begun
                yield future.result()

    def _sent(self, chosen: Chosen) -> list[Tensor]:
        """Send the arrays of ``chosen`` to the device; a GPU receives them in the background."""
        tensors = [torch.from_numpy(array) for array in chosen[1:] if array is not None]
        if self.device.type == "cpu":
            return tensors
        return [one.pin_memory().to(self.device, non_blocking=True) for one in tensors]

    def _gather(
        self, lists: Ints, sent: Sequence[Tensor], noise: float = 0.0, draw: tuple[int, ...] = ()
    ) -> Batch:
        """Gather the batch of ``lists`` from ``sent``, the tensors of ``Chosen``; add ``noise``,
        seeded by ``draw``, to features that are numbers. No shape depends on values of tensors.
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
        """Return the features of the items ``rows``, ``[batch, list]``; 0 where ``outside``."""
        if isinstance(self._items, Tensor):
            return self._items[rows].masked_fill_(outside[..., None], 0.0)
        there = ~outside.cpu()
        out = torch.zeros(*rows.shape, self._transform.outputs)
        out[there] = torch.from_numpy(self._transform(self._items[rows.cpu()[there].numpy()]))
        return out.to(self.device)


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
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[Batch]:
    """Yield the batches of one epoch from step ``start`` on, with every list once.

    Lists with more than ``list_size`` items are subsampled. Order and subsampling are a pure
    function of ``seed``, ``epoch`` and the number of the list; noise is one of ``seed``, ``epoch``
    and the step. So a resumed run gets the same batches.

    Args:
        data: the lists.
        batch_size: lists in a batch.
        list_size: the most items of a list.
        seed, epoch, start: what the draws depend on, and the first step.
        fixed: every batch is ``[batch_size, list_size]``; the last one is filled up with rows
            without items, which are not in ``Batch.lists``. Otherwise the longest list of a batch
            decides its width.
        noise: standard deviation of normal noise on all features but categories (the data
            augmentation of Qin et al., 2021, DASALC).
        rank, ranks: with several processes, each batch is cut into ``ranks`` slices of consecutive
            lists, and slice ``rank`` is yielded. Its noise depends on its number too. A slice
            without lists has one row without items.
    """
    for chosen in data._drawn(batch_size, list_size, fixed, seed, epoch, start):
        sent = data._sent(chosen)
        for first in range(0, len(chosen.order), batch_size):
            begin = first + batch_size * rank // ranks
            end = first + batch_size * (rank + 1) // ranks
            rows = slice(begin, end)
            draw = (seed, epoch, start) if ranks == 1 else (seed, epoch, start, rank)
            if begin >= len(chosen.lengths):
                yield data._gather(chosen.order[rows], _row_without_items(sent), noise, draw)
            else:
                width = None if fixed else int(chosen.lengths[rows].max())
                part = [sent[0][rows, :width], *(tensor[rows] for tensor in sent[1:])]
                yield data._gather(chosen.order[rows], part, noise, draw)
            start += 1


def _row_without_items(sent: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of ``Chosen`` for one list without items."""
    ranks, lengths, *others = sent
    return [ranks[:1, :1], torch.zeros_like(lengths[:1]), *(tensor[:1] for tensor in others)]


def subsample(relevant: Flags, list_size: int, rng: np.random.Generator) -> Ints:
    """Choose ``list_size`` items at random without replacement; return ascending indices.

    If any item is ``relevant``, ``[n]``, the sample has at least one, distributed as if drawn again
    until it has, as published for Web30K. Here the number of relevant items is drawn first.
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


def batches_by_length(lengths: Ints, *, items: int, pairs: int | None = None) -> Iterator[Ints]:
    """Yield, for each batch, the indices of its lists; each list comes once, whole, longest first.

    A batch has at most ``items`` padded items, and ``pairs`` pairs of items within its padded lists
    (None: any number); a list that exceeds a limit comes alone. ``lengths`` is ``[lists]``.
    """
    order = np.ascontiguousarray(np.argsort(lengths, kind="stable")[::-1])
    first = 0
    while first < len(order):
        width = int(lengths[order[first]])
        fit = items // width if pairs is None else min(items // width, pairs // width**2)
        yield order[first : first + max(1, fit)]
        first += max(1, fit)
