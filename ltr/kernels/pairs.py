"""Sums over pairs of a list's items, and their slopes, with memory for one row of pairs only.

The items of a list are sorted by descending label. Then the partners of an item in pairs y_i > y_j
are all items from the next lower grade on, and no other pair is visited. Everything is float64.
"""

import numpy as np

from ltr.kernels.compile import exp, kernel, log1p, part

LOGISTIC, HINGE, SQUARED_HINGE, EXPONENTIAL = range(4)
ALL, ANY, BOTH = range(3)


@kernel
def pair_lists(
    lists, scores, labels, mask, own, gain, discount, ranks, top, steps, factors, counted, ordered,
    cost, sigma, linear_from, wanted, value, slope,
):  # fmt: skip
    """Write ``value`` and ``slope``; for the arguments not listed here see ``ltr.kernels``.

    The value is the sum over pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), with w_ij = own_i +
    |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)). Only the logistic cost uses sigma.

    Args:
        own, gain, discount, ranks: own, g, d and r of each item, ``[batch, list]``.
        top: ``[batch, list]``, True if the item is ranked in the top k.
        steps: step at the distances 1, 2, ..., ``[list]``.
        factors: c, c_d and c_s.
        counted: which pairs count: ``ALL``, or those with ``ANY`` or ``BOTH`` items in the top k.
        ordered: False: for each i in the top k, sum over all j != i, whatever their labels.
        cost: ``LOGISTIC``, ``HINGE``, ``SQUARED_HINGE`` or ``EXPONENTIAL``.
        sigma: > 0.
        linear_from: the difference s_j - s_i beyond which the exponential cost continues as its
            tangent.
    """
    for i in lists:
        items = np.nonzero(mask[i])[0]
        items = items[np.argsort(-labels[i][items], kind="mergesort")]
        y = labels[i][items]
        value[i] = _one_list(
            scores[i][items], _next_grade(y), own[i][items], gain[i][items], discount[i][items],
            ranks[i][items], top[i][items], steps, factors, counted, ordered, cost, sigma,
            linear_from, wanted, items, slope[i],
        )  # fmt: skip


@part
def _next_grade(y):
    """Return for each item, in descending order of label, the first one with a lower label."""
    n = len(y)
    lower = np.full(n, n)
    for i in range(n - 2, -1, -1):
        lower[i] = i + 1 if y[i] > y[i + 1] else lower[i + 1]
    return lower


@part
def _one_list(
    s, lower, own, gain, discount, ranks, top, steps, factors, counted, ordered, cost, sigma,
    linear_from, wanted, items, slope,
):  # fmt: skip
    n = len(s)
    weights, pushes, slopes = np.empty(n), np.empty(n), np.zeros(n)
    value = 0.0
    for i in range(n):
        first = lower[i] if ordered or not top[i] else 0
        if first == n or (counted == BOTH and not top[i]):
            continue
        w, push = weights[first:], pushes[first:]
        _weigh(
            w, own[i], gain[i], discount[i], ranks[i], gain[first:], discount[first:],
            ranks[first:], steps, factors,
        )  # fmt: skip
        if counted == BOTH or (counted == ANY and not top[i]):
            for j in range(len(w)):
                w[j] *= top[first + j]
        if first <= i:
            w[i - first] = 0.0  # an item is not paired with itself
        if cost == LOGISTIC:
            value += _logistic(w, s[i], s[first:], sigma, push)
        elif cost == EXPONENTIAL:
            value += _exponential(w, s[i], s[first:], linear_from, push)
        else:
            value += _hinge(w, s[i], s[first:], cost == SQUARED_HINGE, push)
        if wanted:
            total, behind = 0.0, slopes[first:]
            for j in range(len(push)):
                total += push[j]
                behind[j] -= push[j]
            slopes[i] += total
    if wanted:
        for i in range(n):
            slope[items[i]] = slopes[i]
    return value


@part
def _weigh(w, own, gain, discount, rank, gains, discounts, ranks, steps, factors):
    constant, of_discount, of_step = factors
    if constant == 0 and of_discount == 0 and of_step == 0:
        w[:] = own
    elif of_step == 0:
        for j in range(len(w)):
            change = constant + of_discount * abs(discount - discounts[j])
            w[j] = own + abs(gain - gains[j]) * change
    else:
        for j in range(len(w)):
            step = of_step * steps[abs(rank - ranks[j]) - 1]
            change = constant + of_discount * abs(discount - discounts[j]) + step
            w[j] = own + abs(gain - gains[j]) * change


@part
def _logistic(w, s, others, sigma, push):
    """Return the sum of w log(1 + exp(-z)), z = sigma (s - others).

    Write to ``push`` the slope with respect to s - others.
    """
    value = 0.0
    for j in range(len(w)):
        z = sigma * (s - others[j])
        far = abs(z)
        e = exp(-min(far, 708.0))
        e = 0.0 if far > 708.0 else e
        lower = 1 / (1 + e)
        value += w[j] * (log1p(e) - min(z, 0.0))
        push[j] = -sigma * w[j] * (e * lower if z > 0 else lower)
    return value


@part
def _hinge(w, s, others, squared, push):
    """Return the sum of w max(0, 1 - (s - others)), with the maximum squared if ``squared``.

    Write to ``push`` the slope with respect to s - others.
    """
    value = 0.0
    for j in range(len(w)):
        short = 1 - (s - others[j])
        inside = short < 0
        cost = 0.0 if inside else short
        value += w[j] * (cost * cost if squared else cost)
        push[j] = 0.0 if inside else -w[j] * (2 * cost if squared else 1.0)
    return value


@part
def _exponential(w, s, others, linear_from, push):
    """Return the sum of w exp(others - s), linear beyond ``linear_from``; write ``push``."""
    value = 0.0
    for j in range(len(w)):
        wrong_by = others[j] - s
        e = w[j] * exp(max(min(wrong_by, linear_from), -708.0))
        value += e * (1 - min(linear_from - wrong_by, 0.0))
        push[j] = -e
    return value
