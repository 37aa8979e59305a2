"""ApproxNDCG's ranks on the CPU, without a matrix of pairs."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.kernels.threads import over_lists
from ltr.losses.inputs import to_array
from ltr.typing import Mask, Scores


def approximate_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature), ``[batch, list]``.

    float64 inside, rounded at the end; memory in proportion to the items; 1 on padding. First
    derivatives only.
    """
    return _ApproximateRanks.apply(scores, mask, temperature)


class _ApproximateRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward(scores, mask)
        ctx.temperature = temperature
        ranks = np.ones(scores.shape)
        _over_lists(scores, mask, temperature, ranks, ranks, ranks, False)
        return torch.from_numpy(ranks).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask = ctx.saved_tensors
        slope = np.zeros(scores.shape)
        _over_lists(scores, mask, ctx.temperature, slope, to_array(grad), slope, True)
        return torch.from_numpy(slope).to(scores.dtype), None, None


def _over_lists(scores: Tensor, mask: Tensor, temperature: float, *rest: Any) -> None:
    from ltr.kernels.ranks import approx_rank_lists  # Numba takes half a second

    given = to_array(scores), to_array(mask)
    over_lists(
        lambda lists: approx_rank_lists(lists, *given, float(temperature), *rest),
        given[1].sum(-1) ** 2,
        torch.get_num_threads(),
    )
