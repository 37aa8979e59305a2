"""Sums over pairs of items of a list, and their gradients.

Memory is needed only for the pairs of one item. The items of a list are sorted by descending label.
The partners j of an item i, those with y_i > y_j, are then all items from the next lower grade on,
so no other pair is visited. All numbers are float64.
"""

from collections import namedtuple

import numpy as np

from ltr.kernels.compile import exp, inlined, kernel, log1p

LOGISTIC, HINGE, SQUARED_HINGE, EXPONENTIAL = range(4)
ALL, ANY, BOTH = range(3)

# The items of one list. s: scores. next_grade: see ``_next_grade``. The others: see ``pair_lists``.
Items = namedtuple("Items", "s next_grade base gain discount rank top")


@kernel
def pair_lists(
    lists, scores, labels, mask, base, gain, discount, rank, top, steps, factors, counted, ordered,
    cost, sigma, linear_from, need_grad, value, grad,
):  # fmt: skip
    """Write ``value`` and ``grad``; for arguments not listed here, see ``ltr.kernels``.

    The value is the sum over pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), with w_ij = b_i +
    |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)). Only the logistic cost uses sigma.

    Args:
        base, gain, discount, rank: b, g, d and r of each item, ``[batch, list]``.
        top: ``[batch, list]``, True if the item is ranked in the top k.
        steps: step at the distances 1, 2, ..., ``[list]``.
        factors: c, c_d and c_s.
        counted: which pairs count: ``ALL``, those with at least one item in the top k (``ANY``), or
            those with ``BOTH`` items in it.
        ordered: if False, each i in the top k is paired with all j != i, whatever their labels.
        cost: ``LOGISTIC``, ``HINGE``, ``SQUARED_HINGE`` or ``EXPONENTIAL``.
        sigma: > 0.
        linear_from: the difference s_j - s_i beyond which the exponential cost continues as its
            tangent.
    """
    for b in lists:
        indices = np.nonzero(mask[b])[0]
        indices = indices[np.argsort(-labels[b][indices], kind="mergesort")]
        items = Items(
            scores[b][indices], _next_grade(labels[b][indices]), base[b][indices], gain[b][indices],
            discount[b][indices], rank[b][indices], top[b][indices],
        )  # fmt: skip
        value[b] = _sum_over_pairs(
            items, steps, factors, counted, ordered, cost, sigma, linear_from, need_grad, indices,
            grad[b],
        )  # fmt: skip


@inlined
def _next_grade(y):
    """Return, for each item in descending order of label, the next one with a lower label."""
    n = len(y)
    lower = np.full(n, n)
    for i in range(n - 2, -1, -1):
        lower[i] = i + 1 if y[i] > y[i + 1] else lower[i + 1]
    return lower


@inlined
def _sum_over_pairs(
    items, steps, factors, counted, ordered, cost, sigma, linear_from, need_grad, indices, grad,
):  # fmt: skip
    """Return the value of one list; write its gradient to ``grad`` at ``indices``."""
    s = items.s
    top = items.top
    n = len(s)
    row_weights = np.empty(n)
    row_grads = np.empty(n)
    grad_s = np.zeros(n)
    value = 0.0
    for i in range(n):
        first = items.next_grade[i] if ordered or not top[i] else 0
        if first == n or (counted == BOTH and not top[i]):
            continue
        weights = row_weights[first:]
        _write_weights(weights, items, i, first, steps, factors)
        if counted == BOTH or (counted == ANY and not top[i]):
            for j in range(len(weights)):
                weights[j] *= top[first + j]
        if first <= i:
            weights[i - first] = 0.0  # an item is not paired with itself
        grad_difference = row_grads[first:]
        value += _sum_costs(cost, weights, s[i], s[first:], sigma, linear_from, grad_difference)
        if need_grad:
            total = 0.0
            grad_lower = grad_s[first:]
            for j in range(len(grad_difference)):
                total += grad_difference[j]
                grad_lower[j] -= grad_difference[j]
            grad_s[i] += total
    if need_grad:
        for i in range(n):
            grad[indices[i]] = grad_s[i]
    return value


@inlined
def _write_weights(weights, items, i, first, steps, factors):
    """Write w_ij of item i and each item from ``first`` on."""
    constant, discount_factor, step_factor = factors
    base = items.base[i]
    gain = items.gain[i]
    discount = items.discount[i]
    rank = items.rank[i]
    gains = items.gain[first:]
    discounts = items.discount[first:]
    ranks = items.rank[first:]
    if constant == 0 and discount_factor == 0 and step_factor == 0:
        weights[:] = base
    elif step_factor == 0:
        for j in range(len(weights)):
            change = constant + discount_factor * abs(discount - discounts[j])
            weights[j] = base + abs(gain - gains[j]) * change
    else:
        for j in range(len(weights)):
            step = step_factor * steps[abs(rank - ranks[j]) - 1]
            change = constant + discount_factor * abs(discount - discounts[j]) + step
            weights[j] = base + abs(gain - gains[j]) * change


@inlined
def _sum_costs(cost, weights, s, lower, sigma, linear_from, grad_difference):
    """Return the sum of w cost(s - lower); write its gradient with respect to s - lower."""
    if cost == LOGISTIC:
        return _logistic(weights, s, lower, sigma, grad_difference)
    if cost == EXPONENTIAL:
        return _exponential(weights, s, lower, linear_from, grad_difference)
    return _hinge(weights, s, lower, cost == SQUARED_HINGE, grad_difference)


@inlined
def _logistic(weights, s, lower, sigma, grad_difference):
    """Return the sum of w log(1 + exp(-z)), where z = sigma (s - lower).

    Write to ``grad_difference`` the gradient with respect to s - lower.
    """
    value = 0.0
    for j in range(len(weights)):
        z = sigma * (s - lower[j])
        far = abs(z)
        e = exp(-min(far, 708.0))
        e = 0.0 if far > 708.0 else e
        inverse = 1 / (1 + e)
        value += weights[j] * (log1p(e) - min(z, 0.0))
        grad_difference[j] = -sigma * weights[j] * (e * inverse if z > 0 else inverse)
    return value


@inlined
def _hinge(weights, s, lower, squared, grad_difference):
    """Return the sum of w max(0, 1 - (s - lower)), with the maximum squared if ``squared``.

    Write to ``grad_difference`` the gradient with respect to s - lower.
    """
    value = 0.0
    for j in range(len(weights)):
        shortfall = 1 - (s - lower[j])
        satisfied = shortfall < 0
        cost = 0.0 if satisfied else shortfall
        value += weights[j] * (cost * cost if squared else cost)
        if satisfied:
            grad_difference[j] = 0.0
        else:
            grad_difference[j] = -weights[j] * (2 * cost if squared else 1.0)
    return value


@inlined
def _exponential(weights, s, lower, linear_from, grad_difference):
    """Return the sum of w exp(lower - s), which continues linearly beyond ``linear_from``.

    Write to ``grad_difference`` the gradient with respect to s - lower.
    """
    value = 0.0
    for j in range(len(weights)):
        wrong_by = lower[j] - s
        e = weights[j] * exp(max(min(wrong_by, linear_from), -708.0))
        value += e * (1 - min(linear_from - wrong_by, 0.0))
        grad_difference[j] = -e
    return value
