"""NeuralNDCG's sum as one Triton kernel for CUDA: a program for each list, no matrix in memory."""

import functools
import warnings
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.losses.soft_permutation import dcg_of
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score
from ltr.relaxations import neural_sort, sinkhorn
from ltr.relaxations.neuralsort import logit_parts
from ltr.typing import Labels, Mask, PerList, Scores

LONGEST = 2048  # places; a program holds whole rows of P in its registers


@functools.cache
def right_on(device: torch.device) -> bool:
    """Whether this GPU's kernel agrees with the plain path, tried once; else warn."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(64, 240, generator=generator)
    labels = torch.randint(0, 5, (64, 240), generator=generator).float().to(device)
    mask = (torch.arange(240) < torch.randint(0, 241, (64, 1), generator=generator)).to(device)
    scores = start.to(device).masked_fill(~mask, 0).requires_grad_()
    knobs: dict[str, Any] = {
        "k": None,
        "temperature": 1.0,
        "transposed": False,
        "max_iter": 30,
        "tol": 1e-6,
    }
    values = neural_dcg_on_gpu(scores, labels, mask, **knobs)
    expected = dcg_of(sinkhorn(neural_sort(scores, mask), mask), labels, mask, k=None)
    slopes, plain = (torch.autograd.grad(x.sum(), scores)[0] for x in (values, expected))
    right = torch.allclose(values, expected, rtol=1e-4) and bool(
        (slopes - plain).abs().max() < 1e-3 * plain.abs().max()
    )
    if not right:
        warnings.warn(f"NeuralNDCG's kernel is wrong on {device}: not used", stacklevel=2)
    return right


def neural_dcg_on_gpu(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> PerList:
    """``neural_dcg`` on a GPU, in the dtype of the scores, ``[batch]``; at most ``LONGEST`` places.

    Each pass computes the rows of P again from the two vectors of the logits. Memory is that of the
    vectors of each iteration, ``[batch, 7, max_iter + 1, list]``. First derivatives only.
    """
    order = order_by_score(scores.detach(), mask)
    x, a = (part.gather(-1, order) for part in logit_parts(scores, mask, temperature))
    gain = gains(labels, mask).gather(-1, order)
    constants = [gain, discounts(mask.shape[-1], scores, k=k), mask.sum(-1)]
    return _NeuralDCG.apply(x, a, constants, (transposed, max_iter, float(tol)))


class _NeuralDCG(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, constants: list[Tensor], knobs: tuple) -> Tensor:
        transposed, max_iter, tol = knobs
        lists, size = x.shape
        value, slopes = x.new_zeros(lists), x.new_zeros((2, lists, size))
        history = x.new_ones((lists, 7, max_iter + 1, size))
        block = max(16, triton.next_power_of_2(size))
        if lists and size:
            with torch.cuda.device_of(x):  # or it would be launched on the current one
                _kernel[(lists,)](
                    x.contiguous(), a.contiguous(), *(c.contiguous() for c in constants), value,
                    slopes[0], slopes[1], history, size, max_iter, tol,
                    FLOOR=torch.finfo(x.dtype).tiny ** 0.5, TRANSPOSED=transposed, BLOCK=block,
                    ROWS=max(1, 4096 // block),
                )  # fmt: skip
        ctx.save_for_backward(slopes)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slopes[0], grad.unsqueeze(-1) * slopes[1], None, None


@triton.jit
def _rows(x, a, columns, first, n, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows ``first`` to ``first + ROWS`` of P, their numbers and their weights w."""
    r = first + tl.arange(0, ROWS)
    w = (n - 1 - 2 * r).to(x.dtype)
    logits = w[:, None] * x[None, :] - a[None, :]
    logits = tl.where(columns[None, :], logits, -float("inf"))
    e = tl.exp(logits - tl.max(logits, 1)[:, None])
    p = e / tl.sum(e, 1)[:, None]
    return tl.where((r < n)[:, None] & columns[None, :], p, 0.0), r, w


