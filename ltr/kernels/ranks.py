"""Kernels for soft ranks (sigmoid or Laplace) and for the expected DCG of SoftNDCG."""

import math
from collections import namedtuple

import numpy as np

from ltr.kernels.compile import exp, inlined, kernel

_BLOCK = 15  # contests of a block


@kernel
def soft_rank_lists(lists, scores, mask, temperature, laplace, weights, backward, output):
    """Write the soft ranks or, if ``backward``, the gradient of the sum of weights times ranks.

    rank_j = 1 + sum over i != j of F((s_i - s_j) / temperature). F is the sigmoid or, with
    ``laplace``, the distribution function of the Laplace distribution. In the latter case, the
    soft rank of j is its rank in descending order of score, minus half the sum of
    exp(-|s_i - s_j| / temperature) over the items before j, plus half the same sum over the items
    after j. Each sum follows from that of the neighbouring item, so this takes about as long as
    sorting the list.

    Args:
        temperature: > 0.
        laplace: use the Laplace distribution instead of the sigmoid.
        weights: ``[batch, list]``, used only if ``backward``.
        output: ``[batch, list]``, written at real items.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        if laplace:
            items = items[np.argsort(-scores[b][items], kind="mergesort")]
        s = scores[b][items]
        w = weights[b][items]
        if laplace and backward:
            list_output = _laplace_gradient(s, w, temperature)
        elif laplace:
            list_output = _laplace_ranks(s, temperature)
        elif backward:
            list_output = _sigmoid_gradient(s, w, temperature)
        else:
            list_output = _sigmoid_ranks(s, temperature)
        for i in range(len(items)):
            output[b, items[i]] = list_output[i]


@inlined
def _sigmoid_ranks(s, temperature):
    s = s / temperature
    n = len(s)
    ranks = np.ones(n)
    for i in range(n):
        later_s = s[i + 1 :]
        later_ranks = ranks[i + 1 :]
        above = 0.0
        for j in range(len(later_s)):
            z = s[i] - later_s[j]
            e = exp(-min(abs(z), 708.0))
            smaller = e / (1 + e)
            larger = 1 / (1 + e)
            later_ranks[j] += larger if z > 0 else smaller
            above += smaller if z > 0 else larger
        ranks[i] += above
    return ranks


@inlined
def _sigmoid_gradient(s, weights, temperature):
    s = s / temperature
    n = len(s)
    grad_s = np.zeros(n)
    for i in range(n):
        later_s = s[i + 1 :]
        later_grad = grad_s[i + 1 :]
        later_weights = weights[i + 1 :]
        total = 0.0
        for j in range(len(later_s)):
            e = exp(-min(abs(s[i] - later_s[j]), 708.0))
            pair_grad = e / ((1 + e) * (1 + e)) * (later_weights[j] - weights[i])
            total += pair_grad
            later_grad[j] -= pair_grad
        grad_s[i] += total
    return grad_s / temperature


@inlined
def _neighbour_kernel(s, temperature):
    """Return exp(-gap / temperature) for each pair of neighbours, from 0 to 1."""
    near = np.empty(max(len(s) - 1, 0))
    for i in range(len(near)):
        near[i] = exp(max((s[i + 1] - s[i]) / temperature, -708.0))  # NaN stays NaN
    return near


@inlined
def _laplace_ranks(s, temperature):
    near = _neighbour_kernel(s, temperature)
    ranks = np.arange(1.0, len(s) + 1)
    for direction in (1, -1):  # the items before, then those after
        gaps = near[::direction]
        output = ranks[::direction]
        total = 0.0
        for i in range(1, len(s)):
            total = (total + 1) * gaps[i - 1]
            output[i] -= direction * 0.5 * total
    return ranks


@inlined
def _laplace_gradient(s, weights, temperature):
    """Return, for each j, the sum over i of (w_i - w_j) exp(-|s_i - s_j| / T) / (2 T).

    T is the temperature.
    """
    near = _neighbour_kernel(s, temperature)
    grad_s = np.zeros(len(s))
    for direction in (1, -1):
        gaps = near[::direction]
        w = weights[::direction]
        output = grad_s[::direction]
        count = 0.0
        total = 0.0
        for i in range(1, len(s)):
            count = (count + 1) * gaps[i - 1]
            total = (total + w[i - 1]) * gaps[i - 1]
            output[i] += total - w[i] * count
    return grad_s / (2 * temperature)


# The contests of one item. defeat: the probability of losing each contest, padded to whole blocks
# with probability 0. rank: p before each block, after ``_BLOCK`` zeros. within: q before each
# contest of each block, after one zero. width: the number of ranks.
Contests = namedtuple("Contests", "defeat rank within width")


@kernel
def expected_dcg_lists(lists, scores, mask, gain, discount, sigma, k, need_grad, value, grad):
    """Write ``value`` and ``grad``; for arguments not listed here, see ``ltr.kernels``.

    The value is the sum over items j of g_j times the sum over ranks r of d_r p_j(r), where p_j is
    the Rank-Binomial distribution. To compute p_j, item j meets every other item in a contest. Item
    j begins at rank 1, and each contest that it loses moves it one rank down. The contests are
    computed in blocks of 15. Let q be the distribution of the number of contests lost in a block.
    As polynomials, the distribution p of the rank after the block is the product of q and p before
    the block.

    For the gradient, the blocks are processed in reverse order, with the expected discount as a
    function of the rank before the block. The mean of this function over p is the expected discount
    as a function of the number of contests lost in the block. Within the block, the gradient with
    respect to the probability of losing a contest is a sum over ranks. Each term is the probability
    of the rank before this contest, times the change of the expected discount if the item is
    one rank lower after the contest.

    Args:
        gain: g, ``[batch, list]``; items with gain 0 are skipped.
        discount: d of each rank, ``[batch, list]``, 0 beyond ``k``.
        sigma: > 0, standard deviation of a score.
        k: the last rank to compute.
    """
    for b in lists:
        items = np.nonzero(mask[b])[0]
        s = scores[b][items] / (sigma * math.sqrt(2.0))
        g = gain[b][items]
        width = min(len(items), k)
        blocks = (len(items) + _BLOCK - 2) // _BLOCK
        contests = Contests(
            np.zeros(blocks * _BLOCK),
            np.zeros((blocks + 1, width + _BLOCK + 4)),
            np.zeros((blocks, _BLOCK + 1, _BLOCK + 2)),
            width,
        )
        contests.rank[0, _BLOCK] = 1
        contests.within[:, 0, 1] = 1
        grad_s = np.zeros(len(items))
        expected = np.zeros(width + _BLOCK + 5)
        grad_defeat = np.zeros(blocks * _BLOCK)
        for j in range(len(items)):
            if g[j] == 0:
                continue
            for i in range(len(items) - 1):
                contests.defeat[i] = 0.5 * math.erfc((s[j] - s[i + (i >= j)]) * math.sqrt(0.5))
            _fill_distributions(contests)
            expected[:width] = discount[b, :width]
            for r in range(width):
                value[b] += g[j] * contests.rank[blocks, _BLOCK + r] * expected[r]
            if need_grad:
                _write_defeat_gradient(contests, expected, grad_defeat)
                for i in range(len(items) - 1):
                    gap = s[i + (i >= j)] - s[j]
                    power = exp(max(-0.5 * gap * gap, -708.0))
                    grad_defeat[i] *= g[j] * power / math.sqrt(2 * math.pi)
                grad_s[:j] += grad_defeat[:j]
                grad_s[j + 1 :] += grad_defeat[j : len(items) - 1]
                grad_s[j] -= grad_defeat[: len(items) - 1].sum()
        for i in range(len(items)):
            grad[b, items[i]] = grad_s[i] / (sigma * math.sqrt(2.0))


@inlined
def _fill_distributions(contests):
    """Fill ``rank`` and ``within`` from the probability of losing each contest."""
    for block in range(len(contests.within)):
        q = contests.within[block]
        for i in range(_BLOCK):
            p = contests.defeat[block * _BLOCK + i]
            q_before = q[i]
            q_after = q[i + 1]
            for t in range(_BLOCK + 1):
                q_after[t + 1] = q_before[t] * p + q_before[t + 1] * (1 - p)
        reached = min((block + 1) * _BLOCK + 1, contests.width)
        next_rank = contests.rank[block + 1, _BLOCK : _BLOCK + reached]
        _correlate(q[_BLOCK, 1:][::-1], contests.rank[block], next_rank)


@inlined
def _write_defeat_gradient(contests, expected, grad_defeat):
    """Write the gradient of the expected discount with respect to each probability ``defeat``.

    ``expected`` must hold the discounts, followed by zeros. It is overwritten.
    """
    expected_within = np.empty(_BLOCK + 1)
    earlier = np.empty(contests.width)
    for block in range(len(contests.within) - 1, -1, -1):
        q = contests.within[block]
        reached = min(block * _BLOCK + 1, contests.width)
        in_fours = (reached + 3) // 4 * 4
        _correlate(contests.rank[block, _BLOCK : _BLOCK + in_fours], expected, expected_within)
        _correlate(q[_BLOCK, 1:], expected, earlier[:reached])
        expected[:reached] = earlier[:reached]
        for i in range(_BLOCK - 1, -1, -1):
            p = contests.defeat[block * _BLOCK + i]
            q_before = q[i]
            total = 0.0
            for t in range(_BLOCK):
                step = expected_within[t + 1] - expected_within[t]
                total += q_before[t + 1] * step
                expected_within[t] += p * step
            grad_defeat[block * _BLOCK + i] = total


@inlined
def _correlate(weights, values, sums):
    """Write, for each r, the sum over t of weights_t values_(r + t).

    The number of weights must be a multiple of 4.
    """
    sums[:] = 0
    for t in range(0, len(weights), 4):
        w0 = weights[t]
        w1 = weights[t + 1]
        w2 = weights[t + 2]
        w3 = weights[t + 3]
        shifted = values[t:]
        for r in range(len(sums)):
            sums[r] += (
                w0 * shifted[r] + w1 * shifted[r + 1] + w2 * shifted[r + 2] + w3 * shifted[r + 3]
            )
