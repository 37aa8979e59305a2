"""NeuralMAP, NeuralMRR, NeuralPrecision and NeuralERR: metrics with NeuralSort instead of sorting.

They are constructed like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021). Each metric is computed from
the softly sorted relevance, b = S rel, with S = sinkhorn(neural_sort(s)) and rel = 1 for relevant
items, else 0. Each value, ``[batch]``, is between about -1 (best) and 0. It approaches minus the
exact metric as the temperature goes to 0. A list without a relevant item gives 0 without gradient;
one with a label below 0 is NaN.

Common knobs: ``k`` is a cutoff rank >= 1, None for the whole list. ``relevant`` > 0 is the lowest
label that counts as relevant. ``temperature`` > 0 is in units of the scores; smaller is closer to
the exact metric. The iterations of ``sinkhorn`` end after ``max_iter`` of them, or when all sums
differ from one by less than ``tol``.
"""

from typing import Any

import torch

from ltr.kernels.dispatch import with_kernel
from ltr.kernels.neural_dcg import neurally_sorted
from ltr.knobs import check_k, check_positive
from ltr.losses.batch import refuse_below_0, without_padding
from ltr.losses.soft_permutation import scaled
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import ranks_like, running_sums
from ltr.metrics.relevance import first_stop, is_relevant
from ltr.relaxations import neural_sort
from ltr.relaxations.optimal_transport import check_iterations
from ltr.typing import Labels, Mask, PerList, Scores


def neural_map_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    relevant: float | int = 1,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Return minus NeuralMAP@k of each list, ``[batch]``, from about -1 to 0.

    NeuralMAP@k = 1/R sum over ranks r <= k of b_r (1 + sum over q < r of b_q) / r, where R is the
    number of relevant items of the list, whatever k is.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_map_loss(scores, labels, labels >= 0, temperature=0.01)  # -(1 / 2 + 2 / 3) / 2
    tensor([-0.5833])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    b = _softly_sorted(scores, hits, mask, temperature, max_iter, tol)
    found = cut(b * ((1 + running_sums(b) - b) / ranks_like(b)), k).sum(-1)
    return _negative(found / hits.sum(-1).clamp(min=1), hits, labels)


def neural_mrr_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    relevant: float | int = 1,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Return minus NeuralMRR@k of each list, ``[batch]``, from about -1 to 0.

    NeuralMRR@k = sum over ranks r <= k of 1/r b_r times the product over q < r of (1 - b_q). The
    product is the probability that no rank before r is relevant.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_mrr_loss(scores, labels, labels >= 0, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    b = _softly_sorted(scores, hits, mask, temperature, max_iter, tol)
    return _negative(cut(first_stop(b) / ranks_like(b), k).sum(-1), hits, labels)


def neural_precision_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = 5,
    temperature: float = 1.0,
    relevant: float | int = 1,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Return minus NeuralPrecision@k of each list, ``[batch]``, from about -1 to 0.

    NeuralPrecision@k = sum over ranks r <= k of b_r / k, however short the list is. With k = None
    the divisor is the number of items; then the value hardly depends on the scores, so that there
    is no gradient to learn from.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_precision_loss(scores, labels, labels >= 0, k=2, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    b = _softly_sorted(scores, hits, mask, temperature, max_iter, tol)
    k = check_k(k)
    found = cut(b, k).sum(-1) / (mask.sum(-1).clamp(min=1) if k is None else k)
    return _negative(found, hits, labels)


def neural_err_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    levels: float | int = 5,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Return minus NeuralERR@k of each list, ``[batch]``, from about -1 to 0.

    NeuralERR@k = sum over ranks r <= k of 1/r c_r times the product over q < r of (1 - c_q). Here
    c = S p, and p_j = (2^y_j - 1) / 2^(levels - 1) is the probability that item j satisfies the
    user (Chapelle et al., 2009). The value is not divided by the ERR of the ideal order.

    Args:
        levels: > 0, the number of grades (5 for labels 0 to 4); every label must be below it.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_err_loss(scores, labels, labels >= 0, temperature=0.01, levels=3)
    tensor([-0.3125])
    """
    levels = check_positive("levels", levels)
    scores, labels = without_padding(scores, labels, mask)
    p = (labels.exp2() - 1) / 2.0 ** min(levels - 1, 1023)  # largest power in float64
    c = _softly_sorted(scores, p, mask, temperature, max_iter, tol)
    found = cut(first_stop(c) / ranks_like(c), k).sum(-1)
    return _negative(found, mask & (labels > 0), labels)


def _negative(values: PerList, relevant: Mask, labels: Labels) -> PerList:
    """Return ``-values`` for lists with a relevant item, 0 without gradient for the others."""
    return refuse_below_0((-values).masked_fill(~relevant.any(-1), 0), labels)


def _softly_sorted(
    scores: Scores, values: torch.Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> torch.Tensor:
    """Return S v, ``[batch, rank]``, where v are the ``values``; they get no gradient.

    S v is 0 at ranks beyond the number of items.
    """
    temperature = check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    return _sorted(scores, values.to(scores.dtype), mask, temperature, max_iter, tol)


@with_kernel(neurally_sorted)
def _sorted(
    scores: Scores, values: torch.Tensor, mask: Mask, temperature: float, *scaling: Any
) -> torch.Tensor:
    soft = neural_sort(scores, mask, temperature=temperature)
    return (scaled(soft, mask, *scaling) * values.unsqueeze(-2)).sum(-1)
