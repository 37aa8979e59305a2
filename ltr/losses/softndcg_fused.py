"""SoftNDCG's sum on the CPU, without the matrix of rank distributions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.kernels.threads import over_lists
from ltr.losses.inputs import to_array
from ltr.typing import Mask, PerList, Scores


def expected_dcg(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, *, sigma: float, k: int | None
) -> PerList:
    """Sum over items j of g_j sum over ranks r of d(r) p_j(r), p ``rank_distribution``'s.

    Returns ``[batch]``. One item's distribution at a time, float64 inside, rounded at the end:
    n^2 min(n, k) time for each list, memory of one n x min(n, k) matrix for each thread. First
    derivatives only.

    Args:
        scores: ``[batch, list]``, the means; higher is better.
        gain: g, constants, ``[batch, list]``, 0 on padding.
        of_rank: d of the ranks of each list, constants, ``[batch, list]``, 0 beyond ``k``.
        mask: ``[batch, list]``, True where an item exists.
        sigma: > 0, standard deviation of every score.
        k: cutoff rank, None for the whole list.
    """
    return _ExpectedDCG.apply(scores, [mask, gain, of_rank], float(sigma), k or mask.shape[-1])


class _ExpectedDCG(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, constants: list[Tensor], sigma: float, k: int) -> Tensor:
        from ltr.kernels.ranks import soft_dcg_lists  # Numba takes half a second

        value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, *constants)]
        wanted = ctx.needs_input_grad[0]
        sizes = given[1].sum(-1)
        over_lists(
            lambda lists: soft_dcg_lists(lists, *given, sigma, k, wanted, value, slope),
            sizes**2 * np.minimum(sizes, k),
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None
