"""NDCG of softly sorted lists: NeuralNDCG, OT-NDCG and SoftSort-NDCG.

Sorting is replaced by multiplication by a matrix S, ``[rank, item]``: a relaxed permutation matrix
after Sinkhorn scaling (Pobrotyn and Bialobrzeski, 2021). Each loss approaches minus the exact
NDCG@k as the temperature goes to 0. For a list without a relevant item (an item with a gain above
0), the value and its gradient are 0. If ``gain`` is a table without an entry for a label in a list,
the value of the list is NaN.
"""

import torch
from torch import Tensor

from ltr.kernels.dispatch import (
    accelerated,
    list_sizes,
    on_cpu_or_copied,
    value_and_grad,
)
from ltr.kernels.neural_dcg import kernel_is_faster, neural_dcg
from ltr.kernels.operators import list_operator
from ltr.knobs import Gain, check_positive
from ltr.losses.batch import without_padding
from ltr.metrics.cumulative_gain import discounts, gains, ideal_dcg
from ltr.relaxations import neural_sort, sinkhorn, soft_sort
from ltr.relaxations.neuralsort import drawn_scores
from ltr.relaxations.optimal_transport import check_iterations, squashed_scores
from ltr.typing import Labels, Mask, Matrix, PerList, Scores


def neural_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 1.0,
    transposed: bool = False,
    stochastic: bool = False,
    n_samples: int = 8,
    beta: float = 1.0,
    generator: torch.Generator | None = None,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    r"""Return minus NeuralNDCG@k of each list.

    .. math::
        \mathrm{NeuralNDCG}@k = \frac{1}{\mathrm{maxDCG}@k} \sum_{r \le k} (S g)_r \, d(r)

    where S = sinkhorn(neural_sort(s)), g are the gains, and d(r) = 1/log2(1 + r). The transposed
    variant is

    .. math::
        \frac{1}{\mathrm{maxDCG}@k} \sum_j g_j \, (T d)_j

    where T is the transposed matrix after Sinkhorn scaling, and d(r) is 0 beyond k.

    On the CPU, a list of n items takes at most O(n^2) time, and each thread stores at most 32 MiB
    of the matrix. On an NVIDIA GPU, a kernel is used for lists padded to at most 2,048 items,
    except for batches with only a few long lists.

    Args:
        scores: ``[batch, list]``. Items with equal scores share their ranks equally, so a saturated
            output activation gives no gradient. The paper uses Tanh as the output activation.
        labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to NDCG.
        transposed: use the transposed variant (eq. 6 instead of eq. 5).
        stochastic: average the value over noisy scores from ``drawn_scores``; the temperature is
            then in units of log scores.
        n_samples: >= 1, the number of draws; used only if ``stochastic``. Time and memory grow in
            proportion to it.
        beta: > 0, the scale of the noise; used only if ``stochastic``.
        generator: draws the noise; None: torch's own generator.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: Pobrotyn and Bialobrzeski (2021), eq. 5 and 6, where the gain is 2^y - 1. The paper does
    not say how it treats a list without a relevant item.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> neural_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=0.01)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    copies = 1
    if stochastic:
        drawn = drawn_scores(scores, mask, n_samples=n_samples, beta=beta, generator=generator)
        copies = len(drawn)
        scores = drawn.flatten(0, 1)
    item_gains = gains(labels, mask, gain=gain).repeat(copies, 1)
    masks = mask.repeat(copies, 1)
    temperature = check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    dcg = neural_sort_dcg(scores, item_gains, masks, k, temperature, transposed, max_iter, tol)
    values = negative_ndcg(dcg, item_gains, masks, k=k)
    return values.unflatten(0, (copies, len(mask))).mean(0)


def ot_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 0.01,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    r"""Return minus NDCG@k of each list, softly sorted by optimal transport.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_{r \le k} (S g)_r \, d(r)

    where S = ot_sort(s), g are the gains, and d(r) = 1/log2(1 + r). Scores are standardised within
    each list, so their unit does not matter.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        temperature: > 0, the weight of the entropy relative to the squared distances of scores from
            ranks. Scores and ranks are first put on a scale from 0 to 1, whatever the length of the
            list. With the default temperature, the column sums are within about 3e-3 of one after
            30 iterations.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: the sorting is from Cuturi et al. (2019).

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> ot_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=1e-3)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    temperature = check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    squashed = squashed_scores(scores, mask)
    item_gains = gains(labels, mask, gain=gain)
    dcg = neural_sort_dcg(squashed, item_gains, mask, k, temperature, False, max_iter, tol)
    return negative_ndcg(dcg, item_gains, mask, k=k)


