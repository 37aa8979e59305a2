"""Turn ragged lists into padded batches, on any device.

A batch is one gather from the tensor of all transformed items. If that tensor would take up too
much memory, each batch is gathered from the memory-mapped lists and then transformed. Both ways
give the same batches.
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

_AHEAD = 32  # a thread draws the items of this many batches at once, in a few milliseconds
_SHARE = 0.5  # the fraction of the free memory that the features of a data set may take


@dataclass(frozen=True)
class Batch:
    """A padded batch of lists."""

    features: Features  # [batch, list, feature], 0 where padded
    labels: Labels  # [batch, list], 0 where padded
    mask: Mask  # [batch, list], True where an item exists; nothing else marks padding
    ranks: Ranks  # [batch, list], 1-based position of the item in its list in the data
    rows: Tensor  # [batch, list], index of each item among all items, 0 where padded
    lists: Ints  # [lists], the indices of the lists; any further rows of the batch have no items
    weights: Tensor | None = None  # [batch], the weight of each list; None: all equal
    teacher: Scores | None = None  # [batch, list], scores to learn from, 0 where padded

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.lists)


class SampledItems(NamedTuple):
    """The items sampled from lists, and the weights of the lists.

    The arrays may have more rows than there are lists. The rows after the last list have no items.
    """

    order: Ints  # [lists], the indices of the lists
    ranks: NDArray[np.int32]  # [rows, list_size], 0-based positions; only ``lengths`` are defined
    lengths: Ints  # [rows], the number of sampled items
    starts: Ints  # [rows], index among all items of the list's first item
    weights: Floats | None = None  # [rows]


class ItemTensors:
    """Transformed features and labels as tensors, from which batches are made.

    If ``mapped``, the transformed features are not kept. Instead, the features of each batch are
    transformed when the batch is made.
    """

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
            lists: the lists from which batches are made.
            transform: the transform of the features.
            device: the device of the batches.
            mapped: True: transform and send each batch when it is made. False: transform and send
                all items now. None: True if the features would take more than half of the device's
                free memory, else False.
        """
        device = torch.device(device)
        if mapped is None:
            mapped = 4 * lists.items * transform.outputs > _SHARE * machine.free_memory(device)
        self.mapped = mapped
        self._transform = transform
        self._items = (
            lists.features if mapped else torch.from_numpy(transform(lists.features)).to(device)
        )
        self.categories = np.flatnonzero(transform.codes)
        self.labels = _float_tensor(lists.labels, device)
        self.teacher = None
        if lists.teacher is not None:
            self.teacher = _float_tensor(lists.teacher, device)
        self.offsets = lists.offsets
        self.lengths = lists.lengths
        self.qids = lists.qids
        self.relevant = lists.labels > 0
        self.weights = None if lists.weights is None else np.array(lists.weights, np.float32)
        self.device = self.labels.device
        self._one = torch.ones(1, dtype=torch.long, device=device)  # turns int32 into int64

    @property
    def features(self) -> Tensor:
        """The transformed features of all items, ``[items, outputs]``.

        If ``mapped``, each access computes them again.
        """
        if isinstance(self._items, Tensor):
            return self._items
        return torch.from_numpy(self._transform(self._items)).to(self.device)

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.lengths)

    def batch(self, lists: Ints) -> Batch:
        """Return a batch with all items of the lists at the indices ``lists``.

        The lists are padded to the longest of them.
        """
        lengths = self.lengths[lists]
        ranks = np.broadcast_to(np.arange(lengths.max()), (len(lists), lengths.max()))
        items = SampledItems(lists, ranks.copy(), lengths, self.offsets[lists])
        return self._gather(lists, self._to_device(items))

    def _sample_ahead(
        self, batch_size: int, list_size: int, fixed: bool, seed: int, epoch: int, start: int
    ) -> Iterator[SampledItems]:
        """Yield the sampled items of an epoch, from step ``start`` on; a thread samples ahead."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self))

        def sample(first: int) -> SampledItems:
            lists = order[first : first + _AHEAD * batch_size]
            empty_rows = -len(lists) % batch_size if fixed else 0
            added = (0, empty_rows)
            lengths = np.pad(np.minimum(self.lengths[lists], list_size), added)
            ranks = np.empty((len(lengths), list_size), np.int32)
            ranks[:] = np.arange(list_size)
            for row in np.flatnonzero(self.lengths[lists] > list_size):
                number = int(lists[row])
                relevant = self.relevant[self.offsets[number] : self.offsets[number + 1]]
                rng = np.random.default_rng([seed, epoch, number])
                ranks[row] = subsample(relevant, list_size, rng)
            weights = None if self.weights is None else np.pad(self.weights[lists], added)
            starts = np.pad(self.offsets[lists], added)
            return SampledItems(lists, ranks, lengths, starts, weights)

        with ThreadPoolExecutor(1) as pool:
            firsts = range(start * batch_size, len(order), _AHEAD * batch_size)
            futures: Iterator[Any] = (pool.submit(sample, first) for first in firsts)
            for future, _ in pairwise(chain(futures, [None])):  # starts the next future first
                yield future.result()

    def _to_device(self, sampled: SampledItems) -> list[Tensor]:
        """Return the arrays of ``sampled`` as tensors; they are copied to a GPU asynchronously."""
        tensors = [torch.from_numpy(array) for array in sampled[1:] if array is not None]
        if self.device.type == "cpu":
            return tensors
        return [tensor.pin_memory().to(self.device, non_blocking=True) for tensor in tensors]

    def _gather(
        self, lists: Ints, tensors: Sequence[Tensor], noise: float = 0.0, draw: tuple[int, ...] = ()
    ) -> Batch:
        """Return the batch of ``lists``; no shape depends on the values of tensors.

        ``tensors`` are those that ``_to_device`` returns. Normal noise with the standard deviation
        ``noise``, seeded by ``draw``, is added to the numeric features.
        """
        ranks, lengths, starts, *weights = tensors
        mask = torch.arange(ranks.shape[1], device=self.device) < lengths[:, None]
        outside = ~mask
        rows = (starts[:, None] + ranks).masked_fill_(outside, 0)
        teacher = None if self.teacher is None else self.teacher[rows].masked_fill_(outside, 0.0)
        features = self._features_at(rows, outside)
        if noise:
            seed = int(np.random.SeedSequence(draw).generate_state(1, np.uint64)[0])
            generator = torch.Generator(self.device).manual_seed(seed)
            normal = torch.randn(features.shape, generator=generator, device=self.device)
            normal[..., self.categories] = 0.0
            features = (features + noise * normal).masked_fill_(outside[..., None], 0.0)
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
        """Return the features of the items at the indices ``rows``; 0 where ``outside``."""
        if isinstance(self._items, Tensor):
            return self._items[rows].masked_fill_(outside[..., None], 0.0)
        exists = ~outside.cpu()
        features = torch.zeros(*rows.shape, self._transform.outputs)
        item_features = self._items[rows.cpu()[exists].numpy()]
        features[exists] = torch.from_numpy(self._transform(item_features))
        return features.to(self.device)


def _float_tensor(values: Any, device: torch.device) -> Tensor:
    """Copy ``values`` to ``device`` as float32."""
    return torch.from_numpy(np.array(values, np.float32)).to(device)


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
    """Yield the batches of one epoch, from step ``start`` on; each list occurs once in an epoch.

    Lists with more than ``list_size`` items are subsampled. The order of the lists depends only on
    ``seed`` and ``epoch``. The items that are sampled from a list also depend on the index of the
    list, and the noise also depends on the step. So a resumed run gets the same batches.

    Args:
        data: the lists.
        batch_size: the number of lists in a batch.
        list_size: the maximum number of items that are used from each list.
        seed, epoch: the random draws depend on these.
        start: the first step.
        fixed: every batch is ``[batch_size, list_size]``; the last one is filled up with rows
            without items, which are not in ``Batch.lists``. If False, a batch is as wide as its
            longest list.
        noise: standard deviation of the normal noise that is added to all features except
            categories (the data augmentation of Qin et al., 2021, DASALC).
        rank, ranks: if several processes train together, each batch is cut into ``ranks`` slices of
            consecutive lists, and slice ``rank`` is yielded. The noise of a slice also depends on
            ``rank``. A slice without lists has one row without items.
    """
    for sampled in data._sample_ahead(batch_size, list_size, fixed, seed, epoch, start):
        tensors = data._to_device(sampled)
        for first in range(0, len(sampled.order), batch_size):
            begin = first + batch_size * rank // ranks
            end = first + batch_size * (rank + 1) // ranks
            rows = slice(begin, end)
            draw = (seed, epoch, start) if ranks == 1 else (seed, epoch, start, rank)
            if begin >= len(sampled.lengths):
                batch_tensors = _row_without_items(tensors)
            else:
                width = None if fixed else int(sampled.lengths[rows].max())
                positions, *row_tensors = tensors
                batch_tensors = [positions[rows, :width], *(tensor[rows] for tensor in row_tensors)]
            yield data._gather(sampled.order[rows], batch_tensors, noise, draw)
            start += 1


def _row_without_items(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return ``tensors`` (see ``ItemTensors._to_device``) cut down to one row without items."""
    positions, lengths, *row_tensors = tensors
    return [positions[:1, :1], torch.zeros_like(lengths[:1]), *(row[:1] for row in row_tensors)]


