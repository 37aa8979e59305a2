"""Leave-one-out effects of the other items, and the permutation importance of features."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats

from ltr.data.batches import Batch, ItemTensors
from ltr.inference.explain.subject import Subject
from ltr.training.device import matrix_products
from ltr.training.evaluation import metrics_of_scores, ranks_of, score
from ltr.training.hooks import progress_bar

ALPHA = 0.05


class Effects(NamedTuple):
    """Of each item of a list that is left out, one at a time."""

    # [items, list], the score of an item without another less that with it; NaN of the item itself
    scores: NDArray[np.float64]
    # [items, list], how many places it stands higher without the other than the gap alone explains:
    # its score against that of the rest has changed; 0 of the item itself
    places: NDArray[np.int64]


@torch.inference_mode()
def leave_one_out(subject: Subject, *, items: int = 32768) -> Effects:
    """Score the list without each of its items, for ``subject.items``.

    ``items`` bounds the padded items of a batch.
    """
    size, precision = len(subject.scores), subject.scorer.precision
    found, device = np.full((size, size), np.nan), subject.data.device  # [left out, item]
    at_a_time = max(1, items // max(1, size - 1))
    with (
        matrix_products(precision),
        progress_bar(total=size, desc="left out", unit="item") as bar,
    ):
        for first in range(0, size if size > 1 else 0, at_a_time):
            out = np.arange(first, min(size, first + at_a_time))
            rest = np.array([np.delete(np.arange(size), j) for j in out])  # in their order
            where = torch.from_numpy(rest).to(device)
            mask = torch.ones_like(where, dtype=torch.bool)
            ranks = torch.arange(1, size, device=device).expand(rest.shape)
            features, labels = subject.data.features[where], subject.data.labels[where]
            batch = Batch(features, labels, mask, ranks, where, np.arange(len(out)))
            scores = score(subject.scorer.model, batch, precision).cpu().numpy()
            found[out[:, None], rest] = scores
            bar.update(len(out))
    places = np.stack([ranks_of(row, np.array([0, size])) for row in found])  # left out: the last
    gap = subject.ranks - (subject.ranks > subject.ranks[:, None])
    moved = np.where(np.eye(size, dtype=bool), 0, gap - places)
    changed = found - subject.scores.astype(np.float64)
    return Effects(changed.T[subject.items], moved.T[subject.items])


def permutation_importance(
    subject: Subject, *, lists: int, seed: int = 0, items: int = 32768
) -> pd.DataFrame:
    """The drop of ``subject.metric`` for each feature, mean and interval over lists.

    A feature's values are shuffled within each list, by one draw for all features (Breiman, 2001,
    "Random forests", section 10, for a metric of lists). A feature that is the same for all items
    of a list, as one of the query, loses nothing.

    ``seed`` draws the shuffles and at most ``lists`` of the split; ``items`` bounds the padded
    items of a batch.

    Returns:
        Columns feature, name, drop, low, high, the largest drop first; low and high are the
        interval of 95% (Student's t over lists).
    """
    rng, count = np.random.default_rng([seed, *b"permutation"]), len(subject.lists)
    part = subject.lists.subset(np.sort(rng.choice(count, min(lists, count), replace=False)))
    scorer, transform = subject.scorer, subject.scorer.transform
    data = ItemTensors(part, transform, subject.data.device, mapped=False)
    of_item = np.repeat(np.arange(len(part)), part.lengths)
    shuffled = torch.from_numpy(np.lexsort([rng.random(part.items), of_item])).to(data.device)

    def values() -> NDArray[np.float64]:
        scores = scorer.scores(data, items=items)
        metric, convention = subject.metric, subject.convention
        found = metrics_of_scores(data, scores, [metric], convention, items=items)
        return found[str(metric)]

    whole, rows = values(), []
    with progress_bar(total=transform.width, desc="shuffled", unit="feature") as bar:
        for feature, name in enumerate(subject.features):
            columns = [feature, *(transform.width + np.flatnonzero(transform.indicated == feature))]
            before = data.features[:, columns].clone()
            data.features[:, columns] = before[shuffled]
            drops = whole - values()
            data.features[:, columns] = before
            drops = drops[np.isfinite(drops)]
            mean = float(drops.mean()) if len(drops) else np.nan
            reach = np.nan  # one list says nothing of others
            if len(drops) > 1:
                error = float(drops.std(ddof=1)) / np.sqrt(len(drops))
                reach = float(stats.t.ppf(1 - ALPHA / 2, len(drops) - 1)) * error
            rows.append([feature + 1, name, mean, mean - reach, mean + reach])
            bar.update()
    table = pd.DataFrame(rows, columns=["feature", "name", "drop", "low", "high"])
    return table.sort_values("drop", ascending=False, kind="stable")
