"""DCG of NeuralSort by kernels: compiled loops on the CPU, Triton on a GPU.

While torch.compile traces, the kernel is called through a custom operator. The Sinkhorn scaling is
the same as in ``sinkhorn``. A list of n items takes n^2 time. It takes memory in proportion to n,
plus a part of its matrix, however much padding there is. The knobs are not checked.

S is the scaled soft permutation ``[rank, item]``, g the gains ``of_item``, 0 on padding, d the
discounts.
"""

import math
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.dispatch import (
    Work,
    as_array,
    list_sizes,
    numba_works,
    slope_op,
    value_and_slope,
    vector_op,
)
from ltr.metrics.cumulative_gain import discounts
from ltr.metrics.ordering import order_by_score
from ltr.typing import Mask, Scores

KEPT = 1 << 22  # entries of P that a thread stores (32 MiB); more are computed again in every pass
LONGEST = 2048  # longest padded list on a GPU, where a program holds whole rows in registers


def neural_dcg(_: Scores, *given: Any) -> Work:
    """Return the fast path on the CPU: the sum over ranks r <= k of (S g)_r d(r)."""
    return slope_op(lambda scores, wanted: _on_cpu(scores, *given, wanted=wanted))


def _on_cpu(
    scores: Tensor, of_item: Tensor, mask: Tensor, k: int | None, *knobs: Any,
    wanted: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the values and their slopes with respect to the scores, in the scores' dtype."""
    of_rank = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64, device=mask.device)
    arrays = [mask, of_item, of_rank, ranked]
    rest = [*knobs, torch.finfo(scores.dtype).tiny, KEPT]
    loop, costs = "neuralndcg:neural_ndcg_lists", list_sizes(mask) ** 2 * 60
    return value_and_slope(loop, scores, arrays, rest, costs, wanted=wanted)


def neurally_sorted(
    scores: Scores, values: Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> Work:
    """Return the fast path on the CPU: S v, ``[batch, rank]``, with v = ``values``.

    ``values`` get no gradient. The backward pass computes S again.
    """
    tiny, costs = torch.finfo(scores.dtype).tiny, list_sizes(mask) ** 2 * 60
    knobs = [as_array(values), temperature, max_iter, tol, tiny, KEPT]
    return vector_op("neuralndcg:neurally_sorted_lists", mask, knobs, costs=costs)


def off_the_loop(scores: Scores, *given: Any) -> Work | None:
    """Return the fast path of ``neural_dcg`` on a GPU or under torch.compile.

    If there is no fast path, or if it would be slower, return None; ``neural_dcg`` then computes
    its formula.
    """
    (lists, size), processors = scores.shape, _processors(scores.device)
    if processors == 0 or (scores.is_cuda and not worthwhile(lists, size, processors)):
        return None
    run = _operator if torch.compiler.is_compiling() else value_and_slope_on_gpu
    return slope_op(lambda scores, _: run(scores, *given))


def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; 0 without CUDA or Triton.

    On the CPU return 1 if Numba works, else 0.
    """
    if device.type == "cpu":
        return int(numba_works())
    if device.type != "cuda" or find_spec("triton") is None:
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# What torch.compiler.assume_constant_result does, but that would import the whole compiler.
_processors._dynamo_marked_constant = True  # type: ignore[attr-defined]


def worthwhile(lists: int, size: int, processors: int) -> bool:
    """Estimate whether the GPU kernel is faster than the plain formula for ``[lists, size]``.

    Each list occupies one of the GPU's ``processors``. For one iteration, forward and backward, an
    H200 took 0.5 ns per entry of the kernel's tiles, and for the plain formula 0.7 ms of launches
    and 0.01 ns per entry of P.
    """
    kernel = 0.5e-9 * -(-lists // processors) * size * _columns(size)
    return size <= LONGEST and kernel <= 700e-6 + 0.01e-9 * lists * size * size


def _columns(size: int) -> int:
    """Return the number of columns that one program of the GPU kernel works on."""
    return max(64, 1 << (size - 1).bit_length())


def launch_options(size: int, dtype: torch.dtype, *, transposed: bool) -> dict[str, Any]:
    """Return the constants and options with which the GPU kernel is compiled.

    A program splits a list into ``CHUNKS`` x ``LANES`` columns and works on ``ROWS`` rows at a
    time. A lane holds ``CHUNKS`` entries of a row, and a warp holds whole rows (up to 512 columns);
    more would not fit into 255 registers. At the end, the slope of P is formed ``SLOPE_ROWS`` rows
    at a time.
    """
    columns, info = _columns(size), torch.finfo(dtype)
    warps, chunks = (4 if columns <= 128 else 8), (16 if dtype == torch.float32 else 8)
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


def value_and_slope_on_gpu(
    scores: Tensor, of_item: Tensor, mask: Tensor, k: int | None, *knobs: Any
) -> tuple[Tensor, Tensor]:
    """Compute what ``_on_cpu`` computes, in the dtype of the scores, on the GPU.

    Every pass computes the rows of P again. The memory is that of the vectors of all iterations,
    ``[batch, 5, max_iter + 1, list]``.
    """
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    temperature, transposed, max_iter, tol = knobs
    lists, size = scores.shape
    value, slope = scores.new_zeros(lists), torch.zeros_like(scores)
    if lists == 0 or size == 0:
        return value, slope
    order = order_by_score(scores, mask)
    # The kernel uses powers of 2. In float64, as at low temperatures small score differences count.
    ordered = scores.gather(-1, order).double() * (math.log2(math.e) / temperature)
    gain = of_item.gather(-1, order)
    work = scores.new_empty((lists, 5 * (max_iter + 1) + 2, size))
    options = launch_options(size, scores.dtype, transposed=transposed)
    with torch.cuda.device_of(scores):  # else the current GPU would run it
        neural_ndcg_list[(lists,)](
            ordered, order, gain, discounts(size, scores, k=k), mask.sum(-1), value, slope, work,
            size, max_iter, float(tol), **options,
        )  # fmt: skip
    return value, slope / temperature


_operator = torch.library.custom_op(
    "ltr::neural_dcg",
    _on_cpu,
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor scores, Tensor of_item, Tensor mask, SymInt? k, float temperature, "
    "bool transposed, SymInt max_iter, float tol) -> (Tensor, Tensor)",
)
_operator.register_kernel("cuda")(value_and_slope_on_gpu)


@_operator.register_fake
def _shapes(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)
