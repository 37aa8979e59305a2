"""Losses on the CPU by compiled loops, without a matrix over the pairs of a list's items."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.losses.batch import to_array
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.typing import Labels, Mask, PerList, Ranks, Scores


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

    w_ij = own_i + |g_i - g_j| (c + c_d |d_i - d_j| + c_s step(|r_i - r_j|)). float64 inside,
    rounded at the end; the memory of one row of pairs for each thread. Value and gradient are
    computed together; first derivatives only. Knobs are not checked.

    Args:
        scores: s, ``[batch, list]``.
        labels: y, ``[batch, list]``.
        mask: ``[batch, list]``, True where an item exists.
        cost: ``logistic``, ``hinge``, ``squared_hinge`` or ``exponential``; sigma is of the first.
        sigma: slope of the logistic.
        linear_from: where the exponential goes on as its tangent.
        own: constants, ``[batch, list]``, None is 0.
        gain: g, constants, ``[batch, list]``, None is 0.
        discount: d of each item, constants, ``[batch, list]``, None is 0.
        ranks: r, ``[batch, list]``, needed with ``steps`` and with ``k``.
        steps: step at the distances 1, 2, ..., ``[list]``, None is 0.
        factors: c, c_d and c_s.
        k: cutoff rank, None for all pairs.
        pairs: ``"any"`` or ``"both"``, which pairs count at the cutoff.
        ordered: False to sum over all j != i, whatever their labels, for i in front of the cutoff;
            c_s is 0 then.
    """
    nothing = torch.zeros((), dtype=torch.float64).expand(mask.shape)
    weights = [nothing if x is None else x for x in (own, gain, discount)]
    ranks = mask.long() if ranks is None else ranks
    top = mask if k is None else ranks <= k
    steps = nothing[0] if steps is None else steps
    knobs = (factors, "all" if k is None else pairs, ordered, cost, sigma, linear_from)
    return _OverPairs.apply(scores, [labels, mask, *weights, ranks, top, steps], knobs)


