"""Warnings about figures that say less than they seem to: of ties, and where nothing is ranked."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ltr.arrays import Flags, Ints, Reals
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.metrics import Convention, Metric
from ltr.metrics.ties import TiesAveraged
from ltr.training.evaluation import means, metrics_of_scores, values_with_ties_averaged

log = logging.getLogger(__name__)

_NOTICED = 0.002  # a difference of a printed metric that is worth a warning
_NEARLY_ALL = 0.9  # of the lists of a split
_FIRST_LISTS = 200  # about as many lists are tried first


def warn_of_measurement(
    split: str,
    lists: Lists,
    scores: Tensor | Reals,
    metrics: Sequence[Metric],
    convention: Convention,
    printed: Mapping[str, float],
) -> None:
    """Log each doubt about the ``printed`` means of ``metrics``, measured on the lists ``split``
    with ``scores``, ``[items]``.
    """
    warn_of_nothing_to_rank({split: lists})
    warn_of_fixed_metrics(split, lists, metrics, convention)
    warn_of_constant_scores({split: (lists, scores)})
    averaged = values_with_ties_averaged(lists, scores, metrics, convention)
    warn_of_ties(metrics, {split: printed}, {split: means(averaged, convention)})


def warn_of_ties(
    metrics: Sequence[Metric],
    printed: Mapping[str, Mapping[str, float]],
    averaged: Mapping[str, Mapping[str, float]],
) -> None:
    """Log one line if the order of items with equal scores decides a printed metric.

    Args:
        metrics: the metrics, at least one.
        printed: split -> metric -> the mean that is printed.
        averaged: the same with ties averaged.
    """

    def gap(metric: Metric) -> float:
        name = str(metric)
        return max(abs(printed[split][name] - averaged[split][name]) for split in printed)

    metric = max(metrics, key=gap)
    if not gap(metric) >= _NOTICED:  # NaN: no list counts
        return
    name = str(metric)
    values = "; ".join(
        f"{split} {name} {printed[split][name]:.4f} in the order of the rows, "
        f"{averaged[split][name]:.4f} averaged over all orders"
        for split in printed
    )
    remedy = "shuffle the rows of each query"
    if TiesAveraged(metric).is_setting:
        remedy = "set convention.ties=averaged to print the average"
    log.warning("the order of items with equal scores matters: %s: %s", values, remedy)


def warn_of_constant_scores(
    scored: Mapping[str, tuple[Lists | ItemTensors, Tensor | Reals]],
) -> None:
    """Log one line about the splits in which all items of every list have equal scores.

    ``scored`` is split -> its lists, and the score of each of their items.
    """
    constant = []
    for split, (lists, scores) in scored.items():
        numbers = scores.cpu().numpy() if isinstance(scores, Tensor) else scores
        if (lists.lengths > 1).any() and not lists_that_differ(numbers, lists.offsets).any():
            constant.append(f"{split} ({len(lists):,} lists)")
    if constant:
        log.warning(
            "nothing is ranked: all items of a list have equal scores, in every list of %s: look "
            "for features that differ within lists, or train for more epochs",
            ", ".join(constant),
        )


def warn_of_nothing_to_rank(splits: Mapping[str, Lists]) -> None:
    """Log one line about the ``splits`` of which nearly all lists have one item or equal labels."""
    useless = []
    for split, lists in splits.items():
        count = int((~lists_that_differ(lists.labels, lists.offsets)).sum())
        if count >= _NEARLY_ALL * len(lists):
            useless.append(f"{split} ({count:,} of {len(lists):,} lists)")
    if useless:
        log.warning(
            "there is nothing to rank in %s: a list has one item, or equal labels, and any model "
            "looks perfect there: look at the query ids and the labels",
            ", ".join(useless),
        )


def warn_of_fixed_metrics(
    split: str, lists: Lists, metrics: Sequence[Metric], convention: Convention
) -> None:
    """Log one line about the ``metrics`` that have the same value for any order of the items in
    nearly all lists, such as MAP if every item is relevant. Lists of equal labels are left out:
    ``warn_of_nothing_to_rank`` is about them.
    """
    candidates = np.flatnonzero(lists_that_differ(lists.labels, lists.offsets))
    if not len(candidates):
        return
    # a part of the lists rules out most metrics
    first_candidates = candidates[:: -(-len(candidates) // _FIRST_LISTS)]
    fixed = list(metrics)
    for indices in (first_candidates, candidates):
        chosen_lists = lists.subset(indices)
        ideal = metrics_of_scores(chosen_lists, chosen_lists.labels, fixed, convention)
        worst = metrics_of_scores(chosen_lists, -chosen_lists.labels, fixed, convention)
        fixed = [
            metric
            for metric in fixed
            if _count_equal(ideal[str(metric)], worst[str(metric)])
            >= _NEARLY_ALL * len(chosen_lists)
        ]
        if not fixed:
            return
    log.warning(
        "%s cannot tell models apart in %s: any order of the items of a list has the same value: "
        "choose another metric, or look at the labels and at what the convention calls relevant",
        ", ".join(map(str, fixed)), split,
    )  # fmt: skip


def _count_equal(values: Reals, other_values: Reals) -> int:
    """Return in how many places two arrays are equal, or NaN."""
    return int(((values == other_values) | np.isnan(values)).sum())


def lists_that_differ(values: Reals, offsets: Ints) -> Flags:
    """Return whether the items of a list have different ``values``, for each list, ``[lists]``.

    >>> lists_that_differ(np.array([0.5, 0.5, 1.0, 2.0, 3.0]), np.array([0, 2, 4, 5])).tolist()
    [False, True, False]
    """
    starts = offsets[:-1]
    return np.asarray(np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts))
