"""The weights of an ensemble's members, and what the ensemble is worth on the validation lists."""

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

EQUAL, VALI = "equal", "vali"
_PICKS = 10  # members picked on each half of the validation lists
_SPLITS = 5  # of the random splits of the validation lists, those on which weights are chosen


class HalfScores(NamedTuple):
    """The scores of a member on the validation lists, standardised in each list."""

    epochs: Ints  # [splits, 2], the epoch that each half of ``Halves`` chooses
    scores: Mapping[int, Tensor]  # epoch -> [items] float64


class Weighed(NamedTuple):
    """Weights, >= 0 with a sum of 1, and what an ensemble with such weights is worth."""

    weights: tuple[float, ...]
    crossfit: Crossfit | None  # None: a half would have no list


def parse_weights(given: Sequence[str], members: int) -> str | tuple[float, ...]:
    """Return the setting ``weights``: ``equal``, ``vali``, or numbers, which are scaled to a sum of
    1.

    ``ConfigError``: it is none of these, or there is not one number >= 0 for each member.
    """
    if len(given) == 1 and given[0] in (EQUAL, VALI):
        return given[0]
    try:
        values = [parse_number(text) for text in given]
    except ValueError:
        values = []
    if not 0 < sum(values) < math.inf or min(values) < 0 or len(values) != members:
        raise ConfigError(
            f"weights={','.join(given)}: write equal, vali, or a number >= 0 for each of the "
            f"{members} runs, such as [0.7,0.3]"
        )
    return tuple(value / sum(values) for value in values)


def given_weights(
    weights: str | Sequence[float],
    members: Sequence[HalfScores],
    measure: Callable[[Tensor], Doubles],
) -> Weighed:
    """Return ``weights`` (``equal``, or numbers) as numbers, and their crossfit.

    For each half of the validation lists, the ensemble has the epochs of its members that this half
    chooses. It is measured on the other half.

    Args:
        weights: ``equal``, or one number for each member.
        members: at least one.
        measure: takes scores ``[items]``; returns the metric of every validation list, NaN where
            the convention skips the list.
    """
    count = len(members)
    numbers = np.full(count, 1 / count) if isinstance(weights, str) else np.array(weights)
    halves = _halves(members, measure)
    crossfit = _crossfit(np.tile(numbers, (len(halves.first), 2, 1)), members, measure, halves)
    return Weighed(tuple(numbers.tolist()), crossfit)


def weights_on_vali(
    members: Sequence[HalfScores],
    measure: Callable[[Tensor], Doubles],
    lengths: Ints | None = None,
) -> Weighed:
    """Choose weights on the validation lists, and shrink them to equal ones as far as halves of the
    lists disagree about them.

    On each half of five random splits, the members with the epochs that this half chooses are
    picked greedily with replacement (Caruana et al., 2004, "Ensemble selection from libraries of
    models", who draw bags of models where this function draws halves of the lists). Ten picks are
    made, one after the other. Each adds the member with which the mean score of all picks so far
    has the best metric. The best of the resulting ten sets is kept; if several are best, the first.
    Let d_A and d_B be the weights that the halves of a split give, less equal weights. Then

        rho = max(0, sum d_A d_B / (sum (d_A^2 + d_B^2) / 2))

    over splits and members is the reliability of d from one half, as in a split-half test, and
    2 rho / (1 + rho) that of d from both (Spearman, 1910; Brown, 1910). The weights are equal ones
    plus the mean of d times this reliability.

    For the crossfit, each half of every split chooses weights in the same way by itself, from its
    own halves, and they are measured on the other half, whose labels had no part in them. If the
    weights from all lists are equal, so that the ensemble is that of equal weights, its crossfit is
    too.

    The arguments are those of ``given_weights``, and ``lengths``, the number of items of each list:
    with it, parts of the lists are measured together, which is faster. ``DataError``: fewer than
    two validation lists count under the convention.
    """
    halves = _halves(members, measure)
    if not halves.first.size:
        raise DataError(
            "weights=vali: fewer than two vali lists count under this convention; set weights=equal"
        )
    first_splits = Halves(halves.first[:_SPLITS], halves.second[:_SPLITS])
    picked = picked_on_halves(members, measure, first_splits, lengths)
    weights = shrunken(picked).round(12)  # exact where they are 0
    weights /= weights.sum()
    if np.ptp(weights) == 0:
        return given_weights(EQUAL, members, measure)
    by_half = _weights_of_halves(members, measure, halves, lengths)
    return Weighed(tuple(weights.tolist()), _crossfit(by_half, members, measure, halves))


def shrunken(picked: Doubles) -> Doubles:
    """Return the mean of the weights ``picked`` on halves, ``[splits, 2, members]``, shrunken to
    equal weights as far as the halves disagree: ``[members]``, see ``weights_on_vali``.
    """
    equal = 1 / picked.shape[-1]
    off = picked - equal
    size = np.square(off).sum() / 2
    reliability = max(0.0, float((off[:, 0] * off[:, 1]).sum() / size)) if size else 0.0
    both = 2 * reliability / (1 + reliability)
    weights: Doubles = (equal + both * off.mean((0, 1))).clip(0)
    return weights


