"""Metrics of a softly sorted list: of the permutation, and of values in the soft order."""

from torch import Tensor

from ltr.kernels.dispatch import with_kernel
from ltr.kernels.neural_dcg import neural_dcg as neural_dcg_by_kernel
from ltr.kernels.neural_dcg import neurally_sorted, off_the_loop
from ltr.knobs import check_positive
from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.relaxations import neural_sort, sinkhorn
from ltr.relaxations.optimal_transport import check_iterations
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


def soft_dcg(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), ``[batch]``.

    g = 2^y - 1, d(r) = 1/log2(1 + r), S = ``soft``, ``[batch, rank, item]``.
    """
    sorted_gains = (soft * gains(labels, mask).unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(mask.shape[-1], soft, k=k)).sum(-1)


def negative_ndcg(found: PerList, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus ``found`` over maxDCG@k; 0 without gradient for a list without a relevant item."""
    return negative_ratio(found, dcg(labels, labels, mask, k=k))


def negative_ratio(found: PerList, ideal: PerList) -> PerList:
    """``-found / ideal``; 0 without gradient where ``ideal`` is 0."""
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)


def negative_where(relevant: Tensor, values: PerList) -> PerList:
    """``-values`` of the lists that have a relevant item, 0 without gradient for the others."""
    return (-values).masked_fill(~relevant.any(-1), 0)


@with_kernel(neural_dcg_by_kernel, off_the_loop)
def neural_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(neural_sort(s)), ``[batch]``."""
    soft = neural_sort(scores, mask, temperature=temperature)
    first = "rows" if transposed else "columns"
    return soft_dcg(
        sinkhorn(soft, mask, max_iter=max_iter, tol=tol, first=first), labels, mask, k=k
    )


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
    return _sorted(scores, values, mask, temperature=temperature, max_iter=max_iter, tol=tol)


@with_kernel(neurally_sorted)
def _sorted(
    scores: Scores, values: Tensor, mask: Mask, *, temperature: float, max_iter: int, tol: float
) -> Tensor:
    soft = neural_sort(scores, mask, temperature=temperature)
    return (sinkhorn(soft, mask, max_iter=max_iter, tol=tol) * values.unsqueeze(-2)).sum(-1)
