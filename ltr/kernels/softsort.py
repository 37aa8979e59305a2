"""SoftSort-NDCG, computed list by list from running sums in score order, without a matrix.

Items are in descending order of score; x are the scores divided by the temperature. SoftSort is
then P = diag(1 / K 1) K with K[r, j] = exp(-|x_r - x_j|), and its Sinkhorn scaling is
S = diag(u) K diag(v). Entry j of K z is a sum over the items up to j plus a sum over the items
after j. Both follow from the sums of a neighbouring item, so multiplying by K takes time in
proportion to the number of items. The same holds for the gradient. If f has the gradient
X Y^T with respect to K, its derivative with respect to x_i is the sum over j of
sign(j, i) K[i, j] (X_i Y_j + Y_i X_j). The sign is 1 for items j before i, -1 for items after i,
and 0 for equal scores.
"""

import numpy as np

from ltr.kernels.compile import exp, inlined, kernel


@kernel
def softsort_ndcg_lists(
    lists, scores, mask, gain, discount, temperature, max_iter, tol, need_grad, value, grad,
):  # fmt: skip
    """Write ``value`` and ``grad``; for arguments not listed here, see ``ltr.kernels``.

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
        grad_x = np.zeros_like(x)
        value[b] = _softsort_ndcg(x, gain[b][items], discount, max_iter, tol, need_grad, grad_x)
        for j in range(len(items)):
            grad[b, items[j]] = grad_x[j] / temperature


@inlined
def _softsort_ndcg(x, gain, discount, max_iter, tol, need_grad, grad_x):
    """Return the value of one list; write its gradient to ``grad_x``."""
    n = len(x)
    near = np.zeros(n)  # K between each item and the one before it
    for j in range(1, n):
        near[j] = exp(max(x[j] - x[j - 1], -708.0))  # NaN stays NaN
    # Row 0 of u and of v holds the initial values.
    u = np.empty((max_iter + 1, n))
    v = np.ones((max_iter + 1, n))
    sums = np.empty(n)
    last = _scale(near, tol, u, v, sums)

    scaled_gain = v[last] * gain
    d = discount[:n]
    _multiply(near, scaled_gain, sums)
    value = (d * u[last] * sums).sum()
    if not need_grad:
        return value
    grad_u = d * sums
    grad_v = np.empty(n)
    grad_row = d * u[last]
    _multiply(near, grad_row, grad_v)
    grad_v *= gain
    _add_gradient(near, grad_row, scaled_gain, grad_x)
    for i in range(last, 0, -1):
        grad_sums = -grad_u * u[i] * u[i]  # with respect to K v = 1 / u
        _multiply(near, grad_sums, sums)
        grad_v += sums
        _add_gradient(near, grad_sums, v[i], grad_x)
        grad_sums = -grad_v * v[i] * v[i]
        _multiply(near, grad_sums, grad_u)
        _add_gradient(near, grad_sums, u[i - 1], grad_x)
        grad_v[:] = 0
    _add_gradient(near, -grad_u * u[0] * u[0], v[0], grad_x)
    return value


@inlined
def _scale(near, tol, u, v, sums):
    """Write u and v of each iteration of the scaling; return the number of the last iteration."""
    _multiply(near, v[0], sums)
    u[0] = 1 / sums
    last = len(u) - 1
    for i in range(1, len(u)):
        _multiply(near, u[i - 1], sums)
        if i > 1 and np.abs(v[i - 1] * sums - 1).max() < tol:
            last = i - 1
            break
        v[i] = 1 / sums
        _multiply(near, v[i], sums)
        u[i] = 1 / sums
    return last


@inlined
def _multiply(near, z, product):
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


@inlined
def _add_gradient(near, left, right, grad_x):
    """Add the gradient, with respect to x, of the sum over r, j of left_r K[r, j] right_j."""
    for direction in (1, -1):  # the items before, then those after
        gaps = near[1:][::direction]
        x = left[::direction]
        y = right[::direction]
        output = grad_x[::direction]
        x_sum = 0.0
        y_sum = 0.0
        # sums over the items of equal score, which contribute no gradient to each other
        x_tied = 0.0
        y_tied = 0.0
        for j in range(1, len(near)):
            x_tied += x[j - 1]
            y_tied += y[j - 1]
            if gaps[j - 1] < 1:
                x_sum = (x_sum + x_tied) * gaps[j - 1]
                y_sum = (y_sum + y_tied) * gaps[j - 1]
                x_tied = 0.0
                y_tied = 0.0
            output[j] += direction * (x[j] * y_sum + y[j] * x_sum)
