"""Kernels for ListMLE and for the worst rankings of SVM-MAP and SVM-NDCG, list by list."""

from collections import namedtuple

import numpy as np

from ltr.kernels.compile import exp, inlined, kernel

_MAX_RANGE = 600.0  # with scores further apart, terms of a sum of exponentials would underflow


@kernel
def listmle_lists(lists, scores, mask, order, rank_weight, need_grad, value, grad):
    """Write ``value`` and ``grad`` of ListMLE; for arguments not listed here, see ``ltr.kernels``.

    The value is the sum over ranks r of w_r (log(sum over q >= r of exp(s_q)) - s_r), where
    s_r is the score of the item at rank r.

    Args:
        order: the item at each rank, ``[batch, list]``; padding comes last.
        rank_weight: w >= 0 of each rank, ``[batch, list]``.
    """
    for b in lists:
        n = mask[b].sum()
        if n == 0:
            continue
        s = scores[b][order[b, :n]]
        w = rank_weight[b]
        highest = s.max()
        if highest - s.min() < _MAX_RANGE:
            value[b], grad_s = _listmle_of_near_scores(s, w, highest)
        else:
            value[b], grad_s = _listmle_of_far_scores(s, w)
        for r in range(n):
            grad[b, order[b, r]] = grad_s[r]


@inlined
def _listmle_of_near_scores(s, w, highest):
    """Return the value and its gradient, both from exponentials relative to the highest score."""
    n = len(s)
    powers = np.empty(n)
    tails = np.empty(n)  # the sum of powers from each rank on
    for r in range(n):
        powers[r] = exp(s[r] - highest)
    total = 0.0
    value = 0.0
    for r in range(n - 1, -1, -1):
        total += powers[r]
        tails[r] = total
        value += w[r] * (np.log(total) + highest - s[r])
    grad_s = np.empty(n)
    total = 0.0
    for r in range(n):
        total += w[r] / tails[r]
        grad_s[r] = powers[r] * total - w[r]
    return value, grad_s


@inlined
def _listmle_of_far_scores(s, w):
    """Return what ``_listmle_of_near_scores`` returns, for scores that are far apart.

    Each sum of exponentials is relative to its largest term, so no digits are lost.
    """
    n = len(s)
    highest_from = np.empty(n)  # the highest score from each rank on
    tails = np.empty(n)
    highest = s[n - 1]
    total = 0.0
    # Two sums: fast math could merge them into one and lose digits.
    log_sum = 0.0
    gap_sum = 0.0
    for r in range(n - 1, -1, -1):
        if s[r] > highest:
            total *= np.exp(highest - s[r])
            highest = s[r]
        total += np.exp(s[r] - highest)
        highest_from[r] = highest
        tails[r] = total
        log_sum += w[r] * np.log(total)
        gap_sum += w[r] * (highest - s[r])
    grad_s = np.empty(n)
    total = 0.0
    for r in range(n):
        if r > 0:
            total *= np.exp(highest_from[r] - highest_from[r - 1])
        total += w[r] / tails[r]
        grad_s[r] = np.exp(s[r] - highest_from[r]) * total - w[r]
    return log_sum + gap_sum, grad_s


