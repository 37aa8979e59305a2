"""DCG of NeuralSort by kernels: loops on the CPU, Triton on a GPU, an operator while traced.

The scaling is that of ``sinkhorn``. A list of n items costs n^2 time, and memory in proportion to n
beside a part of its matrix, however much padding it has. Knobs are not checked.
"""

import functools
import math
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.kernels.dispatch import (
    as_array,
    list_sizes,
    numba_works,
    over_lists,
    slope_op,
    value_and_slope,
    value_op,
    vector_op,
)
from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score
from ltr.metrics.per_list import promoted
from ltr.relaxations import neural_sort, sinkhorn
from ltr.typing import Labels, Mask, PerList, Scores

KEPT = 1 << 22  # entries of P a thread may keep, 32 MiB; a longer band is computed in every pass
LONGEST = 2048  # places on a GPU; the lanes of a program hold whole rows in registers
_LOOP = "neuralndcg:neural_ndcg_lists"


def neural_dcg(
    scores: Scores, labels: Labels, mask: Mask, *knobs: Any, kept: int = KEPT
) -> PerList:
    """Sum over ranks r <= k of (S g)_r d(r) on the CPU; a thread keeps ``kept`` entries of P."""
    return value_op(_LOOP, scores, *_given(scores, labels, mask, *knobs, kept))


def _given(
    scores: Scores, labels: Labels, mask: Mask, k: int | None, temperature: float, *knobs: Any
) -> tuple[Any, ...]:
    """The arrays, knobs and costs of the loop."""
    transposed, max_iter, tol, kept = knobs
    of_rank = discounts(mask.shape[-1], scores, k=k).expand(mask.shape)
    ranked = torch.empty(mask.shape, dtype=torch.float64)
    tiny = torch.finfo(scores.dtype).tiny
    rest = [temperature, transposed, max_iter, tol, tiny, kept]
    return [mask, gains(labels, mask), of_rank, ranked], rest, list_sizes(mask) ** 2 * 60


def neurally_sorted(
    scores: Scores, values: Tensor, mask: Mask, *, temperature: float, max_iter: int, tol: float
) -> Tensor:
    """S v, ``[batch, rank]``, on the CPU; no gradient by ``values``. Backward computes S again."""
    knobs = temperature, False, max_iter, tol, torch.finfo(scores.dtype).tiny, KEPT

    def run(scores: Tensor, weights: Tensor | None) -> NDArray[np.float64]:
        from ltr.kernels.neuralndcg import neural_ndcg_lists

        ranked, slope, total = np.zeros(scores.shape), np.zeros(scores.shape), np.zeros(len(scores))
        of_rank = as_array(torch.zeros_like(scores) if weights is None else weights)
        given = as_array(scores), as_array(mask), as_array(values), of_rank, ranked, *knobs
        rest = weights is not None, total, slope
        over_lists(lambda x: neural_ndcg_lists(x, *given, *rest), list_sizes(mask) ** 2 * 60)
        return ranked if weights is None else slope

    return vector_op(scores, run)


def off_the_loop(scores: Scores) -> Callable[..., Tensor] | None:
    """``neural_dcg`` where it cannot be taken as it is: on a GPU, or while torch.compile traces."""
    if scores.device.type == "cpu":
        return neural_dcg_operator if _numba_works() else None
    processors = processors_of(scores.device) if scores.device.type == "cuda" else 0
    if not (processors > 0 and worthwhile(len(scores), scores.shape[-1], processors)):
        return None
    return neural_dcg_operator if torch.compiler.is_compiling() else neural_dcg_on_gpu


def _numba_works() -> bool:
    return numba_works()


def processors_of(device: torch.device) -> int:
    """How many multiprocessors the GPU has; 0 where the kernel cannot be used."""
    if find_spec("triton") is None or not right_on(device):
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# As torch.compiler.assume_constant_result does, which would import the whole compiler.
_numba_works._dynamo_marked_constant = True  # type: ignore[attr-defined]
processors_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


