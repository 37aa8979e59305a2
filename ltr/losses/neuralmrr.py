"""NeuralMRR: the reciprocal rank with NeuralSort in the place of sorting."""

from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import minus_where, softly_sorted
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import ranks_like
from ltr.metrics.relevance import first_stop, is_relevant
from ltr.typing import Labels, Mask, PerList, Scores


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
    """Minus NeuralMRR@k of each list, ``[batch]``, from about -1 (best) to 0.

    NeuralMRR@k = sum over ranks r <= k of 1/r b_r times the product over q < r of (1 - b_q): b_r =
    (S rel)_r is the softly sorted relevance, from 0 to 1, S = sinkhorn(neural_sort(s)), and the
    product is the chance that no rank before r was relevant. The construction is NeuralNDCG's
    (Pobrotyn and Bialobrzeski, 2021). It goes to the exact reciprocal rank of the first relevant
    item, 0 beyond k, as the temperature goes to 0. A list without a relevant item gives 0 without
    gradient.

    Args:
        relevant: > 0, the lowest label that counts as relevant.
        k, temperature, max_iter, tol: see ``neural_ndcg_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_mrr_loss(scores, labels, mask, temperature=0.01)  # -1 / 2
    tensor([-0.5000])
    >>> neural_mrr_loss(scores, labels, mask, temperature=0.01, relevant=2)  # -1 / 3
    tensor([-0.3333])
    """
    scores, labels = without_padding(scores, labels, mask)
    hits = is_relevant(labels, mask, relevant)
    chances = softly_sorted(
        scores, hits.to(scores.dtype), mask,
        temperature=temperature, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    return minus_where(hits, cut(first_stop(chances) / ranks_like(chances), k).sum(-1))
