"""SVM-MAP: the structured hinge loss of average precision."""

import torch

from ltr.kernels.dispatch import list_sizes, value_op, with_kernel
from ltr.losses.batch import without_padding
from ltr.metrics.ordering import order_by_score, running_sums
from ltr.metrics.relevance import is_relevant
from ltr.typing import Labels, Mask, PerList, Scores


def svm_map_loss(
    scores: Scores, labels: Labels, mask: Mask, *, relevant: float | int = 1
) -> PerList:
    """SVM-MAP of each list, ``[batch]``, >= 1 - AP.

    max over rankings pi of (1 - AP(pi)) + F(pi) - F(pi*): AP is average precision, pi* puts every
    relevant item in front of every other one, and F(pi) is the mean over the pairs of a relevant
    item i and another item j of s_i - s_j where pi has i in front of j, of s_j - s_i where not (Yue
    et al., 2007, section 3). The maximum is exact and is found as theirs: both kinds of items stand
    in descending order of score, and each other item goes by itself in front of the relevant items
    from the p-th on for which the sum of

        w_ij = i / (n (i + j) (i + j - 1)) - 2 (s_i - s_j) / (n m)

    is largest, n relevant and m other items, i and j counted in that order: 1 - AP is the sum of
    the first parts over the pairs in the wrong order. Their cutting planes solve for the weights of
    a linear model; here any model follows a subgradient of the same objective, of which the
    trainer's ``l2`` is the other part. A list without a relevant item, or of them alone, gives 0
    without gradient.

    On the CPU a list takes n m time and memory in proportion to its items.

    Args:
        scores: ``[batch, list]``, higher is better; the margin is at most 1/2 in their units.
        relevant: > 0, the lowest label that counts as relevant.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> svm_map_loss(scores, labels, mask)  # 1 - 1/2
    tensor([0.5000])
    >>> svm_map_loss(scores + 0.2 * labels, labels, mask)  # 1 - 1/2 - 2 (0.2 - 0)
    tensor([0.1000])
    """
    scores, labels = without_padding(scores, labels, mask)
    return _hinge(scores, is_relevant(labels, mask, relevant), mask)


def _by_loops(scores: Scores, hits: Mask, mask: Mask) -> PerList:
    loop = "hinge_map:hinge_map_lists"
    return value_op(loop, scores, [mask, hits], [], list_sizes(mask) ** 2)


@with_kernel(_by_loops)
def _hinge(scores: Scores, hits: Mask, mask: Mask) -> PerList:
    """max over rankings of (1 - AP) + F - F(ideal), ``[batch]``."""
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
