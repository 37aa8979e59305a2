"""NDCG of softly sorted lists: NeuralNDCG, OT-NDCG and SoftSort-NDCG.

In place of sorting stands S, ``[rank, item]``, the Sinkhorn scaling of a relaxation of the
permutation (Pobrotyn and Bialobrzeski, 2021). Each value, ``[batch]``, goes from about -1 (best) to
0, and to minus the exact NDCG@k as the temperature goes to 0. A list without a relevant item gives
0 without gradient. ``k`` is a cutoff rank >= 1, None for the whole list, ``temperature`` > 0,
smaller closer to NDCG, in units of the scores; ``max_iter`` and ``tol`` are those of ``sinkhorn``.
"""

from typing import Any

import torch

from ltr.kernels.dispatch import Work, list_sizes, value_op, with_kernel
from ltr.kernels.neural_dcg import neural_dcg as neural_dcg_by_kernel
from ltr.kernels.neural_dcg import off_the_loop
from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.metrics.cumulative_gain import dcg, discounts, gains
from ltr.relaxations import neural_sort, sinkhorn, soft_sort
from ltr.relaxations.neuralsort import drawn_scores
from ltr.relaxations.optimal_transport import check_iterations, places
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


def neural_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    transposed: bool = False,
    stochastic: bool = False,
    n_samples: int = 8,
    beta: float = 1.0,
    generator: torch.Generator | None = None,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Minus NeuralNDCG@k of each list, ``[batch]``.

    NeuralNDCG@k = sum over ranks r <= k of (S g)_r d(r) / maxDCG@k, S = sinkhorn(neural_sort(s)),
    g = 2^y - 1 and d(r) = 1/log2(1 + r). Transposed, it is the sum over items j of g_j (S' d)_j /
    maxDCG@k, S' the scaling of the transposed matrix (Pobrotyn and Bialobrzeski, 2021, eq. 5 and 6;
    they do not say what they train on in empty lists).

    On the CPU a list of n items takes at most n^2 time and at most 32 MiB for each thread; an
    NVIDIA GPU's kernel takes lists of up to 2,048 places, but for few long ones.

    Args:
        scores: ``[batch, list]``. Equal scores share their ranks, so an output that saturates gives
            no gradient; the paper puts Tanh on it.
        transposed: eq. 6 instead of eq. 5.
        stochastic: the mean of the value over draws of ``drawn_scores``; the temperature
            is then in units of log scores.
        n_samples: >= 1, draws, if stochastic; time and memory grow with it.
        beta: > 0, scale of the noise, if stochastic.
        generator: draws the noise; None is torch's own.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> neural_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=0.01)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    copies = 1
    if stochastic:
        drawn = drawn_scores(scores, mask, n_samples=n_samples, beta=beta, generator=generator)
        scores, copies = drawn.flatten(0, 1), n_samples
    labels, masks = labels.repeat(copies, 1), mask.repeat(copies, 1)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    found = neural_dcg(scores, labels, masks, k, temperature, transposed, max_iter, tol)
    values = negative_ndcg(found, labels, masks, k=k)
    return values.unflatten(0, (copies, len(mask))).mean(0)


def ot_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 0.01,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Minus NDCG@k of the transport plan of each list, ``[batch]``.

    Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k, with S = ot_sort(s) (Cuturi et al.,
    2019). Scores are standardised list by list, so that their unit does not matter.

    Args:
        temperature: weight of the entropy, > 0, in units of the list's length squared. At the
            default, columns sum to one within about 3e-3 after 30 iterations.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> ot_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=1e-3)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    ordered = places(scores, mask)
    found = neural_dcg(ordered, labels, mask, k, temperature, False, max_iter, tol)
    return negative_ndcg(found, labels, mask, k=k)


def softsort_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Minus NDCG@k of SoftSort of each list, ``[batch]``.

    Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k, with S = sinkhorn(soft_sort(s)) (Prillo
    and Eisenschlos, 2020). On the CPU no matrix is formed: beside one sort, a list costs time and
    memory in proportion to its items.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> softsort_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=0.01)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    found = _soft_sort_dcg(scores, labels, mask, k, temperature, max_iter, tol)
    return negative_ndcg(found, labels, mask, k=k)


def _by_running_sums(
    scores: Scores, labels: Labels, mask: Mask, k: int | None, *knobs: Any
) -> Work:
    arrays = [mask, gains(labels, mask), discounts(mask.shape[-1], scores, k=k)]
    return value_op("softsort:softsort_ndcg_lists", arrays, knobs, list_sizes(mask) * 400)


@with_kernel(_by_running_sums)
def _soft_sort_dcg(
    scores: Scores, labels: Labels, mask: Mask, k: int | None, temperature: float, *scaling: Any
) -> PerList:
    soft = soft_sort(scores, mask, temperature=temperature)
    return soft_dcg(scaled(soft, mask, *scaling), labels, mask, k=k)


@with_kernel(neural_dcg_by_kernel, off_the_loop)
def neural_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    *scaling: Any,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(neural_sort(s)), ``[batch]``."""
    soft = neural_sort(scores, mask, temperature=temperature)
    first = "rows" if transposed else "columns"
    return soft_dcg(scaled(soft, mask, *scaling, first=first), labels, mask, k=k)


def scaled(
    soft: Matrix, mask: Mask, max_iter: int, tol: float, *, first: str = "columns"
) -> Matrix:
    """``sinkhorn`` of positional knobs, as kernels take them."""
    return sinkhorn(soft, mask, max_iter=max_iter, tol=tol, first=first)


def soft_dcg(soft: Matrix, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), ``[batch]``; S is ``soft``, [batch, rank, item]."""
    sorted_gains = (soft * gains(labels, mask).unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(mask.shape[-1], soft, k=k)).sum(-1)


def negative_ndcg(found: PerList, labels: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Minus ``found`` over maxDCG@k; 0 without gradient for a list without a relevant item."""
    return negative_ratio(found, dcg(labels, labels, mask, k=k))


def negative_ratio(found: PerList, ideal: PerList) -> PerList:
    """``-found / ideal``; 0 without gradient where ``ideal`` is 0."""
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)
