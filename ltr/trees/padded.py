"""Lists padded once, for figures of new scores after every round."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data.batches import ItemTensors
from ltr.errors import TrainingError
from ltr.metrics import Convention, Metric
from ltr.metrics.ordering import sorted_once
from ltr.training.evaluation import means
from ltr.trees.model import NOT_FINITE
from ltr.typing import Labels, Mask

_NAMED = 10  # lists that an error names


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


def padded_batches(data: ItemTensors, *, items: int, pairs: int | None = None) -> list[Padded]:
    """Every list whole and once, like lengths together, at most ``items`` padded items each.

    Where ``pairs`` is given, also at most as many padded pairs of items. A list longer than either
    comes alone.
    """
    order = np.argsort(-data.lengths, kind="stable")
    batches = []
    first = 0
    while first < len(order):
        width = int(data.lengths[order[first]])
        fit = items // width if pairs is None else min(items // width, pairs // width**2)
        lists = order[first : first + max(1, fit)]
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
        self._qids, self._starts = data.qids, data.offsets[:-1]

    @torch.inference_mode()
    def means(self, scores: NDArray[np.float32]) -> dict[str, float]:
        """The mean over lists of every metric for the ``scores`` of all items, ``[items]``.

        Raises:
            TrainingError: a score is not finite.
        """
        self._check(scores)
        flat = torch.from_numpy(scores.astype(np.float64))
        out = {str(metric): np.full(self._lists, np.nan) for metric in self._metrics}
        for batch in self._batches:
            given = flat.to(batch.rows.device)[batch.rows], batch.labels, batch.mask
            with sorted_once():
                for metric in self._metrics:
                    values = metric(*given, self._convention)
                    out[str(metric)][batch.lists] = values.cpu().numpy()
        return means(out, self._convention)

    def _check(self, scores: NDArray[np.float32]) -> None:
        """A list that the trees break down on must not look like one that counts."""
        items = np.flatnonzero(~np.isfinite(scores))
        if len(items):
            broken = np.unique(np.searchsorted(self._starts, items, side="right") - 1)
            qids = ", ".join(self._qids[broken[:_NAMED]])
            more = f" and {len(broken) - _NAMED:,} more" if len(broken) > _NAMED else ""
            raise TrainingError(
                f"the trees' scores are not finite on lists with query id {qids}{more}: "
                f"{NOT_FINITE}"
            )
