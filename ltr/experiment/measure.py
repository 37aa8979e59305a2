"""Measure a trained model on the lists of several splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ltr.arrays import Floats
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.metrics import Convention, Metric
from ltr.parts.scorer import Scorer
from ltr.training.caveats import warn_of_constant_scores, warn_of_ties
from ltr.training.distributed import is_main
from ltr.training.evaluation import (
    PerQuery,
    means,
    metrics_of_scores,
    values_with_ties_averaged,
)


@dataclass(frozen=True)
class SplitMeasurement:
    """Scores and metrics of a model on the lists of one split."""

    scores: Floats  # [items]
    values: PerQuery  # metric -> [lists]
    means: Mapping[str, float]  # metric -> its mean over the lists
    means_with_ties_averaged: Mapping[str, float]


def measure(
    metrics: Sequence[Metric],
    convention: Convention,
    items: int,
    scorer: Scorer,
    splits: Mapping[str, Lists | ItemTensors],
) -> dict[str, SplitMeasurement]:
    """Score the lists of each split with ``scorer`` and compute ``metrics``.

    Processes that train together share the work. A warning is logged if a mean depends on the order
    of items with equal scores, or if all items of each list of a split have equal scores.

    Args:
        metrics: the metrics to compute.
        convention: the convention of the metrics.
        items: the maximum number of items in a batch, padding included.
        scorer: the trained model.
        splits: the lists of each split, or the tensors that ``scorer.open`` returned for them.

    Returns:
        The scores and metrics of each split.
    """
    measured: dict[str, SplitMeasurement] = {}
    opened: dict[str, ItemTensors] = {}
    for split, lists in splits.items():
        opened[split] = scorer.open(lists) if isinstance(lists, Lists) else lists
        data = opened[split]
        scores = scorer.scores(data, items=items)
        values = metrics_of_scores(data, scores, metrics, convention, items=items)
        averaged = values_with_ties_averaged(data, scores, metrics, convention, items=items)
        measured[split] = SplitMeasurement(
            scores.cpu().numpy(), values, means(values, convention), means(averaged, convention)
        )
    if is_main():
        warn_of_constant_scores(
            {split: (opened[split], measurement.scores) for split, measurement in measured.items()}
        )
        warn_of_ties(
            metrics,
            {split: measurement.means for split, measurement in measured.items()},
            {
                split: measurement.means_with_ties_averaged
                for split, measurement in measured.items()
            },
        )
    return measured
