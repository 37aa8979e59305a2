"""SVM-MAP and SVM-NDCG: structured hinge losses, with the worst ranking found exactly.

The loss is the maximum over rankings pi of (1 - metric(pi)) + F(pi) - F(pi*). It is at least
1 - metric for the ranking by the scores. F(pi) is linear in the scores and should be highest for
the ideal ranking pi*; the margin is in units of the scores. The papers train linear models with
cutting planes. Here any model can be trained, with a subgradient of the same objective; the
regularisation in the objective is the trainer's ``l2``.
"""

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Doubles, Flags, Ints
from ltr.kernels.dispatch import (
    Work,
    as_array,
    list_sizes,
    numba_works,
    over_lists,
    value_op,
    with_kernel,
)
from ltr.knobs import Gain, check_k
from ltr.losses.batch import ideal_order, refuse_below_0, without_padding
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.metrics.ordering import at_items, order_by_score, ranks_like, running_sums
from ltr.metrics.relevance import is_relevant
from ltr.relaxations.second_derivatives import on_numbers
from ltr.typing import Labels, Mask, PerList, Ranks, Scores

_MOST_GRADES = 24  # with more in a list, SciPy's general assignment is faster


def svm_map_loss(
    scores: Scores, labels: Labels, mask: Mask, *, relevant: float | int = 1
) -> PerList:
    """Return the SVM-MAP loss of each list, ``[batch]``, >= 1 - AP.

    AP is the average precision. F(pi) is a mean over all pairs of a relevant item i and an item j
    that is not relevant: the pair adds s_i - s_j if pi ranks i before j, else s_j - s_i (Yue et
    al., 2007, section 3). There are n relevant and m other items. As in the paper, both kinds stay
    in descending order of score while the maximum is found; i and j are the positions in these two
    orders, from 1. Item j is placed before the relevant items p, p + 1 and so on, with the p for
    which the sum over i >= p of

        w_ij = i / (n (i + j) (i + j - 1)) - 2 (s_i - s_j) / (n m)

    is largest. Item j may also be placed after all relevant items, where this sum is 0. A list
    without a relevant item, or of relevant items only, gives 0 without gradient.

    Args:
        relevant: > 0, the lowest label that counts as relevant.

    >>> scores, labels = torch.tensor([[0.2, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> svm_map_loss(scores, labels, labels >= 0)  # 1 - 1/2 - 2 (0.2 - 0)
    tensor([0.1000])
    """
    scores, labels = without_padding(scores, labels, mask)
    return refuse_below_0(_hinge(scores, is_relevant(labels, mask, relevant), mask), labels)


def _by_loops(scores: Scores, hits: Mask, mask: Mask) -> Work:
    return value_op("listwise:hinge_map_lists", [mask, hits], [], list_sizes(mask) ** 2)


@with_kernel(_by_loops)
def _hinge(scores: Scores, hits: Mask, mask: Mask) -> PerList:
    """Return the maximum over rankings of (1 - AP) + F - F(ideal), ``[batch]``.

    ``hits`` is True at the relevant items; ``svm_map_loss`` defines F.
    """
    order = order_by_score(scores.detach(), mask)
    ranked, good, real = (x.gather(-1, order) for x in (scores, hits, mask))
    other = real & ~good
    n, m = (x.sum(-1)[:, None, None].clamp(min=1) for x in (good, other))
    i, j = good.cumsum(-1).unsqueeze(-1), other.cumsum(-1).unsqueeze(-2)
    lost = i / (n * (i + j) * (i + j - 1).clamp(min=1)).to(scores.dtype)
    gained = lost - 2 * (ranked.unsqueeze(-1) - ranked.unsqueeze(-2)) / (n * m)
    gained = gained.masked_fill(~(good.unsqueeze(-1) & other.unsqueeze(-2)), 0)
    from_here = running_sums(gained.flip(-2).mT).mT.flip(-2)  # [batch, p, other item]
    none = from_here.new_zeros(len(mask), 1, mask.shape[-1])
    best, _ = torch.cat([from_here, none], -2).max(-2)
    return best.sum(-1)


