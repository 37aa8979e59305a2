"""NeuralPrecision: precision with NeuralSort in the place of sorting."""

from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import minus_where, softly_sorted, within
from ltr.metrics.checks import check_positive
from ltr.typing import Labels, Mask, PerList, Scores


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
    """Minus NeuralPrecision@k of each list, ``[batch]``, from about -1 (best) to 0.

    NeuralPrecision@k = sum over ranks r <= k of (S b)_r / k: S = sinkhorn(neural_sort(s)) is the
    soft permutation and b_j = 1 for relevant items, else 0; NeuralNDCG's construction for another
    metric, which its paper (Pobrotyn and Bialobrzeski, 2021) leaves as future work. Divided by k
    however short the list is; without k, by the number of items, which leaves no gradient, as the
    precision of a whole list does not depend on the order. It goes to the exact precision@k as the
    temperature goes to 0. A list without a relevant item gives 0 without gradient.

    Args:
        scores: ``[batch, list]``, higher is better. Items scored equal share their ranks.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list, which leaves nothing to learn.
        temperature: of NeuralSort, > 0, in units of the scores; smaller is closer to precision.
        relevant: > 0, the lowest label that counts as relevant.
        max_iter: the most iterations of the Sinkhorn scaling.
        tol: deviation of row and column sums from one at which the scaling stops.

    Raises:
        ConfigError: a knob is out of range.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_precision_loss(scores, labels, mask, k=2, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    >>> neural_precision_loss(scores, labels, mask, k=3, temperature=0.01, relevant=2)  # -1/3
    tensor([-0.3333])
    """
    check_positive("relevant", relevant)
    scores, labels = without_padding(scores, labels, mask)
    is_relevant = mask & (labels >= relevant)
    chances = softly_sorted(
        scores, is_relevant.to(scores.dtype), mask,
        temperature=temperature, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    _, top = within(mask.shape[-1], scores, k)
    depth = mask.sum(-1).clamp(min=1) if k is None else k
    return minus_where(is_relevant, (chances * top).sum(-1) / depth)