@triton.jit(do_not_specialize=["size", "max_iter"])
def _kernel(  # type: ignore[no-untyped-def]
    x_ptr, a_ptr, gain_ptr, discount_ptr, sizes_ptr, value_ptr, slope_x_ptr, slope_a_ptr,
    history_ptr, size, max_iter, tol,
    FLOOR: tl.constexpr, TRANSPOSED: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The steps of ``ltr.kernels.neuralndcg``, a tile of rows at a time.

    ``history``: u, v, whether each is new (0 or 1), P^T (w u), the slope by u, and ``mean``, of
    each iteration. Between the writing of a number and its reading, maybe by another thread, stands
    a barrier, and no number is written over.
    """
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(sizes_ptr + b).to(tl.int32)
    j = tl.arange(0, BLOCK)
    columns = j < n
    x = tl.load(x_ptr + b * size + j, mask=columns, other=0.0)
    a = tl.load(a_ptr + b * size + j, mask=columns, other=0.0)
    gain = tl.load(gain_ptr + b * size + j, mask=columns, other=0.0)
    one = (max_iter + 1) * size
    u_ptr = history_ptr + b * 7 * one
    v_ptr = u_ptr + one
    new_u_ptr = v_ptr + one
    new_v_ptr = new_u_ptr + one
    of_u_ptr = new_v_ptr + one
    slope_u_ptr = of_u_ptr + one
    mean_ptr = slope_u_ptr + one

    zero = tl.zeros([BLOCK], x.dtype)
    column, weighted = zero, zero
    for first in range(0, n, ROWS):
        p, r, w = _rows(x, a, columns, first, n, ROWS)
        column += tl.sum(p, 0)
        weighted += tl.sum(p * w[:, None], 0)

    v = zero + 1.0
    last = max_iter * 0
    i = last + 1
    running = i > 0
    while running:
        if not TRANSPOSED:
            # The rows have just been normalised: only the columns can deviate.
            off = tl.max(tl.where(columns & ~(tl.abs(v * column - 1.0) < tol), 1, 0), 0)
            if (i == 1) | (off > 0):
                new = columns & (column > FLOOR)
                v = tl.where(new, 1.0 / tl.where(new, column, 1.0), v)
                tl.store(v_ptr + i * size + j, v, mask=columns)
                tl.store(new_v_ptr + i * size + j, new.to(x.dtype), mask=columns)
                tl.store(of_u_ptr + i * size + j, weighted, mask=columns)
            else:
                running = i < 0
        if running:
            next_column, next_weighted, off = zero, zero, 0
            for first in range(0, n, ROWS):
                p, r, w = _rows(x, a, columns, first, n, ROWS)
                u = tl.load(u_ptr + (i - 1) * size + r, mask=r < n, other=1.0)
                sums = tl.sum(p * v[None, :], 1)
                off += tl.sum(tl.where((r < n) & ~(tl.abs(u * sums - 1.0) < tol), 1, 0), 0)
                new = (r < n) & (sums > FLOOR)
                u = tl.where(new, 1.0 / tl.where(new, sums, 1.0), u)
                tl.store(u_ptr + i * size + r, u, mask=r < n)
                tl.store(new_u_ptr + i * size + r, new.to(x.dtype), mask=r < n)
                next_column += tl.sum(p * u[:, None], 0)
                next_weighted += tl.sum(p * (w * u)[:, None], 0)
            column, weighted = next_column, next_weighted
            if TRANSPOSED:
                if (i == 1) | (off > 0):
                    new = columns & (column > FLOOR)
                    v = tl.where(new, 1.0 / tl.where(new, column, 1.0), v)
                    tl.store(v_ptr + i * size + j, v, mask=columns)
                    tl.store(new_v_ptr + i * size + j, new.to(x.dtype), mask=columns)
                    tl.store(of_u_ptr + i * size + j, weighted, mask=columns)
                else:
                    running = i < 0
        if running:
            last = i
            i += 1
            running = i <= max_iter
        tl.debug_barrier()

    value = tl.sum(zero, 0)
    column, weighted = zero, zero
    gained = v * gain
    for first in range(0, n, ROWS):
        p, r, w = _rows(x, a, columns, first, n, ROWS)
        u = tl.load(u_ptr + last * size + r, mask=r < n, other=0.0)
        d = tl.load(discount_ptr + r, mask=r < n, other=0.0)
        sums = tl.sum(p * gained[None, :], 1)
        tl.store(slope_u_ptr + last * size + r, d * sums, mask=r < n)
        tl.store(mean_ptr + last * size + r, d * u * sums, mask=r < n)
        value += tl.sum(d * u * sums, 0)
        column += tl.sum(p * (d * u)[:, None], 0)
        weighted += tl.sum(p * (d * u * w)[:, None], 0)
    tl.store(value_ptr + b, value)
    slope_v = gain * column
    of_item, of_item_weighted = gained * column, gained * weighted
    slope_sums = zero
    tl.debug_barrier()

    i = last
    while i > 0:
        v = tl.load(v_ptr + i * size + j, mask=columns, other=1.0)
        before = v
        new_v = tl.load(new_v_ptr + i * size + j, mask=columns, other=0.0) > 0
        of_u = tl.load(of_u_ptr + i * size + j, mask=columns, other=0.0)
        if TRANSPOSED:
            before = tl.load(v_ptr + (i - 1) * size + j, mask=columns, other=1.0)
            slope_sums = tl.where(new_v, -slope_v * v * v, 0.0)
            slope_v = tl.where(new_v, 0.0, slope_v)
            of_item += slope_sums / v
            of_item_weighted += slope_sums * of_u
        column, weighted = zero, zero
        for first in range(0, n, ROWS):
            p, r, w = _rows(x, a, columns, first, n, ROWS)
            u = tl.load(u_ptr + i * size + r, mask=r < n, other=1.0)
            new_u = tl.load(new_u_ptr + i * size + r, mask=r < n, other=0.0) > 0
            sums = tl.sum(p * slope_sums[None, :], 1)
            slope_u = tl.load(slope_u_ptr + i * size + r, mask=r < n, other=0.0) + sums
            slope = tl.where(new_u, -slope_u * u * u, 0.0)
            mean = tl.load(mean_ptr + i * size + r, mask=r < n, other=0.0)
            mean += u * sums + slope / u
            tl.store(mean_ptr + (i - 1) * size + r, mean, mask=r < n)
            slope_u = tl.where(new_u, 0.0, slope_u)
            tl.store(slope_u_ptr + (i - 1) * size + r, slope_u, mask=r < n)
            column += tl.sum(p * slope[:, None], 0)
            weighted += tl.sum(p * (slope * w)[:, None], 0)
        slope_v += column
        of_item += before * column
        of_item_weighted += before * weighted
        if not TRANSPOSED:
            slope_sums = tl.where(new_v, -slope_v * v * v, 0.0)
            slope_v = tl.where(new_v, 0.0, slope_v)
            of_item += slope_sums / v
            of_item_weighted += slope_sums * of_u
        i -= 1
        tl.debug_barrier()

    for first in range(0, n, ROWS):
        p, r, w = _rows(x, a, columns, first, n, ROWS)
        mean = tl.load(mean_ptr + r, mask=r < n, other=0.0)
        if not TRANSPOSED:
            mean += tl.sum(p * slope_sums[None, :], 1)
        of_item -= tl.sum(p * mean[:, None], 0)
        of_item_weighted -= tl.sum(p * (mean * w)[:, None], 0)
    tl.store(slope_x_ptr + b * size + j, of_item_weighted, mask=columns)
    tl.store(slope_a_ptr + b * size + j, -of_item, mask=columns)
