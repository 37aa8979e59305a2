"""Soft ranks and their slopes: by sigmoids, a Laplace kernel, or the Rank-Binomial recursion."""

import math

import numpy as np

from ltr.kernels.compile import exp, kernel, part

_HELD = 15  # contests of a block


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
    begins at rank 1, and each contest that it loses moves it one rank down. The contests are held
    in blocks of 15. The number of contests that are lost in a block has a distribution q of its
    own, so that the distribution p of the rank after it is a product of polynomials, of p before
    it and q.

    For the slopes, the blocks are passed in reverse, with the expected discount as a function of
    the rank before the block. Its mean over p is the expected discount as a function of the
    contests lost in the block. Within the block, the slope with respect to the probability of
    losing a contest is a sum over ranks. Each term is the probability of the rank before this
    contest, times the change of the expected discount if the item stands one rank lower after it.

    Args:
        gain: g, ``[batch, list]``; items with gain 0 are skipped.
        discount: d of each rank, ``[batch, list]``, 0 beyond ``k``.
        sigma: > 0, standard deviation of a score.
        k: the last rank to compute.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        s, g = scores[b][items] / (sigma * math.sqrt(2.0)), gain[b][items]
        width, blocks = min(len(items), k), (len(items) + _HELD - 2) // _HELD
        slopes, costs = np.zeros(len(items)), np.zeros(width + _HELD + 5)
        lost, steep = np.zeros(blocks * _HELD), np.zeros(blocks * _HELD)  # a contest too many: 0
        ranks = np.zeros((blocks + 1, width + _HELD + 4))  # p before each block, after 15 zeros
        inside = np.zeros((blocks, _HELD + 1, _HELD + 2))  # q before each contest, after one zero
        ranks[0, _HELD], inside[:, 0, 1] = 1, 1
        for j in range(len(items)):
            if g[j] == 0:
                continue
            for i in range(len(items) - 1):
                lost[i] = 0.5 * math.erfc((s[j] - s[i + (i >= j)]) * math.sqrt(0.5))
            _hold(lost, ranks, inside, width)
            costs[:width] = discount[b, :width]
            for r in range(width):
                value[b] += g[j] * ranks[blocks, _HELD + r] * costs[r]
            if wanted:
                _pull(lost, ranks, inside, width, costs, steep)
                for i in range(len(items) - 1):
                    gap = s[i + (i >= j)] - s[j]
                    steep[i] *= g[j] * exp(max(-0.5 * gap * gap, -708.0)) / math.sqrt(2 * math.pi)
                slopes[:j] += steep[:j]
                slopes[j + 1 :] += steep[j : len(items) - 1]
                slopes[j] -= steep[: len(items) - 1].sum()
        for i in range(len(items)):
            slope[b, items[i]] = slopes[i] / (sigma * math.sqrt(2.0))


@part
def _hold(lost, ranks, inside, width):
    """Fill ``ranks`` and ``inside`` with distributions, from the chances of losing each contest."""
    for c in range(len(inside)):
        q = inside[c]
        for i in range(_HELD):
            p, before, after = lost[c * _HELD + i], q[i], q[i + 1]
            for t in range(_HELD + 1):
                after[t + 1] = before[t] * p + before[t + 1] * (1 - p)
        reached = min((c + 1) * _HELD + 1, width)
        _slide(q[_HELD, 1:][::-1], ranks[c], ranks[c + 1, _HELD : _HELD + reached])


@part
def _pull(lost, ranks, inside, width, costs, steep):
    """Write the slope of the expected discount with respect to each chance ``lost``.

    ``costs``, the discounts followed by 0, are overwritten.
    """
    own, earlier = np.empty(_HELD + 1), np.empty(width)
    for c in range(len(inside) - 1, -1, -1):
        q, reached = inside[c], min(c * _HELD + 1, width)
        _slide(ranks[c, _HELD : _HELD + (reached + 3) // 4 * 4], costs, own)
        _slide(q[_HELD, 1:], costs, earlier[:reached])
        costs[:reached] = earlier[:reached]
        for i in range(_HELD - 1, -1, -1):
            p, before, total = lost[c * _HELD + i], q[i], 0.0
            for t in range(_HELD):
                step = own[t + 1] - own[t]
                total += before[t + 1] * step
                own[t] += p * step
            steep[c * _HELD + i] = total


@part
def _slide(weights, values, sums):
    """Write for each r the sum over t of weights_t values_(r + t); 4, 8, ... weights."""
    sums[:] = 0
    for t in range(0, len(weights), 4):
        w0, w1, w2, w3 = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        here = values[t:]
        for r in range(len(sums)):
            sums[r] += w0 * here[r] + w1 * here[r + 1] + w2 * here[r + 2] + w3 * here[r + 3]
