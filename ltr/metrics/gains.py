"""Gain of a label and discount of a rank: the two tables inside DCG."""

import torch
from torch import Tensor

from ltr.metrics.checks import check_choice, check_k
from ltr.metrics.convention import DISCOUNTS, GAINS
from ltr.typing import Labels, Mask


def gains(labels: Labels, mask: Mask, *, gain: str = "exp2") -> Labels:
    """2^y - 1 (``exp2``) or y (``linear``) of each item, 0 on padding, ``[batch, list]``.

    Raises:
        ConfigError: ``gain`` is neither.
    """
    check_choice("gain", gain, list(GAINS))
    labels = labels.masked_fill(~mask, 0)
    return labels.exp2() - 1 if gain == "exp2" else labels


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
    check_k(k)
    ranks = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    values = 1 / (ranks + 1 if discount == "log2" else ranks.clamp(min=2)).log2()
    return values if k is None else values.masked_fill(ranks > k, 0)
