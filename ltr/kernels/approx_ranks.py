"""Ranks counted by sigmoids, and the slopes of their weighted sum, in memory of the items."""

import numpy as np
from numpy.typing import NDArray

from ltr.kernels.compile import exp, kernel

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]


@kernel
def approx_rank_lists(
    lists: Rows,
    scores: Vector,
    mask: NDArray[np.bool_],
    temperature: float,
    ranks: Vector,
    weights: Vector,
    slope: Vector,
    backward: bool,
) -> None:
    """Write ``ranks`` of ``lists``; backward, the slopes of the sum of weights times ranks.

    rank_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature).

    Args:
        lists: which rows of the batch, ``[lists]``.
        scores: ``[batch, list]``.
        mask: ``[batch, list]``, True where an item exists.
        temperature: > 0.
        ranks: ``[batch, list]``, written at real items unless backward.
        weights: ``[batch, list]``, read backward.
        slope: ``[batch, list]``, written at real items backward.
        backward: which of the two.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        s = scores[b][items] / temperature
        if backward:
            found = _slopes(s, weights[b][items]) / temperature
            for i in range(len(items)):
                slope[b, items[i]] = found[i]
        else:
            found = _ranks(s)
            for i in range(len(items)):
                ranks[b, items[i]] = found[i]


@kernel
def _ranks(s: Vector) -> Vector:
    n = len(s)
    ranks = np.ones(n)
    for i in range(n):
        others, behind = s[i + 1 :], ranks[i + 1 :]
        above = 0.0
        for j in range(len(others)):
            z = s[i] - others[j]
            e = exp(-min(abs(z), 708.0))
            lower, higher = e / (1 + e), 1 / (1 + e)
            behind[j] += higher if z > 0 else lower
            above += lower if z > 0 else higher
        ranks[i] += above
    return ranks


@kernel
def _slopes(s: Vector, weights: Vector) -> Vector:
    n = len(s)
    slopes = np.zeros(n)
    for i in range(n):
        others, behind, theirs = s[i + 1 :], slopes[i + 1 :], weights[i + 1 :]
        total = 0.0
        for j in range(len(others)):
            e = exp(-min(abs(s[i] - others[j]), 708.0))
            steep = e / ((1 + e) * (1 + e)) * (theirs[j] - weights[i])
            total += steep
            behind[j] -= steep
        slopes[i] += total
    return slopes
