"""Sums over pairs of items: the pairs that count, their weights, and their costs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ltr.kernels.dispatch import (
    accelerated,
    list_sizes,
    value_and_grad,
)
from ltr.kernels.operators import list_operator, scale_gradients
from ltr.knobs import check_choice, check_k, check_positive
from ltr.metrics.ordering import rank_of_item
from ltr.relaxations.second_derivatives import fast_path
from ltr.typing import Labels, Mask, PerList, Ranks, Scores

# The kernel receives the index of a choice, so the order matters.
COSTS = ("logistic", "hinge", "squared_hinge", "exponential")
COUNTED = ("all", "any", "both")
LINEAR_FROM = 30.0  # from here on the exponential continues as its tangent; exp(30) = 1e13


class PairWeight(NamedTuple):
    r"""The quantities from which the weight w_ij of a pair is computed.

    .. math::
        w_{ij} = \mathrm{base}_i + |g_i - g_j|
        \left(c + c_d |d_i - d_j| + c_s \, \mathrm{step}(|r_i - r_j|)\right)

    Attributes:
        base, gain, discount: base, g and d of each item, ``[batch, list]``; None means 0.
        ranks: r, ``[batch, list]``, needed if ``steps`` is given.
        steps: the values of step at the distances 1, 2, ..., ``[list]``; None means 0.
        factors: the constants c, c_d and c_s.
    """

    base: Scores | None = None
    gain: Scores | None = None
    discount: Scores | None = None
    ranks: Ranks | None = None
    steps: Tensor | None = None
    factors: tuple[float, float, float] = (0.0, 0.0, 0.0)


def sum_over_pairs(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    weight: PairWeight,
    *,
    cost: str = "logistic",
    sigma: float = 1.0,
    k: int | None = None,
    pairs: str = "any",
    ordered: bool = True,
) -> PerList:
    r"""Return, for each list, ``[batch]``, the weighted sum of the costs of its pairs.

    .. math::
        \sum_{y_i > y_j} w_{ij} \, \mathrm{cost}(\sigma (s_i - s_j))

    On the CPU, each thread needs memory only for the pairs of one item.

    Args:
        scores, labels: ``[batch, list]``, 0 on padding.
        mask: ``[batch, list]``, True where an item exists.
        weight: the weights w.
        cost: one of ``COSTS``; logistic is log(1 + exp(-x)).
        sigma: > 0, in units of 1 / score.
        k: a cutoff rank; None: all pairs count.
        pairs: which pairs count if there is a cutoff: those with at least one item in the current
            top k (``"any"``), or those with both items in it (``"both"``).
        ordered: if False, also count the pairs of each item i in the top k with all other items j,
            whatever their labels.
    """
    sigma = check_positive("sigma", sigma)
    top = _top(scores, mask, k, pairs)
    counted = "all" if k is None else pairs
    if cost != "logistic" and sigma != 1:  # the kernel has a sigma for the logistic cost only
        scores = sigma * scores
        sigma = 1.0
    values = _sum_over_pairs(
        scores, labels, mask, weight, top, counted, ordered, cost, float(sigma)
    )
    if weight.gain is None:
        return values
    # The value of a list without pairs must be NaN too if one of its gains is NaN.
    return values.masked_fill(weight.gain.isnan().any(-1), torch.nan)


def pairs_counted(scores: Scores, labels: Labels, mask: Mask, k: int | None, pairs: str) -> Tensor:
    """Return the number, ``[batch, 1]``, of pairs that ``sum_over_pairs`` counts in each list."""
    top = mask & _top(scores, mask, k, pairs)
    if pairs == "both":
        return _ordered_pairs(labels, top)
    return _ordered_pairs(labels, mask) - _ordered_pairs(labels, mask & ~top)


def _top(scores: Scores, mask: Mask, k: int | None, pairs: str) -> Mask:
    """Return True for the items in the current top k, ``[batch, list]``."""
    check_choice("pairs", pairs, COUNTED[1:])
    check_k(k)
    return mask if k is None else rank_of_item(scores, mask) <= k


def _ordered_pairs(labels: Labels, among: Mask) -> Tensor:
    """Return the number, ``[batch, 1]``, of pairs y_i > y_j with both items in ``among``."""
    labels = labels.contiguous()
    ascending = labels.masked_fill(~among, torch.inf).sort(-1).values
    lower = torch.searchsorted(ascending, labels)
    return lower.masked_fill(~among, 0).sum(-1, keepdim=True)


@list_operator("sum_over_pairs")
def _sum_by_loop(
    scores: Tensor,
    need_grad: bool,
    labels: Tensor,
    mask: Tensor,
    base: Tensor | None,
    gain: Tensor | None,
    discount: Tensor | None,
    ranks: Tensor | None,
    steps: Tensor | None,
    factors: Sequence[float],
    top: Tensor,
    counted: str,
    ordered: bool,
    cost: str,
    sigma: float,
) -> tuple[Tensor, Tensor]:
    """Return the values of ``_sum_over_pairs`` and their gradient.

    The arguments from ``base`` to ``factors`` are the fields of ``PairWeight``.
    """
    from ltr.kernels.pairs import pair_lists

    zeros = torch.zeros((), dtype=torch.float64, device=mask.device).expand(mask.shape)
    per_item = [zeros if x is None else x for x in (base, gain, discount)]
    ranks = mask.long() if ranks is None else ranks
    steps = zeros.new_zeros(mask.shape[-1]) if steps is None else steps
    arrays = [labels, mask, *per_item, ranks, top, steps]
    choices = [COUNTED.index(counted), ordered, COSTS.index(cost)]
    knobs = [tuple(factors), *choices, sigma, LINEAR_FROM]
    costs = list_sizes(mask) ** 2
    return value_and_grad(pair_lists, scores, arrays, knobs, costs, need_grad=need_grad)


def _sum_by_kernel(
    scores: Scores,
    need_grad: bool,
    labels: Labels,
    mask: Mask,
    weight: PairWeight,
    top: Mask,
    counted: str,
    ordered: bool,
    cost: str,
    sigma: float,
) -> tuple[PerList, Scores]:
    """Call ``_sum_by_loop`` with the fields of ``weight``; an operator cannot take a tuple."""
    return _sum_by_loop(
        scores, need_grad, labels, mask, *weight, top, counted, ordered, cost, sigma
    )


@accelerated(_sum_by_kernel)
def _sum_over_pairs(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    weight: PairWeight,
    top: Mask,
    counted: str,
    ordered: bool,
    cost: str,
    sigma: float,
) -> PerList:
    """Return the sum of the weighted costs of the counted pairs, ``[batch]``."""
    weights = _weight_matrix(weight)
    # A pair of weight 0 is left out: its cost may be infinite, and 0 * inf is NaN.
    pairs = _counted_pairs(labels, mask, top, counted, ordered) & (weights != 0)

    def plain(scores: Scores) -> PerList:
        margins = torch.where(pairs, sigma * _differences(scores), torch.inf)
        return (weights * _COST_FUNCTIONS[cost](margins)).sum((-2, -1))

    def logistic(scores: Scores, _: bool) -> tuple[PerList, Scores]:
        """Return the weighted sum of log(1 + exp(-z)), z = sigma (s_i - s_j), and its gradient.

        The derivative with respect to s_i - s_j is sigma w_ij (sigmoid(z) - 1) =
        sigma w_ij expm1(logsigmoid(z)).
        """
        logs = logsigmoid(torch.where(pairs, _differences(sigma * scores), torch.inf))
        value = -(weights * logs).sum((-2, -1))
        slopes = logs.expm1_().mul_(weights)
        return value, sigma * (slopes.sum(-1) - slopes.sum(-2))

    if cost != "logistic":
        return plain(scores)
    return fast_path(scores, logistic, scale_gradients, plain)


def _counted_pairs(labels: Labels, mask: Mask, top: Mask, counted: str, ordered: bool) -> Tensor:
    """Return True for the pairs that count, ``[batch, i, j]``."""
    above = labels.masked_fill(~mask, -torch.inf)
    below = labels.masked_fill(~mask, torch.inf)
    pairs = above.unsqueeze(-1) > below.unsqueeze(-2)
    if not ordered:
        itself = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
        pairs = pairs | ((mask & top).unsqueeze(-1) & mask.unsqueeze(-2) & ~itself)
    i_in_top = top.unsqueeze(-1)
    j_in_top = top.unsqueeze(-2)
    if counted == "any":
        return pairs & (i_in_top | j_in_top)
    if counted == "both":
        return pairs & (i_in_top & j_in_top)
    return pairs


def _logistic(margins: Tensor) -> Tensor:
    return -logsigmoid(margins)


def _hinge(margins: Tensor) -> Tensor:
    return (1 - margins).clamp(min=0)


def _squared_hinge(margins: Tensor) -> Tensor:
    return _hinge(margins).square()


def _exponential(margins: Tensor) -> Tensor:
    growing = (-margins).clamp(max=LINEAR_FROM).exp()
    return growing * (1 + (-margins - LINEAR_FROM).clamp(min=0))


_COST_FUNCTIONS = {
    "logistic": _logistic,
    "hinge": _hinge,
    "squared_hinge": _squared_hinge,
    "exponential": _exponential,
}


def _weight_matrix(weight: PairWeight) -> Tensor:
    """Return w_ij, ``[batch, i, j]``, or ``[batch, i, 1]`` if it is the same for all j."""
    base: Any = 0 if weight.base is None else weight.base.unsqueeze(-1)
    constant, discount_factor, step_factor = weight.factors
    terms: list[Any] = [constant] if constant else []
    if weight.discount is not None and discount_factor:
        terms.append(_differences(discount_factor * weight.discount).abs_())
    if weight.ranks is not None and weight.steps is not None and step_factor:
        distances = _differences(weight.ranks).abs_()
        # The distance of an item from itself is 0, but an item forms no pair with itself.
        terms.append((step_factor * weight.steps)[(distances - 1).clamp(min=0)])
    if weight.gain is None or not terms:
        return base
    changes = _differences(weight.gain).abs_() * sum(terms[1:], terms[0])
    return changes if weight.base is None else base + changes


def _differences(values: Tensor) -> Tensor:
    """Return x_i - x_j for every pair of items, ``[batch, i, j]``."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)
