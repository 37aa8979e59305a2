"""NeuralPrecision: precision with NeuralSort in the place of sorting."""

from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import minus_where, softly_sorted
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.relevance import is_relevant
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
    soft permutation and b_j = 1 for relevant items, else 0. The construction is NeuralNDCG's
    (Pobrotyn and Bialobrzeski, 2021). The sum is divided by k however short the list is; without k
    by the number of items, which leaves no gradient. It goes to the exact precision@k as the
    temperature goes to 0. A list without a relevant item gives 0 without gradient.

    Args:
        relevant: > 0, the lowest label that counts as relevant.
        k, temperature, max_iter, tol: see ``neural_ndcg_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_precision_loss(scores, labels, mask, k=2, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    >>> neural_precision_loss(scores, labels, mask, k=3, temperature=0.01, relevant=2)  # -1/3
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    chances = softly_sorted(
        scores, hits.to(scores.dtype), mask,
        temperature=temperature, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    depth = mask.sum(-1).clamp(min=1) if k is None else k
    return minus_where(hits, cut(chances, k).sum(-1) / depth)
