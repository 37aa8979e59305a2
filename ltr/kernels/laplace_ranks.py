"""Soft ranks of items under a Laplace kernel and their slopes, by running sums along the order."""

import numpy as np

from ltr.kernels.compile import Flags, Rows, Vector, exp, kernel, part


@kernel
def laplace_rank_lists(
    lists: Rows,
    scores: Vector,
    mask: Flags,
    temperature: float,
    ranks: Vector,
    weights: Vector,
    slope: Vector,
    backward: bool,
) -> None:
    """Write ``ranks`` of ``lists``; backward, the slopes of the sum of weights times ranks.

    rank_i = 1 + sum over j != i of Phi((s_j - s_i) / temperature), Phi the distribution function of
    the Laplace distribution. In descending order of score it is the place of i, minus half of the
    sum of exp(-|s_i - s_j| / temperature) over the items in front, plus half of that over the items
    behind. Either sum follows from that of the neighbour, so that a list costs one sort.

    Args:
        temperature: > 0.
        ranks: ``[batch, list]``, written at real items unless ``backward``.
        weights: ``[batch, list]``, read if ``backward``.
        backward: write ``slope`` instead of ``ranks``.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        s = scores[b][items]
        if backward:
            w = weights[b][items]
            found = _slopes(s, w, temperature)
            for i in range(len(items)):
                slope[b, items[i]] = found[i]
        else:
            found = _ranks(s, temperature)
            for i in range(len(items)):
                ranks[b, items[i]] = found[i]


@part
def _near(front: float, behind: float, temperature: float) -> float:
    """exp(-gap / temperature) of two neighbours, from 0 to 1."""
    return exp(max((behind - front) / temperature, -708.0))  # NaN stays NaN


@part
def _ranks(s: Vector, temperature: float) -> Vector:
    n = len(s)
    ranks = np.empty(n)
    total = 0.0
    for i in range(n):
        if i > 0:
            total = (total + 1) * _near(s[i - 1], s[i], temperature)
        ranks[i] = 1 + i - 0.5 * total
    total = 0.0
    for i in range(n - 2, -1, -1):
        total = (total + 1) * _near(s[i], s[i + 1], temperature)
        ranks[i] += 0.5 * total
    return ranks


@part
def _slopes(s: Vector, weights: Vector, temperature: float) -> Vector:
    """For each j the sum over i of (w_i - w_j) exp(-|s_i - s_j| / T) / 2T, T the temperature."""
    n = len(s)
    slopes = np.zeros(n)
    count, total = 0.0, 0.0
    for i in range(1, n):
        near = _near(s[i - 1], s[i], temperature)
        count, total = (count + 1) * near, (total + weights[i - 1]) * near
        slopes[i] += total - weights[i] * count
    count, total = 0.0, 0.0
    for i in range(n - 2, -1, -1):
        near = _near(s[i], s[i + 1], temperature)
        count, total = (count + 1) * near, (total + weights[i + 1]) * near
        slopes[i] += total - weights[i] * count
    for i in range(n):
        slopes[i] /= 2 * temperature
    return slopes
