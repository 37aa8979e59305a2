"""NeuralMAP: average precision with NeuralSort in the place of sorting."""

from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import minus_where, softly_sorted
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import ranks_like, running_sums
from ltr.metrics.relevance import is_relevant
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
    """Minus NeuralMAP@k of each list, ``[batch]``, from about -1 (best) to 0.

    NeuralMAP@k = 1/R sum over ranks r <= k of b_r (1 + sum over q < r of b_q) / r: R is the number
    of relevant items of the list, b_r = (S rel)_r the softly sorted relevance, from 0 to 1, S =
    sinkhorn(neural_sort(s)), and the fraction the precision at r of a relevant item there. The
    construction is NeuralNDCG's (Pobrotyn and Bialobrzeski, 2021). It goes to the exact average
    precision@k, divided by R whatever k is, as the temperature goes to 0. A list without a relevant
    item gives 0 without gradient.

    Args:
        relevant: > 0, the lowest label that counts as relevant.
        k, temperature, max_iter, tol: see ``neural_ndcg_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_map_loss(scores, labels, mask, temperature=0.01)  # -(1 / 2 + 2 / 3) / 2
    tensor([-0.5833])
    >>> neural_map_loss(scores, labels, mask, temperature=0.01, k=2)  # -(1 / 2) / 2
    tensor([-0.2500])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    chances = softly_sorted(
        scores, hits.to(scores.dtype), mask,
        temperature=temperature, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    precisions = (1 + running_sums(chances) - chances) / ranks_like(chances)
    found = cut(chances * precisions, k).sum(-1)
    return minus_where(hits, found / hits.sum(-1).clamp(min=1))
