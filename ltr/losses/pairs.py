"""Sums over pairs of items: which pairs count, their weights as data, and their costs."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from ltr.errors import ConfigError
from ltr.kernels.dispatch import list_sizes, value_op, with_kernel
from ltr.knobs import check_choice, check_k, check_positive
from ltr.metrics.cumulative_gain import dcg, gains
from ltr.metrics.ordering import rank_of_item, ranks_like
from ltr.relaxations.second_derivatives import plain_path
from ltr.typing import Labels, Mask, Pairs, PerList, Ranks, Scores

COSTS = ("logistic", "hinge", "squared_hinge", "exponential")  # in the order of the kernel, as
COUNTED = ("all", "any", "both")  # these are
LINEAR_FROM = 30.0  # where the exponential goes on as its tangent: exp(30) = 1e13


class PairWeight(NamedTuple):
    """w_ij = own_i + |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)), constants.

    Attributes:
        own, gain, discount: own, g and d of each item, ``[batch, list]``; None is 0.
        ranks: r, ``[batch, list]``, needed with ``steps``.
        steps: step at the distances 1, 2, ..., ``[list]``; None is 0.
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
    """Sum over the pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), ``[batch]``.

    On the CPU each thread takes the memory of one row of pairs. A list without pairs gives 0
    without gradient. Padding is 0 in ``scores`` and ``labels``.

    Args:
        cost: one of ``COSTS``.
        sigma: > 0, slope of the logistic log(1 + exp(-x)), in units of 1 / score.
        k: cutoff rank, None for all pairs.
        pairs: which count at the cutoff of the current ranking: ``"any"``, at least one item in the
            top k, or ``"both"``.
        ordered: False to sum over all j != i, whatever their labels, for i in the top k.
    """
    check_positive("sigma", sigma)
    check_choice("pairs", pairs, COUNTED[1:])
    check_k(k)
    top = mask if k is None else rank_of_item(scores, mask) <= k
    counted = "all" if k is None else pairs
    return _sum_over_pairs(scores, labels, mask, weight, top, counted, ordered, cost, float(sigma))


def _by_loops(
    scores: Scores, labels: Labels, mask: Mask, weight: PairWeight, top: Mask, *knobs: Any
) -> PerList:
    counted, ordered, cost, sigma = knobs
    nothing = torch.zeros((), dtype=torch.float64).expand(mask.shape)
    items = [nothing if x is None else x for x in (weight.own, weight.gain, weight.discount)]
    ranks = mask.long() if weight.ranks is None else weight.ranks
    steps = nothing.new_zeros(mask.shape[-1]) if weight.steps is None else weight.steps
    arrays = [labels, mask, *items, ranks, top, steps]
    numbers = COUNTED.index(counted), ordered, COSTS.index(cost), sigma, LINEAR_FROM
    sizes = list_sizes(mask)
    return value_op("pairs:pair_lists", scores, arrays, [weight.factors, *numbers], sizes**2)


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
    pairs = ordered_pairs(labels, mask)
    if not ordered:
        itself = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
        pairs |= (mask & top).unsqueeze(-1) & mask.unsqueeze(-2) & ~itself
    if counted != "all":
        first, second = top.unsqueeze(-1), top.unsqueeze(-2)
        pairs &= first | second if counted == "any" else first & second
    weights = weight_matrix(weight)
    pairs = pairs & (weights != 0)  # the costs of others may be infinite, and 0 times that is NaN
    if cost == "logistic" and not plain_path():
        return _Logistic.apply(scores, weights, pairs, sigma)
    apart = torch.where(pairs, sigma * differences(scores), torch.inf)
    if cost == "logistic":
        costs = -logsigmoid(apart)
    elif cost == "exponential":
        costs = (-apart).clamp(max=LINEAR_FROM).exp() * (1 + (-apart - LINEAR_FROM).clamp(min=0))
    else:
        short = (1 - apart).clamp(min=0)
        costs = short.square() if cost == "squared_hinge" else short
    return (weights * costs).sum((-2, -1))


