"""Kernels for ListMLE and for the worst ranking of SVM-MAP, one list after the other."""

import numpy as np

from ltr.kernels.compile import exp, kernel, part

_FAR = 600.0  # with scores further apart, terms of a sum of exponentials would underflow


@kernel
def listmle_lists(lists, scores, mask, order, of_rank, wanted, value, slope):
    """Write ``value`` and ``slope`` of ListMLE; for other arguments see ``ltr.kernels``.

    The value is the sum over ranks r of w_r (log(sum over q >= r of exp(s_q)) - s_r).

    Args:
        order: the item at each rank, ``[batch, list]``; padding comes last.
        of_rank: w >= 0, ``[batch, list]``.
    """
    for b in lists:
        n = mask[b].sum()
        if n == 0:
            continue
        s, w = scores[b][order[b, :n]], of_rank[b]
        high = s.max()
        if high - s.min() < _FAR:
            value[b], found = _near(s, w, high)
        else:
            value[b], found = _far(s, w)
        for r in range(n):
            slope[b, order[b, r]] = found[r]


@part
def _near(s, w, high):
    n = len(s)
    powers, left = np.empty(n), np.empty(n)
    for r in range(n):
        powers[r] = exp(s[r] - high)
    total = value = 0.0
    for r in range(n - 1, -1, -1):
        total += powers[r]
        left[r] = total
        value += w[r] * (np.log(total) + high - s[r])
    slope, total = np.empty(n), 0.0
    for r in range(n):
        total += w[r] / left[r]
        slope[r] = powers[r] * total - w[r]
    return value, slope


@part
def _far(s, w):
    """Compute what ``_near`` computes, for scores that are far apart.

    Each sum of exponentials is relative to its largest term, so that no digits are lost.
    """
    n = len(s)
    top, left, high, total = np.empty(n), np.empty(n), s[n - 1], 0.0
    logs, gaps = 0.0, 0.0  # apart, as the compiler may reorder sums
    for r in range(n - 1, -1, -1):
        if s[r] > high:
            total *= np.exp(high - s[r])
            high = s[r]
        total += np.exp(s[r] - high)
        top[r], left[r] = high, total
        logs += w[r] * np.log(total)
        gaps += w[r] * (high - s[r])
    slope, total = np.empty(n), 0.0
    for r in range(n):
        if r > 0:
            total *= np.exp(top[r] - top[r - 1])
        total += w[r] / left[r]
        slope[r] = np.exp(s[r] - top[r]) * total - w[r]
    return logs + gaps, slope


@kernel
def hinge_map_lists(lists, scores, mask, relevant, wanted, value, slope):
    """Write ``value`` and ``slope`` of SVM-MAP; for other arguments see ``ltr.kernels``.

    Relevant items i and other items j are both in descending order of score. w_ij is the gain from
    moving j in front of i. The value is the sum over j of the largest sum over i >= p of w_ij,
    where p is any relevant item, or none, which gives 0.

    Args:
        relevant: ``[batch, list]``, False on padding.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        good, other = items[relevant[b][items]], items[~relevant[b][items]]
        n, m = len(good), len(other)
        if n == 0 or m == 0:
            continue
        s, per_pair = scores[b], 2.0 / (n * m)
        passed = np.zeros(n)  # how many others move in front of i, but not of i - 1
        for j in range(m):
            total, best, first = 0.0, 0.0, n
            for i in range(n - 1, -1, -1):
                lost = (i + 1.0) / ((i + j + 2.0) * (i + j + 1.0) * n)
                total += lost - per_pair * (s[good[i]] - s[other[j]])
                if not total <= best:  # NaN stays NaN
                    best, first = total, i
            value[b] += best
            if first < n:
                passed[first] += 1
            slope[b, other[j]] = per_pair * (n - first)
        in_front = 0.0
        for i in range(n):
            in_front += passed[i]
            slope[b, good[i]] = -per_pair * in_front
