"""What the other items do to an item: its score and rank where one of them is taken out."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ltr.data.batches import Batch, ItemTensors
from ltr.explain.subject import Subject
from ltr.training.bars import bar as progress_bar
from ltr.training.device import matrix_products
from ltr.training.evaluation import ranks_of, score


@dataclass(frozen=True)
class TakenOut:
    """Each item of a list taken out, one at a time.

    Attributes:
        scores: ``[items, list]``, the score of an item without another less that with it; NaN for
            the item itself.
        places: ``[items, list]``, how many places it stands higher without the other than the gap
            alone explains: its score against that of the rest has changed. 0 for the item itself.
    """

    scores: NDArray[np.float64]
    places: NDArray[np.int64]


@torch.inference_mode()
def taken_out(subject: Subject, *, items: int = 32768) -> TakenOut:
    """Score the list without each of its items, for ``subject.items``.

    Args:
        subject: of a list-aware model.
        items: bounds the padded items of a batch.
    """
    size = len(subject.scores)
    explained, precision = subject.items, subject.kept.config["precision"]
    scores = np.full((len(explained), size), np.nan)
    places = np.zeros((len(explained), size), np.int64)
    if size == 1:
        return TakenOut(scores, places)
    at_a_time = max(1, items // (size - 1))
    with (
        matrix_products(precision),
        progress_bar(total=size, desc="taken out", unit="item") as bar,
    ):
        for first in range(0, size, at_a_time):
            out = np.arange(first, min(size, first + at_a_time))
            rest = np.array([np.delete(np.arange(size), j) for j in out])
            found = score(subject.kept.model, _batch(subject.data, rest), precision).cpu().numpy()
            for j, left, now in zip(out, rest, found, strict=True):
                whole = np.full(size, np.nan)
                whole[left] = now
                ranks = ranks_of(whole, np.array([0, size]))  # what is taken out stands last
                gap = subject.ranks - (subject.ranks > subject.ranks[j])
                scores[:, j] = whole[explained] - subject.scores[explained]
                places[:, j] = (gap - ranks)[explained]
            bar.update(len(out))
    itself = explained[:, None] == np.arange(size)
    return TakenOut(scores, np.where(itself, 0, places))


def _batch(data: ItemTensors, rows: NDArray[np.int64]) -> Batch:
    """Lists of the items ``rows``, ``[batch, list]``, which keep their order."""
    where = torch.from_numpy(rows).to(data.device)
    mask = torch.ones(rows.shape, dtype=torch.bool, device=data.device)
    ranks = torch.arange(1, rows.shape[1] + 1, device=data.device).expand(rows.shape)
    lists = np.arange(len(rows))
    return Batch(data.features[where], data.labels[where], mask, ranks, where, lists)
