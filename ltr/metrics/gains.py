"""Gain of a label and discount of a rank: the two tables inside DCG."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.metrics.checks import check_choice, check_gain, check_k
from ltr.metrics.convention import DISCOUNTS, GAINS
from ltr.typing import Labels, Mask


def gains(labels: Labels, mask: Mask, *, gain: str | Sequence[float | int] = "exp2") -> Labels:
    """2^y - 1 (``exp2``), y (``linear``) or ``gain[y]`` of each item, 0 on padding.

    Returns ``[batch, list]``. A table is looked up after a check of the labels, for which a GPU
    must wait; the named gains need none.

    Raises:
        ConfigError: ``gain`` is none of them, or a label is no grade of the table.

    >>> gains(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[True, True, False]]), gain=[0, 1, 5])
    tensor([[0., 5., 0.]])
    """
    check_gain(gain, list(GAINS))
    labels = labels.masked_fill(~mask, 0)
    if isinstance(gain, str):
        return labels.exp2() - 1 if gain == "exp2" else labels
    if not bool(((labels >= 0) & (labels < len(gain)) & (labels == labels.floor())).all()):
        raise ConfigError(
            f"gain={list(gain)} has the grades 0 to {len(gain) - 1}, but other labels are in the "
            "data: write a gain for each grade"
        )
    table = torch.tensor(gain, dtype=labels.dtype, device=labels.device)
    return table[labels.long()].masked_fill(~mask, 0)


def discounts(size: int, like: Tensor, *, k: int | None = None, discount: str = "log2") -> Tensor:
    """The discount of the ranks 1 to ``size``, 0 beyond ``k``, ``[size]``.

    ``log2`` is 1/log2(1 + rank), ``letor`` is 1 at ranks 1 and 2 and 1/log2(rank) from 3 on.
    ``like`` gives dtype and device.

    Raises:
        ConfigError: ``discount`` is neither, or ``k`` < 1.

    >>> discounts(4, torch.zeros(()), k=3, discount="letor") * torch.tensor([1, 1, 3, 4]).log2()
    tensor([0., 0., 1., 0.])
    """
    check_choice("discount", discount, list(DISCOUNTS))
    ranks = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    values = 1 / (ranks + 1 if discount == "log2" else ranks.clamp(min=2)).log2()
    return cut(values, k)


def cut(values: Tensor, k: int | None) -> Tensor:
    """``values`` ``[..., rank]`` with 0 beyond rank ``k``; all of them where ``k`` is None.

    Raises:
        ConfigError: ``k`` < 1.
    """
    check_k(k)
    if k is None:
        return values
    ranks = torch.arange(1, values.shape[-1] + 1, device=values.device)
    return values.masked_fill(ranks > k, 0)
