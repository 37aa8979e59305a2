"""Losses of a soft permutation on the CPU, by compiled loops, list by list."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.losses.fused import as_array, list_sizes, over_lists, summed, value_and_slope
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.typing import Labels, Mask, PerList, Scores

KEPT = 1 << 22  # entries of P a thread may keep, 32 MiB; a longer band is computed in every pass


def neural_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None,
    temperature: float,
    transposed: bool = False,
    max_iter: int,
    tol: float,
    kept: int = KEPT,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(neural_sort(s)), ``[batch]``.

    The stopping rule and the floor are those of ``sinkhorn``. A list of n items costs n^2 time and
    at most ``kept`` numbers of its matrix, however much padding it has. Knobs are not checked.
    """
    knobs = (k, temperature, transposed, max_iter, tol, kept)
    return summed(*_of_neural_dcg(scores, labels, mask, *knobs))


def neural_dcg_and_slope(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[PerList, Scores]:
    """``neural_dcg`` and the slope of each value by the scores of its list, beside autograd."""
    knobs = (k, temperature, transposed, max_iter, tol, KEPT)
    return value_and_slope(*_of_neural_dcg(scores, labels, mask, *knobs))


def _of_neural_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
    kept: int,
) -> tuple[Any, ...]:
    """What ``summed`` needs."""
    from ltr.kernels.neuralndcg import neural_ndcg_lists

    of_rank = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64)
    arrays = [mask, gains(labels, mask), of_rank, ranked]
    knobs = [temperature, transposed, max_iter, tol, torch.finfo(scores.dtype).tiny, kept]
    return neural_ndcg_lists, scores, arrays, knobs, _costs(mask)


def neurally_sorted(
    scores: Scores, values: Tensor, mask: Mask, *, temperature: float, max_iter: int, tol: float
) -> Tensor:
    """S v, S = sinkhorn(neural_sort(s)), ``[batch, rank]``; no gradient by ``values``.

    Time and memory as of ``neural_dcg``; backward computes S again. Knobs are not checked.
    """
    knobs = temperature, False, max_iter, tol, torch.finfo(scores.dtype).tiny, KEPT
    return _Sorted.apply(scores, values, mask, knobs)


class _Sorted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, values: Tensor, mask: Tensor, knobs: tuple[Any, ...]
    ) -> Tensor:
        ctx.save_for_backward(scores, values, mask)
        ctx.knobs = knobs
        ranked, _ = _over_ranks(scores, values, mask, torch.zeros_like(scores), knobs, wanted=False)
        return torch.from_numpy(ranked).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, values, mask = ctx.saved_tensors
        _, slope = _over_ranks(scores, values, mask, grad, ctx.knobs, wanted=True)
        return torch.from_numpy(slope).to(scores.dtype), None, None, None


def _over_ranks(
    scores: Tensor,
    values: Tensor,
    mask: Tensor,
    weights: Tensor,
    knobs: tuple[Any, ...],
    *,
    wanted: bool,
) -> Any:
    """S v, and the slopes of its sum with ``weights``, ``[batch, list]`` each."""
    from ltr.kernels.neuralndcg import neural_ndcg_lists

    ranked, slope, total = np.zeros(scores.shape), np.zeros(scores.shape), np.zeros(len(scores))
    given = [*map(as_array, (scores, mask, values, weights)), ranked, *knobs, wanted, total, slope]
    over_lists(lambda lists: neural_ndcg_lists(lists, *given), _costs(mask))
    return ranked, slope


def soft_sort_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None,
    temperature: float,
    max_iter: int,
    tol: float,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(soft_sort(s)), ``[batch]``.

    Time and memory in proportion to the items and the iterations, beside one sort. Knobs are not
    checked.
    """
    from ltr.kernels.softsort import softsort_ndcg_lists

    return summed(
        softsort_ndcg_lists,
        scores,
        [mask, gains(labels, mask), discounts(mask.shape[-1], scores, k=k)],
        [temperature, max_iter, tol],
        list_sizes(mask) * 400,
    )


def _costs(mask: Mask) -> Any:
    return list_sizes(mask) ** 2 * 60
