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


def weights_on_vali(members: Sequence[HalfScores], measure: Callable[[Tensor], Doubles]) -> Weighed:
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
    plus the mean of d times this reliability. The crossfit value measures equal weights plus
    rho d_A on the half B, with the epochs that A chose, and the other way round.

    The arguments are those of ``given_weights``. ``DataError``: fewer than two validation lists
    count under the convention.
    """
    halves = _halves(members, measure)
    if not halves.first.size:
        raise DataError(
            "weights=vali: fewer than two vali lists count under this convention; set weights=equal"
        )
    halves = Halves(halves.first[:_SPLITS], halves.second[:_SPLITS])
    equal = 1 / len(members)
    off = picked_on_halves(members, measure, halves) - equal
    size = np.square(off).sum() / 2
    reliability = max(0.0, float((off[:, 0] * off[:, 1]).sum() / size)) if size else 0.0
    both = 2 * reliability / (1 + reliability)
    weights = (equal + both * off.mean((0, 1))).clip(0).round(12)  # exact where they are 0
    weights /= weights.sum()
    crossfit = _crossfit(equal + reliability * off, members, measure, halves)
    return Weighed(tuple(weights.tolist()), crossfit)


def picked_on_halves(
    members: Sequence[HalfScores], measure: Callable[[Tensor], Doubles], halves: Halves
) -> Doubles:
    """Return the weights that each half picks, ``[splits, 2, members]``."""
    return np.array(
        [
            [
                greedy(_scores(members, split, side), measure, own[split])
                for side, own in enumerate((halves.first, halves.second))
            ]
            for split in range(len(halves.first))
        ]
    )


def _halves(members: Sequence[HalfScores], measure: Callable[[Tensor], Doubles]) -> Halves:
    return Halves.of(~np.isnan(measure(next(iter(members[0].scores.values())))))


def _scores(members: Sequence[HalfScores], split: int, side: int) -> Tensor:
    """Return the scores of all members with the epochs of a half, ``[members, items]``."""
    return torch.stack([one.scores[int(one.epochs[split, side])] for one in members])


def greedy(scores: Tensor, measure: Callable[[Tensor], Doubles], lists: Ints) -> Doubles:
    """Return the weights of the best set that is picked greedily on ``lists``, ``[members]``, from
    ``scores``, ``[members, items]``.
    """
    counts, total = np.zeros(len(scores)), torch.zeros_like(scores[0])
    best, most = counts, -math.inf
    for _ in range(_PICKS):
        values = [float(measure(total + one)[lists].mean()) for one in scores]
        pick = int(np.argmax(values))
        counts, total = counts.copy(), total + scores[pick]
        counts[pick] += 1
        if values[pick] > most:
            best, most = counts, values[pick]
    return best / best.sum()


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
