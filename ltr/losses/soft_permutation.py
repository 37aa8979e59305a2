"""Metrics of a softly sorted list: of the permutation, and of labels in the soft order."""

import torch
from torch import Tensor

from ltr.metrics.checks import check_k
from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.relaxations import neural_sort, sinkhorn
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


def minus_ndcg_of(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k of each list, ``[batch]``.

    g = 2^y - 1, d(r) = 1/log2(1 + r). A list without a relevant item gives 0 without gradient.

    Args:
        soft: ``[batch, rank, item]``, the soft permutation S.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.

    Raises:
        ConfigError: ``k`` is out of range.
    """
    return minus_normalised(dcg_of(soft, labels, mask, k=k), labels, mask, k=k)


def dcg_of(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), ``[batch]``."""
    sorted_gains = (soft * gains(labels, mask).unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(mask.shape[-1], soft, k=k)).sum(-1)


def minus_normalised(found: PerList, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus ``found`` over maxDCG@k; 0 without gradient for a list without a relevant item."""
    ideal = dcg(labels, labels, mask, k=k)
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)


def softly_sorted(
    scores: Scores, values: Tensor, mask: Mask, *, temperature: float, max_iter: int, tol: float
) -> Tensor:
    """``values`` in the soft order of the scores, sinkhorn(neural_sort(s)) v, ``[batch, rank]``.

    0 at the ranks beyond the items.

    Args:
        scores: ``[batch, list]``, higher is better, 0 on padding.
        values: ``[batch, list]``, of each item, 0 on padding.
        mask: ``[batch, list]``, True where an item exists.
        temperature: of NeuralSort, > 0.
        max_iter: the most iterations of the Sinkhorn scaling.
        tol: deviation at which the scaling stops.

    Raises:
        ConfigError: a knob is out of range.
    """
    soft = neural_sort(scores, mask, temperature=temperature)
    soft = sinkhorn(soft, mask, max_iter=max_iter, tol=tol)
    return (soft * values.unsqueeze(-2)).sum(-1)


def within(size: int, like: Tensor, k: int | None) -> tuple[Tensor, Tensor]:
    """The ranks from 1 to ``size``, and 1 up to rank ``k`` and 0 beyond, both ``[size]``.

    Raises:
        ConfigError: ``k`` is out of range.
    """
    check_k(k)
    ranks = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    return ranks, (ranks <= (size if k is None else k)).to(like.dtype)


def first_stop(chances: Tensor) -> Tensor:
    """Chance that a user who stops at rank r with chance c_r stops first there, ``[batch, rank]``.

    c_r times the product over q < r of (1 - c_q).

    >>> first_stop(torch.tensor([[0.5, 1.0, 0.5]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    going_on = torch.nn.functional.pad(1 - chances, (1, 0), value=1)[..., :-1].cumprod(-1)
    return chances * going_on


def minus_where(relevant: Tensor, values: PerList) -> PerList:
    """``-values`` of the lists that have a relevant item, 0 without gradient of the others."""
    return (-values).masked_fill(~relevant.any(-1), 0)
