"""The online pass of PRank over items, compiled."""

import numba

from ltr.kernels.compile import keep


@keep
@numba.njit(nogil=True)
def prank_pass(
    rows, places, grades, dual, margin, steps, state, thresholds, state_moves, threshold_moves
):
    """Visit items one after the other; return how many of them moved a threshold.

    The score of a row is its product with ``state``. With y_r = 1 where the grade is at least r and
    else -1, r = 1, ..., K - 1: if the predicted grade is wrong or a margin is missed, tau_r = y_r
    where y_r (score - b_r) <= margin, b_r moves by -tau_r, and the state by sum_r tau_r times the
    row (Crammer and Singer, 2001, figure 2). Dual: that sum is added to the item's own coefficient.

    Args:
        rows: ``[items, state]``: features; dual: kernels with every item of train, among which
            ``places``, ``[items]``, are those of the rows.
        grades: ``[items]``, from 0.
        steps: items that were visited before.
        state: weights, dual coefficients; changed in place, and so is all below.
        thresholds: ``[K - 1]``.
        state_moves, threshold_moves: sums of each move times the number of steps before it.
    """
    changes = 0
    for place in range(len(rows)):
        row, grade = rows[place], grades[place]
        score = 0.0
        for k in range(len(state)):
            score += state[k] * row[k]
        wrong = False
        for r in range(len(thresholds)):
            above = score - thresholds[r]
            missed = above < margin if grade > r else above >= 0 or -above < margin
            wrong = wrong or missed
        if wrong:
            changes += 1
            total = 0
            for r in range(len(thresholds)):
                sign = 1 if grade > r else -1
                if sign * (score - thresholds[r]) <= margin:
                    thresholds[r] -= sign
                    threshold_moves[r] -= steps * sign
                    total += sign
            if dual:
                state[places[place]] += total
                state_moves[places[place]] += steps * total
            elif total:
                for k in range(len(state)):
                    state[k] += total * row[k]
                    state_moves[k] += steps * total * row[k]
        steps += 1
    return changes
