"""NeuralNDCG: NDCG with NeuralSort in the place of sorting."""

import torch

from ltr.knobs import check_positive
from ltr.losses.batch import without_padding
from ltr.losses.soft_permutation import negative_ndcg, neural_dcg
from ltr.relaxations.neuralsort import drawn_scores
from ltr.relaxations.optimal_transport import check_iterations
from ltr.typing import Labels, Mask, PerList, Scores


def neural_ndcg_loss(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    temperature: float = 1.0,
    transposed: bool = False,
    stochastic: bool = False,
    n_samples: int = 8,
    beta: float = 1.0,
    generator: torch.Generator | None = None,
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

    On the CPU a list of n items takes at most n^2 time and at most 32 MiB for each thread. On an
    NVIDIA GPU a Triton kernel, which keeps no matrix, takes lists of up to 2,048 places, but for
    few long ones. Elsewhere the plain path forms ``[batch, list, list]``.

    Args:
        scores: ``[batch, list]``. Items with equal scores share their ranks, so an output that
            saturates gives no gradient. The paper puts Tanh on the model's output.
        k: cutoff rank >= 1, None for the whole list.
        temperature: of NeuralSort, > 0, in units of the scores; smaller is closer to NDCG.
        transposed: sum over items (eq. 6) instead of over ranks (eq. 5).
        stochastic: the mean of the value over draws of ``stochastic_neural_sort``; the temperature
            is then in units of log scores.
        n_samples: >= 1, draws, if stochastic; time and memory grow with it.
        beta: > 0, scale of the noise, if stochastic.
        generator: draws the noise; None is torch's own, see ``ltr.losses``.
        max_iter, tol: of the Sinkhorn scaling, see ``sinkhorn``.

    >>> scores, labels = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True]])
    >>> neural_ndcg_loss(scores, labels, mask, k=1, temperature=0.01).tolist()  # -(2 - 1) / (4 - 1)
    [-0.3333333432674408]
    >>> neural_ndcg_loss(scores, labels, mask, temperature=1e3).round(decimals=4)  # all ranks mixed
    tensor([-0.7824])
    """
    scores, labels = without_padding(scores, labels, mask)
    copies = 1
    if stochastic:
        drawn = drawn_scores(scores, mask, n_samples=n_samples, beta=beta, generator=generator)
        scores, copies = drawn.flatten(0, 1), n_samples
    labels, masks = labels.repeat(copies, 1), mask.repeat(copies, 1)
    check_positive("temperature", temperature)
    check_iterations(max_iter, tol)
    found = neural_dcg(scores, labels, masks, k, temperature, transposed, max_iter, tol)
    values = negative_ndcg(found, labels, masks, k=k)
    return values.unflatten(0, (copies, len(mask))).mean(0)
