"""SVM-MAP and SVM-NDCG: structured hinge losses, with the exact maximum over all rankings.

F(pi) is a function of a ranking pi. It is linear in the scores, and should be highest for the ideal
ranking pi*. The margin is in units of the scores. The papers train linear models with cutting-plane
methods. Here any model can be trained, with subgradients of the same objective. The regularisation
term of the objective is the trainer's ``l2``.
"""

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Doubles, Flags, Ints
from ltr.kernels.dispatch import (
    accelerated,
    as_array,
    list_sizes,
    numba_works,
    over_lists,
    value_and_grad,
)
from ltr.kernels.operators import constant_operator, list_operator
from ltr.knobs import Gain, check_k
from ltr.losses.batch import ideal_order, refuse_below_0, without_padding
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.metrics.ordering import at_items, order_by_score, ranks_like, running_sums
from ltr.metrics.relevance import is_relevant
from ltr.relaxations.second_derivatives import constant_from_numbers
from ltr.typing import Labels, Mask, PerList, Scores

_MAX_GRADES = 24  # with this many grades in a list, or more, SciPy's assignment is faster


def svm_map_loss(
    scores: Scores, labels: Labels, mask: Mask, *, relevant: float | int = 1
) -> PerList:
    r"""Return the SVM-MAP loss of each list.

    .. math::
        \ell(s, y) = \max_{\pi} \; (1 - \mathrm{AP}(\pi)) + F(\pi) - F(\pi^*)

    where the maximum is over rankings pi, AP is the average precision, and pi* is the ideal
    ranking. F(pi) is a mean over all pairs of a relevant item i and an item j that is not relevant:
    the pair adds s_i - s_j if pi ranks i before j, else s_j - s_i.

    Let there be n relevant and m other items. As in the paper, both kinds stay in descending order
    of score while the maximum is found. Let i and j be the positions in these two orders, starting
    at 1. Item j is put before the relevant items p, p + 1 and so on, where p maximises

    .. math::
        \sum_{i \ge p} \frac{i}{n (i + j) (i + j - 1)} - \frac{2 (s_i - s_j)}{n m}

    Item j may also be put after all relevant items, where this sum is 0.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        relevant: > 0, the smallest label that counts as relevant.

    Returns:
        One value per list, ``[batch]``, at least 1 - AP of the ranking by the scores. If no item of
        a list is relevant, or all are, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Yue et al. (2007), section 3.

    >>> scores, labels = torch.tensor([[0.2, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> svm_map_loss(scores, labels, labels >= 0)  # 1 - 1/2 - 2 (0.2 - 0)
    tensor([0.1000])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    return refuse_below_0(_hinge(scores, hits, mask), labels)


@list_operator("hinge_map")
def _hinge_by_loop(
    scores: Tensor, need_grad: bool, hits: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the values of ``_hinge`` and their gradient."""
    from ltr.kernels.listwise import hinge_map_lists

    costs = list_sizes(mask) ** 2
    return value_and_grad(hinge_map_lists, scores, [mask, hits], [], costs, need_grad=need_grad)


@accelerated(_hinge_by_loop)
def _hinge(scores: Scores, hits: Mask, mask: Mask) -> PerList:
    """Return the maximum over rankings of (1 - AP) + F - F(ideal), ``[batch]``.

    ``hits`` is True at the relevant items; ``svm_map_loss`` defines F.
    """
    order = order_by_score(scores.detach(), mask)
    ranked = scores.gather(-1, order)
    relevant = hits.gather(-1, order)
    not_relevant = mask.gather(-1, order) & ~relevant
    n = relevant.sum(-1)[:, None, None].clamp(min=1)
    m = not_relevant.sum(-1)[:, None, None].clamp(min=1)
    i = relevant.cumsum(-1).unsqueeze(-1)
    j = not_relevant.cumsum(-1).unsqueeze(-2)
    precision_loss = i / (n * (i + j) * (i + j - 1).clamp(min=1)).to(scores.dtype)
    changes = precision_loss - 2 * (ranked.unsqueeze(-1) - ranked.unsqueeze(-2)) / (n * m)
    changes = changes.masked_fill(~(relevant.unsqueeze(-1) & not_relevant.unsqueeze(-2)), 0)
    sums_from = running_sums(changes.flip(-2).mT).mT.flip(-2)  # [batch, p, j]
    after_all = sums_from.new_zeros(len(mask), 1, mask.shape[-1])
    best, _ = torch.cat([sums_from, after_all], -2).max(-2)
    return best.sum(-1)