def _weights_of_halves(
    members: Sequence[HalfScores],
    measure: Callable[[Tensor], Doubles],
    halves: Halves,
    lengths: Ints | None,
) -> Doubles:
    """Return the weights that each half chooses by itself, ``[splits, 2, members]``: it is split in
    two. They are equal if it has only one list.
    """
    if halves.first.shape[1] < 2:
        return np.full((len(halves.first), 2, len(members)), 1 / len(members))
    chosen = []
    for split, sides in enumerate(zip(halves.first, halves.second, strict=True)):
        parts = [part for lists in sides for part in (lists[::2], lists[1::2])]  # in random order
        scores = [_scores(members, split, side) for side in (0, 0, 1, 1)]
        picked = _picked_on_parts(scores, measure, parts, lengths).reshape(2, 1, 2, -1)
        weights = np.array([shrunken(picked_by_side) for picked_by_side in picked])
        chosen.append(weights / weights.sum(-1, keepdims=True))
    return np.array(chosen)


def picked_on_halves(
    members: Sequence[HalfScores],
    measure: Callable[[Tensor], Doubles],
    halves: Halves,
    lengths: Ints | None = None,
) -> Doubles:
    """Return the weights that each half picks, ``[splits, 2, members]``."""
    picked = []
    for split, sides in enumerate(zip(halves.first, halves.second, strict=True)):
        scores = [_scores(members, split, side) for side in (0, 1)]
        picked.append(_picked_on_parts(scores, measure, sides, lengths))
    return np.array(picked)


def _picked_on_parts(
    scores: Sequence[Tensor],
    measure: Callable[[Tensor], Doubles],
    parts: Sequence[Ints],
    lengths: Ints | None,
) -> Doubles:
    """Return the weights of the best set that is picked greedily on each of ``parts``, lists that
    differ, ``[parts, members]``. The scores, ``[members, items]``, are those for each part. With
    ``lengths``, the number of items of each list, all parts are measured together.
    """
    if lengths is None:
        pairs = zip(scores, parts, strict=True)
        return np.array([greedy(values, measure, lists) for values, lists in pairs])
    part_of_list = np.zeros(len(lengths), dtype=np.int64)
    for number, lists in enumerate(parts):
        part_of_list[lists] = number
    part_of_item = torch.from_numpy(part_of_list.repeat(lengths)).to(scores[0].device)
    together = torch.zeros_like(scores[0])
    for number, values in enumerate(scores):
        together = torch.where(part_of_item == number, values, together)
    return _greedy(together, measure, parts, part_of_item)


def _halves(members: Sequence[HalfScores], measure: Callable[[Tensor], Doubles]) -> Halves:
    return Halves.of(~np.isnan(measure(next(iter(members[0].scores.values())))))


def _scores(members: Sequence[HalfScores], split: int, side: int) -> Tensor:
    """Return the scores of all members with the epochs of a half, ``[members, items]``."""
    return torch.stack([one.scores[int(one.epochs[split, side])] for one in members])


def greedy(scores: Tensor, measure: Callable[[Tensor], Doubles], lists: Ints) -> Doubles:
    """Return the weights of the best set that is picked greedily on ``lists``, ``[members]``, from
    ``scores``, ``[members, items]``.
    """
    part_of_item = torch.zeros_like(scores[0], dtype=torch.int64)
    weights: Doubles = _greedy(scores, measure, [lists], part_of_item)[0]
    return weights


def _greedy(
    scores: Tensor,
    measure: Callable[[Tensor], Doubles],
    parts: Sequence[Ints],
    part_of_item: Tensor,
) -> Doubles:
    """Return the weights of ``greedy`` on each of ``parts``, ``[parts, members]``;
    ``part_of_item``, ``[items]``, is the number of the part that each item counts for.
    """
    every_part, every_item = np.arange(len(parts)), torch.arange(scores.shape[1])
    counts, total = np.zeros((len(parts), len(scores))), torch.zeros_like(scores[0])
    best, most = counts.copy(), np.full(len(parts), -math.inf)
    for _ in range(_PICKS):
        by_list = [measure(total + member) for member in scores]
        values = np.array([[metric[lists].mean() for metric in by_list] for lists in parts])
        picks = values.argmax(-1)
        counts[every_part, picks] += 1
        picked = torch.from_numpy(picks).to(scores.device)[part_of_item]
        total = total + scores[picked, every_item.to(scores.device)]
        reached = values.max(-1)
        best[reached > most] = counts[reached > most]
        most = np.maximum(most, reached)
    weights: Doubles = best / best.sum(-1, keepdims=True)
    return weights


def _crossfit(
    weights: Doubles,
    members: Sequence[HalfScores],
    measure: Callable[[Tensor], Doubles],
    halves: Halves,
) -> Crossfit | None:
    """Return the crossfit of an ensemble whose ``weights``, ``[splits, 2, members]``, come from
    each half; None if a half has no list.
    """
    if not halves.first.size:
        return None

    def measured(split: int, side: int, lists: Ints) -> float:
        scores = _scores(members, split, side)
        mean = torch.from_numpy(weights[split, side]).to(scores.device) @ scores
        return float(measure(mean)[lists].mean())

    sides = (halves.second, halves.first)
    return Crossfit.of(
        np.array(
            [
                [measured(split, side, other[split]) for side, other in enumerate(sides)]
                for split in range(len(halves.first))
            ]
        )
    )
