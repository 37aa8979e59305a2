"""OT-NDCG: NDCG with optimal-transport sorting in the place of sorting."""

from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg, neural_dcg
from ltr.relaxations.optimal_transport import check_iterations, places
from ltr.typing import Labels, Mask, PerList, Scores


def ot_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 0.01,
    max_iter: int = 30,
    tol: float = 1e-6,
) -> PerList:
    """Minus NDCG@k of the transport plan of each list, ``[batch]``, from about -1 (best) to 0.

    Minus sum over ranks r <= k of (S g)_r d(r) / maxDCG@k, with S = ot_sort(s) (Cuturi et al.,
    2019), g = 2^y - 1 and d(r) = 1/log2(1 + r): NeuralNDCG's construction. Scores are standardised
    list by list, so that their unit does not matter. It goes to the exact NDCG@k as the temperature
    goes to 0. A list without a relevant item gives 0 without gradient.

    Args:
        k: cutoff rank >= 1, None for the whole list.
        temperature: weight of the entropy, > 0, in units of the list's length squared.
        max_iter, tol: of the Sinkhorn scaling, see ``sinkhorn``. After 30 iterations at the default
            temperature columns sum to one within about 3e-3, after 100 within 1e-4.

    >>> import torch
    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> ot_ndcg_loss(scores, labels, mask, k=1, temperature=1e-3)  # -(2 - 1) / (4 - 1)
    tensor([-0.3333])
    >>> ot_ndcg_loss(scores, labels, mask, temperature=1e3).round(decimals=4)  # (3 + 1) / 3 at each
    tensor([-0.7825])
    """
    scores, labels = without_padding(scores, labels, mask)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    ordered = places(scores, mask)
    found = neural_dcg(ordered, labels, mask, k, temperature, False, max_iter, tol)
    return negative_ndcg(found, labels, mask, k=k)
