"""Pairs of items: which pairs count, their weights, and the weighted pairwise logistic loss."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from ltr.errors import ConfigError
from ltr.knobs import check_choice, check_k, check_positive
from ltr.losses.batch import without_padding
from ltr.metrics.cumulative_gain import dcg, gains
from ltr.metrics.ordering import rank_of_item, ranks_like
from ltr.relaxations.second_derivatives import plain_path, twice
from ltr.typing import Labels, Mask, Pairs, PerList, Scores


@twice
def pairwise_logistic(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    weights: Tensor,
    *,
    sigma: float = 1.0,
    pairs: Pairs | None = None,
) -> PerList:
    """Sum over the pairs y_i > y_j of w_ij log(1 + exp(-sigma (s_i - s_j))), ``[batch]``.

    Natural logarithm, exact at any difference of scores (Burges et al., 2005; C of the RankNet note
    with alpha = sigma). A list without pairs gives 0 without gradient.

    Args:
        weights: w_ij of item i over item j, ``[batch, i, j]``; finite, at other pairs too.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        pairs: the pairs to sum over instead, ``[batch, i, j]``.
    """
    check_positive("sigma", sigma)
    scores, labels = without_padding(scores, labels, mask)
    pairs = ordered_pairs(labels, mask) if pairs is None else pairs
    pairs = pairs & (weights != 0)  # the costs of others may be infinite, and 0 times that is NaN
    if (scores.device.type != "cpu" or torch.compiler.is_compiling()) and not plain_path():
        return _ValueAndSlope.apply(scores, weights, pairs, float(sigma))
    costs = -logsigmoid(torch.where(pairs, sigma * differences(scores), torch.inf))
    return (weights * costs).sum((-2, -1))


class _ValueAndSlope(torch.autograd.Function):
    """``pairwise_logistic`` and its slope in one pass: no matrix over the pairs outlives it.

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


def differences(values: Tensor) -> Tensor:
    """x_i - x_j of each two items, ``[batch, i, j]``."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)


def ordered_pairs(labels: Labels, mask: Mask) -> Pairs:
    """True where item i is more relevant than item j and both are real, ``[batch, i, j]``."""
    above, below = (labels.masked_fill(~mask, x) for x in (-torch.inf, torch.inf))
    return above.unsqueeze(-1) > below.unsqueeze(-2)


def all_pairs(mask: Mask) -> Pairs:
    """True where i and j are two real items, in both orders, ``[batch, i, j]``."""
    itself = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    return mask.unsqueeze(-1) & mask.unsqueeze(-2) & ~itself


def pairs_at_cutoff(scores: Scores, mask: Mask, *, k: int | None, pairs: str) -> Pairs:
    """True where a pair counts at the cutoff ``k`` of the current ranking, ``[batch, i, j]``.

    ``"any"``: at least one item of the pair in the top k; ``"both"``: both; k = None: every pair.
    """
    check_choice("pairs", pairs, ["any", "both"])
    check_k(k)
    if k is None:
        return torch.ones_like(mask).unsqueeze(-1).expand(-1, -1, mask.shape[-1])
    top = rank_of_item(scores, mask) <= k
    first, second = top.unsqueeze(-1), top.unsqueeze(-2)
    return first | second if pairs == "any" else first & second


def normalised_gains(labels: Labels, mask: Mask, *, k: int | None) -> Scores:
    """g_j / maxDCG@k of each item, g = 2^y - 1, ``[batch, list]``; 0 in a list without gain."""
    ideal = dcg(labels, labels, mask, k=k).unsqueeze(-1)
    return gains(labels, mask) / ideal.masked_fill(ideal <= 0, 1)


def pair_weights(labels: Labels, mask: Mask, pair_weight: str | None) -> Tensor:
    """Weight of item i over item j, ``[batch, i, j]``; 0 unless y_i > y_j and both are real.

    - None: 1.
    - ``"ndcg_beta"``: tau = (y_i - y_j) / DCG_beta, DCG_beta = sum over ranks r of y_r (n - r) of
      the ideal order. The taus of the pairs in the wrong order add up to 1 - NDCG_beta (the RankNet
      report, eq. 12 to 18, whose division by the number of queries K is the mean over the lists).

    ``labels`` are 0 on padding.

    >>> labels, mask = torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]])
    >>> pair_weights(labels, mask, "ndcg_beta")[0, 1].tolist()  # (2 - 0) / (2 (2 - 1))
    [1.0, 0.0]
    """
    pairs = ordered_pairs(labels, mask).to(labels.dtype)
    if not _by_ndcg_beta(pair_weight):
        return pairs
    return pairs * differences(labels) / _ideal(labels, mask).unsqueeze(-1)


def pair_factors(labels: Labels, mask: Mask, pair_weight: str | None) -> dict[str, Any]:
    """The same weights as arguments of ``sum_over_pairs``."""
    if not _by_ndcg_beta(pair_weight):
        return {"own": torch.ones_like(labels)}
    return {"gain": labels / _ideal(labels, mask), "factors": (1.0, 0.0, 0.0)}


def _by_ndcg_beta(pair_weight: str | None) -> bool:
    if pair_weight not in (None, "ndcg_beta"):
        raise ConfigError(
            f"pair_weight={pair_weight!r} is not known: write ndcg_beta, or null (None in Python) "
            "for pairs that all count 1"
        )
    return pair_weight is not None


def _ideal(labels: Labels, mask: Mask) -> Tensor:
    """DCG_beta of the ideal order, 1 where that is 0, ``[batch, 1]``."""
    below = (mask.sum(-1, keepdim=True) - ranks_like(mask)).clamp(min=0)
    # padding, labelled 0 here, adds nothing wherever it is sorted to, if no label is below 0
    ideal = (labels.sort(-1, descending=True).values * below).sum(-1, keepdim=True)
    return ideal.masked_fill(ideal <= 0, 1)
