"""From ragged lists to padded batches, on any device.

Lists stay ragged until a batch is made: a batch is one gather from the items' tensor, so the whole
set can lie on the GPU and nothing else has to move.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data.lists import Lists
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
        lists: ``[lists]``, which lists these are; rows beyond have no items.
    """

    features: Features
    labels: Labels
    mask: Mask
    ranks: Ranks
    rows: Tensor
    lists: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lists)


class ItemTensors:
    """Lists ready for a model: transformed features and labels as tensors on ``device``."""

    def __init__(
        self, lists: Lists, transform: FeatureTransform, device: torch.device | str = "cpu"
    ) -> None:
        """Transform ``lists`` and put their items on ``device``."""
        self.features = torch.from_numpy(transform(lists.features)).to(device)
        self.labels = torch.from_numpy(np.array(lists.labels, np.float32)).to(device)
        self.offsets = np.asarray(lists.offsets)
        self.lengths = np.diff(self.offsets)
        self.qids = lists.qids
        self.relevant = np.asarray(lists.labels) > 0
        self.device = self.features.device

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.lengths)

    def batch(self, lists: NDArray[np.int64]) -> Batch:
        """All items of ``lists``, padded to the longest."""
        lengths = self.lengths[lists]
        ranks = np.broadcast_to(np.arange(lengths.max()), (len(lists), lengths.max()))
        return self._gather(lists, *(self._sent(a) for a in (ranks, lengths, self.offsets[lists])))

    def _sent(self, array: NDArray[Any]) -> Tensor:
        """``array`` on the device; a GPU takes it while the program goes on."""
        tensor = torch.from_numpy(np.array(array, np.int64))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def _gather(
        self, lists: NDArray[np.int64], ranks: Tensor, lengths: Tensor, starts: Tensor
    ) -> Batch:
        """The batch of the items ``ranks`` (from 0) of lists that begin at ``starts``.

        All on the device, and of shapes that the values do not change.
        """
        places = torch.arange(ranks.shape[1], device=self.device)
        mask = places < lengths[:, None]
        rows = (starts[:, None] + ranks).masked_fill_(~mask, 0)
        return Batch(
            features=self.features[rows].masked_fill_(~mask[..., None], 0.0),
            labels=self.labels[rows].masked_fill_(~mask, 0.0),
            mask=mask,
            ranks=ranks + 1,
            rows=rows,
            lists=lists,
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
) -> Iterator[Batch]:
    """The batches of one epoch from step ``start`` on, every list once.

    Order and subsampling are a pure function of ``seed`` and ``epoch`` (and of the list's number),
    so a run that starts again at step ``start`` sees what it would have seen. What is in the epoch
    goes to the device at once, at its start.

    With ``fixed`` every batch is ``[batch_size, list_size]``: padded to ``list_size``, and the last
    one filled up with rows without items, which are not in ``Batch.lists``. Else a batch is as wide
    as its longest list.
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
    for first in range(0, len(order), batch_size):
        rows = slice(first, first + batch_size)
        width = list_size if fixed else int(lengths[rows].max())
        yield data._gather(order[rows], sent[0][rows, :width], sent[1][rows], sent[2][rows])


def steps_in_epoch(lists: int, batch_size: int) -> int:
    """Number of batches that ``train_batches`` yields for ``lists`` lists from step 0."""
    return -(-lists // batch_size)


def subsample(
    relevant: NDArray[np.bool_], list_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose ``list_size`` of the items at random without replacement, ascending places.

    Where an item is ``relevant`` (``[n]``), at least one relevant item is kept: the sample has the
    distribution of drawing again until that holds, as published for Web30K. It is drawn at once:
    the number of relevant items kept first (hypergeometric, 0 left out), then which they are.
    """
    good, bad = np.flatnonzero(relevant), np.flatnonzero(~relevant)
    if len(good) == 0:
        return np.sort(rng.choice(len(relevant), list_size, replace=False))
    kept = 0
    while kept == 0:
        kept = int(rng.hypergeometric(len(good), len(bad), list_size))
    parts = (
        rng.choice(good, kept, replace=False),
        rng.choice(bad, list_size - kept, replace=False),
    )
    return np.sort(np.concatenate(parts))


def batches_by_length(
    lengths: NDArray[np.int64], *, items: int, pairs: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """Which lists a batch holds: every list whole and once, the longest first.

    Args:
        lengths: ``[lists]``, the items of each list.
        items: bounds the padded items of a batch.
        pairs: bounds its padded pairs of items, where it is given.

    A list longer than either comes alone: it is never cut.
    """
    order = np.ascontiguousarray(np.argsort(lengths, kind="stable")[::-1])
    first = 0
    while first < len(order):
        width = int(lengths[order[first]])
        fit = items // width if pairs is None else min(items // width, pairs // width**2)
        yield order[first : first + max(1, fit)]
        first += max(1, fit)
