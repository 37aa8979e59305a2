"""SoftSort-NDCG of one list after the other, by running sums along the order, without any matrix.

Items are in descending order of score; x are the scores divided by the temperature. SoftSort is
then P = diag(1 / K 1) K with K[r, j] = exp(-|x_r - x_j|), and its Sinkhorn scaling is
S = diag(u) K diag(v). The product K z consists of a sum over the items before and a sum over the
items after each item. Each sum follows from the neighbour's sum, so that multiplying with K takes
time in proportion to the number of items. The same holds for the slope: if f has the slope X Y^T
with respect to K, then x_i gets the sum over j of sign(j, i) K[i, j] (X_i Y_j + Y_i X_j). The sign
is 1 for items before i, -1 for items after i, and 0 for equal scores.
"""

import numpy as np

from ltr.kernels.compile import exp, kernel, part


@kernel
def softsort_ndcg_lists(
    lists, scores, mask, gain, discount, temperature, max_iter, tol, wanted, value, slope,
):  # fmt: skip
    """Write ``value`` and ``slope``; for the arguments not listed here see ``ltr.kernels``.

    The value is the sum over r, j of d_r S[r, j] g_j.

    Args:
        gain: g of each item, ``[batch, list]``. A list whose gains are all 0 is skipped.
        discount: d of each rank, ``[list]``.
        temperature: the temperature of SoftSort.
        max_iter, tol: the scaling stops after ``max_iter`` iterations, or as soon as every column
            sum deviates from one by less than ``tol``.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        if not (gain[b][items] != 0).any():
            continue
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        x = scores[b][items] / temperature
        found = np.zeros_like(x)
        value[b] = _sorted_list(x, gain[b][items], discount, max_iter, tol, wanted, found)
        for j in range(len(items)):
            slope[b, items[j]] = found[j] / temperature


@part
def _sorted_list(x, gain, discount, max_iter, tol, wanted, slope):
    """Return the value; write its slopes with respect to x."""
    n, most, last = len(x), max_iter + 1, max_iter
    near = np.zeros(n)  # K of each item and the one before it
    for j in range(1, n):
        near[j] = exp(max(x[j] - x[j - 1], -708.0))  # NaN stays NaN
    u, v, sums = np.empty((most, n)), np.ones((most, n)), np.empty(n)
    _times(near, v[0], sums)
    u[0] = 1 / sums
    for i in range(1, most):
        _times(near, u[i - 1], sums)
        if i > 1 and np.abs(v[i - 1] * sums - 1).max() < tol:
            last = i - 1
            break
        v[i] = 1 / sums
        _times(near, v[i], sums)
        u[i] = 1 / sums

    gained, d, slope_v = v[last] * gain, discount[:n], np.empty(n)
    _times(near, gained, sums)
    value = (d * u[last] * sums).sum()
    if not wanted:
        return value
    slope_u, of_gained = d * sums, d * u[last]
    _times(near, of_gained, slope_v)
    slope_v *= gain
    _add_slope(near, of_gained, gained, slope)
    for i in range(last, 0, -1):
        of_sums = -slope_u * u[i] * u[i]  # with respect to K v = 1 / u
        _times(near, of_sums, sums)
        slope_v += sums
        _add_slope(near, of_sums, v[i], slope)
        of_sums = -slope_v * v[i] * v[i]
        _times(near, of_sums, slope_u)
        _add_slope(near, of_sums, u[i - 1], slope)
        slope_v[:] = 0
    _add_slope(near, -slope_u * u[0] * u[0], v[0], slope)
    return value


@part
def _times(near, z, product):
    """Write K z to ``product``."""
    n = len(z)
    total = 0.0
    for j in range(n):
        total = total * near[j] + z[j]
        product[j] = total
    total = 0.0
    for j in range(n - 2, -1, -1):
        total = (total + z[j + 1]) * near[j + 1]
        product[j] += total


@part
def _add_slope(near, left, right, slope):
    """Add the slopes, with respect to x, of the sum over r, j of left_r K[r, j] right_j."""
    for turn in (1, -1):  # the items before, then those after
        gaps, x, y, found = near[1:][::turn], left[::turn], right[::turn], slope[::turn]
        of_x, of_y, equal_x, equal_y = 0.0, 0.0, 0.0, 0.0
        for j in range(1, len(near)):
            equal_x, equal_y = equal_x + x[j - 1], equal_y + y[j - 1]
            if gaps[j - 1] < 1:  # equal scores neither pull nor push
                of_x, of_y = (of_x + equal_x) * gaps[j - 1], (of_y + equal_y) * gaps[j - 1]
                equal_x, equal_y = 0.0, 0.0
            found[j] += turn * (x[j] * of_y + y[j] * of_x)
