"""NeuralNDCG, computed list by list: value and gradient, without an n x n gradient matrix.

x are the centred scores divided by the temperature. NeuralSort's matrix is P[r, j] = softmax
over j of w_r x_j - a_j, with w_r = n + 1 - 2r and a_j = sum over i of |x_i - x_j|. The soft
permutation is S = diag(u) P diag(v), the softly sorted gains are h = S g, and the value is
f = sum over r of d_r h_r.

Items are in descending order of score, which makes P a band matrix: the entries of each row
decrease on both sides of the diagonal. The columns beyond which they underflow only move to the
right from one row to the next. Four rows are processed together with common borders, which saves
two thirds of the loads and stores; rows that fill up the last group of four are 0.

Every step of the scaling and of its gradient multiplies P by vectors. The gradient G with respect
to P is a sum of outer products X Y^T. The gradients with respect to x and a need only three vectors
that are computed from G, the ``Moments``. One sweep over the rows (``_backward_sweep``) gives the
contribution of one iteration to all three.
"""

from collections import namedtuple

import numpy as np

from ltr.kernels.compile import exp, inlined, kernel

# P in groups of four rows. x, a: for the logits. low: for each group the first item that does not
# underflow. start: where each group begins in ``entries``, and the end. norm: the factor of each
# row. entries: of all rows if ``stored``, else of the current group only.
Band = namedtuple("Band", "x a low start norm entries stored")

# Sums over the rows of P, times a factor for each row. plain: [item]. weighted: with each row
# multiplied by w too, [item].
ColumnSums = namedtuple("ColumnSums", "plain weighted")

# The scaling, [iteration, row or item]; iteration 0 is the initial value. new_u, new_v: whether the
# iteration set the entry. weighted_u: P^T (w u), saved for the column sums that gave v.
Scaling = namedtuple("Scaling", "u v new_u new_v weighted_u")

# Sums of P G (elementwise), G being the gradient with respect to P. row: over the items, [row].
# item: over the rows of each item, [item]. weighted: as ``item``, each row multiplied by w.
Moments = namedtuple("Moments", "row item weighted")


