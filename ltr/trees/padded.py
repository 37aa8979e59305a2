"""Lists padded once, for figures of new scores after every round."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data.batches import ItemTensors
from ltr.metrics import Convention, Metric
from ltr.metrics.ordering import sorted_once
from ltr.training.evaluation import means
from ltr.typing import Labels, Mask


class Padded(NamedTuple):
    """A batch without features.

    Attributes:
        rows: ``[batch, list]``, the item of the data at each place, 0 where padded.
        labels: ``[batch, list]`` float64.
        mask: ``[batch, list]``, True where an item exists.
        lists: ``[batch]``, which lists these are.
    """

    rows: Tensor
    labels: Labels
    mask: Mask
    lists: NDArray[np.int64]


def padded_batches(data: ItemTensors, *, items: int) -> list[Padded]:
    """Every list whole and once, like lengths together, at most ``items`` padded items each.

    A list longer than ``items`` comes alone.
    """
    order = np.argsort(-data.lengths, kind="stable")
    batches = []
    first = 0
    while first < len(order):
        width = int(data.lengths[order[first]])
        lists = order[first : first + max(1, items // width)]
        places = np.arange(width)
        mask = places < data.lengths[lists][:, None]
        rows = torch.from_numpy(np.where(mask, data.offsets[lists][:, None] + places, 0))
        rows, there = rows.to(data.device), torch.from_numpy(mask).to(data.device)
        labels = data.labels[rows].double().masked_fill_(~there, 0.0)
        batches.append(Padded(rows, labels, there, lists))
        first += len(lists)
    return batches


class Watched:
    """A split whose metrics are wanted again and again.

    The figures are those of ``ltr.training.evaluation.evaluate``: full lists, every list once.
    """

    def __init__(
        self,
        data: ItemTensors,
        metrics: Sequence[Metric],
        convention: Convention,
        *,
        items: int,
    ) -> None:
        """``items`` bounds the padded items of a batch; it changes memory, not values."""
        self._batches = padded_batches(data, items=items)
        self._metrics, self._convention, self._lists = metrics, convention, len(data)

    @torch.inference_mode()
    def means(self, scores: NDArray[np.float32]) -> dict[str, float]:
        """The mean over lists of every metric for the ``scores`` of all items, ``[items]``."""
        flat = torch.from_numpy(scores.astype(np.float64))
        out = {str(metric): np.full(self._lists, np.nan) for metric in self._metrics}
        for batch in self._batches:
            given = flat.to(batch.rows.device)[batch.rows], batch.labels, batch.mask
            with sorted_once():
                for metric in self._metrics:
                    values = metric(*given, self._convention)
                    out[str(metric)][batch.lists] = values.cpu().numpy()
        return means(out, self._convention)
