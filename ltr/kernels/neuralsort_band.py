"""NeuralSort's matrix as a band, four rows at a time, and its logits' parts.

P[r, j] = softmax over j of w_r x_j - a_j, w_r = n + 1 - 2r, a_j = sum over i of |x_i - x_j|. Items
stand in descending order of score, which makes P a band: with e_m = x_m - x_(m+1) >= 0 the logit of
item j > r at rank r is that of item r less the sum over m from r to j - 1 of (2 (m - r) + 1) e_m,
and likewise above. So each row falls off on both sides of the diagonal, and the borders beyond
which it underflows only move down. Four rows share their borders, which saves two thirds of the
loads and stores; the rows that fill up the last four are 0.
"""

import numpy as np

from ltr.kernels.compile import Places, Vector, exp, part


@part
def borders(x: Vector, a: Vector, cut: float) -> tuple[Places, Places]:
    """The first item of each four rows that does not underflow, and their start in the band.

    Places are unsigned: Numba then skips the test for indices that count from the end.
    """
    n = len(x)
    groups = (n + 3) // 4
    low, start = np.zeros(groups, np.uint64), np.zeros(groups + 1, np.uint64)
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
def fill(
    x: Vector,
    a: Vector,
    low: Places,
    start: Places,
    norm: Vector,
    band: Vector,
    whole: bool,
    column: Vector,
    weighted: Vector,
) -> None:
    """Norms of the rows; the band, if it is kept; column sums, plain and weighted by w."""
    ones = np.ones(len(norm))
    for g in range(len(low)):
        at, count = start[g] if whole else np.uint64(0), (start[g + 1] - start[g]) // np.uint64(4)
        _softmax_rows(g, x, a, low[g], norm, band, at, count)
        for q in range(4):
            row, total = at + np.uint64(q) * count, 0.0
            for k in range(count):
                total += band[row + k]
            if total != 0:
                norm[4 * g + q] = 1 / total
            for k in range(count):
                band[row + k] *= norm[4 * g + q]
        add(g, band, at, ones, column, weighted, low, start)


@part
def _softmax_rows(
    g: int, x: Vector, a: Vector, first: int, norm: Vector, band: Vector, at: int, count: int
) -> None:
    """Write the entries that do not underflow of the rows from 4 ``g`` on into ``band``."""
    n = len(x)
    for q in range(4):
        r = 4 * g + q
        row = at + np.uint64(q) * count
        if r >= n:
            for k in range(count):
                band[row + k] = 0
            continue
        w = n - 1 - 2 * r
        top = w * x[r] - a[r]
        for k in range(count):
            # beyond the range of ``exp`` at the border of another row, or through rounding or NaN
            logit = w * x[first + k] - a[first + k] - top
            band[row + k] = norm[r] * exp(max(logit, -708.0))


@part
def rows_at(
    g: int,
    x: Vector,
    a: Vector,
    low: Places,
    start: Places,
    norm: Vector,
    band: Vector,
    whole: bool,
) -> np.uint64:
    """The place of the rows from 4 ``g`` on in ``band``; recomputed if only four are kept."""
    if whole:
        return start[g]
    count = (start[g + 1] - start[g]) // np.uint64(4)
    _softmax_rows(g, x, a, low[g], norm, band, np.uint64(0), count)
    return np.uint64(0)


@part
def dots(
    g: int, p: Vector, at: int, weights: Vector, low: Places, start: Places, sums: Vector
) -> None:
    """Products of four rows with ``weights``."""
    first, count = low[g], (start[g + 1] - start[g]) // np.uint64(4)
    one = at + count
    two = one + count
    three = two + count
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for k in range(count):
        w = weights[first + k]
        s0 += p[at + k] * w
        s1 += p[one + k] * w
        s2 += p[two + k] * w
        s3 += p[three + k] * w
    sums[4 * g], sums[4 * g + 1], sums[4 * g + 2], sums[4 * g + 3] = s0, s1, s2, s3


@part
def add(
    g: int,
    p: Vector,
    at: int,
    factors: Vector,
    to: Vector,
    weighted: Vector,
    low: Places,
    start: Places,
) -> None:
    """Add four rows times their factors, plain and weighted by w."""
    first, count = low[g], (start[g + 1] - start[g]) // np.uint64(4)
    one = at + count
    two = one + count
    three = two + count
    f0, f1, f2, f3 = factors[4 * g], factors[4 * g + 1], factors[4 * g + 2], factors[4 * g + 3]
    w = len(to) - 1 - 8 * g
    w0, w1, w2, w3 = f0 * w, f1 * (w - 2), f2 * (w - 4), f3 * (w - 6)
    for k in range(count):
        p0, p1, p2, p3 = p[at + k], p[one + k], p[two + k], p[three + k]
        to[first + k] += f0 * p0 + f1 * p1 + f2 * p2 + f3 * p3
        weighted[first + k] += w0 * p0 + w1 * p1 + w2 * p2 + w3 * p3


@part
def spread(x: Vector, a: Vector) -> None:
    """a_j = sum over i of |x_i - x_j|, by runs of equal scores, which get equal sums."""
    n, total, above = len(x), x.sum(), 0.0
    first = 0
    while first < n:
        end = first + 1
        run = x[first]
        while end < n and x[end] == x[first]:
            run += x[end]
            end += 1
        a[first:end] = x[first] * (n - end - first) - (total - above - run) + above
        above += run
        first = end


@part
def add_slope_of_spread(x: Vector, slope_a: Vector, slope_x: Vector) -> None:
    n, total, above = len(x), slope_a.sum(), 0.0
    first = 0
    while first < n:
        end = first + 1
        run = slope_a[first]
        while end < n and x[end] == x[first]:
            run += slope_a[end]
            end += 1
        for j in range(first, end):
            slope_x[j] += slope_a[j] * (n - end - first) + (total - above - run) - above
        above += run
        first = end
