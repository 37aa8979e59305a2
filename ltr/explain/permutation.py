"""What a metric loses where a feature's values are shuffled among the items of each list."""

import numpy as np
import pandas as pd
import torch
from scipy import stats

from ltr.data.batches import ItemTensors
from ltr.explain.subject import Subject
from ltr.training.bars import bar as progress_bar
from ltr.training.evaluation import metrics_of_scores, predict

ALPHA = 0.05


def permutation_importance(
    subject: Subject, *, lists: int, seed: int = 0, items: int = 32768
) -> pd.DataFrame:
    """The drop of ``subject.metric`` for each feature, mean and interval over lists.

    A feature's values are shuffled within each list, by one draw for all features (Breiman, 2001,
    "Random forests", section 10, for a metric of lists). A feature that is the same for all items
    of a list, as one of the query, loses nothing.

    Args:
        subject: the model and its lists.
        lists: so many lists of the split at most, drawn by ``seed``.
        seed: of the draw of lists and of the shuffles.
        items: bounds the padded items of a batch.

    Returns:
        Columns feature, name, drop, low, high, the largest drop first; low and high are the
        interval of 95% (Student's t over lists).
    """
    rng = np.random.default_rng([seed, *b"permutation"])
    count = len(subject.lists)
    which = np.sort(rng.choice(count, min(lists, count), replace=False))
    part = subject.lists.subset(which)
    data = ItemTensors(part, subject.kept.transform, subject.data.device, mapped=False)
    shuffled = torch.from_numpy(
        np.lexsort([rng.random(part.items), np.repeat(np.arange(len(part)), part.lengths)])
    ).to(data.device)
    metric, precision = subject.metric, subject.kept.config["precision"]

    def values() -> np.ndarray:
        scores = predict(subject.kept.model, data, items=items, precision=precision)
        found = metrics_of_scores(data, scores, [metric], subject.convention, items=items)
        return found[str(metric)]

    whole, transform, rows = values(), subject.kept.transform, []
    with progress_bar(total=transform.width, desc="shuffled", unit="feature") as bar:
        for feature, name in enumerate(subject.features):
            columns = [feature, *(transform.width + np.flatnonzero(transform.indicated == feature))]
            before = data.features[:, columns].clone()
            data.features[:, columns] = before[shuffled]
            drops = whole - values()
            data.features[:, columns] = before
            rows.append([feature + 1, name, *_with_interval(drops[np.isfinite(drops)])])
            bar.update()
    table = pd.DataFrame(rows, columns=["feature", "name", "drop", "low", "high"])
    return table.sort_values("drop", ascending=False, kind="stable")


def _with_interval(drops: np.ndarray) -> tuple[float, float, float]:
    """Mean, and the ends of its interval; NaN where one list says nothing of others."""
    mean = float(drops.mean()) if len(drops) else float("nan")
    if len(drops) < 2:
        return mean, float("nan"), float("nan")
    reach = float(stats.t.ppf(1 - ALPHA / 2, len(drops) - 1))
    reach *= float(drops.std(ddof=1)) / np.sqrt(len(drops))
    return mean, mean - reach, mean + reach
