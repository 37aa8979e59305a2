"""NeuralERR: the expected reciprocal rank with NeuralSort in the place of sorting."""

from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import minus_where, softly_sorted
from ltr.metrics.checks import check_positive
from ltr.metrics.cumulative_gain import cut
from ltr.metrics.ordering import ranks_like
from ltr.metrics.relevance import first_stop
from ltr.typing import Labels, Mask, PerList, Scores


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
    """Minus NeuralERR@k of each list, ``[batch]``, from about -1 (best) to 0.

    NeuralERR@k = sum over ranks r <= k of 1/r c_r times the product over q < r of (1 - c_q): c =
    S p is the softly sorted chance that a user is satisfied, S = sinkhorn(neural_sort(s)), p_j =
    (2^y_j - 1) / 2^(levels - 1) as in the metric (Chapelle et al., 2009). The construction is
    NeuralNDCG's (Pobrotyn and Bialobrzeski, 2021). It goes to the exact ERR@k, which is not divided
    by that of the ideal order, as the temperature goes to 0. A list without a relevant item gives 0
    without gradient.

    Args:
        levels: > 0, the number of grades (5 for labels 0 to 4); every label must be below it.
        k, temperature, max_iter, tol: see ``neural_ndcg_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.0, 1.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_err_loss(scores, labels, mask, temperature=0.01, levels=3)
    tensor([-0.3125])
    >>> neural_err_loss(scores, labels, mask, temperature=0.01, levels=3, k=2)  # -1/2 (2 - 1) / 4
    tensor([-0.1250])
    """
    check_positive("levels", levels)
    scores, labels = without_padding(scores, labels, mask)
    satisfied = (labels.exp2() - 1) / 2.0 ** min(levels - 1, 1023)  # the largest float64
    chances = softly_sorted(
        scores, satisfied, mask, temperature=temperature, max_iter=max_iter, tol=tol
    )
    found = cut(first_stop(chances) / ranks_like(chances), k).sum(-1)
    return minus_where(mask & (labels > 0), found)