@kernel
def hinge_map_lists(lists, scores, mask, relevant, need_grad, value, grad):
    """Write ``value`` and ``grad`` of SVM-MAP; for arguments not listed here, see ``ltr.kernels``.

    Relevant items i and irrelevant items j are both in descending order of score. Let w_ij be what
    moving j in front of i adds to the value. Each j is moved in front of all i >= p, where p
    maximises the sum of these w_ij, or of no i if no such sum is above 0. The value is the sum of
    w_ij over all these moves.

    Args:
        relevant: ``[batch, list]``, False on padding.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        good = items[relevant[b][items]]
        bad = items[~relevant[b][items]]
        n = len(good)
        m = len(bad)
        if n == 0 or m == 0:
            continue
        s = scores[b]
        per_pair = 2.0 / (n * m)
        passed = np.zeros(n)  # how many irrelevant items move in front of i, but not of i - 1
        for j in range(m):
            total = 0.0
            largest = 0.0
            first = n
            for i in range(n - 1, -1, -1):
                loss_of_map = (i + 1.0) / ((i + j + 2.0) * (i + j + 1.0) * n)
                total += loss_of_map - per_pair * (s[good[i]] - s[bad[j]])
                if not total <= largest:  # NaN stays NaN
                    largest = total
                    first = i
            value[b] += largest
            if first < n:
                passed[first] += 1
            grad[b, bad[j]] = per_pair * (n - first)
        in_front = 0.0
        for i in range(n):
            in_front += passed[i]
            grad[b, good[i]] = -per_pair * in_front


@kernel
def worst_ndcg_lists(lists, scores, gain, weight, discount, counted, ranks):
    """Write to ``ranks`` the rank of each item in the ranking that is worst for SVM-NDCG.

    It is the ranking with the largest sum of s_i a(r_i) - g_i d(r_i), where r_i is the rank of item
    i. For a list with a score that is not finite, ``ranks`` is left as it is.

    Args:
        gain: g of each item, ``[batch, list]``.
        weight, discount: a >= 0 and d of each rank, ``[batch, list]``. They never increase with the
            rank, and d is 0 where a is 0.
        counted: ``[batch, list]``, True for the items to rank.
        ranks: ``[batch, list]``, starting at 1.
    """
    for b in lists:
        items = np.nonzero(counted[b])[0]
        if len(items) == 0 or not np.isfinite(scores[b][items]).all():
            continue
        items = items[np.argsort(-scores[b][items], kind="mergesort")]
        items = items[np.argsort(-gain[b][items], kind="mergesort")]
        depth = (weight[b] > 0).sum()
        end = len(items)
        kind = 0
        first_of_kind = 0
        kinds = np.empty(end, np.int64)
        candidates = np.empty(end, np.int64)
        n = 0
        for i in range(end):
            if gain[b, items[i]] != gain[b, items[first_of_kind]]:
                kind += 1
                first_of_kind = i
            if i - first_of_kind < depth:  # no more items of equal gain can get a weight > 0
                candidates[n] = items[i]
                kinds[n] = kind
                n += 1
            else:
                ranks[b, items[i]] = end - (i - n)
        s = scores[b][candidates[:n]]
        g = gain[b][candidates[:n]]
        candidate_ranks = _worst_ndcg_ranks(s, g, kinds[:n], weight[b], discount[b])
        for i in range(n):
            ranks[b, candidates[i]] = 1 + candidate_ranks[i]


# A ranking of kinds of items, and what the search for a cheapest path needs. Items with equal gains
# are of one kind.
# s, g: score and gain of each item. a, d: weight and discount of each rank.
# starts: the first item of each kind, and the end. kind_at, item_at: kind and item at each rank;
# the kind -1 means a free rank. cost: the cost of the path to each rank. came_from: the rank before
# it on the path. near: differences of costs below this are rounding errors.
# cost_without, last_s, last_g, last_rank: an entry for each kind, where a sweep remembers the last
# item of the kind; made once, because to make them for each entering item takes time.
Assignment = namedtuple(
    "Assignment",
    "s g a d starts kind_at item_at cost came_from near cost_without last_s last_g last_rank",
)


@inlined
def _worst_ndcg_ranks(s, g, kinds, a, d):
    """Return the rank of each item, starting at 0.

    Items are in descending order of gain, then of score. Items with equal gains are of one kind;
    ``kinds`` holds the kind of each item as a number.

    The items of one kind stay in descending order of score, so the kind at each rank determines a
    ranking. The most frequent kind begins alone, at the first ranks. Then the other items enter one
    by one along a cheapest path: the entering item takes a rank, the item at that rank moves to
    another rank, and so on until a free rank is reached. This is the method of successive shortest
    paths for the assignment problem, so the result is exact.
    """
    n = len(s)
    starts = np.searchsorted(kinds, np.arange(kinds[-1] + 2))
    frequent = np.argmax(starts[1:] - starts[:-1])
    # Constant shifts leave the optimum; the gain of the most frequent kind becomes 0.
    s = s - s.min()
    g = g - g[starts[frequent]]
    near = 1e-15 * n * (s.max() * a[0] + np.abs(g).max() * d[0])
    kind_at = np.full(n, -1)
    kind_at[: starts[frequent + 1] - starts[frequent]] = frequent
    item_at = np.empty(n, np.int64)
    cost = np.empty(n)
    came_from = np.empty(n, np.int64)
    cost_without = np.empty(len(starts))
    last_s = np.zeros(len(starts))
    last_g = np.zeros(len(starts))
    last_rank = starts.copy()
    assignment = Assignment(
        s, g, a, d, starts, kind_at, item_at, cost, came_from, near,
        cost_without, last_s, last_g, last_rank,
    )  # fmt: skip
    for entering in range(n):
        if kinds[entering] != frequent:
            _find_paths(assignment, entering)
            _move_items(assignment, kinds[entering])
    ranks = np.empty(n, np.int64)
    next_item = starts.copy()
    for r in range(n):
        ranks[next_item[kind_at[r]]] = r
        next_item[kind_at[r]] += 1
    return ranks


@inlined
def _find_paths(assignment, entering):
    """Write the cheapest path from the item ``entering`` to each rank.

    An item never needs to move beyond the next item of its kind. So all moves are tried in one
    sweep to the right and one to the left, each of which remembers the last item of every kind. The
    sweeps alternate until no path becomes cheaper.
    """
    s, g, a, d, starts, kind_at, item_at, cost, came_from, near = assignment[:10]
    cost_without, last_s, last_g, last_rank = assignment[10:]
    n = len(s)
    last_rank[:] = starts  # first the next item of each kind, then the rank of its last item
    for r in range(n):
        cost[r] = g[entering] * d[r] - s[entering] * a[r]
        came_from[r] = -1
        if kind_at[r] >= 0:
            item_at[r] = last_rank[kind_at[r]]
            last_rank[kind_at[r]] += 1
    rightwards = True
    unchanged_sweeps = 0
    while unchanged_sweeps < 2:  # consecutive sweeps without improvement
        unchanged_sweeps += 1
        cost_without[:] = np.inf  # of the path that takes the last item of a kind away
        for q in range(n):
            r = q if rightwards else n - 1 - q
            for h in range(len(starts) - 1):
                moved = cost_without[h] + last_g[h] * d[r] - last_s[h] * a[r]
                if moved < cost[r] - near:
                    cost[r] = moved
                    came_from[r] = last_rank[h]
                    unchanged_sweeps = 1
            h = kind_at[r]
            i = item_at[r]
            if h >= 0:
                cost_without[h] = cost[r] + s[i] * a[r] - g[i] * d[r]
                last_s[h] = s[i]
                last_g[h] = g[i]
                last_rank[h] = r
        rightwards = not rightwards


@inlined
def _move_items(assignment, kind):
    """Move the items along the cheapest path to a free rank; an item of ``kind`` enters."""
    kind_at = assignment.kind_at
    free = np.nonzero(kind_at < 0)[0]
    r = free[np.argmin(assignment.cost[free])]
    while assignment.came_from[r] >= 0:
        kind_at[r] = kind_at[assignment.came_from[r]]
        r = assignment.came_from[r]
    kind_at[r] = kind