def worthwhile(lists: int, size: int, processors: int) -> bool:
    """Whether the GPU's kernel takes ``[lists, size]`` faster than the plain path: an estimate.

    A list occupies one of the GPU's ``processors``. An iteration costs the kernel 0.18 ns for each
    entry of its tiles, and the plain path 30 launches of 5 us and 0.02 ns for each entry of P.

    >>> [worthwhile(lists, 1000, processors=132) for lists in (1, 2, 64)]
    [False, True, True]
    """
    rounds = -(-lists // processors)
    kernel = 0.18e-9 * rounds * size * tiles(size)["CHUNKS"] * tiles(size)["LANES"]
    plain = 150e-6 + 0.02e-9 * lists * size * size
    return size <= LONGEST and kernel <= plain


@functools.cache
@torch.inference_mode(False)  # the first call may be of an evaluation
@torch.enable_grad()
def right_on(device: torch.device) -> bool:
    """Whether this GPU's kernel agrees with the plain path, tried once; else warn."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(64, 240, generator=generator)
    labels = torch.randint(0, 5, (64, 240), generator=generator).float().to(device)
    mask = (torch.arange(240) < torch.randint(0, 241, (64, 1), generator=generator)).to(device)
    scores = start.to(device).masked_fill(~mask, 0).requires_grad_()
    values = neural_dcg_on_gpu(scores, labels, mask, None, 1.0, False, 30, 1e-6)
    soft = sinkhorn(neural_sort(scores, mask), mask)
    expected = ((soft * gains(labels, mask)[:, None]).sum(-1) * discounts(240, scores)).sum(-1)
    slopes, plain = (torch.autograd.grad(x.sum(), scores)[0] for x in (values, expected))
    right = torch.allclose(values, expected, rtol=1e-4) and bool(
        (slopes - plain).abs().max() < 1e-3 * plain.abs().max()
    )
    if not right:
        warnings.warn(f"NeuralNDCG's kernel is wrong on {device}: not used", stacklevel=4)
    return right


def tiles(size: int, dtype: torch.dtype = torch.float32) -> dict[str, int]:
    """How a program of the GPU cuts up a list: ``CHUNKS`` x ``LANES`` columns, ``ROWS`` at a time.

    A lane holds ``CHUNKS`` entries of a row and a warp whole rows (up to 512 columns): more would
    not fit into 255 registers. ``SLOPE_ROWS`` at a time form the slope of P at the end.

    >>> tiles(240)
    {'CHUNKS': 16, 'LANES': 16, 'ROWS': 16, 'SLOPE_ROWS': 32, 'num_warps': 8}
    """
    block = max(64, 1 << (size - 1).bit_length())
    warps, chunks = (4 if block <= 128 else 8), (16 if dtype == torch.float32 else 8)
    lanes = block // chunks
    rows = 32 * warps // lanes
    slope_rows = rows * (2 if chunks == 16 and rows > 2 else 1)
    cut = {"CHUNKS": chunks, "LANES": lanes, "ROWS": rows, "SLOPE_ROWS": slope_rows}
    return {**cut, "num_warps": warps}


def launch_options(size: int, dtype: torch.dtype, *, transposed: bool) -> dict[str, Any]:
    """The constants and options with which the GPU's kernel is compiled."""
    info = torch.finfo(dtype)
    far = 2 - math.log2(info.tiny * info.eps)  # 2^-far is 0
    constants = {"FLOOR": info.tiny**0.5, "FAR": far, "TRANSPOSED": transposed}
    return {**constants, **tiles(size, dtype), "enable_fp_fusion": True}


def value_and_slope_on_gpu(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """The values, and the slope of each by the scores of its list, in the dtype of the scores.

    Each pass computes the rows of P again. Memory is that of the vectors of each iteration,
    ``[batch, 5, max_iter + 1, list]``.
    """
    from ltr.kernels.neuralndcg_triton import neural_ndcg_list

    lists, size = scores.shape
    value, slope = scores.new_zeros(lists), torch.zeros_like(scores)
    if lists == 0 or size == 0:
        return value, slope
    order = order_by_score(scores.detach(), mask)
    # P is made of powers of 2. In float64: small differences of scores count at low temperatures.
    ordered = scores.detach().gather(-1, order).double() * (math.log2(math.e) / temperature)
    gain = gains(labels, mask).to(scores.dtype).gather(-1, order)
    work = scores.new_empty((lists, 5 * (max_iter + 1) + 2, size))
    options = launch_options(size, scores.dtype, transposed=transposed)
    with torch.cuda.device_of(scores):  # or it would be launched on the current one
        neural_ndcg_list[(lists,)](
            ordered, order, gain, discounts(size, scores, k=k), mask.sum(-1), value, slope, work,
            size, max_iter, float(tol), **options,
        )  # fmt: skip
    return value, slope / temperature


def neural_dcg_on_gpu(scores: Scores, labels: Labels, mask: Mask, *knobs: Any) -> PerList:
    """``neural_dcg`` on a GPU, of at most ``LONGEST`` places."""
    scores = promoted(scores)
    return slope_op(scores, lambda _: value_and_slope_on_gpu(scores, labels, mask, *knobs))


@torch.library.custom_op("ltr::neural_dcg", mutates_args=(), device_types="cpu")
def _operator(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[Tensor, Tensor]:
    knobs = (k, temperature, transposed, max_iter, tol, KEPT)
    return value_and_slope(_LOOP, scores, *_given(scores, labels, mask, *knobs))


_operator.register_kernel("cuda")(value_and_slope_on_gpu)


@_operator.register_fake
def _shapes(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), torch.empty_like(scores)


def _keep_slope(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])


def _product(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # by create_graph=True
        raise NotImplementedError(
            "ltr::neural_dcg has no second derivative: call the loss without torch.compile"
        )
    (slope,) = ctx.saved_tensors
    return grad.unsqueeze(-1) * slope, *[None] * 7


_operator.register_autograd(_product, setup_context=_keep_slope)


def neural_dcg_operator(scores: Scores, labels: Labels, mask: Mask, *knobs: Any) -> PerList:
    """``neural_dcg`` as one node of a traced graph, which torch.compile keeps whole."""
    return _operator(promoted(scores), labels, mask, *knobs)[0]