def subsample(relevant: Flags, list_size: int, rng: np.random.Generator) -> Ints:
    """Return the ascending indices of ``list_size`` items, drawn without replacement.

    ``relevant``, ``[n]``, says which items are relevant. If there are any, the sample has at least
    one of them. The published code for Web30K draws samples until one of them has a relevant item.
    This function draws the number of relevant items first, which gives the same distribution.
    """
    relevant_items = np.flatnonzero(relevant)
    irrelevant_items = np.flatnonzero(~relevant)
    if len(relevant_items) == 0:
        return np.sort(rng.choice(len(relevant), list_size, replace=False))
    count = 0
    while count == 0:
        count = int(rng.hypergeometric(len(relevant_items), len(irrelevant_items), list_size))
    sampled_relevant = rng.choice(relevant_items, count, replace=False)
    sampled_irrelevant = rng.choice(irrelevant_items, list_size - count, replace=False)
    return np.sort(np.concatenate([sampled_relevant, sampled_irrelevant]))


def batches_by_length(lengths: Ints, *, items: int, pairs: int | None = None) -> Iterator[Ints]:
    """Yield the indices of the lists of each batch; each list occurs once, the longest lists first.

    A batch has at most ``items`` items, padding included, and at most ``pairs`` pairs of items
    within its padded lists (None: no limit). A list that exceeds a limit has a batch of its own.
    ``lengths``, ``[lists]``, are the numbers of items.
    """
    order = np.ascontiguousarray(np.argsort(lengths, kind="stable")[::-1])
    first = 0
    while first < len(order):
        width = int(lengths[order[first]])
        count = items // width
        if pairs is not None:
            count = min(count, pairs // width**2)
        count = max(1, count)
        yield order[first : first + count]
        first += count
