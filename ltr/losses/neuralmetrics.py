"""NeuralMAP, NeuralMRR, NeuralPrecision and NeuralERR: losses that sort with NeuralSort.

They are built like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021). Each loss is minus a metric of the
softly sorted relevance, and approaches minus the exact metric as the temperature goes to 0. For a
list without a relevant item, the value and its gradient are 0. For a list with a label below 0, the
value is NaN.
"""

import torch

from ltr.kernels.dispatch import accelerated_by_item
from ltr.kernels.neural_dcg import neurally_sorted
from ltr.knobs import check_k, check_positive
from ltr.losses.batch import refuse_below_0, without_padding
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import ranks_like, running_sums
from ltr.metrics.relevance import first_stop, is_relevant
from ltr.relaxations import neural_sort, sinkhorn
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
    r"""Return minus NeuralMAP@k of each list.

    .. math::
        \mathrm{NeuralMAP}@k = \frac{1}{R} \sum_{r \le k} \frac{b_r}{r}
        \left(1 + \sum_{q < r} b_q\right)

    where b = S h is the softly sorted relevance: h_j is 1 if item j is relevant, else 0, and
    S = sinkhorn(neural_sort(s)). R is the number of relevant items of the list, whatever k is.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to the
            exact metric.
        relevant: > 0, the smallest label that counts as relevant.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: built like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021).

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_map_loss(scores, labels, labels >= 0, temperature=0.01)  # -(1 / 2 + 2 / 3) / 2
    tensor([-0.5833])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    b = _softly_sorted(scores, hits, mask, temperature, max_iter, tol)
    precisions = (1 + running_sums(b) - b) / ranks_like(b)
    total = cut(b * precisions, k).sum(-1)
    return _negative(total / hits.sum(-1).clamp(min=1), hits, labels)


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
    r"""Return minus NeuralMRR@k of each list.

    .. math::
        \mathrm{NeuralMRR}@k = \sum_{r \le k} \frac{b_r}{r} \prod_{q < r} (1 - b_q)

    where b = S h is the softly sorted relevance: h_j is 1 if item j is relevant, else 0, and
    S = sinkhorn(neural_sort(s)). The product is the probability that no item before
    rank r is relevant.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to the
            exact metric.
        relevant: > 0, the smallest label that counts as relevant.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: built like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021).

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
    r"""Return minus NeuralPrecision@k of each list.

    .. math::
        \mathrm{NeuralPrecision}@k = \frac{1}{k} \sum_{r \le k} b_r

    where b = S h is the softly sorted relevance: h_j is 1 if item j is relevant, else 0, and
    S = sinkhorn(neural_sort(s)). The divisor is k, however short the list is. If k is None, the
    divisor is the number of items; the value then hardly depends on the scores, so there is hardly
    any gradient to learn from.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to the
            exact metric.
        relevant: > 0, the smallest label that counts as relevant.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: built like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021).

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_precision_loss(scores, labels, labels >= 0, k=2, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    b = _softly_sorted(scores, hits, mask, temperature, max_iter, tol)
    k = check_k(k)
    divisor = mask.sum(-1).clamp(min=1) if k is None else k
    return _negative(cut(b, k).sum(-1) / divisor, hits, labels)


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
    r"""Return minus NeuralERR@k of each list.

    .. math::
        \mathrm{NeuralERR}@k = \sum_{r \le k} \frac{c_r}{r} \prod_{q < r} (1 - c_q), \qquad
        p_j = \frac{2^{y_j} - 1}{2^{\mathrm{levels} - 1}}

    where c = S p with S = sinkhorn(neural_sort(s)), and p_j is the probability that item j
    satisfies the user. The value is not divided by the ERR of the ideal order.

    Args:
        scores, labels, mask: ``[batch, list]``, as described in ``ltr.losses``.
        k: cutoff rank >= 1, None for the whole list.
        temperature: > 0, in units of the scores; a smaller value brings the loss closer to the
            exact metric.
        levels: > 0, the number of grades (5 for labels 0 to 4); every label must be below this
            number.
        max_iter, tol: ``sinkhorn`` ends after ``max_iter`` iterations, or when every row and column
            sum differs from one by less than ``tol``.

    Returns:
        One value per list, ``[batch]``, from about -1 (best) to 0. For a list without a relevant
        item, the value and its gradient are 0.

    Raises:
        ConfigError: a tensor or a keyword argument is invalid.

    Source: built like NeuralNDCG (Pobrotyn and Bialobrzeski, 2021); ERR is from Chapelle et al.
    (2009).

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> neural_err_loss(scores, labels, labels >= 0, temperature=0.01, levels=3)
    tensor([-0.3125])
    """
    levels = check_positive("levels", levels)
    scores, labels = without_padding(scores, labels, mask)
    p = (labels.exp2() - 1) / 2.0 ** min(levels - 1, 1023)  # largest power in float64
    c = _softly_sorted(scores, p, mask, temperature, max_iter, tol)
    value = cut(first_stop(c) / ranks_like(c), k).sum(-1)
    return _negative(value, mask & (labels > 0), labels)


def _negative(values: PerList, relevant: Mask, labels: Labels) -> PerList:
    """Return ``-values`` for lists with a relevant item; for others, value and gradient are 0."""
    return refuse_below_0((-values).masked_fill(~relevant.any(-1), 0), labels)


def _softly_sorted(
    scores: Scores, values: torch.Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> torch.Tensor:
    """Return S v, ``[batch, rank]``, where v are the ``values``, which get no gradient.

    S v is 0 at ranks beyond the number of items.
    """
    temperature = check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    return _sorted(scores, values.to(scores.dtype), mask, temperature, max_iter, tol)


@accelerated_by_item(neurally_sorted)
def _sorted(
    scores: Scores, values: torch.Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> torch.Tensor:
    """Return S v."""
    soft = neural_sort(scores, mask, temperature=temperature)
    scaled = sinkhorn(soft, mask, max_iter=max_iter, tol=tol)
    return (scaled * values.unsqueeze(-2)).sum(-1)
