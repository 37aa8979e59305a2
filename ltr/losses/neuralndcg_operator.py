"""NeuralNDCG's sum as an operator that torch.compile keeps whole; imported while it traces."""

from typing import Any

import torch
from torch import Tensor

from ltr.losses.fused import numba_works
from ltr.losses.fused_permutation import neural_dcg_and_slope
from ltr.losses.neuralndcg_gpu import processors_of, value_and_slope_on_gpu, worthwhile
from ltr.metrics.per_list import promoted
from ltr.typing import Labels, Mask, PerList, Scores


def applies(scores: Scores) -> bool:
    """Whether the operator takes these scores, which torch.compile is tracing."""
    if scores.device.type == "cpu":
        return _numba_works()
    processors = _processors_of(scores.device) if scores.device.type == "cuda" else 0
    return processors > 0 and worthwhile(len(scores), scores.shape[-1], processors)


@torch.compiler.assume_constant_result
def _numba_works() -> bool:
    return numba_works()


@torch.compiler.assume_constant_result
def _processors_of(device: torch.device) -> int:
    return processors_of(device)


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
    return neural_dcg_and_slope(scores, labels, mask, k, temperature, transposed, max_iter, tol)


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


def neural_dcg_operator(
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
    """``neural_dcg`` as the operator ``ltr::neural_dcg``: one node of a traced graph."""
    knobs = k, temperature, transposed, max_iter, tol
    return _operator(promoted(scores), labels, mask, *knobs)[0]
