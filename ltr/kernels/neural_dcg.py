"""DCG of NeuralSort by kernels: loops on the CPU, Triton on a GPU, an operator while traced.

The scaling is that of ``sinkhorn``. A list of n items costs n^2 time, and memory in proportion to n
beside a part of its matrix, however much padding it has. Knobs are not checked.
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
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score
from ltr.typing import Mask, Scores

KEPT = 1 << 22  # entries of P a thread may keep, 32 MiB; a longer band is computed in every pass
LONGEST = 2048  # places on a GPU; the lanes of a program hold whole rows in registers


def neural_dcg(_: Scores, *given: Any) -> Work:
    """Sum over ranks r <= k of (S g)_r d(r) on the CPU."""
    return slope_op(lambda scores, wanted: _on_cpu(scores, *given, wanted=wanted))


def _on_cpu(
    scores: Tensor, labels: Tensor, mask: Tensor, k: int | None, *knobs: Any,
    wanted: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The values, and the slope of each by the scores of its list, in the dtype of the scores."""
    of_rank = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64)
    arrays = [mask, gains(labels, mask), of_rank, ranked]
    rest = [*knobs, torch.finfo(scores.dtype).tiny, KEPT]
    loop, costs = "neuralndcg:neural_ndcg_lists", list_sizes(mask) ** 2 * 60
    return value_and_slope(loop, scores, arrays, rest, costs, wanted=wanted)


def neurally_sorted(
    scores: Scores, values: Tensor, mask: Mask, temperature: float, max_iter: int, tol: float
) -> Work:
    """S v, ``[batch, rank]``, on the CPU; no gradient by ``values``. Backward computes S again."""
    tiny, costs = torch.finfo(scores.dtype).tiny, list_sizes(mask) ** 2 * 60
    knobs = [as_array(values), temperature, max_iter, tol, tiny, KEPT]
    return vector_op("neuralndcg:neurally_sorted_lists", mask, knobs, costs=costs)


def off_the_loop(scores: Scores, *given: Any) -> Work | None:
    """``neural_dcg`` on a GPU, or while torch.compile traces; None where it is not to be taken."""
    (lists, size), processors = scores.shape, _processors(scores.device)
    if processors == 0 or (scores.is_cuda and not worthwhile(lists, size, processors)):
        return None
    run = _operator if torch.compiler.is_compiling() else value_and_slope_on_gpu
    return slope_op(lambda scores, _: run(scores, *given))


def _processors(device: torch.device) -> int:
    """How many multiprocessors a GPU has; 0 where Triton is not installed, or Numba for a CPU."""
    if device.type == "cpu":
        return int(numba_works())
    if device.type != "cuda" or find_spec("triton") is None:
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# As torch.compiler.assume_constant_result does, which would import the whole compiler.
_processors._dynamo_marked_constant = True  # type: ignore[attr-defined]


def worthwhile(lists: int, size: int, processors: int) -> bool:
    """Whether the GPU's kernel takes ``[lists, size]`` faster than the plain path: an estimate.

    A list occupies one of the GPU's ``processors``. An iteration costs the kernel 0.18 ns for each
    entry of its tiles, and the plain path 30 launches of 5 us and 0.02 ns for each entry of P.
    """
    kernel = 0.18e-9 * -(-lists // processors) * size * _columns(size)
    return size <= LONGEST and kernel <= 150e-6 + 0.02e-9 * lists * size * size


def _columns(size: int) -> int:
    """The columns that a program of the GPU works on."""
    return max(64, 1 << (size - 1).bit_length())


def launch_options(size: int, dtype: torch.dtype, *, transposed: bool) -> dict[str, Any]:
    """The constants and options with which the GPU's kernel is compiled.

    A program cuts up a list into ``CHUNKS`` x ``LANES`` columns, ``ROWS`` at a time. A lane holds
    ``CHUNKS`` entries of a row and a warp whole rows (up to 512 columns): more would not fit into
    255 registers. ``SLOPE_ROWS`` at a time form the slope of P at the end.
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
    scores: Tensor, labels: Tensor, mask: Tensor, k: int | None, *knobs: Any
) -> tuple[Tensor, Tensor]:
    """As ``_on_cpu``, in the dtype of the scores: each pass computes the rows of P again.

    Memory is that of the vectors of each iteration, ``[batch, 5, max_iter + 1, list]``.
    """
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    temperature, transposed, max_iter, tol = knobs
    lists, size = scores.shape
    value, slope = scores.new_zeros(lists), torch.zeros_like(scores)
    if lists == 0 or size == 0:
        return value, slope
    order = order_by_score(scores, mask)
    # P is made of powers of 2. In float64: small differences of scores count at low temperatures.
    ordered = scores.gather(-1, order).double() * (math.log2(math.e) / temperature)
    gain = gains(labels, mask).to(scores.dtype).gather(-1, order)
    work = scores.new_empty((lists, 5 * (max_iter + 1) + 2, size))
    options = launch_options(size, scores.dtype, transposed=transposed)
    with torch.cuda.device_of(scores):  # or it would be launched on the current one
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
    schema="(Tensor scores, Tensor labels, Tensor mask, SymInt? k, float temperature, "
    "bool transposed, SymInt max_iter, float tol) -> (Tensor, Tensor)",
)
_operator.register_kernel("cuda")(value_and_slope_on_gpu)


@_operator.register_fake
def _shapes(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)
