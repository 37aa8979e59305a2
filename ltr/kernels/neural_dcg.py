"""Kernels for the DCG of lists sorted by NeuralSort: compiled loops on the CPU, Triton on a GPU.

The Sinkhorn scaling is the same as in ``sinkhorn``. A list of n items takes O(n^2) time and O(n)
memory, however much padding there is. On the CPU, each thread also stores at most 32 MiB of its
list's matrix. The knobs are not checked here.

In this file, P is NeuralSort's matrix, ``[rank, item]``, S is P after Sinkhorn scaling, g is the
``gain`` of each item (0 on padding), and d are the discounts.
"""

import math
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ltr.arrays import Ints
from ltr.kernels.dispatch import (
    as_array,
    item_values,
    list_sizes,
    on_cpu,
    value_and_grad,
)
from ltr.kernels.operators import item_operator, list_operator
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import order_by_score
from ltr.typing import Mask

# Largest number of entries of P that a thread stores (32 MiB). If there are more, all are computed
# again whenever they are needed.
MAX_STORED = 1 << 22
MAX_GPU_ITEMS = 2048  # longest padded list on a GPU, where a program holds whole rows in registers


def kernel_is_faster(scores: Tensor) -> bool:
    """Return whether ``neural_dcg`` can be computed, and would be faster than the formula."""
    if not scores.is_cuda:
        return on_cpu(scores)
    lists, size = scores.shape
    processors = _processors(scores.device)
    return processors > 0 and triton_is_faster(lists, size, processors)


def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; 0 without Triton."""
    if find_spec("triton") is None:
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# As @torch.compiler.assume_constant_result, without importing the whole compiler.
_processors._dynamo_marked_constant = True  # type: ignore[attr-defined]


def triton_is_faster(lists: int, size: int, processors: int) -> bool:
    """Estimate whether the GPU kernel is faster than the plain formula for ``[lists, size]``.

    Each list occupies one of the GPU's ``processors``. These times were measured on an H200, for
    one iteration forward and backward. The kernel took 0.5 ns per entry of its tiles. The plain
    formula took 0.7 ms to launch its operations, and 0.01 ns per entry of P.
    """
    kernel_time = 0.5e-9 * -(-lists // processors) * size * _columns(size)
    plain_time = 700e-6 + 0.01e-9 * lists * size * size
    return size <= MAX_GPU_ITEMS and kernel_time <= plain_time


def _columns(size: int) -> int:
    """Return the number of columns that one program of the GPU kernel works on."""
    return max(64, 1 << (size - 1).bit_length())


def launch_options(size: int, dtype: torch.dtype, *, transposed: bool) -> dict[str, Any]:
    """Return the constants and options with which the GPU kernel is compiled.

    A program splits a list into ``CHUNKS`` x ``LANES`` columns and works on ``ROWS`` rows at a
    time. A lane holds ``CHUNKS`` entries of a row, and a warp holds whole rows of up to 512
    columns; larger tiles would not fit into 255 registers. At the end, the gradient with respect to
    P is formed ``SLOPE_ROWS`` rows at a time.
    """
    columns = _columns(size)
    info = torch.finfo(dtype)
    warps = 4 if columns <= 128 else 8
    chunks = 16 if dtype == torch.float32 else 8
    lanes = columns // chunks
    rows = 32 * warps // lanes
    return {
        "FLOOR": info.tiny**0.5,
        "FAR": 2 - math.log2(info.tiny * info.eps),  # 2^-FAR is 0
        "TRANSPOSED": transposed,
        "CHUNKS": chunks,
        "LANES": lanes,
        "ROWS": rows,
        "SLOPE_ROWS": rows * (2 if chunks == 16 and rows > 2 else 1),
        "num_warps": warps,
        "enable_fp_fusion": True,
    }


def value_and_grad_on_gpu(
    scores: Tensor,
    need_grad: bool,
    gain: Tensor,
    mask: Tensor,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """Compute what ``neural_dcg`` computes, in the dtype of the scores, on the GPU.

    The rows of P are computed again whenever they are needed. The vectors of all iterations,
    ``[batch, 5, max_iter + 1, list]``, are stored.
    """
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    lists, size = scores.shape
    value = scores.new_zeros(lists)
    grad = torch.zeros_like(scores)
    if lists == 0 or size == 0:
        return value, grad
    order = order_by_score(scores, mask)
    # The kernel uses powers of 2. In float64, as at low temperatures small score differences count.
    ordered = scores.gather(-1, order).double() * (math.log2(math.e) / temperature)
    ordered_gain = gain.gather(-1, order)
    discount = discounts(size, scores, k=k)
    work = scores.new_empty((lists, 5 * (max_iter + 1) + 2, size))
    options = launch_options(size, scores.dtype, transposed=transposed)
    with torch.cuda.device_of(scores):  # else the current GPU would run it
        neural_ndcg_list[(lists,)](
            ordered, order, ordered_gain, discount, mask.sum(-1), value, grad, work,
            size, max_iter, float(tol), **options,
        )  # fmt: skip
    return value, grad / temperature


@list_operator("neural_dcg", on_gpu=value_and_grad_on_gpu)
def neural_dcg(
    scores: Tensor,
    need_grad: bool,
    gain: Tensor,
    mask: Tensor,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """Return the sum over ranks r <= k of (S g)_r d(r), ``[batch]``, and its gradient."""
    from ltr.kernels.neuralndcg import neural_ndcg_lists

    discount = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64, device=mask.device)
    arrays = [mask, gain, discount, ranked]
    tiny = torch.finfo(scores.dtype).tiny
    knobs = [temperature, transposed, max_iter, tol, tiny, MAX_STORED]
    costs = _costs(mask)
    return value_and_grad(neural_ndcg_lists, scores, arrays, knobs, costs, need_grad=need_grad)


@item_operator("neurally_sorted")
def neurally_sorted(
    scores: Tensor,
    weights: Tensor | None,
    values: Tensor,
    mask: Tensor,
    temperature: float,
    max_iter: int,
    tol: float,
) -> Tensor:
    """Return S v, ``[batch, rank]``, where v are the ``values``, which get no gradient.

    Given ``weights``, return instead the gradient of the sum of weights times S v; S is then
    computed again.
    """
    from ltr.kernels.neuralndcg import neurally_sorted_lists

    tiny = torch.finfo(scores.dtype).tiny
    knobs = [as_array(values), temperature, max_iter, tol, tiny, MAX_STORED]
    return item_values(neurally_sorted_lists, scores, weights, mask, knobs, _costs(mask))


def _costs(mask: Mask) -> Ints:
    """Return the relative cost of each list; 1 is the cost of a pair in a pairwise loss."""
    return list_sizes(mask) ** 2 * 60
