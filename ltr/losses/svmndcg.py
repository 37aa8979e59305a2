"""SVM-NDCG: the structured hinge loss of NDCG, its worst ranking found as a linear assignment."""

import numpy as np
import torch
from torch import Tensor

from ltr.losses.batch import ideal_order, without_padding
from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.metrics.ordering import at_items, ranks_like
from ltr.typing import Labels, Mask, PerList, Ranks, Scores


def svm_ndcg_loss(scores: Scores, labels: Labels, mask: Mask, *, k: int | None = None) -> PerList:
    """SVM-NDCG of each list, ``[batch]``, >= 1 - NDCG@k.

    max over rankings pi of (1 - NDCG@k(pi)) + F(pi) - F(pi*): F(pi) is a weighted mean of the
    scores, that of the item at rank r with the weight a(r) = max(min(k, n) + 1 - r, 0), n the
    number of items, and pi* is the ideal order, equal labels by score. Without k, F(pi) - F(pi*) is
    (n - 1) / (n + 1) times half the mean over all pairs of s_i - s_j, i in front of j, less that of
    pi*. This is the structured hinge of Le and Smola (2007) and Chapelle et al. (2007): Delta and F
    are sums over items of what the item's rank gives, so that the worst ranking is a linear
    assignment of items to ranks, solved exactly; a is a choice of theirs, here divided by its sum.
    All of them train linear models by cutting planes; here any model follows a subgradient of the
    same objective, of which the trainer's ``l2`` is the other part. A list without a relevant item
    gives 0 without gradient.

    The assignment is found on the CPU, in up to n^3 time and the memory of an n x n matrix (k times
    at most k items of each grade, with k); a GPU waits for it.

    Args:
        scores: ``[batch, list]``, higher is better; the margin is in their units.
        k: cutoff rank >= 1, None for the whole list.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> svm_ndcg_loss(scores, labels, mask)  # 1 - 1 / log2(1 + 2)
    tensor([0.3691])
    >>> svm_ndcg_loss(scores + 0.3 * labels, labels, mask)  # less 0.3 (2 - 1) / (2 + 1)
    tensor([0.2691])
    """
    scores, labels = without_padding(scores, labels, mask)
    best = at_items(ideal_order(scores, labels, mask))
    ideal = dcg(labels, labels, mask, k=k).unsqueeze(-1)
    counted = mask & (ideal > 0)
    gain = (gains(labels, mask) / ideal.masked_fill(ideal <= 0, 1)).masked_fill(~counted, 0)
    of_rank, weight = discounts(mask.shape[-1], scores, k=k), _weights(mask, scores, k)
    worst = _worst_ranks(scores, gain, weight, of_rank, best, counted)
    # the first part is 1 - NDCG, the second F(pi) - F(pi*)
    lost = gain * (of_rank[best - 1] - of_rank[worst - 1])
    moved = (weight.gather(-1, worst - 1) - weight.gather(-1, best - 1)).masked_fill(~counted, 0)
    return (lost + moved * scores).sum(-1)


def _weights(mask: Mask, like: Tensor, k: int | None) -> Tensor:
    """a of each rank over its sum, ``[batch, rank]``; 0 beyond the items and beyond k."""
    sizes = mask.sum(-1, keepdim=True)
    sizes = sizes if k is None else sizes.clamp(max=k)
    weights = (sizes + 1 - ranks_like(like)).clamp(min=0).to(like.dtype)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)


def _worst_ranks(
    scores: Scores, gain: Labels, weight: Tensor, of_rank: Tensor, best: Ranks, counted: Mask
) -> Ranks:
    """The rank of each item in the ranking that is the maximum, ``[batch, item]``.

    Items not ``counted`` have their ``best``; behind the ranks of some weight the order is none.
    """
    from scipy.optimize import linear_sum_assignment

    values = (scores, gain, weight, of_rank)
    s, g, a, d = (x.detach().cpu().double().numpy() for x in values)
    places, real = best.cpu().numpy(), counted.cpu().numpy()
    found = places.copy()
    for b in np.nonzero(real.any(-1))[0]:
        ranks = np.nonzero(a[b])[0]
        items = np.nonzero(real[b])[0]
        items = items[np.argsort(places[b][items])]
        # equal gains stand by score: at most as many of each as there are ranks take one
        own = -g[b][items]
        tried = items[np.arange(len(items)) - np.searchsorted(own, own) < len(ranks)]
        worth = np.outer(s[b][tried], a[b][ranks]) - np.outer(g[b][tried], d[ranks])
        worth = np.nan_to_num(worth, posinf=0, neginf=0)  # the value says that it is not finite
        rows, columns = linear_sum_assignment(worth, maximize=True)
        rest = np.setdiff1d(items, tried[rows])
        found[b][tried[rows]] = ranks[columns] + 1
        found[b][rest] = len(ranks) + 1 + np.arange(len(rest))
    return torch.from_numpy(found).to(best.device)
