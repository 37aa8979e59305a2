"""Metrics of a softly sorted list: of the permutation, and of labels in the soft order."""

from collections.abc import Callable

import torch
from torch import Tensor

from ltr.knobs import check_positive
from ltr.losses.fused import kernels_apply
from ltr.losses.fused_permutation import neural_dcg, neurally_sorted
from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.relaxations import neural_sort, sinkhorn
from ltr.relaxations.optimal_transport import check_iterations
from ltr.relaxations.second_derivatives import plain_path, twice
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


def dcg_of(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), ``[batch]``.

    g = 2^y - 1, d(r) = 1/log2(1 + r), S = ``soft``, ``[batch, rank, item]``.
    """
    sorted_gains = (soft * gains(labels, mask).unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(mask.shape[-1], soft, k=k)).sum(-1)


def minus_normalised(found: PerList, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus ``found`` over maxDCG@k; 0 without gradient for a list without a relevant item."""
    return minus_over(found, dcg(labels, labels, mask, k=k))


def minus_over(found: PerList, ideal: PerList) -> PerList:
    """``-found / ideal``; 0 without gradient where ``ideal`` is 0."""
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)


def fast_neural_dcg(scores: Tensor) -> Callable[..., Tensor] | None:
    """``neural_dcg`` by a kernel, the CPU's or Triton's; None: the plain path."""
    if kernels_apply(scores):
        return neural_dcg
    if plain_path():
        return None
    if torch.compiler.is_compiling():
        from ltr.losses import neuralndcg_operator as operator

        return operator.neural_dcg_operator if operator.applies(scores) else None
    from ltr.losses import neuralndcg_gpu as gpu

    return gpu.neural_dcg_on_gpu if gpu.applies(scores) else None


@twice
def softly_sorted(
    scores: Scores, values: Tensor, mask: Mask, *, temperature: float, max_iter: int, tol: float
) -> Tensor:
    """``values`` in the soft order of the scores, sinkhorn(neural_sort(s)) v, ``[batch, rank]``.

    ``scores`` and ``values``, numbers or flags, are 0 on padding, the result at the ranks beyond
    the items. On the CPU the memory is that of ``neural_ndcg_loss``; ``values`` get no gradient.
    """
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    values = values.to(scores.dtype)
    if kernels_apply(scores):
        return neurally_sorted(
            scores, values, mask, temperature=temperature, max_iter=max_iter, tol=tol
        )
    soft = neural_sort(scores, mask, temperature=temperature)
    soft = sinkhorn(soft, mask, max_iter=max_iter, tol=tol)
    return (soft * values.unsqueeze(-2)).sum(-1)


def minus_where(relevant: Tensor, values: PerList) -> PerList:
    """``-values`` of the lists that have a relevant item, 0 without gradient for the others."""
    return (-values).masked_fill(~relevant.any(-1), 0)
