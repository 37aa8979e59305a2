"""NeuralNDCG of one list after the other: value and slopes, without an n x n matrix of gradients.

x are the centred scores divided by the temperature. NeuralSort's matrix is P[r, j] = softmax
over j of w_r x_j - a_j, with w_r = n + 1 - 2r and a_j = sum over i of |x_i - x_j|. The soft
permutation is S = diag(u) P diag(v), the softly sorted gains are h = S g, and the value is
f = sum over r of d_r h_r.

Items are in descending order of score, which makes P a band: each row decreases on both sides of
the diagonal, and the borders beyond which its entries underflow only move down. Four rows are
processed together with common borders, which saves two thirds of the loads and stores; rows that
fill up the last group of four are 0.

Every step of the scaling and of its gradient is a product of P with vectors. The gradient G of P is
a sum of outer products X Y^T. The slopes of x and a need only three vectors from it: ``mean_r`` =
sum over j of P G (elementwise), ``of_item_j`` = sum over r of P G, and the latter with each row
weighted by w_r. One pass over the rows, ``_backward_sweep``, adds the share of one iteration to all
three.
"""

from collections import namedtuple

import numpy as np

from ltr.kernels.compile import exp, kernel, part

# P in groups of four rows. x, a: for the logits. low: for each group the first item that does not
# underflow. start: where each group begins in ``entries``, and the end. norm: the factor of each
# row. entries: of all rows if ``whole``, else of the current group only.
Band = namedtuple("Band", "x a low start norm entries whole")


@kernel
def neural_ndcg_lists(
    lists, scores, mask, gain, discount, ranked, temperature, transposed, max_iter, tol, tiny,
    kept, wanted, value, slope,
):  # fmt: skip
    """Write h to ``ranked``, f to ``value``, and ``slope``; for the others see ``ltr.kernels``.

    Args:
        gain: g of each item, ``[batch, list]``. A list whose gains are all 0 is skipped.
        discount: d of each rank, ``[batch, list]``.
        ranked: ``[batch, list]``, written at the ranks of the items.
        temperature: the temperature of NeuralSort.
        transposed: scale the rows first, then the columns.
        max_iter: the largest number of iterations of the scaling.
        tol: a list stops when all sums deviate from one by less than this.
        tiny: the smallest normal number of the scores' dtype; smaller numbers count as 0.
        kept: the largest number of entries of P that are stored.
    """
    for i in lists:
        items = np.nonzero(mask[i])[0]
        if not (gain[i][items] != 0).any():
            continue
        given = scores[i][items]
        order = np.argsort(-given, kind="mergesort")
        items = items[order]
        x = (given[order] - given.mean()) / temperature
        a, slope_x, slope_a = np.empty_like(x), np.zeros_like(x), np.zeros_like(x)
        _spread(x, a)
        value[i] = _sorted_list(
            x, a, gain[i][items], discount[i], transposed, max_iter, tol, tiny, kept, wanted,
            ranked[i], slope_x, slope_a,
        )  # fmt: skip
        _add_slope_of_spread(x, slope_a, slope_x)
        for j in range(len(items)):
            slope[i, items[j]] = slope_x[j] / temperature


def neurally_sorted_lists(
    lists, scores, mask, values, temperature, max_iter, tol, tiny, kept, weights, backward, found
):
    """Write S v to ``found``, where v = ``values``.

    If ``backward``, write the slopes of the sum of ``weights`` times S v instead.
    """
    rest, knobs = np.zeros_like(found), (temperature, False, max_iter, tol, tiny, kept)
    of_rank, ranked, slope = (weights, rest, found) if backward else (rest, found, rest.copy())
    given = scores, mask, values, of_rank, ranked, *knobs, backward
    neural_ndcg_lists(lists, *given, np.zeros(len(scores)), slope)


