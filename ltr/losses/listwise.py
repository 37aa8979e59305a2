"""ListNet, ListMLE and position-aware ListMLE: likelihoods of the order given by the labels."""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.dispatch import Work, as_array, list_sizes, value_op, with_kernel
from ltr.knobs import check_choice
from ltr.losses.batch import without_padding
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import ranks_like
from ltr.metrics.per_list import check_lists, promoted
from ltr.relaxations.neuralsort import uniform_noise
from ltr.typing import Labels, Mask, PerList, Scores


def listnet_loss(scores: Scores, labels: Labels, mask: Mask) -> PerList:
    """Return the ListNet loss of each list, ``[batch]``, >= the entropy of softmax(y).

    The loss is minus the sum over items j of softmax(y)_j log softmax(s)_j. This is the cross
    entropy of the top-one probabilities, for labels y and scores s (Cao et al., 2007, section 4; a
    baseline of Pobrotyn and Bialobrzeski, 2021).

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])
    >>> listnet_loss(scores, labels, labels > 0)  # log 2
    tensor([0.6931])
    """
    check_lists(scores, labels, mask)
    return cross_entropy(scores, labels, mask)


def cross_entropy(scores: Scores, target: Scores, mask: Mask) -> PerList:
    """Return minus the sum over items j of softmax(target)_j log softmax(s)_j, ``[batch]``."""
    dtype, outside = torch.promote_types(scores.dtype, torch.float32), ~mask
    target = target.detach().to(dtype).masked_fill(outside, -torch.inf).softmax(-1)
    costs = -scores.to(dtype).masked_fill(outside, -torch.inf).log_softmax(-1)
    # on padding the product is 0 times infinity
    return (target * costs).masked_fill(outside, 0).sum(-1)


def listmle_loss(
    scores: Scores, labels: Labels, mask: Mask, *, generator: torch.Generator | None = None
) -> PerList:
    """Return the ListMLE loss of each list, ``[batch]``, >= 0.

    The loss is minus the sum over ranks r of log(exp(s_r) / sum over q >= r of exp(s_q)), where s_r
    is the score of the item at rank r in descending order of label. This is minus the log
    likelihood of that order under the Plackett-Luce model (Xia et al., 2008, section 4.3). At every
    call, ``generator`` draws a new order for items with equal labels. So, on average, an empty list
    pulls its scores together.

    >>> scores, labels = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> listmle_loss(scores, labels, labels >= 0)  # log 3 + log 2 + log 1
    tensor([1.7918])
    """
    ones = torch.ones_like(mask, dtype=torch.float32)
    return _weighted_listmle(scores, labels, mask, generator, ones)


def p_listmle_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    weight: str = "exp2",
    generator: torch.Generator | None = None,
) -> PerList:
    """Return the position-aware ListMLE loss of each list, ``[batch]``, >= 0.

    It is ``listmle_loss`` with the term of each rank weighted by w(r). With ``weight="exp2"``,
    w(r) = 2^(n - r) - 1 for a list of n items (Lan et al., 2014, section 4). Unlike in the paper,
    w(r) is divided by its largest value, w(1), so that the loss of a long list stays finite and
    lists of all lengths weigh the same. With ``weight="log2"``, w(r) = 1/log2(1 + r), which
    decreases more slowly.

    >>> scores, labels = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> p_listmle_loss(scores, labels, labels >= 0)  # log 3 + (2**1 - 1) / (2**2 - 1) log 2
    tensor([1.3297])
    """
    check_choice("weight", weight, ["exp2", "log2"])
    dtype = torch.promote_types(scores.dtype, torch.float32)
    ranks = ranks_like(mask).to(dtype)
    if weight == "log2":
        weights = discounts(mask.shape[-1], ranks).expand(mask.shape)
    else:
        # w(r) / w(1), with both multiplied by 2^(1 - n); a list of one item would be 0 / 0
        last = (1 - mask.sum(-1, keepdim=True).to(dtype)).exp2()
        weights = ((1 - ranks).exp2() - last).clamp(min=0) / (1 - last).masked_fill(last >= 1, 1)
    return _weighted_listmle(scores, labels, mask, generator, weights)


def _weighted_listmle(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    generator: torch.Generator | None,
    of_rank: Tensor,
) -> PerList:
    """Return ListMLE with the term of each rank weighted by ``of_rank`` >= 0, ``[batch, rank]``."""
    check_lists(scores, labels, mask)
    noise = uniform_noise(mask, 1, promoted(scores), generator)[0]
    scores, labels = without_padding(scores, labels, mask)
    return _cost_of_order(scores, labels, mask, noise, of_rank)


def _by_loops(scores: Scores, labels: Labels, mask: Mask, noise: Scores, of_rank: Tensor) -> Work:
    keys, drawn = as_array((-labels).masked_fill(~mask, torch.inf)), as_array(noise)
    if noise.dtype == torch.float32 and bool(((labels % 1 == 0) & (labels.abs() < 1 << 28)).all()):
        order = np.argsort(keys + drawn, -1)  # the sums are exact
    else:
        draws = np.argsort(drawn, -1)
        by_label = np.argsort(np.take_along_axis(keys, draws, -1), -1, kind="stable")
        order = np.take_along_axis(draws, by_label, -1)
    arrays = [mask, torch.from_numpy(order), of_rank]
    return value_op("listwise:listmle_lists", arrays, [], list_sizes(mask) * 8)


@with_kernel(_by_loops)
def _cost_of_order(
    scores: Scores, labels: Labels, mask: Mask, noise: Scores, of_rank: Tensor
) -> PerList:
    draws = noise.argsort(-1)
    keys = labels.masked_fill(~mask, -torch.inf).gather(-1, draws)
    order = draws.gather(-1, keys.argsort(dim=-1, descending=True, stable=True))
    real = mask.gather(-1, order)
    # far below every score, but finite, because -inf would make the gradient NaN
    ranked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 4).gather(-1, order)
    ranked = ranked - ranked.detach().logsumexp(-1, keepdim=True)  # else a shift loses digits
    left = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    return ((left - ranked).masked_fill(~real, 0) * of_rank).sum(-1)
