"""Sums over pairs of items on the CPU, without a matrix of pairs."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.kernels.threads import over_lists
from ltr.losses.inputs import to_array
from ltr.typing import Labels, Mask, PerList, Ranks, Scores


def sum_over_pairs(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    cost: str,
    sigma: float = 1.0,
    linear_from: float = 0.0,
    own: Scores | None = None,
    gain: Scores | None = None,
    discount: Scores | None = None,
    ranks: Ranks | None = None,
    steps: Tensor | None = None,
    factors: tuple[float, float, float] = (0.0, 0.0, 0.0),
    k: int | None = None,
    pairs: str = "any",
    ordered: bool = True,
) -> PerList:
    """Sum over the pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), ``[batch]``.

    w_ij = own_i + |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)). float64 inside,
    rounded at the end; the memory of one row of pairs for each thread. Value and gradient are
    computed together; first derivatives only. Knobs are not checked.

    Args:
        scores: s, ``[batch, list]``.
        labels: y, ``[batch, list]``.
        mask: ``[batch, list]``, True where an item exists.
        cost: ``logistic``, ``hinge``, ``squared_hinge`` or ``exponential``; sigma is of the first.
        sigma: slope of the logistic.
        linear_from: where the exponential goes on as its tangent.
        own: constants, ``[batch, list]``, None is 0.
        gain: g, constants, ``[batch, list]``, None is 0.
        discount: d of each item, constants, ``[batch, list]``, None is 0.
        ranks: r, ``[batch, list]``, needed with ``steps`` and with ``k``.
        steps: step at the distances 1, 2, ..., ``[list]``, None is 0.
        factors: c, c_d and c_s.
        k: cutoff rank, None for all pairs.
        pairs: ``"any"`` or ``"both"``, which pairs count at the cutoff.
        ordered: False to sum over all j != i, whatever their labels, for i in front of the cutoff;
            c_s is 0 then.
    """
    nothing = torch.zeros((), dtype=torch.float64).expand(mask.shape)
    weights = [nothing if x is None else x for x in (own, gain, discount)]
    ranks = mask.long() if ranks is None else ranks
    top = mask if k is None else ranks <= k
    steps = nothing[0] if steps is None else steps
    knobs = (factors, "all" if k is None else pairs, ordered, cost, sigma, linear_from)
    return _OverPairs.apply(scores, [labels, mask, *weights, ranks, top, steps], knobs)


class _OverPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, constants: list[Tensor], knobs: tuple) -> Tensor:
        from ltr.kernels import pairs  # Numba takes half a second

        factors, counted, ordered, cost, sigma, linear_from = knobs
        value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, *constants)]
        codes = getattr(pairs, counted.upper()), ordered, getattr(pairs, cost.upper())
        wanted = ctx.needs_input_grad[0]
        over_lists(
            lambda lists: pairs.pair_lists(
                lists, *given, factors, *codes, sigma, linear_from, wanted, value, slope
            ),
            given[2].sum(-1) ** 2,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None
