"""NeuralNDCG of one list after the other: value and slopes, without an n x n matrix of gradients.

The soft permutation is S = diag(u) P diag(v), the sorted gains are h = S g, and the value f = sum
over r of d_r h_r.

Every step of the scaling and of its gradient is a product of P with vectors. The gradient of P is
a sum of outer products X Y^T, of which only three vectors are needed for the slopes of x and a:
``mean_r`` = sum over j of P G, ``of_item_j`` = sum over r of P G, and the same weighted by w. One
pass over the rows, ``_backward_sweep``, adds one iteration's share to all of them.
"""

import numpy as np

from ltr.kernels.compile import Flags, Places, Rows, Vector, kernel, part
from ltr.kernels.neuralsort_band import (
    add,
    add_slope_of_spread,
    borders,
    dots,
    fill,
    rows_at,
    spread,
)


@kernel
def neural_ndcg_lists(
    lists: Rows,
    scores: Vector,
    mask: Flags,
    gain: Vector,
    discount: Vector,
    ranked: Vector,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
    tiny: float,
    kept: int,
    wanted: bool,
    value: Vector,
    slope: Vector,
) -> None:
    """Write ``ranked``, h, ``value``, f, and ``slope``; the package describes the other arguments.

    Args:
        gain: g of each item, ``[batch, list]``. A list without gains is passed over.
        discount: d of each rank, ``[batch, list]``.
        ranked: ``[batch, list]``, written at the ranks of the items.
        temperature: of NeuralSort.
        transposed: rows are scaled first, then columns.
        max_iter: the most iterations of the scaling.
        tol: the deviation of a sum from one at which a list stops.
        tiny: the smallest normal number of the scores' dtype; smaller numbers count as 0.
        kept: the most entries of P that are kept in memory.
    """
    for i in lists:
        items = np.nonzero(mask[i])[0]
        if not (gain[i][items] != 0).any():
            continue
        given = scores[i][items]
        order = np.argsort(-given, kind="mergesort")
        items = items[order]
        x = (given[order] - given.mean()) / temperature
        a = np.empty_like(x)
        spread(x, a)
        slope_x, slope_a = np.zeros_like(x), np.zeros_like(x)
        value[i] = _sorted_list(
            x, a, gain[i][items], discount[i], transposed, max_iter, tol, tiny, kept, wanted,
            ranked[i], slope_x, slope_a,
        )  # fmt: skip
        add_slope_of_spread(x, slope_a, slope_x)
        for j in range(len(items)):
            slope[i, items[j]] = slope_x[j] / temperature


@part
def _sorted_list(
    x: Vector,
    a: Vector,
    gain: Vector,
    discount: Vector,
    transposed: bool,
    max_iter: int,
    tol: float,
    tiny: float,
    kept: int,
    wanted: bool,
    ranked: Vector,
    slope_x: Vector,
    slope_a: Vector,
) -> float:
    """f, and its slopes by x and a; h in ``ranked``."""
    n = len(x)
    floor = np.sqrt(tiny)
    low, start = borders(x, a, np.log(tiny))
    entries = np.int64(start[len(low)])
    whole = entries <= kept
    groups = len(low)
    padded = 4 * groups
    band = np.empty(entries if whole else 4 * n)  # P, or the four rows at hand
    norm = np.ones(padded)
    column, weighted = np.zeros(n), np.zeros(n)
    fill(x, a, low, start, norm, band, whole, column, weighted)

    # The first row of u and of v is where they start; new says which entries a step has set.
    most = max_iter + 1
    u, v = np.ones((most, padded)), np.ones((most, n))
    new_u, new_v = np.zeros((most, padded), np.bool_), np.zeros((most, n), np.bool_)
    of_u = np.zeros((most, n))  # P^T (w u) of the column sums that made v
    last = max_iter
    for i in range(1, most):
        if transposed:
            u_off = _forward_sweep(
                x, a, low, start, norm, band, whole, v[i - 1], u[i - 1], u[i], new_u[i], floor,
                column, weighted,
            )  # fmt: skip
            if i > 1 and u_off < tol:
                last = i - 1
                break
        elif i > 1:
            v_off = 0.0
            for j in range(n):
                off = abs(v[i - 1, j] * column[j] - 1)
                v_off = max(v_off, off) if off == off else np.inf
            if v_off < tol:
                last = i - 1
                break
        for j in range(n):
            new_v[i, j] = column[j] > floor
            v[i, j] = 1 / column[j] if new_v[i, j] else v[i - 1, j]
            of_u[i, j] = weighted[j]
        if not transposed:
            _forward_sweep(
                x, a, low, start, norm, band, whole, v[i], u[i - 1], u[i], new_u[i], floor,
                column, weighted,
            )  # fmt: skip

    # f, and its slopes by the last u and v
    slope_u, mean = np.zeros(padded), np.zeros(padded)
    sums, factors = np.zeros(padded), np.zeros(padded)
    column[:], weighted[:] = 0, 0
    gained = v[last] * gain
    value = 0.0
    for g in range(groups):
        at = rows_at(g, x, a, low, start, norm, band, whole)
        dots(g, band, at, gained, low, start, sums)
        for r in range(4 * g, min(4 * g + 4, n)):
            ranked[r] = u[last, r] * sums[r]
            slope_u[r] = discount[r] * sums[r]
            factors[r] = discount[r] * u[last, r]
            mean[r] = factors[r] * sums[r]
            value += mean[r]
        if wanted:
            add(g, band, at, factors, column, weighted, low, start)
    if not wanted:
        return value
    slope_v = gain * column
    of_item, of_item_weighted = gained * column, gained * weighted

    slope_sums = np.zeros(n)  # of the column sums of the iteration
    for i in range(last, 0, -1):
        if transposed:
            for j in range(n):
                _through_column(
                    j, slope_sums, slope_v, v[i, j], new_v[i, j], of_u[i, j], of_item,
                    of_item_weighted,
                )  # fmt: skip
        _backward_sweep(
            x, a, low, start, norm, band, whole, slope_sums, slope_u, u[i], new_u[i], mean,
            column, weighted,
        )  # fmt: skip
        before = v[i - 1] if transposed else v[i]
        for j in range(n):
            slope_v[j] += column[j]
            of_item[j] += before[j] * column[j]
            of_item_weighted[j] += before[j] * weighted[j]
            if not transposed:
                _through_column(
                    j, slope_sums, slope_v, v[i, j], new_v[i, j], of_u[i, j], of_item,
                    of_item_weighted,
                )  # fmt: skip

    column[:], weighted[:] = 0, 0
    for g in range(groups):
        at = rows_at(g, x, a, low, start, norm, band, whole)
        if not transposed:
            dots(g, band, at, slope_sums, low, start, sums)
            for r in range(4 * g, 4 * g + 4):
                mean[r] += sums[r]
        add(g, band, at, mean, column, weighted, low, start)
    for j in range(n):
        slope_x[j] = of_item_weighted[j] - weighted[j]
        slope_a[j] = column[j] - of_item[j]
    return value


