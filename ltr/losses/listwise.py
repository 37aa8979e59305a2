"""ListNet, ListMLE and position-aware ListMLE: likelihoods of the order of the labels."""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.dispatch import (
    accelerated,
    as_array,
    list_sizes,
    value_and_grad,
)
from ltr.kernels.operators import list_operator
from ltr.knobs import check_choice
from ltr.losses.batch import without_padding
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import ranks_like
from ltr.metrics.per_list import check_lists, promoted
from ltr.relaxations.neuralsort import uniform_noise
from ltr.typing import Labels, Mask, PerList, Scores


def listnet_loss(scores: Scores, labels: Labels, mask: Mask) -> PerList:
    r"""Return the ListNet loss of each list: the cross entropy of the top-one probabilities.

    .. math::
        \ell(s, y) = -\sum_j \operatorname{softmax}(y)_j \, \log \operatorname{softmax}(s)_j

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.

    Returns:
        One value per list, ``[batch]``, at least the entropy of softmax(y).

    Raises:
        ConfigError: the shapes or devices of the tensors differ, or the mask is not boolean.

    Source: Cao et al. (2007), section 4; a baseline of Pobrotyn and Bialobrzeski (2021).

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])
    >>> listnet_loss(scores, labels, labels > 0)  # log 2
    tensor([0.6931])
    """
    check_lists(scores, labels, mask)
    return cross_entropy(scores, labels, mask)


def cross_entropy(scores: Scores, target: Scores, mask: Mask) -> PerList:
    """Return minus the sum over items j of softmax(target)_j log softmax(s)_j, ``[batch]``."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    padding = ~mask
    target = target.detach().to(dtype).masked_fill(padding, -torch.inf).softmax(-1)
    costs = -scores.to(dtype).masked_fill(padding, -torch.inf).log_softmax(-1)
    # On padding the product is 0 times infinity.
    return (target * costs).masked_fill(padding, 0).sum(-1)


def listmle_loss(
    scores: Scores, labels: Labels, mask: Mask, *, generator: torch.Generator | None = None
) -> PerList:
    r"""Return the ListMLE loss of each list: minus the log likelihood of the order by label.

    .. math::
        \ell(s, y) = -\sum_{r} \log \frac{e^{s_{(r)}}}{\sum_{q \ge r} e^{s_{(q)}}}

    where s_(r) is the score of the item at rank r in descending order of label. The likelihood is
    that of the Plackett-Luce model. Every call draws a new order of the items with equal labels.
    So, on average, the gradient makes the scores of a list more equal if all its labels are equal.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        generator: draws the order of equal labels; None: torch's own generator.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: the shapes or devices of the tensors differ, or the mask is not boolean.

    Source: Xia et al. (2008), section 4.3.

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
    r"""Return the position-aware ListMLE loss of each list.

    .. math::
        \ell(s, y) = -\sum_{r} w(r) \log \frac{e^{s_{(r)}}}{\sum_{q \ge r} e^{s_{(q)}}}

    where s_(r) is the score of the item at rank r in descending order of label. Items with equal
    labels are put into a random order, as in ``listmle_loss``.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        weight: ``"exp2"`` is w(r) = (2^(n - r) - 1) / (2^(n - 1) - 1) for a list of n items;
            ``"log2"`` is w(r) = 1/log2(1 + r), which decreases more slowly.
        generator: draws the order of equal labels; None: torch's own generator.

    Returns:
        One value per list, ``[batch]``, >= 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Lan et al. (2014), section 4. In the paper, w(r) is 2^(n - r) - 1. Here this is divided
    by its value at rank 1, the largest. So the loss of a long list stays finite, and the
    weight of rank 1 does not depend on the length of the list.

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
        # This is w(r) / w(1), with both multiplied by 2^(1 - n); a list of one item would be 0 / 0.
        last = (1 - mask.sum(-1, keepdim=True).to(dtype)).exp2()
        weights = ((1 - ranks).exp2() - last).clamp(min=0) / (1 - last).masked_fill(last >= 1, 1)
    return _weighted_listmle(scores, labels, mask, generator, weights)


def _weighted_listmle(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    generator: torch.Generator | None,
    weights: Tensor,
) -> PerList:
    """Return ListMLE, each rank's term multiplied by ``weights``, ``[batch, rank]``, >= 0."""
    check_lists(scores, labels, mask)
    noise = uniform_noise(mask, 1, promoted(scores), generator)[0]
    scores, labels = without_padding(scores, labels, mask)
    return _cost_of_order(scores, labels, mask, noise, weights)


@list_operator("listmle")
def _cost_by_loop(
    scores: Tensor, need_grad: bool, labels: Tensor, mask: Tensor, noise: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the values of ``_cost_of_order`` and their gradient."""
    from ltr.kernels.listwise import listmle_lists

    keys = as_array((-labels).masked_fill(~mask, torch.inf))
    draws = as_array(noise)
    if noise.dtype == torch.float32 and bool(((labels % 1 == 0) & (labels.abs() < 1 << 28)).all()):
        order = np.argsort(keys + draws, -1)  # the sums are exact
    else:
        by_noise = np.argsort(draws, -1)
        by_label = np.argsort(np.take_along_axis(keys, by_noise, -1), -1, kind="stable")
        order = np.take_along_axis(by_noise, by_label, -1)
    arrays = [mask, torch.from_numpy(order), weights]
    costs = list_sizes(mask) * 8
    return value_and_grad(listmle_lists, scores, arrays, [], costs, need_grad=need_grad)


@accelerated(_cost_by_loop)
def _cost_of_order(
    scores: Scores, labels: Labels, mask: Mask, noise: Scores, weights: Tensor
) -> PerList:
    """Return the weighted cost of the order by label, then by ``noise``, ``[batch]``."""
    by_noise = noise.argsort(-1)
    keys = labels.masked_fill(~mask, -torch.inf).gather(-1, by_noise)
    order = by_noise.gather(-1, keys.argsort(dim=-1, descending=True, stable=True))
    real = mask.gather(-1, order)
    # Padding is far below every score, but finite: -inf would make the gradient NaN.
    ranked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 4).gather(-1, order)
    ranked = ranked - ranked.detach().logsumexp(-1, keepdim=True)  # keeps digits under a shift
    log_normalisers = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    return ((log_normalisers - ranked).masked_fill(~real, 0) * weights).sum(-1)
