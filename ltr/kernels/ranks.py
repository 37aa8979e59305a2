"""Soft ranks and their slopes: by sigmoids, a Laplace kernel, or the Rank-Binomial recursion."""

import math

import numpy as np

from ltr.kernels.compile import exp, kernel, part


@kernel
def soft_rank_lists(lists, scores, mask, temperature, laplace, weights, backward, found):
    """Write the soft ranks; if ``backward``, write the slopes of the sum of weights times ranks.

    rank_j = 1 + sum over i != j of F((s_i - s_j) / temperature). F is the sigmoid or, with
    ``laplace``, the distribution function of the Laplace distribution. In the latter case, the
    soft rank of j is its rank in descending order of score, minus half the sum of
    exp(-|s_i - s_j| / temperature) over the items before j, plus half the same sum over the items
    after j. Each sum follows from the neighbour's sum, so that a list costs no more than a sort.

    Args:
        temperature: > 0.
        laplace: use the Laplace distribution instead of the sigmoid.
        weights: ``[batch, list]``, used only if ``backward``.
        found: ``[batch, list]``, written at real items.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        if laplace:
            items = items[np.argsort(-scores[b][items], kind="mergesort")]
        s, w = scores[b][items], weights[b][items]
        if laplace:
            one = _laplace_slopes(s, w, temperature) if backward else _laplace_ranks(s, temperature)
        else:
            one = _slopes(s, w, temperature) if backward else _ranks(s, temperature)
        for i in range(len(items)):
            found[b, items[i]] = one[i]


@part
def _ranks(s, temperature):
    s, n = s / temperature, len(s)
    ranks = np.ones(n)
    for i in range(n):
        others, behind = s[i + 1 :], ranks[i + 1 :]
        above = 0.0
        for j in range(len(others)):
            z = s[i] - others[j]
            e = exp(-min(abs(z), 708.0))
            lower, higher = e / (1 + e), 1 / (1 + e)
            behind[j] += higher if z > 0 else lower
            above += lower if z > 0 else higher
        ranks[i] += above
    return ranks


@part
def _slopes(s, weights, temperature):
    s, n = s / temperature, len(s)
    slopes = np.zeros(n)
    for i in range(n):
        others, behind, theirs = s[i + 1 :], slopes[i + 1 :], weights[i + 1 :]
        total = 0.0
        for j in range(len(others)):
            e = exp(-min(abs(s[i] - others[j]), 708.0))
            steep = e / ((1 + e) * (1 + e)) * (theirs[j] - weights[i])
            total += steep
            behind[j] -= steep
        slopes[i] += total
    return slopes / temperature


@part
def _near(s, temperature):
    """Return exp(-gap / temperature) of each two neighbours, from 0 to 1."""
    near = np.empty(max(len(s) - 1, 0))
    for i in range(len(near)):
        near[i] = exp(max((s[i + 1] - s[i]) / temperature, -708.0))  # NaN stays NaN
    return near


@part
def _laplace_ranks(s, temperature):
    near, ranks = _near(s, temperature), np.arange(1.0, len(s) + 1)
    for turn in (1, -1):  # the items before, then those after
        gaps, found, total = near[::turn], ranks[::turn], 0.0
        for i in range(1, len(s)):
            total = (total + 1) * gaps[i - 1]
            found[i] -= turn * 0.5 * total
    return ranks


@part
def _laplace_slopes(s, weights, temperature):
    """Return for each j the sum over i of (w_i - w_j) exp(-|s_i - s_j| / T) / 2T.

    T is the temperature.
    """
    near, slopes = _near(s, temperature), np.zeros(len(s))
    for turn in (1, -1):
        gaps, w, found, count, total = near[::turn], weights[::turn], slopes[::turn], 0.0, 0.0
        for i in range(1, len(s)):
            count, total = (count + 1) * gaps[i - 1], (total + w[i - 1]) * gaps[i - 1]
            found[i] += total - w[i] * count
    return slopes / (2 * temperature)


@kernel
def expected_dcg_lists(lists, scores, mask, gain, discount, sigma, k, wanted, value, slope):
    """Write ``value`` and ``slope``; for the arguments not listed here see ``ltr.kernels``.

    The value is the sum over items j of g_j times the sum over ranks r of d_r p_j(r), where p_j is
    the Rank-Binomial distribution. To compute it, item j meets every other item in a contest. It
    begins at rank 1, and each contest that it loses moves it one rank down. The distributions of
    its rank after 0, 1, ... contests are stored, at most n k numbers.

    The slope with respect to the probability of losing a contest is a sum over ranks. Each term is
    the probability of the rank before this contest, times the change of the final expected discount
    if the item stands one rank lower after it.

    Args:
        gain: g, ``[batch, list]``; items with gain 0 are skipped.
        discount: d of each rank, ``[batch, list]``, 0 beyond ``k``.
        sigma: > 0, standard deviation of a score.
        k: the last rank to compute.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        n = len(items)
        s, g = scores[b][items] / (sigma * math.sqrt(2.0)), gain[b][items]
        width = min(n, k)
        slopes = np.zeros(n)
        found = np.zeros((n, width + 1))  # row c: after c contests; last column 0
        costs = np.zeros(width + 1)
        for j in range(n):
            if g[j] != 0:
                costs[:width] = discount[b, :width]
                value[b] += g[j] * _expected(s, j, found, costs)
                if wanted:
                    _add_slopes(s, j, g[j], found, costs, slopes)
        for i in range(n):
            slope[b, items[i]] = slopes[i] / (sigma * math.sqrt(2.0))


@part
def _expected(s, j, found, costs):
    """Return the expected discount of item j.

    Fill ``found`` with the probabilities of its ranks after each contest.
    """
    n, width = len(s), len(costs) - 1
    found[0, :] = 0
    found[0, 0] = 1
    contests = 0
    for i in range(n):
        if i == j:
            continue
        pi = 0.5 * math.erfc((s[j] - s[i]) * math.sqrt(0.5))
        count = min(contests + 2, width)  # reachable ranks
        before, after = found[contests], found[contests + 1]
        earlier = before[:-1]
        after[0] = before[0] * (1 - pi)
        now, here = after[1:], before[1:]
        for r in range(count - 1):
            now[r] = earlier[r] * pi + here[r] * (1 - pi)
        after[count:] = 0
        contests += 1
    total = 0.0
    for r in range(width):
        total += found[n - 1, r] * costs[r]
    return total


@part
def _add_slopes(s, j, gain, found, costs, slopes):
    """Add the slopes of ``gain`` times the expected discount, with respect to s.

    ``costs`` is overwritten.
    """
    n, width = len(s), len(costs) - 1
    contests = n - 1
    for i in range(n - 1, -1, -1):
        if i == j:
            continue
        contests -= 1
        gap = s[i] - s[j]
        pi = 0.5 * math.erfc(-gap * math.sqrt(0.5))
        before, lower = found[contests], costs[1:]
        total = 0.0
        for r in range(min(contests + 1, width)):
            step = lower[r] - costs[r]
            total += before[r] * step
            costs[r] += pi * step
        steep = gain * total * math.exp(-0.5 * gap * gap) / math.sqrt(2 * math.pi)
        slopes[i] += steep
        slopes[j] -= steep
