"""From ragged lists to padded batches, on any device.

A batch is one gather from the tensor of all items, so the whole set can lie on the GPU and nothing
else has to move.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

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


class ItemTensors:
    """Lists ready for a model: transformed features and labels as tensors on ``device``."""

    def __init__(
        self, lists: Lists, transform: FeatureTransform, device: torch.device | str = "cpu"
    ) -> None:
        """Transform ``lists`` and send their items to ``device``."""
        self.features = torch.from_numpy(transform(lists.features)).to(device)
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
        self.device = self.features.device

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
        taught = None if self.teacher is None else self.teacher[rows].masked_fill_(~mask, 0.0)
        return Batch(
            features=self.features[rows].masked_fill_(~mask[..., None], 0.0),
            labels=self.labels[rows].masked_fill_(~mask, 0.0),
            mask=mask,
            ranks=ranks + 1,
            rows=rows,
            lists=lists,
            teacher=taught,
        )


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
    The indices of the whole epoch go to the device at its start.

    With ``noise`` normal noise of that standard deviation is added to the features of every item,
    categories apart (the data augmentation of Qin et al., 2021, DASALC).

    With ``fixed`` every batch is ``[batch_size, list_size]``; the last one is filled up with rows
    without items, which are not in ``Batch.lists``. Else a batch is as wide as its longest list.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(data))[start * batch_size :]
    lengths = np.minimum(data.lengths[order], list_size)
    ranks = np.tile(np.arange(list_size), (len(order), 1))
    for row in np.flatnonzero(data.lengths[order] > list_size):
        i = order[row]
        relevant = data.relevant[data.offsets[i] : data.offsets[i + 1]]
        ranks[row] = subsample(relevant, list_size, np.random.default_rng([seed, epoch, int(i)]))
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
        if noise:
            step = start + first // batch_size
            batch = replace(batch, features=data.with_noise(batch, noise, (seed, epoch, step)))
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
