"""The worst ranking for the structured hinge of average precision, in the memory of its items."""

import numpy as np

from ltr.kernels.compile import kernel


@kernel
def hinge_map_lists(lists, scores, mask, relevant, wanted, value, slope):
    """Write ``value`` and ``slope`` of ``lists``; the package describes the other arguments.

    In descending order of score, for each item j that is not relevant: the largest sum over i >= p
    of w_ij, p any relevant item or none, w_ij the gain of putting j in front of the relevant i.

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
        passed = np.zeros(n)  # how many of the others go in front of i, but not of i - 1
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
