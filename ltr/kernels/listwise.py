"""Kernels for ListMLE and for the worst rankings of SVM-MAP and SVM-NDCG, list by list."""

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


@kernel
def worst_ndcg_lists(lists, scores, gain, weight, discount, counted, found):
    """Write to ``found`` the rank of each item in the ranking that is worst for SVM-NDCG.

    It is the ranking with the largest sum of s_i a(r_i) - g_i d(r_i), where r_i is the rank of item
    i. A list with a score that is not finite keeps its ranks.

    Args:
        gain, weight, discount: g of each item, a >= 0 and d of each rank, ``[batch, list]``. The
            last two never rise, and d is 0 where a is.
        counted: ``[batch, list]``, the items to rank.
        found: ``[batch, list]``, from 1.
    """
    for b in lists:
        items = np.nonzero(counted[b])[0]
        if len(items) == 0 or not np.isfinite(scores[b][items]).all():
            continue
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        items = items[np.argsort(-gain[b][items], kind="mergesort")]
        depth, end, kind, first = (weight[b] > 0).sum(), len(items), 0, 0
        kinds, tried = np.empty(end, np.int64), np.empty(end, np.int64)
        n = 0
        for i in range(end):
            if gain[b, items[i]] != gain[b, items[first]]:
                kind, first = kind + 1, i
            if i - first < depth:  # of equal gains, no more can get a rank of weight > 0
                tried[n], kinds[n] = items[i], kind
                n += 1
            else:
                found[b, items[i]] = end - (i - n)
        s, g = scores[b][tried[:n]], gain[b][tried[:n]]
        ranks = _worst_ranks(s, g, kinds[:n], weight[b], discount[b])
        for i in range(n):
            found[b, tried[i]] = 1 + ranks[i]


@part
def _worst_ranks(s, g, kinds, a, d):
    """Return the rank of each item, from 0; ``kinds`` numbers the gains, and items are in order.

    The items of one kind stay in descending order of score, so that a ranking is a kind for each
    rank. The most frequent kind begins alone, at the first ranks. Then the other items enter one by
    one along a cheapest path: the entering item takes a rank, the item there moves to another
    one, and so on to a free rank. It is enough that an item moves as far as the next one of its
    kind. So a sweep to the right and one to the left, each with the last item of every kind,
    relax all moves, and sweeps alternate until none is cheaper. This is the method of successive
    shortest paths for the assignment problem, and therefore exact.
    """
    n = len(s)
    starts = np.searchsorted(kinds, np.arange(kinds[-1] + 2))
    usual = np.argmax(starts[1:] - starts[:-1])
    s, g = s - s.min(), g - g[starts[usual]]  # the same for every ranking; best first for ``usual``
    there, item = np.full(n, -1), np.empty(n, np.int64)  # kind and item at each rank; -1 is free
    there[: starts[usual + 1] - starts[usual]] = usual
    near = 1e-15 * n * (s.max() * a[0] + np.abs(g).max() * d[0])  # rounding is no improvement
    cost, came = np.empty(n), np.empty(n, np.int64)  # of the path to each rank; the rank before
    last, kept, s_of = starts.copy(), np.empty(len(starts)), np.zeros(len(starts))
    g_of = np.zeros(len(starts))
    for x in range(n):
        if kinds[x] == usual:
            continue
        last[:] = starts
        for r in range(n):
            cost[r], came[r] = g[x] * d[r] - s[x] * a[r], -1
            if there[r] >= 0:
                item[r] = last[there[r]]
                last[there[r]] += 1
        right, still = True, 0
        while still < 2:  # one after the other, in which nothing moved from then on
            still += 1
            kept[:] = np.inf
            for q in range(n):
                r = q if right else n - 1 - q
                for h in range(len(starts) - 1):
                    moved = kept[h] + g_of[h] * d[r] - s_of[h] * a[r]
                    if moved < cost[r] - near:
                        cost[r], came[r], still = moved, last[h], 1
                h, i = there[r], item[r]
                if h >= 0:  # what a path costs that takes this item away
                    kept[h] = cost[r] + s[i] * a[r] - g[i] * d[r]
                    s_of[h], g_of[h], last[h] = s[i], g[i], r
            right = not right
        free = np.nonzero(there < 0)[0]
        end = free[np.argmin(cost[free])]
        while came[end] >= 0:
            there[end] = there[came[end]]
            end = came[end]
        there[end] = kinds[x]
    ranks = np.empty(n, np.int64)
    last[:] = starts
    for r in range(n):
        ranks[last[there[r]]] = r
        last[there[r]] += 1
    return ranks
