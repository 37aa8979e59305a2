"""Pairs of items, and the weighted pairwise logistic loss of RankNet, LambdaRank and LambdaLoss."""

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import logsigmoid

from ltr.losses.inputs import without_padding
from ltr.metrics.checks import check_choice, check_k, check_positive
from ltr.metrics.ordering import rank_of_item
from ltr.typing import Labels, Mask, PerList, Scores

Pairs = Bool[Tensor, "batch list list"]


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

    Natural logarithm, exact at any difference of scores. The sum is not divided by the number of
    pairs. A list without pairs gives 0 without gradient (Burges et al., 2005; C of the RankNet
    note with alpha = sigma).

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance.
        mask: ``[batch, list]``, True where an item exists.
        weights: ``[batch, list, list]``, finite, w_ij of item i over item j; those of other pairs
            are not used.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        pairs: ``[batch, list, list]``, the pairs to sum over instead.

    Raises:
        ConfigError: ``sigma`` is not above 0.
    """
    check_positive("sigma", sigma)
    scores, labels = without_padding(scores, labels, mask)
    pairs = ordered_pairs(labels, mask) if pairs is None else pairs
    costs = -logsigmoid(sigma * (scores.unsqueeze(-1) - scores.unsqueeze(-2)))
    return (weights.masked_fill(~pairs, 0) * costs).sum((-2, -1))


def ordered_pairs(labels: Labels, mask: Mask) -> Pairs:
    """Where item i is more relevant than item j, both of them real, ``[batch, i, j]``."""
    pairs = labels.unsqueeze(-1) > labels.unsqueeze(-2)
    return pairs & mask.unsqueeze(-1) & mask.unsqueeze(-2)


def all_pairs(mask: Mask) -> Pairs:
    """Where i and j are two real items, in both orders, ``[batch, i, j]``."""
    itself = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    return mask.unsqueeze(-1) & mask.unsqueeze(-2) & ~itself


def pairs_at_cutoff(scores: Scores, mask: Mask, *, k: int | None, pairs: str) -> Pairs:
    """Which pairs count at the cutoff ``k`` of the current ranking, ``[batch, i, j]``.

    ``"any"``: at least one item of the pair in the top k, ``"both"``: both. All, if k is None.

    Raises:
        ConfigError: ``k`` < 1, or ``pairs`` is neither.
    """
    check_choice("pairs", pairs, ["any", "both"])
    check_k(k)
    if k is None:
        return torch.ones_like(mask).unsqueeze(-1).expand(-1, -1, mask.shape[-1])
    top = rank_of_item(scores, mask) <= k
    first, second = top.unsqueeze(-1), top.unsqueeze(-2)
    return first | second if pairs == "any" else first & second
