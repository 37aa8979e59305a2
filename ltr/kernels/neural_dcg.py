"""DCG of NeuralSort by kernels: compiled loops on the CPU, Triton on a GPU.

While torch.compile traces, the kernel is called through a custom operator. The Sinkhorn scaling is
the same as in ``sinkhorn``. A list of n items takes n^2 time. It takes memory in proportion to n,
plus a part of its matrix, however much padding there is. The knobs are not checked.

S is the scaled soft permutation ``[rank, item]``, g the ``gain`` of each item, 0 on padding, d the
discounts.
"""

import math
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ltr.arrays import Ints
from ltr.kernels.dispatch import (
    FastPath,
    as_array,
    list_sizes,
    numba_works,
    path_of_item_values,
    path_with_grad,
    value_and_grad,
)
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import order_by_score
from ltr.typing import Mask, Scores

# Entries of P that a thread stores (32 MiB); more are computed again in every pass.
MAX_STORED = 1 << 22
MAX_GPU_ITEMS = 2048  # longest padded list on a GPU, where a program holds whole rows in registers


def neural_dcg_on_cpu(_: Scores, *args: Any) -> FastPath:
    """Return the fast path on the CPU: the sum over ranks r <= k of (S g)_r d(r)."""
    return path_with_grad(
        lambda scores, need_grad: _value_and_grad_on_cpu(scores, *args, need_grad=need_grad)
    )


def _value_and_grad_on_cpu(
    scores: Tensor, gain: Tensor, mask: Tensor, k: int | None, *knobs: Any, need_grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the values and their gradient with respect to the scores, in the scores' dtype."""
    discount = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64, device=mask.device)
    return value_and_grad(
        "neuralndcg:neural_ndcg_lists",
        scores,
        [mask, gain, discount, ranked],
        [*knobs, torch.finfo(scores.dtype).tiny, MAX_STORED],
        _costs(mask),
        need_grad=need_grad,
    )


def neurally_sorted(
    scores: Scores, values: Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> FastPath:
    """Return the fast path on the CPU: S v, ``[batch, rank]``, with v = ``values``.

    ``values`` get no gradient. The backward pass computes S again.
    """
    tiny = torch.finfo(scores.dtype).tiny
    knobs = [as_array(values), temperature, max_iter, tol, tiny, MAX_STORED]
    return path_of_item_values("neuralndcg:neurally_sorted_lists", mask, knobs, costs=_costs(mask))


def _costs(mask: Mask) -> Ints:
    """Return the relative cost of each list, in units of a pair."""
    return list_sizes(mask) ** 2 * 60


def neural_dcg_off_cpu(scores: Scores, *args: Any) -> FastPath | None:
    """Return the fast path of the DCG on a GPU or under torch.compile.

    If there is no fast path, or if it would be slower, return None; the caller then computes
    its formula.
    """
    lists, size = scores.shape
    processors = _processors(scores.device)
    if processors == 0 or (scores.is_cuda and not triton_is_faster(lists, size, processors)):
        return None
    run = _operator if torch.compiler.is_compiling() else value_and_grad_on_gpu
    return path_with_grad(lambda scores, _: run(scores, *args))


def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; 0 without CUDA or Triton.

    On the CPU return 1 if Numba works, else 0.
    """
    if device.type == "cpu":
        return int(numba_works())
    if device.type != "cuda" or find_spec("triton") is None:
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# As @torch.compiler.assume_constant_result, without importing the whole compiler.
_processors._dynamo_marked_constant = True  # type: ignore[attr-defined]


def triton_is_faster(lists: int, size: int, processors: int) -> bool:
    """Estimate whether the GPU kernel is faster than the plain formula for ``[lists, size]``.

    Each list occupies one of the GPU's ``processors``. For one iteration, forward and backward, an
    H200 took 0.5 ns per entry of the kernel's tiles, and for the plain formula 0.7 ms of launches
    and 0.01 ns per entry of P.
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
    time. A lane holds ``CHUNKS`` entries of a row, and a warp holds whole rows (up to 512 columns);
    more would not fit into 255 registers. At the end, the gradient of P is formed ``SLOPE_ROWS``
    rows at a time.
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
    scores: Tensor, gain: Tensor, mask: Tensor, k: int | None, *knobs: Any
) -> tuple[Tensor, Tensor]:
    """Compute what ``_value_and_grad_on_cpu`` computes, in the dtype of the scores, on the GPU.

    Every pass computes the rows of P again. The memory is that of the vectors of all iterations,
    ``[batch, 5, max_iter + 1, list]``.
    """
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    temperature, transposed, max_iter, tol = knobs
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


_operator = torch.library.custom_op(
    "ltr::neural_dcg",
    _value_and_grad_on_cpu,
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor scores, Tensor gain, Tensor mask, SymInt? k, float temperature, "
    "bool transposed, SymInt max_iter, float tol) -> (Tensor, Tensor)",
)
_operator.register_kernel("cuda")(value_and_grad_on_gpu)


@_operator.register_fake
def _shapes(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)
