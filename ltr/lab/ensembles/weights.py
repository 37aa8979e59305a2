"""Choose the weights of an ensemble's members, and estimate its metric by cross-fitting.

In cross-fitting, weights are chosen on one half of the validation lists and measured on the other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Doubles, Ints
from ltr.errors import ConfigError, DataError
from ltr.knobs import parse_number
from ltr.metrics.crossfit import Crossfit, Halves

EQUAL = "equal"
VALI = "vali"
_SELECTIONS = 10  # members that are selected on each half of the validation lists
_TUNING_SPLITS = 5  # random splits of the validation lists on which weights are tuned

# Takes scores [items]; returns the metric of every validation list, [lists], NaN where the
# convention skips the list.
Measure = Callable[[Tensor], Doubles]


class SplitHalfScores(NamedTuple):
    """The scores of a member on the validation lists, standardised in each list."""

    epochs: Ints  # [splits, 2], the best epoch on each half of ``Halves``
    scores: Mapping[int, Tensor]  # epoch -> [items] float64


class WeightedEnsemble(NamedTuple):
    """The weights of an ensemble, and its cross-fitted metric."""

    weights: tuple[float, ...]  # >= 0, and they sum to 1
    crossfit: Crossfit | None  # None if a half would have no list


def parse_weights(texts: Sequence[str], members: int) -> str | tuple[float, ...]:
    """Parse the setting ``weights`` of an ensemble.

    Args:
        texts: ``["equal"]``, ``["vali"]``, or a number for each member.
        members: the number of members.

    Returns:
        ``equal``, ``vali``, or the numbers, scaled so that they sum to 1.

    Raises:
        ConfigError: ``texts`` is none of these.

    >>> parse_weights(["3", "1"], members=2)
    (0.75, 0.25)
    """
    if len(texts) == 1 and texts[0] in (EQUAL, VALI):
        return texts[0]
    try:
        numbers = [parse_number(text) for text in texts]
    except ValueError:
        numbers = []
    total = sum(numbers)
    if not 0 < total < math.inf or min(numbers) < 0 or len(numbers) != members:
        raise ConfigError(
            f"weights={','.join(texts)}: expected equal, vali, or a number >= 0 for each of the "
            f"{members} runs, such as [0.7,0.3]"
        )
    return tuple(number / total for number in numbers)


def fixed_weights(
    weights: str | Sequence[float], members: Sequence[SplitHalfScores], measure: Measure
) -> WeightedEnsemble:
    """Return the ensemble with the given ``weights``, and its cross-fitted metric.

    On each half of the validation lists, the best epoch of every member is chosen. The ensemble of
    the members at these epochs is measured on the other half.

    Args:
        weights: ``equal``, or a number for each member.
        members: the scores of the members, of which there is at least one.
        measure: computes the metric of every validation list.
    """
    count = len(members)
    numbers = np.full(count, 1 / count) if isinstance(weights, str) else np.array(weights)
    halves = _split_lists(members, measure)
    weights_of_halves = np.tile(numbers, (len(halves.first), 2, 1))
    crossfit = _measure_crossfit(weights_of_halves, members, measure, halves)
    return WeightedEnsemble(tuple(numbers.tolist()), crossfit)


def tuned_weights(
    members: Sequence[SplitHalfScores], measure: Measure, lengths: Ints | None = None
) -> WeightedEnsemble:
    r"""Tune weights on the validation lists, and shrink them by their split-half reliability.

    On each half of five random splits, members are selected greedily with replacement, each at
    its best epoch on this half. Each of ten steps adds the member that most improves the metric of
    the mean score of all selected members. The best of the ten resulting sets is kept; if several
    are equally good, the first of them is kept. Let :math:`d_A` and :math:`d_B` be the weights that
    are selected on the two halves of a split, minus equal weights. Then

    .. math::

        \rho = \max\left(0, \frac{\sum d_A d_B}{\frac{1}{2} \sum (d_A^2 + d_B^2)}\right)

    is the reliability of :math:`d` from one half, as in a split-half test, and
    :math:`2 \rho / (1 + \rho)` is that of :math:`d` from both halves. The sums are over splits and
    members. The weights are the equal weights plus the mean of :math:`d`, which is multiplied by
    the reliability from both halves. This factor shrinks the weights towards equal weights.

    For cross-fitting, each half of every split is itself split into halves, and weights are tuned
    on it in the same way. These weights are measured on the other half, whose labels were not
    used to tune them. If the weights tuned on all lists are equal, the result is that of
    ``fixed_weights`` with equal weights.

    Args:
        members: the scores of the members, of which there is at least one.
        measure: computes the metric of every validation list.
        lengths: the number of items of each list, ``[lists]``; if it is given, disjoint subsets of
            the lists are measured together, which is faster.

    Raises:
        DataError: fewer than two validation lists have a value under the convention.

    Source: Caruana et al. (2004), "Ensemble selection from libraries of models"; Spearman (1910)
    and Brown (1910) for the reliability. Caruana et al. draw bags of models, whereas this function
    draws halves of the lists.
    """
    halves = _split_lists(members, measure)
    if not halves.first.size:
        raise DataError(
            "weights=vali: fewer than two vali lists have a value under this convention; set "
            "weights=equal"
        )
    tuning_splits = Halves(halves.first[:_TUNING_SPLITS], halves.second[:_TUNING_SPLITS])
    selections = select_on_halves(members, measure, tuning_splits, lengths)
    weights = shrink_to_equal(selections).round(12)  # exact where they are 0
    weights /= weights.sum()
    if np.ptp(weights) == 0:
        return fixed_weights(EQUAL, members, measure)
    weights_of_halves = _tune_on_halves(members, measure, halves, lengths)
    crossfit = _measure_crossfit(weights_of_halves, members, measure, halves)
    return WeightedEnsemble(tuple(weights.tolist()), crossfit)


def shrink_to_equal(selections: Doubles) -> Doubles:
    """Shrink the mean weights of halves towards equal weights, by their split-half reliability.

    Args:
        selections: the weights selected on each half, ``[splits, 2, members]``.

    Returns:
        The weights, ``[members]``; see ``tuned_weights`` for the formula.
    """
    equal = 1 / selections.shape[-1]
    deviations = selections - equal
    variation = np.square(deviations).sum() / 2
    reliability = 0.0
    if variation:
        agreement = (deviations[:, 0] * deviations[:, 1]).sum()
        reliability = max(0.0, float(agreement / variation))
    reliability_of_both = 2 * reliability / (1 + reliability)
    weights: Doubles = (equal + reliability_of_both * deviations.mean((0, 1))).clip(0)
    return weights


def _tune_on_halves(
    members: Sequence[SplitHalfScores], measure: Measure, halves: Halves, lengths: Ints | None
) -> Doubles:
    """Return the weights that are tuned on each half alone, ``[splits, 2, members]``.

    For this, the half is split in two. If it has only one list, its weights are equal.
    """
    if halves.first.shape[1] < 2:
        return np.full((len(halves.first), 2, len(members)), 1 / len(members))
    tuned = []
    for split, sides in enumerate(zip(halves.first, halves.second, strict=True)):
        # the lists of a half are in random order
        quarters = [quarter for lists in sides for quarter in (lists[::2], lists[1::2])]
        scores = [_scores_of_half(members, split, side) for side in (0, 0, 1, 1)]
        selections = _select_on_subsets(scores, measure, quarters, lengths).reshape(2, 1, 2, -1)
        weights = np.array([shrink_to_equal(selected) for selected in selections])
        tuned.append(weights / weights.sum(-1, keepdims=True))
    return np.array(tuned)


def select_on_halves(
    members: Sequence[SplitHalfScores],
    measure: Measure,
    halves: Halves,
    lengths: Ints | None = None,
) -> Doubles:
    """Return the weights that each half selects greedily, ``[splits, 2, members]``."""
    selections = []
    for split, sides in enumerate(zip(halves.first, halves.second, strict=True)):
        scores = [_scores_of_half(members, split, side) for side in (0, 1)]
        selections.append(_select_on_subsets(scores, measure, sides, lengths))
    return np.array(selections)


def _select_on_subsets(
    scores: Sequence[Tensor], measure: Measure, subsets: Sequence[Ints], lengths: Ints | None
) -> Doubles:
    """Return the weights selected greedily on each of ``subsets``, ``[subsets, members]``.

    The subsets of the lists are disjoint; each has its own scores, ``[members, items]``. If
    ``lengths``, the number of items of each list, is given, all subsets are measured together.
    """
    if lengths is None:
        pairs = zip(scores, subsets, strict=True)
        return np.array([greedy_selection(values, measure, lists) for values, lists in pairs])
    subset_of_list = np.zeros(len(lengths), dtype=np.int64)
    for number, lists in enumerate(subsets):
        subset_of_list[lists] = number
    subset_of_item = torch.from_numpy(subset_of_list.repeat(lengths)).to(scores[0].device)
    joined_scores = torch.zeros_like(scores[0])
    for number, values in enumerate(scores):
        joined_scores = torch.where(subset_of_item == number, values, joined_scores)
    return _select_greedily(joined_scores, measure, subsets, subset_of_item)


def _split_lists(members: Sequence[SplitHalfScores], measure: Measure) -> Halves:
    """Split the lists that have a value under the convention into halves."""
    scores = next(iter(members[0].scores.values()))
    return Halves.split(~np.isnan(measure(scores)))


def _scores_of_half(members: Sequence[SplitHalfScores], split: int, side: int) -> Tensor:
    """Return the scores of all members at their best epochs on a half, ``[members, items]``."""
    return torch.stack([member.scores[int(member.epochs[split, side])] for member in members])


def greedy_selection(scores: Tensor, measure: Measure, lists: Ints) -> Doubles:
    """Return the weights of the best set of members that greedy selection finds.

    Args:
        scores: the scores of each member, ``[members, items]``.
        measure: computes the metric of every list.
        lists: indices of the lists on which the members are selected.

    Returns:
        The share of each member in the set, ``[members]``.
    """
    subset_of_item = torch.zeros_like(scores[0], dtype=torch.int64)
    weights: Doubles = _select_greedily(scores, measure, [lists], subset_of_item)[0]
    return weights


def _select_greedily(
    scores: Tensor, measure: Measure, subsets: Sequence[Ints], subset_of_item: Tensor
) -> Doubles:
    """Return the weights of ``greedy_selection`` on each of ``subsets``, ``[subsets, members]``.

    ``subset_of_item``, ``[items]``, is the number of the subset to which each item belongs.
    """
    every_subset = np.arange(len(subsets))
    every_item = torch.arange(scores.shape[1]).to(scores.device)
    counts = np.zeros((len(subsets), len(scores)))
    total = torch.zeros_like(scores[0])
    best_counts = counts.copy()
    best_means = np.full(len(subsets), -math.inf)
    for _ in range(_SELECTIONS):
        metrics = [measure(total + member_scores) for member_scores in scores]
        means = np.array([[metric[lists].mean() for metric in metrics] for lists in subsets])
        selected = means.argmax(-1)  # [subsets], the members
        counts[every_subset, selected] += 1
        member_of_item = torch.from_numpy(selected).to(scores.device)[subset_of_item]
        total = total + scores[member_of_item, every_item]
        selected_means = means.max(-1)
        is_better = selected_means > best_means
        best_counts[is_better] = counts[is_better]
        best_means = np.maximum(best_means, selected_means)
    weights: Doubles = best_counts / best_counts.sum(-1, keepdims=True)
    return weights


def _measure_crossfit(
    weights: Doubles, members: Sequence[SplitHalfScores], measure: Measure, halves: Halves
) -> Crossfit | None:
    """Return the cross-fitted metric of an ensemble; None if a half of the lists is empty.

    ``weights`` contains the weights chosen on each half, ``[splits, 2, members]``.
    """
    if not halves.first.size:
        return None
    other_halves = (halves.second, halves.first)
    measured = np.empty(weights.shape[:2])
    for split in range(len(halves.first)):
        for side, other_half in enumerate(other_halves):
            scores = _scores_of_half(members, split, side)
            mean = torch.from_numpy(weights[split, side]).to(scores.device) @ scores
            measured[split, side] = measure(mean)[other_half[split]].mean()
    return Crossfit.from_halves(measured)
