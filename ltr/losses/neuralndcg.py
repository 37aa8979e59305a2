"""NeuralNDCG: NDCG with NeuralSort in the place of sorting."""

from ltr.losses.inputs import without_padding
from ltr.metrics.cumulative_gain import dcg
from ltr.metrics.gains import discounts, gains
from ltr.relaxations import neural_sort, sinkhorn
from ltr.typing import Labels, Mask, PerList, Scores


def neural_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    transposed: bool = False,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Minus NeuralNDCG@k of each list, ``[batch]``, from about -1 (best) to 0.

    NeuralNDCG@k = sum over ranks r <= k of (S g)_r d(r) / maxDCG@k: S = sinkhorn(neural_sort(s)) is
    the soft permutation, g = 2^y - 1 the gains, d(r) = 1/log2(1 + r). Transposed, the sum runs over
    the items: sum over j of g_j (S' d)_j / maxDCG@k, with d = 0 beyond k and S' the scaling of the
    transposed matrix (Pobrotyn and Bialobrzeski, 2021, eq. 5 and 6). It goes to the exact NDCG@k as
    the temperature goes to 0. A list without a relevant item gives 0 without gradient, where the
    metric counts 1 by default; the paper does not say what it trains on there.

    Args:
        scores: ``[batch, list]``, higher is better. Items scored equal share their ranks: an output
            that saturates gives no gradient. The paper puts Tanh on the model's output.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        temperature: of NeuralSort, > 0, in units of the scores; smaller is closer to NDCG.
        transposed: sum over items (eq. 6) instead of over ranks (eq. 5).
        max_iter: the most iterations of the Sinkhorn scaling.
        tol: deviation of row and column sums from one at which the scaling stops.

    Raises:
        ConfigError: a knob is out of range.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_ndcg_loss(scores, labels, mask, k=1, temperature=0.01).tolist()  # -(2 - 1) / (4 - 1)
    [-0.3333333432674408]
    >>> neural_ndcg_loss(scores, labels, mask, temperature=1e3).round(decimals=4)  # all ranks mixed
    tensor([-0.7824])
    """
    scores, labels = without_padding(scores, labels, mask)
    soft = neural_sort(scores, mask, temperature=temperature)
    of_item = gains(labels, mask)
    of_rank = discounts(scores.shape[-1], scores, k=k)
    ideal = dcg(labels, labels, mask, k=k)
    if transposed:
        soft = sinkhorn(soft, mask, max_iter=max_iter, tol=tol, first="rows")
        soft_discounts = (soft * of_rank.unsqueeze(-1)).sum(-2)
        found = (of_item * soft_discounts).sum(-1)
    else:
        soft = sinkhorn(soft, mask, max_iter=max_iter, tol=tol)
        sorted_gains = (soft * of_item.unsqueeze(-2)).sum(-1)
        found = (sorted_gains * of_rank).sum(-1)
    relevant = ideal > 0
    return (-found / ideal.masked_fill(~relevant, 1)).masked_fill(~relevant, 0)