def svm_ndcg_loss(
    scores: Scores, labels: Labels, mask: Mask, *, k: int | None = None, gain: Gain = "exp2"
) -> PerList:
    r"""Return the SVM-NDCG loss of each list.

    .. math::
        \ell(s, y) = \max_{\pi} \; (1 - \mathrm{NDCG}@k(\pi)) + F(\pi) - F(\pi^*), \qquad
        F(\pi) = \frac{\sum_r a(r) \, s_{\pi(r)}}{\sum_r a(r)}

    where the maximum is over rankings pi, the item pi(r) is at rank r, and
    a(r) = max(min(k, n) + 1 - r, 0) for a list of n items. pi* is the ideal ranking, with equal
    gains ordered by score.

    Finding the ranking that attains the maximum is a linear assignment problem, items to ranks. It
    is solved on the CPU in about O(n m G) time. Here n is the number of items, m the number of
    items whose grade is not the most frequent one, and G the number of grades.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.

    Returns:
        One value per list, ``[batch]``, at least 1 - NDCG@k of the ranking by the scores. For a
        list without a relevant item, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Le and Smola (2007); Chapelle et al. (2007). The papers discuss several weights a; the
    weights used here are one of these choices, divided by their sum.

    >>> scores, labels = torch.tensor([[0.3, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> svm_ndcg_loss(scores, labels, labels >= 0)  # 1 - 1 / log2(1 + 2) - 0.3 (2 - 1) / (2 + 1)
    tensor([0.2691])
    """
    scores, labels = without_padding(scores, labels, mask)
    item_gains = gains(labels, mask, gain=gain)
    best_ranks = at_items(ideal_order(scores, item_gains, mask))
    ideal = ideal_dcg(item_gains, mask, k=k).unsqueeze(-1)
    counted = mask & ~(ideal <= 0)  # True where a gain is NaN
    item_gains = (item_gains / ideal.masked_fill(ideal <= 0, 1)).masked_fill(~counted, 0)
    rank_discounts = discounts(mask.shape[-1], scores, k=k)
    k = check_k(k)
    depth = mask.sum(-1, keepdim=True).clamp(max=mask.shape[-1] if k is None else k)
    rank_weights = (depth + 1 - ranks_like(scores)).clamp(min=0).to(scores.dtype)
    rank_weights = rank_weights / rank_weights.sum(-1, keepdim=True).clamp(min=1)
    worst_ranks = constant_from_numbers(
        _worst_ranks,
        scores,
        item_gains,
        rank_weights,
        rank_discounts.expand_as(item_gains),
        best_ranks,
        counted,
    )
    # The first term adds up to 1 - NDCG, and the second to F(pi) - F(pi*).
    dcg_loss = item_gains * (rank_discounts[best_ranks - 1] - rank_discounts[worst_ranks - 1])
    worst_weights = rank_weights.gather(-1, worst_ranks - 1)
    best_weights = rank_weights.gather(-1, best_ranks - 1)
    slopes = (worst_weights - best_weights).masked_fill(~counted, 0)
    return (dcg_loss + slopes * scores).sum(-1)


def _shape_of_ranks(
    scores: Tensor,
    gain: Tensor,
    weight: Tensor,
    discount: Tensor,
    best_ranks: Tensor,
    counted: Tensor,
) -> Tensor:
    """Return an empty tensor for the result of ``_worst_ranks``."""
    return best_ranks.new_empty(best_ranks.shape)


@constant_operator("worst_ranks", _shape_of_ranks)
def _worst_ranks(
    scores: Tensor,
    gain: Tensor,
    weight: Tensor,
    discount: Tensor,
    best_ranks: Tensor,
    counted: Tensor,
) -> Tensor:
    """Return the rank, ``[batch, item]``, of each item in the ranking that attains the maximum.

    Items that are not ``counted`` get their rank in ``best_ranks``. The order of the items at ranks
    with the weight 0 is arbitrary.
    """
    worst_ranks = best_ranks.cpu().numpy().copy()
    real = as_array(counted)
    s, g, a, d = map(as_array, (scores, gain, weight, discount))
    by_grades = np.zeros((len(real), 1), bool)  # the lists with few grades, if Numba works
    if not torch.compiler.is_compiling() and numba_works():
        from ltr.kernels.listwise import worst_ndcg_lists

        by_grades = np.diff(np.sort(g)).astype(bool).sum(-1, keepdims=True) < _MAX_GRADES
        counted_here = real & by_grades
        costs = counted_here.sum(-1) ** 2 * 4
        over_lists(
            lambda lists: worst_ndcg_lists(lists, s, g, a, d, counted_here, worst_ranks), costs
        )
    _assign_worst_ranks(s, g, a, d, real & ~by_grades, worst_ranks)
    return torch.from_numpy(worst_ranks).to(best_ranks.device)


def _assign_worst_ranks(
    s: Doubles, g: Doubles, a: Doubles, d: Doubles, real: Flags, worst_ranks: Ints
) -> None:
    """Find the same ranks as ``worst_ndcg_lists`` with SciPy, and store them in ``worst_ranks``."""
    from scipy.optimize import linear_sum_assignment

    for b in np.nonzero(real.any(-1))[0]:
        ranks = np.nonzero(a[b])[0]
        items = np.nonzero(real[b])[0]
        items = items[np.lexsort((-s[b][items], -g[b][items]))]
        # Only ``len(ranks)`` ranks have a weight, so no more items of equal gain can get one.
        ascending = -g[b][items]
        position_in_grade = np.arange(len(items)) - np.searchsorted(ascending, ascending)
        candidates = items[position_in_grade < len(ranks)]
        objective = np.outer(s[b][candidates], a[b][ranks])
        objective = objective - np.outer(g[b][candidates], d[b][ranks])
        # Where this is not finite, the loss is not finite either.
        objective = np.nan_to_num(objective, posinf=0, neginf=0)
        rows, columns = linear_sum_assignment(objective, maximize=True)
        unassigned = np.setdiff1d(items, candidates[rows])
        worst_ranks[b][candidates[rows]] = ranks[columns] + 1
        worst_ranks[b][unassigned] = len(ranks) + 1 + np.arange(len(unassigned))