class _Logistic(torch.autograd.Function):
    """The weighted sum of log(1 + exp(-z)) and its slope: no matrix over the pairs outlives it.

    The slope by s_i - s_j is sigma w_ij (sigmoid(z) - 1) = sigma w_ij expm1(logsigmoid(z)), z =
    sigma (s_i - s_j). Compiled, no matrix is written at all. First derivatives only.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, pairs: Tensor, sigma: float) -> Tensor:
        logs = logsigmoid(torch.where(pairs, differences(sigma * scores), torch.inf))
        value = -(weights * logs).sum((-2, -1))
        slopes = logs.expm1_().mul_(weights)
        ctx.save_for_backward(sigma * (slopes.sum(-1) - slopes.sum(-2)))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None


def weight_matrix(weight: PairWeight) -> Tensor:
    """w_ij, ``[batch, i, j]``, or ``[batch, i, 1]`` where it is the same for all j."""
    own: Any = 0 if weight.own is None else weight.own.unsqueeze(-1)
    constant, of_discount, of_step = weight.factors
    changes: list[Any] = [constant] if constant else []
    if weight.discount is not None and of_discount:
        changes.append(differences(of_discount * weight.discount).abs_())
    if weight.ranks is not None and weight.steps is not None and of_step:
        apart = differences(weight.ranks).abs_()
        changes.append((of_step * weight.steps)[(apart - 1).clamp(min=0)])  # of 0: of no pair
    if weight.gain is None or not changes:
        return own
    swapped = differences(weight.gain).abs_()
    swapped *= sum(changes[1:], changes[0])
    return swapped if weight.own is None else own + swapped


def differences(values: Tensor) -> Tensor:
    """x_i - x_j of each two items, ``[batch, i, j]``."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)


def ordered_pairs(labels: Labels, mask: Mask) -> Pairs:
    """True where item i is more relevant than item j and both are real, ``[batch, i, j]``."""
    above, below = (labels.masked_fill(~mask, x) for x in (-torch.inf, torch.inf))
    return above.unsqueeze(-1) > below.unsqueeze(-2)


def normalised_gains(labels: Labels, mask: Mask, *, k: int | None) -> Scores:
    """g_j / maxDCG@k of each item, g = 2^y - 1, ``[batch, list]``; 0 in a list without gain."""
    ideal = dcg(labels, labels, mask, k=k).unsqueeze(-1)
    return gains(labels, mask) / ideal.masked_fill(ideal <= 0, 1)


def label_weight(labels: Labels, mask: Mask, pair_weight: str | None) -> PairWeight:
    """The weight of item i over item j that the knob ``pair_weight`` names.

    - None: 1.
    - ``"ndcg_beta"``: tau = (y_i - y_j) / DCG_beta, DCG_beta = sum over ranks r of y_r (n - r) of
      the ideal order. The taus of the pairs in the wrong order add up to 1 - NDCG_beta (the RankNet
      report, eq. 12 to 18, whose division by the number of queries K is the mean over the lists).

    ``labels`` are 0 on padding.

    >>> labels, mask = torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]])
    >>> weight_matrix(label_weight(labels, mask, "ndcg_beta"))[0, 1, 0]  # (2 - 0) / (2 (2 - 1))
    tensor(1.)
    """
    if pair_weight is None:
        return PairWeight(own=torch.ones_like(labels))
    if pair_weight != "ndcg_beta":
        raise ConfigError(
            f"pair_weight={pair_weight!r} is not known: write ndcg_beta, or null (None in Python) "
            "for pairs that all count 1"
        )
    below = (mask.sum(-1, keepdim=True) - ranks_like(mask)).clamp(min=0)
    # padding, labelled 0 here, adds nothing wherever it is sorted to, if no label is below 0
    ideal = (labels.sort(-1, descending=True).values * below).sum(-1, keepdim=True)
    return PairWeight(gain=labels / ideal.masked_fill(ideal <= 0, 1), factors=(1.0, 0.0, 0.0))