def softsort_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 1.0,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    r"""Return minus NDCG@k of each list, softly sorted by SoftSort.

    .. math::
        -\frac{1}{\mathrm{maxDCG}@k} \sum_{r \le k} (S g)_r \, d(r)

    where S = sinkhorn(soft_sort(s)), g are the gains, and d(r) = 1/log2(1 + r).

    A compiled loop on the CPU is used, even for tensors on a GPU. It forms no matrix: apart from
    one sort, a list takes time and memory in proportion to its number of items.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        gain: ``"exp2"`` (2^y - 1), ``"linear"`` (y), or a table with the gain of each grade.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to NDCG.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item (an item with a gain above 0), the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: the sorting is from Prillo and Eisenschlos (2020).

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> softsort_ndcg_loss(scores, labels, labels >= 0, k=1, temperature=0.01)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    temperature = check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    item_gains = gains(labels, mask, gain=gain)
    dcg = _soft_sort_dcg(scores, item_gains, mask, k, temperature, max_iter, tol)
    return negative_ndcg(dcg, item_gains, mask, k=k)


@list_operator("soft_sort_dcg")
def _soft_sort_dcg_by_loop(
    scores: Tensor,
    need_grad: bool,
    item_gains: Tensor,
    mask: Tensor,
    k: int | None,
    temperature: float,
    max_iter: int,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """Return the values of ``_soft_sort_dcg`` and their gradient."""
    from ltr.kernels.softsort import softsort_ndcg_lists

    arrays = [mask, item_gains, discounts(mask.shape[-1], scores, k=k)]
    knobs = [temperature, max_iter, tol]
    costs = list_sizes(mask) * 400
    return value_and_grad(softsort_ndcg_lists, scores, arrays, knobs, costs, need_grad=need_grad)


@accelerated(_soft_sort_dcg_by_loop, applies=on_cpu_or_copied)
def _soft_sort_dcg(
    scores: Scores,
    item_gains: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    max_iter: int,
    tol: float,
) -> PerList:
    """Return the sum over ranks r <= k of (S g)_r d(r), ``[batch]``, for SoftSort-NDCG."""
    soft = soft_sort(scores, mask, temperature=temperature)
    return soft_dcg(sinkhorn(soft, mask, max_iter=max_iter, tol=tol), item_gains, k=k)


@accelerated(neural_dcg, applies=kernel_is_faster)
def neural_sort_dcg(
    scores: Scores,
    item_gains: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> PerList:
    """Return the sum over ranks r <= k of (S g)_r d(r), ``[batch]``, with S as in NeuralNDCG.

    The gains g, ``[batch, list]``, are 0 on padding.
    """
    soft = neural_sort(scores, mask, temperature=temperature)
    first = "rows" if transposed else "columns"
    scaled = sinkhorn(soft, mask, max_iter=max_iter, tol=tol, first=first)
    return soft_dcg(scaled, item_gains, k=k)


def soft_dcg(soft: Matrix, item_gains: Labels, *, k: int | None) -> PerList:
    """Return the sum over ranks r <= k of (S g)_r d(r), ``[batch]``, where S is ``soft``."""
    sorted_gains = (soft * item_gains.unsqueeze(-2)).sum(-1)
    return (sorted_gains * discounts(soft.shape[-1], soft, k=k)).sum(-1)


def negative_ndcg(dcg: PerList, item_gains: Labels, mask: Mask, *, k: int | None) -> PerList:
    """Return ``-dcg / maxDCG@k``; without a relevant item, the value and its gradient are 0."""
    return negative_ratio(dcg, ideal_dcg(item_gains, mask, k=k))


def negative_ratio(dcg: PerList, ideal: PerList) -> PerList:
    """Return ``-dcg / ideal``; where ``ideal`` is 0, the value and its gradient are 0."""
    empty = ideal <= 0  # False where a gain is NaN
    return (-dcg / ideal.masked_fill(empty, 1)).masked_fill(empty, 0)
