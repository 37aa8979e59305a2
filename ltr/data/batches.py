"""From ragged lists to padded batches, on any device.

Lists stay ragged until a batch is made: a batch is one gather from the items' tensor, so the whole
set can lie on the GPU and nothing else has to move.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

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
        lists: ``[batch]``, which lists these are.
    """

    features: Features
    labels: Labels
    mask: Mask
    ranks: Ranks
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

    def batch(
        self, lists: NDArray[np.int64], chosen: list[NDArray[np.int64]] | None = None
    ) -> Batch:
        """Pad ``lists`` to the longest; ``chosen`` are the places kept of each, ascending."""
        if chosen is None:
            lengths = self.lengths[lists]
            ranks = np.broadcast_to(np.arange(lengths.max()), (len(lists), lengths.max()))
        else:
            lengths = np.array([len(places) for places in chosen])
            ranks = np.zeros((len(lists), lengths.max()), np.int64)
            for row, places in enumerate(chosen):
                ranks[row, : len(places)] = places
        mask = np.arange(ranks.shape[1]) < lengths[:, None]
        rows = torch.from_numpy(np.where(mask, self.offsets[lists][:, None] + ranks, 0)).to(
            self.device
        )
        real = torch.from_numpy(mask).to(self.device)
        return Batch(
            features=self.features[rows].masked_fill_(~real[..., None], 0.0),
            labels=self.labels[rows].masked_fill_(~real, 0.0),
            mask=real,
            ranks=torch.from_numpy(ranks + 1).to(self.device),
            lists=lists,
        )


def train_batches(
    data: ItemTensors, *, batch_size: int, list_size: int, seed: int, epoch: int, start: int = 0
) -> Iterator[Batch]:
    """The batches of one epoch from step ``start`` on, every list once.

    Order and subsampling are a pure function of ``seed`` and ``epoch`` (and of the list's number),
    so a run that starts again at step ``start`` sees what it would have seen.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(data))
    for first in range(start * batch_size, len(data), batch_size):
        lists = order[first : first + batch_size]
        chosen = [_subsample(data, int(i), list_size, seed, epoch) for i in lists]
        yield data.batch(lists, chosen)


def steps_in_epoch(lists: int, batch_size: int) -> int:
    """Number of batches that ``train_batches`` yields for ``lists`` lists from step 0."""
    return -(-lists // batch_size)


def _subsample(
    data: ItemTensors, i: int, list_size: int, seed: int, epoch: int
) -> NDArray[np.int64]:
    if data.lengths[i] <= list_size:
        return np.arange(data.lengths[i])
    relevant = data.relevant[data.offsets[i] : data.offsets[i + 1]]
    return subsample(relevant, list_size, np.random.default_rng([seed, epoch, i]))


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


def full_batches(data: ItemTensors, *, items: int) -> Iterator[Batch]:
    """Every list whole and once, like lengths together, at most ``items`` padded items each.

    A list longer than ``items`` comes alone: it is never cut.
    """
    order = np.argsort(data.lengths, kind="stable")[::-1]
    first = 0
    while first < len(order):
        count = max(1, items // int(data.lengths[order[first]]))
        yield data.batch(np.ascontiguousarray(order[first : first + count]))
        first += count
