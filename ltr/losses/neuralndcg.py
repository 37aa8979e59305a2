"""NeuralNDCG: NDCG with NeuralSort in the place of sorting."""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from ltr.losses.batch import without_padding
from ltr.losses.fused import kernels_apply, neural_dcg
from ltr.losses.soft_permutation import minus_ndcg_of, minus_normalised
from ltr.metrics.checks import check_positive
from ltr.relaxations import neural_sort, sinkhorn
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

    On the CPU no matrix is formed for the batch and padding costs nothing: a list of n items takes
    n^2 time or less, as what underflows is passed over, and, beyond a band of 32 MiB, memory in
    proportion to n. The scaling couples all ranks, so that a cutoff saves no time. With scores of
    deviation 1 at temperature 1, value and gradient take 0.2 s on one core for a list of 5,000
    items and 2 s and 20 MiB for 20,000; at temperature 100, where little underflows, 1.4 s and
    16 s. On an NVIDIA GPU one Triton kernel does the same for lists of up to 2,048 places; a
    process uses it once it has seen it agree with the plain path there. Else, and where
    torch.compile traces, the matrices are formed, ``[batch, list, list]``. First derivatives only.

    Args:
        scores: ``[batch, list]``, higher is better. Items scored equal share their ranks: an output
            that saturates gives no gradient. The paper puts Tanh on the model's output.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        temperature: of NeuralSort, > 0, in units of the scores; smaller is closer to NDCG.
        transposed: sum over items (eq. 6) instead of over ranks (eq. 5).
        stochastic: the mean of the value over draws of ``stochastic_neural_sort``, which sorts
            log(1 + s - lowest s of the list) + beta * Gumbel noise; the temperature is then in
            units of these. The papers leave open how scores are made positive.
        n_samples: >= 1, draws, if stochastic; time and memory grow with it.
        beta: > 0, scale of the noise, if stochastic.
        generator: what draws, if stochastic. None is torch's own generator of the device, which
            ``torch.manual_seed`` seeds and the trainer keeps in its checkpoints.
        max_iter: the most iterations of the Sinkhorn scaling.
        tol: deviation of row and column sums from one at which the scaling stops.

    Raises:
        ConfigError: a knob is out of range.

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
    if kernels_apply(scores):
        sort_and_sum: Callable[..., Tensor] | None = neural_dcg
    else:
        sort_and_sum = _on_gpu(scores)
    if sort_and_sum is None:
        soft = neural_sort(scores, masks, temperature=temperature)
        first = "rows" if transposed else "columns"
        soft = sinkhorn(soft, masks, max_iter=max_iter, tol=tol, first=first)
        values = minus_ndcg_of(soft, labels, masks, k=k)
    else:
        found = sort_and_sum(
            scores, labels, masks,
            k=k, temperature=temperature, transposed=transposed, max_iter=max_iter, tol=tol,
        )  # fmt: skip
        values = minus_normalised(found, labels, masks, k=k)
    return values.unflatten(0, (copies, len(mask))).mean(0)


def _on_gpu(scores: Tensor) -> Callable[..., Tensor] | None:
    """``neural_dcg`` by a kernel of the GPU, where Triton is there and lists are not too long."""
    if scores.device.type != "cuda" or torch.compiler.is_compiling() or not find_spec("triton"):
        return None
    from ltr.losses import neuralndcg_triton as kernel

    fits = scores.shape[-1] <= kernel.LONGEST
    return kernel.neural_dcg_on_gpu if fits and kernel.right_on(scores.device) else None
