"""Sums over pairs of items: which pairs count, their weights, and their costs."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ltr.kernels.dispatch import Work, list_sizes, slope_op, value_op, with_kernel
from ltr.knobs import check_choice, check_k, check_positive
from ltr.metrics.ordering import rank_of_item
from ltr.relaxations.second_derivatives import fast_path
from ltr.typing import Labels, Mask, PerList, Ranks, Scores

COSTS = ("logistic", "hinge", "squared_hinge", "exponential")  # the kernel numbers both
COUNTED = ("all", "any", "both")  # in the order given here
LINEAR_FROM = 30.0  # from here the exponential continues as its tangent: exp(30) = 1e13


class PairWeight(NamedTuple):
    """The weight w_ij of a pair, as the constants from which it is computed.

    w_ij = own_i + |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)).

    Attributes:
        own, gain, discount: own, g and d of each item, ``[batch, list]``; None means 0.
        ranks: r, ``[batch, list]``, needed if ``steps`` is given.
        steps: the values of step at the distances 1, 2, ..., ``[list]``; None means 0.
        factors: c, c_d and c_s.
    """

    own: Scores | None = None
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
    """Return the sum over the pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), ``[batch]``.

    On the CPU each thread needs memory for only one row of pairs.

    Args:
        scores, labels: ``[batch, list]``, 0 on padding.
        mask: ``[batch, list]``, True where an item exists.
        weight: the weights w.
        cost: one of ``COSTS``; logistic is log(1 + exp(-x)).
        sigma: > 0, in units of 1 / score.
        k: a cutoff rank; None: all pairs count.
        pairs: which pairs count if there is a cutoff: ``"any"``, those with at least one item in
            the current top k, or ``"both"``, those with both items in it.
        ordered: if False, also count the pairs of an item i in the top k with every other item j,
            whatever the labels.
    """
    sigma = check_positive("sigma", sigma)
    top = _top(scores, mask, k, pairs)
    counted = "all" if k is None else pairs
    if cost != "logistic" and sigma != 1:  # the kernel has a sigma for the logistic alone
        scores, sigma = sigma * scores, 1.0
    found = _sum_over_pairs(scores, labels, mask, weight, top, counted, ordered, cost, float(sigma))
    if weight.gain is None:
        return found
    return found.masked_fill(weight.gain.isnan().any(-1), torch.nan)  # of a list without pairs too


def pairs_counted(scores: Scores, labels: Labels, mask: Mask, k: int | None, pairs: str) -> Tensor:
    """Return the number of pairs that ``sum_over_pairs`` counts in each list, ``[batch, 1]``."""
    top = mask & _top(scores, mask, k, pairs)
    if pairs == "both":
        return _ordered_pairs(labels, top)
    return _ordered_pairs(labels, mask) - _ordered_pairs(labels, mask & ~top)


def _top(scores: Scores, mask: Mask, k: int | None, pairs: str) -> Mask:
    check_choice("pairs", pairs, COUNTED[1:])
    check_k(k)
    return mask if k is None else rank_of_item(scores, mask) <= k


def _ordered_pairs(labels: Labels, among: Mask) -> Tensor:
    """Return the number of pairs y_i > y_j with both items in ``among``, ``[batch, 1]``."""
    labels = labels.contiguous()
    ascending = labels.masked_fill(~among, torch.inf).sort(-1).values
    lower = torch.searchsorted(ascending, labels)
    return lower.masked_fill(~among, 0).sum(-1, keepdim=True)


def _by_loops(
    scores: Scores, labels: Labels, mask: Mask, weight: PairWeight, top: Mask, *knobs: Any
) -> Work:
    counted, ordered, cost, sigma = knobs
    nothing = torch.zeros((), dtype=torch.float64, device=mask.device).expand(mask.shape)
    items = [nothing if x is None else x for x in (weight.own, weight.gain, weight.discount)]
    ranks = mask.long() if weight.ranks is None else weight.ranks
    steps = nothing.new_zeros(mask.shape[-1]) if weight.steps is None else weight.steps
    numbers = COUNTED.index(counted), ordered, COSTS.index(cost), sigma, LINEAR_FROM
    arrays, costs = [labels, mask, *items, ranks, top, steps], list_sizes(mask) ** 2
    return value_op("pairs:pair_lists", arrays, [weight.factors, *numbers], costs)


@with_kernel(_by_loops)
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
    above, below = (labels.masked_fill(~mask, x) for x in (-torch.inf, torch.inf))
    pairs = above.unsqueeze(-1) > below.unsqueeze(-2)
    if not ordered:
        itself = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
        pairs = pairs | ((mask & top).unsqueeze(-1) & mask.unsqueeze(-2) & ~itself)
    if counted != "all":
        first, second = top.unsqueeze(-1), top.unsqueeze(-2)
        pairs = pairs & (first | second if counted == "any" else first & second)
    weights = _weight_matrix(weight)
    pairs = pairs & (weights != 0)  # other costs may be infinite: 0 * inf is NaN

    def plain(scores: Scores) -> PerList:
        apart = torch.where(pairs, sigma * _differences(scores), torch.inf)
        if cost == "logistic":
            costs = -logsigmoid(apart)
        elif cost == "exponential":
            growing = (-apart).clamp(max=LINEAR_FROM).exp()
            costs = growing * (1 + (-apart - LINEAR_FROM).clamp(min=0))
        else:
            short = (1 - apart).clamp(min=0)
            costs = short.square() if cost == "squared_hinge" else short
        return (weights * costs).sum((-2, -1))

    def logistic(scores: Scores, _: bool) -> tuple[PerList, Scores]:
        """Return the weighted sum of log(1 + exp(-z)), z = sigma (s_i - s_j), and its slope.

        With respect to s_i - s_j, the slope is sigma w_ij (sigmoid(z) - 1) =
        sigma w_ij expm1(logsigmoid(z)).
        """
        logs = logsigmoid(torch.where(pairs, _differences(sigma * scores), torch.inf))
        value = -(weights * logs).sum((-2, -1))
        slopes = logs.expm1_().mul_(weights)
        return value, sigma * (slopes.sum(-1) - slopes.sum(-2))

    if cost != "logistic":
        return plain(scores)
    return fast_path(scores, *slope_op(logistic), plain)


def _weight_matrix(weight: PairWeight) -> Tensor:
    """Return w_ij, ``[batch, i, j]``, or ``[batch, i, 1]`` if it is the same for all j."""
    own: Any = 0 if weight.own is None else weight.own.unsqueeze(-1)
    constant, of_discount, of_step = weight.factors
    changes: list[Any] = [constant] if constant else []
    if weight.discount is not None and of_discount:
        changes.append(_differences(of_discount * weight.discount).abs_())
    if weight.ranks is not None and weight.steps is not None and of_step:
        apart = _differences(weight.ranks).abs_()
        changes.append((of_step * weight.steps)[(apart - 1).clamp(min=0)])  # 0: not a pair
    if weight.gain is None or not changes:
        return own
    swapped = _differences(weight.gain).abs_() * sum(changes[1:], changes[0])
    return swapped if weight.own is None else own + swapped


def _differences(values: Tensor) -> Tensor:
    """Return x_i - x_j for every pair of items, ``[batch, i, j]``."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)
