"""What NeuralMAP, NeuralMRR, NeuralPrecision and NeuralERR share: labels softly sorted."""

import torch
from torch import Tensor

from ltr.metrics.checks import check_k
from ltr.relaxations import neural_sort, sinkhorn
from ltr.typing import Mask, PerList, Scores


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