def svm_ndcg_loss(
    scores: Scores, labels: Labels, mask: Mask, *, k: int | None = None, gain: Gain = "exp2"
) -> PerList:
    """Return the SVM-NDCG loss of each list, ``[batch]``, >= 1 - NDCG@k.

    F(pi) is a weighted mean of the scores. The item at rank r has the weight a(r) =
    max(min(k, n) + 1 - r, 0), where n is the number of items. pi* is the ideal order, with equal
    gains ordered by score (Le and Smola, 2007; Chapelle et al., 2007; a is one of their choices,
    here divided by its sum). The worst ranking is a linear assignment of items to ranks, found on
    the CPU in about n m G time, where n is the number of items, m that of the items outside the
    most frequent grade, and G that of the grades. A list without a relevant item gives 0 without
    gradient.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table of the gains of the grades.

    >>> scores, labels = torch.tensor([[0.3, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> svm_ndcg_loss(scores, labels, labels >= 0)  # 1 - 1 / log2(1 + 2) - 0.3 (2 - 1) / (2 + 1)
    tensor([0.2691])
    """
    scores, labels = without_padding(scores, labels, mask)
    of_item = gains(labels, mask, gain=gain)
    best = at_items(ideal_order(scores, of_item, mask))
    ideal = ideal_dcg(of_item, mask, k=k).unsqueeze(-1)
    counted = mask & ~(ideal <= 0)  # True where a gain is NaN
    of_item = (of_item / ideal.masked_fill(ideal <= 0, 1)).masked_fill(~counted, 0)
    of_rank = discounts(mask.shape[-1], scores, k=k)
    k = check_k(k)
    depth = mask.sum(-1, keepdim=True).clamp(max=mask.shape[-1] if k is None else k)
    weight = (depth + 1 - ranks_like(scores)).clamp(min=0).to(scores.dtype)
    weight = weight / weight.sum(-1, keepdim=True).clamp(min=1)
    given = scores, of_item, weight, of_rank.expand_as(of_item), best, counted
    worst = on_numbers(_worst_ranks, *given)
    # the first part is 1 - NDCG, the second F(pi) - F(pi*)
    lost = of_item * (of_rank[best - 1] - of_rank[worst - 1])
    moved = (weight.gather(-1, worst - 1) - weight.gather(-1, best - 1)).masked_fill(~counted, 0)
    return (lost + moved * scores).sum(-1)


def _worst_ranks(
    scores: Scores, gain: Labels, weight: Tensor, of_rank: Tensor, best: Ranks, counted: Mask
) -> Ranks:
    """Return the rank of each item in the ranking that attains the maximum, ``[batch, item]``.

    Items that are not ``counted`` get their rank in ``best``. Beyond the ranks of weight > 0 the
    order is arbitrary.
    """
    found, real = best.cpu().numpy().copy(), as_array(counted)
    s, g, a, d = map(as_array, (scores, gain, weight, of_rank))
    few = np.zeros((len(real), 1), bool)
    if not torch.compiler.is_compiling() and numba_works():
        from ltr.kernels.listwise import worst_ndcg_lists

        few = np.diff(np.sort(g)).astype(bool).sum(-1, keepdims=True) < _MOST_GRADES
        costs = (real & few).sum(-1) ** 2 * 4
        over_lists(lambda lists: worst_ndcg_lists(lists, s, g, a, d, real & few, found), costs)
    _by_assignment(s, g, a, d, real & ~few, found)
    return torch.from_numpy(found).to(best.device)


def _by_assignment(
    s: Doubles, g: Doubles, a: Doubles, d: Doubles, real: Flags, found: Ints
) -> None:
    """Write to ``found`` what ``worst_ndcg_lists`` writes, by SciPy."""
    from scipy.optimize import linear_sum_assignment

    for b in np.nonzero(real.any(-1))[0]:
        ranks, items = np.nonzero(a[b])[0], np.nonzero(real[b])[0]
        items = items[np.lexsort((-s[b][items], -g[b][items]))]
        # Of equal gains, at most as many items as there are weighted ranks can get one of these.
        own = -g[b][items]
        tried = items[np.arange(len(items)) - np.searchsorted(own, own) < len(ranks)]
        worth = np.outer(s[b][tried], a[b][ranks]) - np.outer(g[b][tried], d[b][ranks])
        worth = np.nan_to_num(worth, posinf=0, neginf=0)  # the loss itself is then not finite
        rows, columns = linear_sum_assignment(worth, maximize=True)
        rest = np.setdiff1d(items, tried[rows])
        found[b][tried[rows]] = ranks[columns] + 1
        found[b][rest] = len(ranks) + 1 + np.arange(len(rest))