@part
def _sorted_list(
    x, a, gain, discount, transposed, max_iter, tol, tiny, kept, wanted, ranked, slope_x, slope_a,
):  # fmt: skip
    """Return f; write h to ``ranked``, and the slopes of f with respect to x and a."""
    n, floor = len(x), np.sqrt(tiny)
    low, start = _borders(x, a, np.log(tiny))
    groups, padded, whole = len(low), 4 * len(low), start[-1] <= kept
    entries = np.empty(start[-1] if whole else 4 * n)
    band = Band(x, a, low, start, np.ones(padded), entries, whole)
    column, weighted = np.zeros(n), np.zeros(n)
    _fill(band, column, weighted)

    # Row 0 of u and v is their initial value; new_u and new_v say which entries an iteration set.
    most = max_iter + 1
    u, v = np.ones((most, padded)), np.ones((most, n))
    new_u, new_v = np.zeros((most, padded), np.bool_), np.zeros((most, n), np.bool_)
    of_u = np.zeros((most, n))  # P^T (w u), saved for the column sums that gave v
    sums, last = np.zeros(padded), max_iter
    for i in range(1, most):
        if transposed:
            _forward_sweep(band, v[i - 1], u[i - 1], u[i], new_u[i], floor, sums, column, weighted)
            off = np.abs(u[i - 1, :n] * sums[:n] - 1).max()
        else:
            off = np.abs(v[i - 1] * column - 1).max()
        if i > 1 and off < tol:
            last = i - 1
            break
        for j in range(n):
            new_v[i, j] = column[j] > floor
            v[i, j] = 1 / column[j] if new_v[i, j] else v[i - 1, j]
            of_u[i, j] = weighted[j]
        if not transposed:
            _forward_sweep(band, v[i], u[i - 1], u[i], new_u[i], floor, sums, column, weighted)

    # f, and its slopes with respect to the last u and v
    slope_u, mean, factors = np.zeros(padded), np.zeros(padded), np.zeros(padded)
    column[:], weighted[:] = 0, 0
    gained, value = v[last] * gain, 0.0
    for g in range(groups):
        rows = _rows(g, band)
        _dots(g, band, rows, gained, sums)
        for r in range(4 * g, min(4 * g + 4, n)):
            ranked[r] = u[last, r] * sums[r]
            slope_u[r] = discount[r] * sums[r]
            factors[r] = discount[r] * u[last, r]
            mean[r] = factors[r] * sums[r]
            value += mean[r]
        if wanted:
            _add(g, band, rows, factors, column, weighted)
    if not wanted:
        return value
    slope_v = gain * column
    of_item, of_item_weighted = gained * column, gained * weighted

    slope_sums = np.zeros(n)  # slope with respect to the column sums of the iteration
    for i in range(last, 0, -1):
        if transposed:
            _through_columns(
                slope_sums, slope_v, v[i], new_v[i], of_u[i], of_item, of_item_weighted
            )
        _backward_sweep(band, slope_sums, slope_u, u[i], new_u[i], mean, column, weighted)
        before = v[i - 1] if transposed else v[i]
        for j in range(n):
            slope_v[j] += column[j]
            of_item[j] += before[j] * column[j]
            of_item_weighted[j] += before[j] * weighted[j]
        if not transposed:
            _through_columns(
                slope_sums, slope_v, v[i], new_v[i], of_u[i], of_item, of_item_weighted
            )

    column[:], weighted[:] = 0, 0
    for g in range(groups):
        rows = _rows(g, band)
        if not transposed:
            _dots(g, band, rows, slope_sums, sums)
            mean[4 * g : 4 * g + 4] += sums[4 * g : 4 * g + 4]
        _add(g, band, rows, mean, column, weighted)
    for j in range(n):
        slope_x[j] = of_item_weighted[j] - weighted[j]
        slope_a[j] = column[j] - of_item[j]
    return value


@part
def _forward_sweep(band, v, u, next_u, new, floor, sums, column, weighted):
    """Compute the row sums P v, then the next u from them, then the column sums with that u.

    ``sums`` gets P v. ``next_u`` gets 1 / ``sums`` where that is above ``floor`` (``new`` is True
    there), else ``u``. ``column`` gets P^T u, and ``weighted`` P^T (w u), for the next u.
    """
    column[:], weighted[:] = 0, 0
    for g in range(len(band.low)):
        rows = _rows(g, band)
        _dots(g, band, rows, v, sums)
        for r in range(4 * g, min(4 * g + 4, len(v))):
            new[r] = sums[r] > floor
            next_u[r] = 1 / sums[r] if new[r] else u[r]
        _add(g, band, rows, next_u, column, weighted)


@part
def _backward_sweep(band, slope_sums, slope_u, u, new, mean, column, weighted):
    """Turn the slope of the column sums, which ``u`` scales, into that of the row sums.

    The row sums are those from which ``u`` was computed.
    """
    column[:], weighted[:] = 0, 0
    sums, factors = np.empty(len(u)), np.zeros(len(u))
    for g in range(len(band.low)):
        rows = _rows(g, band)
        _dots(g, band, rows, slope_sums, sums)
        for r in range(4 * g, 4 * g + 4):
            mean[r] += u[r] * sums[r]
            slope_u[r] += sums[r]
            if new[r]:  # u = 1 / sum, so the sum is 1 / u
                factors[r] = -slope_u[r] * u[r] * u[r]
                slope_u[r] = 0
                mean[r] += factors[r] / u[r]
        _add(g, band, rows, factors, column, weighted)


@part
def _through_columns(slope_sums, slope_v, v, new, of_u, of_item, of_item_weighted):
    """Turn the slope of v into the slope of the column sums."""
    for j in range(len(v)):
        slope_sums[j] = 0
        if new[j]:
            slope_sums[j] = -slope_v[j] * v[j] * v[j]
            slope_v[j] = 0
            of_item[j] += slope_sums[j] / v[j]
            of_item_weighted[j] += slope_sums[j] * of_u[j]


