"""The weights that make a pairwise loss an upper bound of 1 - NDCG_beta."""

from typing import Any

import torch
from torch import Tensor

from ltr.losses.pairwise import ordered_pairs
from ltr.metrics.checks import check_choice
from ltr.typing import Labels, Mask


def pair_weights(labels: Labels, mask: Mask, pair_weight: str | None) -> Tensor:
    """Weight of item i over item j, ``[batch, i, j]``; 0 unless y_i > y_j and both are real.

    - None: 1.
    - ``ndcg_beta``: tau = (y_i - y_j) / DCG_beta, DCG_beta = sum over ranks r of y_r (n - r) of the
      ideal order. The taus of the pairs in the wrong order add up to 1 - NDCG_beta (the RankNet
      report, eq. 12 to 18, whose division by the number of queries K is the mean over the lists).

    Args:
        labels: ``[batch, list]``, graded relevance, 0 on padding.
        mask: ``[batch, list]``, True where an item exists.
        pair_weight: None or ``"ndcg_beta"``.

    Raises:
        ConfigError: ``pair_weight`` is neither.

    >>> labels, mask = torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]])
    >>> pair_weights(labels, mask, "ndcg_beta")[0, 1].tolist()  # (2 - 0) / (2 (2 - 1))
    [1.0, 0.0]
    """
    pairs = ordered_pairs(labels, mask).to(labels.dtype)
    if pair_weight is None:
        return pairs
    check_choice("pair_weight", pair_weight, ["null", "ndcg_beta"])
    differences = labels.unsqueeze(-1) - labels.unsqueeze(-2)
    return pairs * differences / _ideal(labels, mask).unsqueeze(-1)


def pair_factors(labels: Labels, mask: Mask, pair_weight: str | None) -> dict[str, Any]:
    """The same weights as ``sum_over_pairs`` takes them."""
    if pair_weight is None:
        return {"own": torch.ones_like(labels)}
    check_choice("pair_weight", pair_weight, ["null", "ndcg_beta"])
    return {"gain": labels / _ideal(labels, mask), "factors": (1.0, 0.0, 0.0)}


def _ideal(labels: Labels, mask: Mask) -> Tensor:
    """DCG_beta of the ideal order, 1 where that is 0, ``[batch, 1]``."""
    ranks = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    below = (mask.sum(-1, keepdim=True) - ranks).clamp(min=0)
    # padding, labelled 0 here, adds nothing wherever it is sorted to, if no label is below 0
    ideal = (labels.sort(-1, descending=True).values * below).sum(-1, keepdim=True)
    return ideal.masked_fill(ideal <= 0, 1)