class _OverPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, constants: list[Tensor], knobs: tuple) -> Tensor:
        from ltr.kernels import pairs  # Numba takes half a second

        factors, counted, ordered, cost, sigma, linear_from = knobs
        value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, *constants)]
        codes = getattr(pairs, counted.upper()), ordered, getattr(pairs, cost.upper())
        wanted = ctx.needs_input_grad[0]
        over_lists(
            lambda lists: pairs.pair_lists(
                lists, *given, factors, *codes, sigma, linear_from, wanted, value, slope
            ),
            given[2].sum(-1) ** 2,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None


KEPT = 1 << 22  # entries of P a thread may keep, 32 MiB; a longer band is computed in every pass


def soft_dcg(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
    kept: int = KEPT,
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r), S = sinkhorn(neural_sort(s)), ``[batch]``.

    The same as ``sinkhorn`` and ``neural_sort`` compute, with the same stopping rule list by list
    and the same floor, in float64 inside and rounded at the end. A list of n items costs n^2 time
    and no more than ``kept`` numbers of its matrix, however much padding stands around it. Value
    and gradient are computed together, so that backward is a product; first derivatives only.
    Knobs are not checked.
    """
    of_rank = discounts(mask.shape[-1], scores, k=k)
    knobs = (temperature, transposed, max_iter, tol, torch.finfo(scores.dtype).tiny, kept)
    return _SoftDCG.apply(scores, mask, gains(labels, mask), of_rank, knobs)


class _SoftDCG(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, mask: Tensor, gain: Tensor, of_rank: Tensor, knobs: tuple
    ) -> Tensor:
        from ltr.kernels.neuralndcg import neural_ndcg_lists  # Numba takes half a second

        value = np.zeros(len(scores))
        slope = np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, mask, gain, of_rank)]
        wanted = ctx.needs_input_grad[0]
        over_lists(
            lambda lists: neural_ndcg_lists(lists, *given, *knobs, wanted, value, slope),
            given[1].sum(-1) ** 2 * 60,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None, None


def expected_dcg(
    scores: Scores, gain: Scores, of_rank: Scores, mask: Mask, *, sigma: float, k: int | None
) -> PerList:
    """Sum over items j of g_j sum over ranks r of d(r) p_j(r), p ``rank_distribution``'s.

    Returns ``[batch]``. One item's distribution at a time, float64 inside, rounded at the end:
    n^2 min(n, k) time for each list, memory of one n x min(n, k) matrix for each thread. First
    derivatives only.

    Args:
        scores: ``[batch, list]``, the means; higher is better.
        gain: g, constants, ``[batch, list]``, 0 on padding.
        of_rank: d of the ranks of each list, constants, ``[batch, list]``, 0 beyond ``k``.
        mask: ``[batch, list]``, True where an item exists.
        sigma: > 0, standard deviation of every score.
        k: cutoff rank, None for the whole list.
    """
    return _ExpectedDCG.apply(scores, [mask, gain, of_rank], float(sigma), k or mask.shape[-1])


class _ExpectedDCG(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, constants: list[Tensor], sigma: float, k: int) -> Tensor:
        from ltr.kernels.ranks import soft_dcg_lists  # Numba takes half a second

        value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
        given = [to_array(x) for x in (scores, *constants)]
        wanted = ctx.needs_input_grad[0]
        sizes = given[1].sum(-1)
        over_lists(
            lambda lists: soft_dcg_lists(lists, *given, sigma, k, wanted, value, slope),
            sizes**2 * np.minimum(sizes, k),
            torch.get_num_threads(),
        )
        ctx.save_for_backward(torch.from_numpy(slope).to(scores.dtype))
        return torch.from_numpy(value).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None


def approximate_ranks(scores: Scores, mask: Mask, temperature: float) -> Scores:
    """r_j = 1 + sum over i != j of sigmoid((s_i - s_j) / temperature), ``[batch, list]``.

    float64 inside, rounded at the end; memory in proportion to the items; 1 on padding. First
    derivatives only.
    """
    return _ApproximateRanks.apply(scores, mask, temperature)


class _ApproximateRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward(scores, mask)
        ctx.temperature = temperature
        ranks = np.ones(scores.shape)
        _over_lists(scores, mask, temperature, ranks, ranks, ranks, False)
        return torch.from_numpy(ranks).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask = ctx.saved_tensors
        slope = np.zeros(scores.shape)
        _over_lists(scores, mask, ctx.temperature, slope, to_array(grad), slope, True)
        return torch.from_numpy(slope).to(scores.dtype), None, None


def _over_lists(scores: Tensor, mask: Tensor, temperature: float, *rest: Any) -> None:
    from ltr.kernels.ranks import approx_rank_lists  # Numba takes half a second

    given = to_array(scores), to_array(mask)
    over_lists(
        lambda lists: approx_rank_lists(lists, *given, float(temperature), *rest),
        given[1].sum(-1) ** 2,
        torch.get_num_threads(),
    )


WORTH_A_THREAD = 1 << 16  # a thread takes as long to start as some thousand pairs


def over_lists(
    kernel: Callable[[NDArray[np.int64]], None], costs: NDArray[np.int64], threads: int
) -> None:
    """Call ``kernel`` with the numbers of all lists, in parts on up to ``threads`` threads.

    Args:
        kernel: takes the numbers of its lists, ``[lists]``; holds no lock of Python.
        costs: what each list costs, such as its number of pairs, ``[batch]``.
        threads: >= 1. Threads end with the call, so that a process can be forked at any time.

    >>> seen = []
    >>> over_lists(lambda part: seen.append(part.tolist()), np.array([1, 3, 2]), threads=2)
    >>> seen  # too little work for a second thread; the longest first
    [[1, 2, 0]]
    """
    lists = np.argsort(-costs, kind="stable")
    parts = min(threads, len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass
