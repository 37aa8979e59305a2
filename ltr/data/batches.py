"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all items, so the whole set can lie on the GPU and nothing
else has to move. Where that tensor would take a large part of the memory, a batch is gathered from
the lists' own features, which are mapped from disk, and transformed by itself: the same values.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ltr.data.lists import Flags, Ints, Lists
from ltr.data.machine import available_memory
from ltr.data.transforms import FeatureTransform
from ltr.typing import Features, Labels, Mask, Ranks


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
    """

    features: Features
    labels: Labels
    mask: Mask
    ranks: Ranks
    rows: Tensor
    lists: Ints
    weights: Tensor | None = None

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lists)


_AHEAD = 512  # batches whose indices are made at once: an epoch of millions of lists has many
_SHARE = 0.5  # of the free memory, which the features of a set may take


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
        self.offsets = np.asarray(lists.offsets)
        self.lengths = np.diff(self.offsets)
        self.qids = lists.qids
        self.relevant = np.asarray(lists.labels) > 0
        self.weights = None if lists.weights is None else np.array(lists.weights, np.float32)
        self.device = self.labels.device

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
        return self._gather(lists, *(self._sent(a) for a in (ranks, lengths, self.offsets[lists])))

    def with_noise(self, batch: Batch, noise: float, draw: tuple[int, ...]) -> Features:
        """The features of ``batch`` with normal noise, of its numbers alone; 0 where padded.

        The noise is a pure function of ``draw``, the shape and the kind of the device.
        """
        seed = int(np.random.SeedSequence(draw).generate_state(1, np.uint64)[0])
        generator = torch.Generator(self.device).manual_seed(seed)
        drawn = torch.randn(batch.features.shape, generator=generator, device=self.device)
        drawn[..., self.categories] = 0.0
        return (batch.features + noise * drawn).masked_fill_(~batch.mask[..., None], 0.0)

    def _sent(self, array: Ints) -> Tensor:
        """``array`` on the device; a GPU receives it in the background."""
        tensor = torch.from_numpy(np.array(array, np.int64))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def _gather(self, lists: Ints, ranks: Tensor, lengths: Tensor, starts: Tensor) -> Batch:
        """The batch of the items ``ranks`` (from 0) of lists that begin at ``starts``.

        All tensors are on the device, and no shape depends on their values.
        """
        places = torch.arange(ranks.shape[1], device=self.device)
        mask = places < lengths[:, None]
        rows = (starts[:, None] + ranks).masked_fill_(~mask, 0)
        return Batch(
            features=self._features_at(rows, mask),
            labels=self.labels[rows].masked_fill_(~mask, 0.0),
            mask=mask,
            ranks=ranks + 1,
            rows=rows,
            lists=lists,
        )

    def _features_at(self, rows: Tensor, mask: Tensor) -> Features:
        """The features of the items ``rows``, ``[batch, list]``, 0 where padded."""
        if isinstance(self._items, Tensor):
            return self._items[rows].masked_fill_(~mask[..., None], 0.0)
        there = mask.cpu()
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
    The indices of ``_AHEAD`` batches go to the device at once.

    With ``noise`` normal noise of that standard deviation is added to the features of every item,
    categories apart (the data augmentation of Qin et al., 2021, DASALC).

    With ``fixed`` every batch is ``[batch_size, list_size]``; the last one is filled up with rows
    without items, which are not in ``Batch.lists``. Else a batch is as wide as its longest list.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(data))[start * batch_size :]
    for first in range(0, len(order), _AHEAD * batch_size):
        some = order[first : first + _AHEAD * batch_size]
        batches = _batches_of(data, some, batch_size, list_size, (seed, epoch), fixed=fixed)
        for step, batch in enumerate(batches, start + first // batch_size):
            if noise:
                noisy = data.with_noise(batch, noise, (seed, epoch, step))
                batch = replace(batch, features=noisy)
            yield batch


def _batches_of(
    data: ItemTensors,
    order: Ints,
    batch_size: int,
    list_size: int,
    draw: tuple[int, int],
    *,
    fixed: bool,
) -> Iterator[Batch]:
    """The lists ``order`` in batches; their indices go to the device at once, ``draw`` seeds."""
    lengths = np.minimum(data.lengths[order], list_size)
    ranks = np.tile(np.arange(list_size), (len(order), 1))
    for row in np.flatnonzero(data.lengths[order] > list_size):
        i = order[row]
        relevant = data.relevant[data.offsets[i] : data.offsets[i + 1]]
        ranks[row] = subsample(relevant, list_size, np.random.default_rng([*draw, int(i)]))
    filling = -len(order) % batch_size if fixed else 0
    parts = (ranks, lengths, data.offsets[order])
    sent = [data._sent(np.concatenate([part, np.zeros_like(part[:filling])])) for part in parts]
    weights = None
    if data.weights is not None:
        filled = np.concatenate([data.weights[order], np.zeros(filling, np.float32)])
        weights = torch.from_numpy(filled).to(data.device)
    for first in range(0, len(order), batch_size):
        rows = slice(first, first + batch_size)
        width = list_size if fixed else int(lengths[rows].max())
        batch = data._gather(order[rows], sent[0][rows, :width], sent[1][rows], sent[2][rows])
        yield batch if weights is None else replace(batch, weights=weights[rows])


def steps_in_epoch(lists: int, batch_size: int) -> int:
    """Number of batches that ``train_batches`` yields for ``lists`` lists from step 0."""
    return -(-lists // batch_size)


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