@part
def _borders(x, a, cut):
    """Return ``low`` and ``start`` of the band of entries above exp(``cut``) times the diagonal."""
    n = len(x)
    groups = (n + 3) // 4
    low, start = np.zeros(groups, np.int64), np.zeros(groups + 1, np.int64)
    first, end, total, highest = 0, 0, 0, 0
    for r in range(n):
        w = n - 1 - 2 * r
        top = w * x[r] - a[r]
        while first < r and not w * x[first] - a[first] - top > cut:
            first += 1
        end = max(end, r + 1)
        while end < n and w * x[end] - a[end] - top > cut:
            end += 1
        if r % 4 == 0:
            low[r // 4] = highest = first
        if r % 4 == 3 or r == n - 1:
            total += 4 * (end - highest)
            start[r // 4 + 1] = total
    return low, start


@part
def _fill(band, column, weighted):
    """Compute the norms of the rows, the band if it is stored, and the column sums.

    The column sums are computed both plain and weighted by w.
    """
    for g in range(len(band.low)):
        rows = _place(g, band)
        _softmax(g, band, rows)
        for q in range(4):
            total = 0.0
            for k in range(rows.shape[1]):
                total += rows[q, k]
            if total != 0:
                band.norm[4 * g + q] = 1 / total
            for k in range(rows.shape[1]):
                rows[q, k] *= band.norm[4 * g + q]
        _add(g, band, rows, np.ones(len(band.norm)), column, weighted)


@part
def _place(g, band):
    """Return the part of ``band.entries`` for rows 4 ``g`` to 4 ``g`` + 3, ``[4, item]``."""
    begin = band.start[g] if band.whole else 0
    count = band.start[g + 1] - band.start[g]
    return band.entries[begin : begin + count].reshape((4, count // 4))


@part
def _rows(g, band):
    """Return rows 4 ``g`` to 4 ``g`` + 3, ``[4, item]``; compute them if they are not stored."""
    rows = _place(g, band)
    if not band.whole:
        _softmax(g, band, rows)
    return rows


@part
def _softmax(g, band, rows):
    """Write those entries of the four rows from 4 ``g`` on that do not underflow."""
    n, count = len(band.x), rows.shape[1]
    x, a = band.x[band.low[g] : band.low[g] + count], band.a[band.low[g] : band.low[g] + count]
    for q in range(4):
        r = 4 * g + q
        if r >= n:
            rows[q] = 0
            continue
        w = n - 1 - 2 * r
        top = w * band.x[r] - band.a[r]
        for k in range(count):
            # beyond the range of ``exp`` at another row's border, through rounding, or with NaN
            rows[q, k] = band.norm[r] * exp(max(w * x[k] - a[k] - top, -708.0))


@part
def _dots(g, band, rows, weights, sums):
    """Write the products of four rows with ``weights`` to ``sums``."""
    count = rows.shape[1]
    given = weights[band.low[g] : band.low[g] + count]
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for k in range(count):
        w = given[k]
        s0 += rows[0, k] * w
        s1 += rows[1, k] * w
        s2 += rows[2, k] * w
        s3 += rows[3, k] * w
    sums[4 * g], sums[4 * g + 1], sums[4 * g + 2], sums[4 * g + 3] = s0, s1, s2, s3


@part
def _add(g, band, rows, factors, to, weighted):
    """Add four rows times their factors: plain to ``to``, and times w to ``weighted``."""
    count, w = rows.shape[1], len(to) - 1 - 8 * g
    plain = to[band.low[g] : band.low[g] + count]
    by_w = weighted[band.low[g] : band.low[g] + count]
    f0, f1, f2, f3 = factors[4 * g], factors[4 * g + 1], factors[4 * g + 2], factors[4 * g + 3]
    w0, w1, w2, w3 = f0 * w, f1 * (w - 2), f2 * (w - 4), f3 * (w - 6)
    for k in range(count):
        p0, p1, p2, p3 = rows[0, k], rows[1, k], rows[2, k], rows[3, k]
        plain[k] += f0 * p0 + f1 * p1 + f2 * p2 + f3 * p3
        by_w[k] += w0 * p0 + w1 * p1 + w2 * p2 + w3 * p3


@part
def _spread(x, a):
    """Write a_j = sum over i of |x_i - x_j|; equal scores get exactly equal sums."""
    n, total, above, first = len(x), x.sum(), 0.0, 0
    while first < n:
        end, run = first + 1, x[first]
        while end < n and x[end] == x[first]:
            run += x[end]
            end += 1
        a[first:end] = x[first] * (n - end - first) - (total - above - run) + above
        above += run
        first = end


@part
def _add_slope_of_spread(x, slope_a, slope_x):
    n, total, above, first = len(x), slope_a.sum(), 0.0, 0
    while first < n:
        end, run = first + 1, slope_a[first]
        while end < n and x[end] == x[first]:
            run += slope_a[end]
            end += 1
        for j in range(first, end):
            slope_x[j] += slope_a[j] * (n - end - first) + (total - above - run) - above
        above += run
        first = end