@part
def _forward_sweep(
    x: Vector,
    a: Vector,
    low: Places,
    start: Places,
    norm: Vector,
    band: Vector,
    whole: bool,
    v: Vector,
    u: Vector,
    next_u: Vector,
    new: Flags,
    floor: float,
    column: Vector,
    weighted: Vector,
) -> float:
    """Row sums with ``v``, from them ``next_u``, and with that the column sums.

    Returns:
        The largest deviation from one of ``u`` times the row sums.
    """
    n = len(v)
    column[:], weighted[:] = 0, 0
    sums = np.empty(len(u))
    largest = 0.0
    for g in range(len(low)):
        at = rows_at(g, x, a, low, start, norm, band, whole)
        dots(g, band, at, v, low, start, sums)
        for r in range(4 * g, min(4 * g + 4, n)):
            off = abs(u[r] * sums[r] - 1)
            largest = max(largest, off) if off == off else np.inf
            new[r] = sums[r] > floor
            next_u[r] = 1 / sums[r] if new[r] else u[r]
        add(g, band, at, next_u, column, weighted, low, start)
    return largest


@part
def _backward_sweep(
    x: Vector,
    a: Vector,
    low: Places,
    start: Places,
    norm: Vector,
    band: Vector,
    whole: bool,
    slope_sums: Vector,
    slope_u: Vector,
    u: Vector,
    new: Flags,
    mean: Vector,
    column: Vector,
    weighted: Vector,
) -> None:
    """From the slope of the column sums after ``u`` to the slope of the row sums before ``u``."""
    column[:], weighted[:] = 0, 0
    sums, factors = np.empty(len(u)), np.zeros(len(u))
    for g in range(len(low)):
        at = rows_at(g, x, a, low, start, norm, band, whole)
        dots(g, band, at, slope_sums, low, start, sums)
        for r in range(4 * g, 4 * g + 4):
            mean[r] += u[r] * sums[r]
            slope_u[r] += sums[r]
            if new[r]:  # u = 1 / sum, so that the sum is 1 / u
                factors[r] = -slope_u[r] * u[r] * u[r]
                slope_u[r] = 0
                mean[r] += factors[r] / u[r]
        add(g, band, at, factors, column, weighted, low, start)


@part
def _through_column(
    j: int,
    slope_sums: Vector,
    slope_v: Vector,
    v: float,
    new: bool,
    of_u: float,
    of_item: Vector,
    of_item_weighted: Vector,
) -> None:
    """From the slope of v_j to the slope of its column sum."""
    slope_sums[j] = 0
    if new:
        slope_sums[j] = -slope_v[j] * v * v
        slope_v[j] = 0
        of_item[j] += slope_sums[j] / v
        of_item_weighted[j] += slope_sums[j] * of_u
