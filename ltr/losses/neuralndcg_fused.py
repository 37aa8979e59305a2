"""NeuralNDCG's sum without its matrices, on the CPU."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.kernels.threads import over_lists
from ltr.losses.inputs import to_array
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.typing import Labels, Mask, PerList, Scores

KEPT = 1 << 22  # entries of P a thread may keep, 32 MiB; a longer band is computed in every pass


def soft_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
    kept: int = KEPT,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(neural_sort(s)), ``[batch]``.

    The same as ``sinkhorn`` and ``neural_sort`` compute, with the same stopping rule list by list
    and the same floor, in float64 inside and rounded at the end. A list of n items costs n^2 time
    and no more than ``kept`` numbers of its matrix, however much padding stands around it. Value
    and gradient are computed together, so that backward is a product; first derivatives only.
    Knobs are not checked.
    """
    of_rank = discounts(mask.shape[-1], scores, k=k)
    knobs = (temperature, transposed, max_iter, tol, torch.finfo(scores.dtype).tiny, kept)
    return _SoftDCG.apply(scores, mask, gains(labels, mask), of_rank, knobs)


class _SoftDCG(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, mask: Tensor, gain: Tensor, of_rank: Tensor, knobs: tuple
    ) -> Tensor:
        from ltr.kernels.neuralndcg import neural_ndcg_lists  # Numba takes half a second

        value = np.zeros(len(scores))
        slope = np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, mask, gain, of_rank)]
        wanted = ctx.needs_input_grad[0]
        over_lists(
            lambda lists: neural_ndcg_lists(lists, *given, *knobs, wanted, value, slope),
            given[1].sum(-1) ** 2 * 60,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None, None
