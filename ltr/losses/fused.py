"""Losses on the CPU by compiled loops, without a matrix over the pairs of a list's items.

A kernel of ``ltr.kernels`` writes the value of each list and its slopes by the scores in float64.
They are rounded at the end, and backward is a product: first derivatives only, see
``ltr.relaxations.second_derivatives``.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.knobs import check_choice, check_k, check_positive
from ltr.relaxations.second_derivatives import plain_path
from ltr.typing import Labels, Mask, PerList, Ranks, Scores

log = logging.getLogger(__name__)

WORTH_A_THREAD = 1 << 16  # a thread takes as long to start as some thousand pairs


def kernels_apply(scores: Scores) -> bool:
    """Whether the compiled loops take these scores: on the CPU, not traced, once, Numba works."""
    if scores.device.type != "cpu" or torch.compiler.is_compiling() or plain_path():
        return False
    return numba_works()


@functools.cache
def numba_works() -> bool:
    """Whether Numba compiles a function; else warn."""
    try:
        from ltr.kernels.compile import exp  # half a second

        exp(0.0)
    except Exception as error:  # Numba often lags behind a new NumPy, and may fail anywhere
        log.warning("losses take their plain path, which is slower on a CPU: %r", error)
        return False
    return True


def sum_over_pairs(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    cost: str,
    sigma: float = 1.0,
    linear_from: float = 0.0,
    own: Scores | None = None,
    gain: Scores | None = None,
    discount: Scores | None = None,
    ranks: Ranks | None = None,
    steps: Tensor | None = None,
    factors: tuple[float, float, float] = (0.0, 0.0, 0.0),
    k: int | None = None,
    pairs: str = "any",
    ordered: bool = True,
) -> PerList:
    """Sum over the pairs y_i > y_j of w_ij cost(sigma (s_i - s_j)), ``[batch]``.

    w_ij = own_i + |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)), s the scores, y the
    labels. Each thread takes the memory of one row of pairs.

    Args:
        cost: ``logistic``, ``hinge``, ``squared_hinge`` or ``exponential``.
        sigma: slope of the logistic.
        linear_from: where the exponential goes on as its tangent.
        own, gain, discount: own, g and d of each item, constants, ``[batch, list]``, None is 0.
        ranks: r, ``[batch, list]``, needed with ``steps`` and with ``k``.
        steps: step at the distances 1, 2, ..., ``[list]``, None is 0.
        factors: c, c_d and c_s.
        k: cutoff rank, None for all pairs.
        pairs: ``"any"`` or ``"both"``, which pairs count at the cutoff.
        ordered: False to sum over all j != i, whatever their labels, for i in front of the cutoff;
            c_s is 0 then.
    """
    from ltr.kernels import pairs as kernels

    check_positive("sigma", sigma)
    check_choice("pairs", pairs, ["any", "both"])
    check_k(k)
    nothing = torch.zeros((), dtype=torch.float64).expand(mask.shape)
    weights = [nothing if x is None else x for x in (own, gain, discount)]
    ranks = mask.long() if ranks is None else ranks
    top = mask if k is None else ranks <= k
    steps = nothing.new_zeros(mask.shape[-1]) if steps is None else steps
    counted = kernels.ALL if k is None else getattr(kernels, pairs.upper())
    return summed(
        kernels.pair_lists,
        scores,
        [labels, mask, *weights, ranks, top, steps],
        [factors, counted, ordered, getattr(kernels, cost.upper()), sigma, linear_from],
        list_sizes(mask) ** 2,
    )


def expected_dcg(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, *, sigma: float, k: int | None
) -> PerList:
    """Sum over items j of g_j sum over ranks r of d(r) p_j(r), p ``rank_distribution``'s.

    Returns ``[batch]``. One item's distribution at a time: n^2 min(n, k) time for each list, memory
    of one n x min(n, k) matrix for each thread. Knobs are not checked. ``gain``, g, is 0 on padding
    and ``of_rank``, d of the ranks of each list, 0 beyond ``k``; both are constants,
    ``[batch, list]``.
    """
    from ltr.kernels.ranks import expected_dcg_lists

    sizes, k = list_sizes(mask), k or mask.shape[-1]
    costs = sizes**2 * np.minimum(sizes, k)
    return summed(expected_dcg_lists, scores, [mask, gain, of_rank], [float(sigma), k], costs)


def hinge_map(scores: Scores, relevant: Mask, mask: Mask) -> PerList:
    """max over rankings of (1 - AP) + F - F(ideal), see ``svm_map_loss``, ``[batch]``.

    ``relevant`` is ``[batch, list]``, False on padding.
    """
    from ltr.kernels.hinge_map import hinge_map_lists

    return summed(hinge_map_lists, scores, [mask, relevant], [], list_sizes(mask) ** 2)


def listmle_cost(
    scores: Scores, labels: Labels, noise: Scores, of_rank: Tensor, mask: Mask
) -> PerList:
    """See ``ltr.losses.listmle.cost_of_order``, ``[batch]``; ``noise`` orders equal labels."""
    from ltr.kernels.listmle import listmle_lists

    keys, drawn = as_array((-labels).masked_fill(~mask, torch.inf)), as_array(noise)
    if noise.dtype == torch.float32 and bool(((labels % 1 == 0) & (labels.abs() < 1 << 28)).all()):
        order = np.argsort(keys + drawn, -1)  # the sums are exact
    else:
        draws = np.argsort(drawn, -1)
        by_label = np.argsort(np.take_along_axis(keys, draws, -1), -1, kind="stable")
        order = np.take_along_axis(draws, by_label, -1)
    return summed(
        listmle_lists, scores, [mask, torch.from_numpy(order), of_rank], [], list_sizes(mask) * 8
    )


def summed(
    kernel: Callable[..., None],
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: NDArray[np.int64],
) -> PerList:
    return _Summed.apply(scores, kernel, arrays, knobs, costs)


def value_and_slope(
    kernel: Callable[..., None],
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: NDArray[np.int64],
    *,
    wanted: bool = True,
) -> tuple[PerList, Scores]:
    """What ``kernel(lists, scores, *arrays, *knobs, wanted, value, slope)`` writes of each list."""
    value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
    given = [*map(as_array, (scores, *arrays)), *knobs, wanted, value, slope]
    over_lists(lambda lists: kernel(lists, *given), costs)
    return torch.from_numpy(value).to(scores.dtype), torch.from_numpy(slope).to(scores.dtype)


class _Summed(torch.autograd.Function):
    """The values of ``value_and_slope``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, kernel: Callable[..., None], *rest: Any) -> Tensor:
        value, slope = value_and_slope(kernel, scores, *rest, wanted=ctx.needs_input_grad[0])
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None, None


