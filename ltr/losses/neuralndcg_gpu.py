"""NeuralNDCG's sum on a GPU by a Triton kernel, and when it is taken."""

import functools
import math
import warnings
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.metrics.cumulative_gain import discounts, gains
from ltr.metrics.ordering import order_by_score
from ltr.metrics.per_list import promoted
from ltr.relaxations import neural_sort, sinkhorn
from ltr.typing import Labels, Mask, PerList, Scores

LONGEST = 2048  # places; the lanes of a program hold whole rows in registers


def tiles(size: int, dtype: torch.dtype = torch.float32) -> dict[str, int]:
    """How a program cuts up a list: ``CHUNKS`` x ``LANES`` columns, ``ROWS`` at a time.

    A lane holds ``CHUNKS`` entries of a row and a warp whole rows (up to 512 columns), so that the
    sum of a row takes a few shuffles, and the sums of the columns stay in registers for a pass.
    ``SLOPE_ROWS`` at a time form the slope of P at the end. More would not fit into 255 registers.

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
    """The constants and options with which the kernel is compiled."""
    info = torch.finfo(dtype)
    far = 2 - math.log2(info.tiny * info.eps)  # 2^-far is 0
    constants = {"FLOOR": info.tiny**0.5, "FAR": far, "TRANSPOSED": transposed}
    return {**constants, **tiles(size, dtype), "enable_fp_fusion": True}


def worthwhile(lists: int, size: int, processors: int) -> bool:
    """Whether the kernel takes ``[lists, size]`` faster than the plain path, by an estimate.

    A list occupies one of the GPU's ``processors``, so that few long lists leave most of it idle.
    An iteration of the scaling and of its gradient costs the kernel 0.18 ns for each entry of its
    tiles (its instructions at 70 % of their rate), and the plain path 30 launches of 5 us and 0.02
    ns for each entry of P (48 bytes at 2.5 TB/s). Not measured on a GPU.

    >>> [worthwhile(lists, 1000, processors=132) for lists in (1, 2, 64)]
    [False, True, True]
    """
    rounds = -(-lists // processors)
    kernel = 0.18e-9 * rounds * size * tiles(size)["CHUNKS"] * tiles(size)["LANES"]
    plain = 150e-6 + 0.02e-9 * lists * size * size
    return size <= LONGEST and kernel <= plain


def applies(scores: Scores) -> bool:
    """Whether the kernel takes these scores: on a GPU where it is right, and worthwhile."""
    processors = processors_of(scores.device) if scores.device.type == "cuda" else 0
    return processors > 0 and worthwhile(len(scores), scores.shape[-1], processors)


def processors_of(device: torch.device) -> int:
    """How many multiprocessors the GPU has; 0 where the kernel cannot be used."""
    if find_spec("triton") is None or not right_on(device):
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


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
    knobs: dict[str, Any] = {"temperature": 1.0, "transposed": False, "max_iter": 30, "tol": 1e-6}
    values = neural_dcg_on_gpu(scores, labels, mask, k=None, **knobs)
    soft = sinkhorn(neural_sort(scores, mask), mask)
    expected = ((soft * gains(labels, mask)[:, None]).sum(-1) * discounts(240, scores)).sum(-1)
    slopes, plain = (torch.autograd.grad(x.sum(), scores)[0] for x in (values, expected))
    right = torch.allclose(values, expected, rtol=1e-4) and bool(
        (slopes - plain).abs().max() < 1e-3 * plain.abs().max()
    )
    if not right:
        warnings.warn(f"NeuralNDCG's kernel is wrong on {device}: not used", stacklevel=4)
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

    Each pass computes the rows of P again. Memory is that of the vectors of each iteration,
    ``[batch, 5, max_iter + 1, list]``. First derivatives only.
    """
    knobs = k, temperature, transposed, max_iter, tol
    return _OnGPU.apply(promoted(scores), labels, mask, knobs)


class _OnGPU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, mask: Tensor, knobs: tuple) -> Tensor:
        value, slope = value_and_slope_on_gpu(scores, labels, mask, *knobs)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None, None, None


def value_and_slope_on_gpu(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    k: int | None,
    temperature: float,
    transposed: bool,
    max_iter: int,
    tol: float,
) -> tuple[PerList, Scores]:
    """The values, and the slope of each by the scores of its list; not for autograd."""
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