@kernel
def neural_ndcg_lists(
    lists, scores, mask, gain, discount, ranked, temperature, transposed, max_iter, tol, tiny,
    max_stored, need_grad, value, grad,
):  # fmt: skip
    """Write h to ``ranked``, f to ``value``, and the gradient of f to ``grad``.

    For arguments not listed here, see ``ltr.kernels``.

    Args:
        gain: g of each item, ``[batch, list]``. A list whose gains are all 0 is skipped.
        discount: d of each rank, ``[batch, list]``.
        ranked: ``[batch, list]``, written at the ranks of the items.
        temperature: the temperature of NeuralSort.
        transposed: scale the rows first, then the columns.
        max_iter: the maximum number of iterations of the scaling.
        tol: the scaling of a list stops when all sums deviate from one by less than this.
        tiny: the smallest normal number of the scores' dtype; smaller numbers are treated as 0.
        max_stored: the band of P is stored only if it has at most this many entries.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        if not (gain[b][items] != 0).any():
            continue
        list_scores = scores[b][items]
        order = np.argsort(-list_scores, kind="mergesort")
        items = items[order]
        x = (list_scores[order] - list_scores.mean()) / temperature
        a = np.empty_like(x)
        grad_x = np.zeros_like(x)
        grad_a = np.zeros_like(x)
        _write_distances(x, a)
        value[b] = _neural_ndcg(
            x, a, gain[b][items], discount[b], transposed, max_iter, tol, tiny, max_stored,
            need_grad, ranked[b], grad_x, grad_a,
        )  # fmt: skip
        _add_gradient_of_distances(x, grad_a, grad_x)
        for j in range(len(items)):
            grad[b, items[j]] = grad_x[j] / temperature


def neurally_sorted_lists(
    lists, scores, mask, values, temperature, max_iter, tol, tiny, max_stored, weights, backward,
    output,
):  # fmt: skip
    """Write S v to ``output``, where v are the ``values``.

    If ``backward``, write the gradient of the sum of ``weights`` times S v instead.
    """
    unused = np.zeros_like(output)
    if backward:
        discount = weights
        ranked = unused
        grad = output
    else:
        discount = unused
        ranked = output
        grad = unused.copy()
    neural_ndcg_lists(
        lists, scores, mask, values, discount, ranked, temperature, False, max_iter, tol, tiny,
        max_stored, backward, np.zeros(len(scores)), grad,
    )  # fmt: skip


@inlined
def _neural_ndcg(
    x, a, gain, discount, transposed, max_iter, tol, tiny, max_stored, need_grad, ranked, grad_x,
    grad_a,
):  # fmt: skip
    """Return f of one list; write h to ``ranked``, and the gradients to ``grad_x``, ``grad_a``."""
    n = len(x)
    low, start = _borders(x, a, np.log(tiny))
    padded = 4 * len(low)
    stored = start[-1] <= max_stored
    entries = np.empty(start[-1] if stored else 4 * n)
    band = Band(x, a, low, start, np.ones(padded), entries, stored)
    columns = ColumnSums(np.zeros(n), np.zeros(n))
    _fill(band, columns)

    scaling = Scaling(
        np.ones((max_iter + 1, padded)),
        np.ones((max_iter + 1, n)),
        np.zeros((max_iter + 1, padded), np.bool_),
        np.zeros((max_iter + 1, n), np.bool_),
        np.zeros((max_iter + 1, n)),
    )
    row_sums = np.zeros(padded)
    last = _scale(band, scaling, transposed, tol, np.sqrt(tiny), row_sums, columns)

    scaled_gain = scaling.v[last] * gain
    grad_u = np.zeros(padded)
    row_moments = np.zeros(padded)
    value = _value(
        band, scaling.u[last], scaled_gain, discount, need_grad, ranked, grad_u, row_moments,
        row_sums, columns,
    )  # fmt: skip
    if not need_grad:
        return value
    moments = Moments(row_moments, scaled_gain * columns.plain, scaled_gain * columns.weighted)
    grad_v = gain * columns.plain
    _backpropagate(
        band, scaling, last, transposed, grad_u, grad_v, row_sums, columns, moments, grad_x, grad_a
    )
    return value


@inlined
def _value(
    band, u, scaled_gain, discount, need_grad, ranked, grad_u, row_moments, row_sums, columns
):
    """Return f for the last u and v; write h, and the moments of the rows.

    Also write the gradient of f with respect to u to ``grad_u``. If ``need_grad``, write to
    ``columns`` the column sums of P after its rows are multiplied by d u.
    """
    n = len(scaled_gain)
    factors = np.zeros(len(u))
    columns.plain[:] = 0
    columns.weighted[:] = 0
    value = 0.0
    for g in range(len(band.low)):
        rows = _rows(g, band)
        _multiply_rows(g, band, rows, scaled_gain, row_sums)
        for r in range(4 * g, min(4 * g + 4, n)):
            ranked[r] = u[r] * row_sums[r]
            grad_u[r] = discount[r] * row_sums[r]
            factors[r] = discount[r] * u[r]
            row_moments[r] = factors[r] * row_sums[r]
            value += row_moments[r]
        if need_grad:
            _add_rows(g, band, rows, factors, columns)
    return value


@inlined
def _scale(band, scaling, transposed, tol, floor, row_sums, columns):
    """Write u and v of each iteration to ``scaling``; return the number of the last iteration.

    On entry, ``columns`` must hold the column sums of P. A row or column whose sum is at most
    ``floor`` is not scaled.
    """
    u, v, new_u, new_v, weighted_u = scaling
    max_iter = len(u) - 1
    n = v.shape[1]
    last = max_iter
    for i in range(1, max_iter + 1):
        if transposed:
            _forward_sweep(band, v[i - 1], u[i - 1], u[i], new_u[i], floor, row_sums, columns)
            deviation = np.abs(u[i - 1, :n] * row_sums[:n] - 1).max()
        else:
            deviation = np.abs(v[i - 1] * columns.plain - 1).max()
        if i > 1 and deviation < tol:
            last = i - 1
            break
        for j in range(n):
            new_v[i, j] = columns.plain[j] > floor
            v[i, j] = 1 / columns.plain[j] if new_v[i, j] else v[i - 1, j]
            weighted_u[i, j] = columns.weighted[j]
        if not transposed:
            _forward_sweep(band, v[i], u[i - 1], u[i], new_u[i], floor, row_sums, columns)
    return last


@inlined
def _backpropagate(
    band, scaling, last, transposed, grad_u, grad_v, row_sums, columns, moments, grad_x, grad_a
):
    """Write the gradients of f with respect to x and a.

    On entry, ``grad_u`` and ``grad_v`` must be the gradients with respect to the last u and v.
    """
    u, v, new_u, new_v, weighted_u = scaling
    n = v.shape[1]
    grad_columns = np.zeros(n)  # gradient with respect to the column sums of the iteration
    for i in range(last, 0, -1):
        if transposed:
            _through_columns(grad_columns, grad_v, v[i], new_v[i], weighted_u[i], moments)
        _backward_sweep(band, grad_columns, grad_u, u[i], new_u[i], moments.row, columns)
        earlier_v = v[i - 1] if transposed else v[i]
        for j in range(n):
            grad_v[j] += columns.plain[j]
            moments.item[j] += earlier_v[j] * columns.plain[j]
            moments.weighted[j] += earlier_v[j] * columns.weighted[j]
        if not transposed:
            _through_columns(grad_columns, grad_v, v[i], new_v[i], weighted_u[i], moments)

    columns.plain[:] = 0
    columns.weighted[:] = 0
    for g in range(len(band.low)):
        rows = _rows(g, band)
        if not transposed:
            _multiply_rows(g, band, rows, grad_columns, row_sums)
            moments.row[4 * g : 4 * g + 4] += row_sums[4 * g : 4 * g + 4]
        _add_rows(g, band, rows, moments.row, columns)
    for j in range(n):
        grad_x[j] = moments.weighted[j] - columns.weighted[j]
        grad_a[j] = columns.plain[j] - moments.item[j]


@inlined
def _forward_sweep(band, v, u, next_u, new, floor, row_sums, columns):
    """Compute the row sums P v, then the next u from them, then the column sums with the next u.

    ``row_sums`` gets P v. Where a row sum is above ``floor``, ``next_u`` gets 1 / the row sum, and
    ``new`` gets True; elsewhere ``next_u`` gets ``u``. ``columns`` gets P^T u and P^T (w u) for the
    next u.
    """
    columns.plain[:] = 0
    columns.weighted[:] = 0
    for g in range(len(band.low)):
        rows = _rows(g, band)
        _multiply_rows(g, band, rows, v, row_sums)
        for r in range(4 * g, min(4 * g + 4, len(v))):
            new[r] = row_sums[r] > floor
            next_u[r] = 1 / row_sums[r] if new[r] else u[r]
        _add_rows(g, band, rows, next_u, columns)


@inlined
def _backward_sweep(band, grad_columns, grad_u, u, new, row_moments, columns):
    """Propagate the gradient from the column sums, which ``u`` scales, to the row sums.

    The row sums are those from which ``u`` was computed.
    """
    columns.plain[:] = 0
    columns.weighted[:] = 0
    row_sums = np.empty(len(u))
    factors = np.zeros(len(u))
    for g in range(len(band.low)):
        rows = _rows(g, band)
        _multiply_rows(g, band, rows, grad_columns, row_sums)
        for r in range(4 * g, 4 * g + 4):
            row_moments[r] += u[r] * row_sums[r]
            grad_u[r] += row_sums[r]
            if new[r]:  # u = 1 / sum, so the sum is 1 / u
                factors[r] = -grad_u[r] * u[r] * u[r]
                grad_u[r] = 0
                row_moments[r] += factors[r] / u[r]
        _add_rows(g, band, rows, factors, columns)


@inlined
def _through_columns(grad_columns, grad_v, v, new, weighted_u, moments):
    """Propagate the gradient from v to the column sums from which v was computed."""
    for j in range(len(v)):
        grad_columns[j] = 0
        if new[j]:
            grad_columns[j] = -grad_v[j] * v[j] * v[j]
            grad_v[j] = 0
            moments.item[j] += grad_columns[j] / v[j]
            moments.weighted[j] += grad_columns[j] * weighted_u[j]


@inlined
def _borders(x, a, cut):
    """Return ``low`` and ``start`` of the band.

    The band holds the entries that exceed exp(``cut``) times the diagonal entry of their row.
    """
    n = len(x)
    groups = (n + 3) // 4
    low = np.zeros(groups, np.int64)
    start = np.zeros(groups + 1, np.int64)
    first = 0
    end = 0
    total = 0
    lowest = 0
    for r in range(n):
        w = n - 1 - 2 * r
        top = w * x[r] - a[r]
        while first < r and not w * x[first] - a[first] - top > cut:
            first += 1
        end = max(end, r + 1)
        while end < n and w * x[end] - a[end] - top > cut:
            end += 1
        if r % 4 == 0:
            lowest = first
            low[r // 4] = first
        if r % 4 == 3 or r == n - 1:
            total += 4 * (end - lowest)
            start[r // 4 + 1] = total
    return low, start


@inlined
def _fill(band, columns):
    """Compute the norms of the rows, the band if it is stored, and the column sums."""
    for g in range(len(band.low)):
        rows = _entries(g, band)
        _write_softmax(g, band, rows)
        for q in range(4):
            total = 0.0
            for k in range(rows.shape[1]):
                total += rows[q, k]
            if total != 0:
                band.norm[4 * g + q] = 1 / total
            for k in range(rows.shape[1]):
                rows[q, k] *= band.norm[4 * g + q]
        _add_rows(g, band, rows, np.ones(len(band.norm)), columns)


@inlined
def _entries(g, band):
    """Return the part of ``band.entries`` for rows 4 ``g`` to 4 ``g`` + 3, ``[4, item]``."""
    begin = band.start[g] if band.stored else 0
    count = band.start[g + 1] - band.start[g]
    return band.entries[begin : begin + count].reshape((4, count // 4))


@inlined
def _rows(g, band):
    """Return rows 4 ``g`` to 4 ``g`` + 3, ``[4, item]``; compute them if they are not stored."""
    rows = _entries(g, band)
    if not band.stored:
        _write_softmax(g, band, rows)
    return rows


@inlined
def _write_softmax(g, band, rows):
    """Write the entries of rows 4 ``g`` to 4 ``g`` + 3 that do not underflow."""
    n = len(band.x)
    count = rows.shape[1]
    x = band.x[band.low[g] : band.low[g] + count]
    a = band.a[band.low[g] : band.low[g] + count]
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


@inlined
def _multiply_rows(g, band, rows, vector, row_sums):
    """Multiply four rows by ``vector``, and write the products to ``row_sums``."""
    count = rows.shape[1]
    column = vector[band.low[g] : band.low[g] + count]
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    for k in range(count):
        c = column[k]
        s0 += rows[0, k] * c
        s1 += rows[1, k] * c
        s2 += rows[2, k] * c
        s3 += rows[3, k] * c
    row_sums[4 * g] = s0
    row_sums[4 * g + 1] = s1
    row_sums[4 * g + 2] = s2
    row_sums[4 * g + 3] = s3


@inlined
def _add_rows(g, band, rows, factors, columns):
    """Add four rows times their factors to ``columns``."""
    count = rows.shape[1]
    w = len(columns.plain) - 1 - 8 * g
    plain = columns.plain[band.low[g] : band.low[g] + count]
    weighted = columns.weighted[band.low[g] : band.low[g] + count]
    f0 = factors[4 * g]
    f1 = factors[4 * g + 1]
    f2 = factors[4 * g + 2]
    f3 = factors[4 * g + 3]
    w0 = f0 * w
    w1 = f1 * (w - 2)
    w2 = f2 * (w - 4)
    w3 = f3 * (w - 6)
    for k in range(count):
        p0 = rows[0, k]
        p1 = rows[1, k]
        p2 = rows[2, k]
        p3 = rows[3, k]
        plain[k] += f0 * p0 + f1 * p1 + f2 * p2 + f3 * p3
        weighted[k] += w0 * p0 + w1 * p1 + w2 * p2 + w3 * p3


@inlined
def _write_distances(x, a):
    """Write a_j = sum over i of |x_i - x_j|; equal scores get exactly equal sums."""
    n = len(x)
    total = x.sum()
    above = 0.0
    first = 0
    while first < n:
        end = first + 1
        tied = x[first]
        while end < n and x[end] == x[first]:
            tied += x[end]
            end += 1
        a[first:end] = x[first] * (n - end - first) - (total - above - tied) + above
        above += tied
        first = end


@inlined
def _add_gradient_of_distances(x, grad_a, grad_x):
    n = len(x)
    total = grad_a.sum()
    above = 0.0
    first = 0
    while first < n:
        end = first + 1
        tied = grad_a[first]
        while end < n and x[end] == x[first]:
            tied += grad_a[end]
            end += 1
        for j in range(first, end):
            grad_x[j] += grad_a[j] * (n - end - first) + (total - above - tied) - above
        above += tied
        first = end