def approximate_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature), ``[batch, list]``.

    Memory in proportion to the items; 1 on padding.
    """
    from ltr.kernels.ranks import approx_rank_lists

    sizes = list_sizes(mask)
    return _SoftRanks.apply(scores, mask, float(temperature), approx_rank_lists, sizes**2)


def laplace_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r_j = 1 + sum over i != j of Phi((s_i - s_j) / temperature), ``[batch, list]``.

    Phi is the distribution function of the Laplace distribution. A sort's time, memory in
    proportion to the items; 1 on padding.
    """
    from ltr.kernels.laplace_ranks import laplace_rank_lists

    sizes = list_sizes(mask)
    return _SoftRanks.apply(scores, mask, float(temperature), laplace_rank_lists, sizes * 64)


class _SoftRanks(torch.autograd.Function):
    """The ranks that ``kernel(lists, scores, mask, temperature, ranks, ...)`` writes."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        mask: Tensor,
        temperature: float,
        kernel: Callable[..., None],
        costs: NDArray[np.int64],
    ) -> Tensor:
        ctx.save_for_backward(scores, mask)
        ctx.rest = temperature, kernel, costs
        ranks = np.ones(scores.shape)
        given = as_array(scores), as_array(mask), temperature, ranks, ranks, ranks, False
        over_lists(lambda lists: kernel(lists, *given), costs)
        return torch.from_numpy(ranks).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask = ctx.saved_tensors
        temperature, kernel, costs = ctx.rest
        slope = np.zeros(scores.shape)
        given = as_array(scores), as_array(mask), temperature, slope, as_array(grad), slope, True
        over_lists(lambda lists: kernel(lists, *given), costs)
        return torch.from_numpy(slope).to(scores.dtype), None, None, None, None


def over_lists(kernel: Callable[[NDArray[np.int64]], None], costs: NDArray[np.int64]) -> None:
    """Call ``kernel`` with the numbers of all lists, in parts on up to torch's number of threads.

    Threads end with the call, so that a process can be forked at any time.

    Args:
        kernel: takes the numbers of its lists, ``[lists]``; releases Python's lock.
        costs: of each list, such as its number of pairs, ``[batch]``.

    >>> seen = []
    >>> over_lists(lambda part: seen.append(part.tolist()), np.array([1, 3, 2]))
    >>> seen  # too little work for a second thread; the longest first
    [[1, 2, 0]]
    """
    lists = np.argsort(-costs, kind="stable")
    parts = min(torch.get_num_threads(), len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass


def as_array(values: Tensor) -> Any:
    """A contiguous NumPy array for the kernels: float64, bool or int64."""
    values = values.detach()
    return np.ascontiguousarray((values.double() if values.is_floating_point() else values).numpy())


def list_sizes(mask: Tensor) -> NDArray[np.int64]:
    return mask.sum(-1).numpy()
