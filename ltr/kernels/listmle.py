"""ListMLE of one list after the other, along the order of its labels."""

import numpy as np

from ltr.kernels.compile import exp, kernel, part

_FAR = 600.0  # scores further apart than this would underflow in a sum of exponentials


@kernel
def listmle_lists(lists, scores, mask, order, of_rank, wanted, value, slope):
    """Write ``value`` and ``slope`` of ``lists``; the package describes the other arguments.

    Sum over ranks r of w_r (log(sum over q >= r of exp(s_q)) - s_r).

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
    """The same, every exponential less the largest one left, so that no digits are lost."""
    n = len(s)
    top, left, high, total = np.empty(n), np.empty(n), s[n - 1], 0.0
    logs, gaps = 0.0, 0.0  # apart, as sums may be taken in any order
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
