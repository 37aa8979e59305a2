"""Warnings about metrics that mean less than they seem to, because scores or labels are equal."""

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

_NOTICED = 0.002  # the smallest difference of a printed metric that is worth a warning
_NEARLY_ALL = 0.9  # "nearly all" lists of a split are at least this fraction
_FIRST_LISTS = 200  # about how many lists are tried first


def warn_of_measurement(
    split: str,
    lists: Lists,
    scores: Tensor | Reals,
    metrics: Sequence[Metric],
    convention: Convention,
    printed: Mapping[str, float],
) -> None:
    """Log a warning for each reason to doubt the ``printed`` means of ``metrics``.

    The means were measured on the ``lists`` of ``split``, with ``scores``, ``[items]``.
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
    """Log a warning if a printed metric depends on the order of items with equal scores.

    Args:
        metrics: the metrics, at least one.
        printed: the means that are printed, by split and metric.
        averaged: the same means with ties averaged.
    """

    def gap(metric: Metric) -> float:
        name = str(metric)
        return max(abs(printed[split][name] - averaged[split][name]) for split in printed)

    metric = max(metrics, key=gap)
    if not gap(metric) >= _NOTICED:  # NaN: no list counts
        return
    name = str(metric)
    values = "; ".join(
        f"{split} {name} is {printed[split][name]:.4f} in the order of the rows, and "
        f"{averaged[split][name]:.4f} averaged over all orders"
        for split in printed
    )
    remedy = "shuffle the rows of each query"
    if TiesAveraged(metric).is_setting:
        remedy = "set convention.ties=averaged to print the average"
    log.warning("the order of items with equal scores matters: %s; %s", values, remedy)


def warn_of_constant_scores(
    scored: Mapping[str, tuple[Lists | ItemTensors, Tensor | Reals]],
) -> None:
    """Log a warning about the splits in which the items of every list have equal scores.

    ``scored`` holds the lists of each split, and the score of each of their items.
    """
    constant = []
    for split, (lists, scores) in scored.items():
        numbers = scores.cpu().numpy() if isinstance(scores, Tensor) else scores
        if (lists.lengths > 1).any() and not lists_that_differ(numbers, lists.offsets).any():
            constant.append(f"{split} ({len(lists):,} lists)")
    if constant:
        log.warning(
            "nothing is ranked: in every list of %s, all items have equal scores; use features "
            "that differ within lists, or train for more epochs",
            ", ".join(constant),
        )


def warn_of_nothing_to_rank(splits: Mapping[str, Lists]) -> None:
    """Log a warning about splits in which nearly all lists have one item or only equal labels."""
    useless = []
    for split, lists in splits.items():
        count = int((~lists_that_differ(lists.labels, lists.offsets)).sum())
        if count >= _NEARLY_ALL * len(lists):
            useless.append(f"{split} ({count:,} of {len(lists):,} lists)")
    if useless:
        log.warning(
            "there is nothing to rank in %s: these lists have one item or only equal labels, so "
            "any model looks perfect on them; check the query ids and the labels",
            ", ".join(useless),
        )


def warn_of_fixed_metrics(
    split: str, lists: Lists, metrics: Sequence[Metric], convention: Convention
) -> None:
    """Log a warning about ``metrics`` whose value does not depend on the order of the items.

    The warning names a metric if this is true of nearly all lists. An example is MAP if every item
    is relevant. Lists with only equal labels are left out, because ``warn_of_nothing_to_rank``
    covers them.
    """
    candidates = np.flatnonzero(lists_that_differ(lists.labels, lists.offsets))
    if not len(candidates):
        return
    # Some of the lists are enough to rule out most metrics.
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
        "%s cannot tell models apart on %s: the order of the items does not change the value; "
        "choose another metric, or check the labels and convention.relevant",
        ", ".join(map(str, fixed)), split,
    )  # fmt: skip


def _count_equal(values: Reals, other_values: Reals) -> int:
    """Return the number of positions where two arrays are equal, or ``values`` is NaN."""
    return int(((values == other_values) | np.isnan(values)).sum())


def lists_that_differ(values: Reals, offsets: Ints) -> Flags:
    """Return, for each list, ``[lists]``, whether the ``values`` of its items differ.

    >>> lists_that_differ(np.array([0.5, 0.5, 1.0, 2.0, 3.0]), np.array([0, 2, 4, 5])).tolist()
    [False, True, False]
    """
    starts = offsets[:-1]
    return np.asarray(np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts))
