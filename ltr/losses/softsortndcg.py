"""SoftSort-NDCG: NDCG with SoftSort in the place of sorting."""

from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.losses.fused import kernels_apply
from ltr.losses.fused_permutation import soft_sort_dcg
from ltr.losses.soft_permutation import dcg_of, minus_normalised
from ltr.relaxations import sinkhorn, soft_sort
from ltr.relaxations.optimal_transport import check_iterations
from ltr.relaxations.second_derivatives import twice
from ltr.typing import Labels, Mask, PerList, Scores


@twice
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
    """Minus NDCG@k of SoftSort of each list, ``[batch]``, from about -1 (best) to 0.

    Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k, with S = sinkhorn(soft_sort(s)) (Prillo
    and Eisenschlos, 2020), g = 2^y - 1 and d(r) = 1/log2(1 + r): NeuralNDCG's construction. It goes
    to the exact NDCG@k as the temperature goes to 0. A list without a relevant item gives 0 without
    gradient. On the CPU no matrix is formed: beside one sort, a list costs time and memory in
    proportion to its items.

    Args:
        temperature: of SoftSort, > 0, in units of the scores; smaller is closer to NDCG.
        k, max_iter, tol: see ``neural_ndcg_loss``.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> softsort_ndcg_loss(scores, labels, mask, k=1, temperature=0.01)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    >>> softsort_ndcg_loss(scores, labels, mask, temperature=1e3).round(decimals=4)  # mixed
    tensor([-0.7825])
    """
    scores, labels = without_padding(scores, labels, mask)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    if kernels_apply(scores):
        found = soft_sort_dcg(
            scores, labels, mask, k=k, temperature=temperature, max_iter=max_iter, tol=tol
        )
    else:
        soft = soft_sort(scores, mask, temperature=temperature)
        soft = sinkhorn(soft, mask, max_iter=max_iter, tol=tol)
        found = dcg_of(soft, labels, mask, k=k)
    return minus_normalised(found, labels, mask, k=k)
