"""SoftSort-NDCG: NDCG with SoftSort in the place of sorting."""

from typing import Any

from ltr.kernels.dispatch import list_sizes, value_op, with_kernel
from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg, soft_dcg
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.relaxations import sinkhorn, soft_sort
from ltr.relaxations.optimal_transport import check_iterations
from ltr.typing import Labels, Mask, PerList, Scores


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
    found = _soft_sort_dcg(scores, labels, mask, k, temperature, max_iter, tol)
    return negative_ndcg(found, labels, mask, k=k)


def _by_running_sums(
    scores: Scores, labels: Labels, mask: Mask, k: int | None, *knobs: Any
) -> PerList:
    arrays = [mask, gains(labels, mask), discounts(mask.shape[-1], scores, k=k)]
    loop = "softsort:softsort_ndcg_lists"
    return value_op(loop, scores, arrays, knobs, list_sizes(mask) * 400)


@with_kernel(_by_running_sums)
def _soft_sort_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    max_iter: int,
    tol: float,
) -> PerList:
    soft = soft_sort(scores, mask, temperature=temperature)
    return soft_dcg(sinkhorn(soft, mask, max_iter=max_iter, tol=tol), labels, mask, k=k)
