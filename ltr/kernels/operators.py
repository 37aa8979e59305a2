"""Kernels as operators of ``torch.library``, which torch.compile keeps in its graph.

Without torch.compile the kernel itself is called, because calling an operator takes longer. Under
torch.func and in forward mode neither is called; the formula that the kernel replaces is used
instead (``ltr.kernels.dispatch``). Therefore an operator has no rule for vmap.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ltr.typing import PerList, Scores

F = TypeVar("F", bound=Callable[..., Any])


def list_operator(
    name: str, *, on_gpu: Callable[..., tuple[Tensor, Tensor]] | None = None
) -> Callable[[F], F]:
    """Register the decorated kernel, which computes a value per list, as operator ``ltr::name``.

    ``kernel(scores, need_grad, ...)`` returns the value of each list, ``[batch]``, and the
    gradient, ``[batch, list]``. It may compute outside PyTorch, and must return new tensors. Its
    annotations define the schema of the operator. They must be ``Tensor``, ``int``, ``float``,
    ``bool``, ``str``, ``Sequence[float]``, or a union of one of these with None.

    Args:
        name: the name of the operator.
        on_gpu: a function that computes the same on a GPU; None: the operator is only for the CPU.
    """

    def register(kernel: F) -> F:
        operator = _register(name, kernel, _list_shapes)
        operator.register_autograd(_list_gradient, setup_context=_save_list_gradient)
        if on_gpu is not None:
            operator.register_kernel("cuda")(on_gpu)

        @functools.wraps(kernel)
        def call(scores: Tensor, *args: Any) -> Any:
            if torch.compiler.is_compiling():
                return operator(scores, *args)
            if on_gpu is not None and scores.is_cuda:
                return on_gpu(scores, *args)
            return kernel(scores, *args)

        return cast(F, call)

    return register


def item_operator(name: str) -> Callable[[F], F]:
    """Do the same as ``list_operator`` for a kernel that computes one value per item.

    ``kernel(scores, None, ...)`` returns the values, ``[batch, list]``, and
    ``kernel(scores, weights, ...)`` returns the gradient of the sum of weights times values.
    """

    def register(kernel: F) -> F:
        operator = _register(name, kernel, _item_shapes)

        def gradient(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
            scores, weights, *args = _saved_inputs(ctx)
            if weights is not None:
                raise _no_compiled_second_derivative()
            return operator(scores, upstream, *args), None, *[None] * len(args)

        operator.register_autograd(gradient, setup_context=_save_inputs)

        @functools.wraps(kernel)
        def call(*args: Any) -> Any:
            return operator(*args) if torch.compiler.is_compiling() else kernel(*args)

        return cast(F, call)

    return register


def constant_operator(name: str, fake: Callable[..., Tensor]) -> Callable[[F], F]:
    """Register the decorated function, which has no derivative, as the operator ``ltr::name``.

    ``fake`` takes the same arguments, and returns a tensor of the same shape and dtype with
    arbitrary numbers. On a GPU, torch.compile breaks its graph and calls the function itself. An
    operator that copies tensors to the CPU would break CUDA graphs.
    """

    def register(function: F) -> F:
        operator = _register(name, function, fake)

        @functools.wraps(function)
        def call(*args: Tensor) -> Any:
            if torch.compiler.is_compiling() and args[0].device.type == "cpu":
                return operator(*args)
            return function(*args)

        return cast(F, call)

    return register


def scale_gradients(upstream: PerList, grad: Scores) -> Scores:
    """Return the gradient of the sum of ``upstream`` times values whose gradient is ``grad``."""
    return upstream.unsqueeze(-1) * grad


def _register(name: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    operator = torch.library.custom_op(f"ltr::{name}", kernel, mutates_args=(), device_types="cpu")
    operator.register_fake(fake)
    return operator


def _list_shapes(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape)


def _item_shapes(scores: Tensor, *_: Any) -> Tensor:
    return scores.new_empty(scores.shape)


def _save_list_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, gradient = output
    ctx.save_for_backward(gradient)
    ctx.set_materialize_grads(False)
    ctx.n_inputs = len(inputs)


def _list_gradient(
    ctx: Any, upstream: Tensor | None, upstream_of_gradient: Tensor | None
) -> tuple[Any, ...]:
    if upstream_of_gradient is not None:
        raise _no_compiled_second_derivative()
    (gradient,) = ctx.saved_tensors
    scaled = None if upstream is None else scale_gradients(upstream, gradient)
    return scaled, *[None] * (ctx.n_inputs - 1)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in inputs))
    ctx.numbers = [None if isinstance(x, Tensor) else x for x in inputs]


def _saved_inputs(ctx: Any) -> list[Any]:
    pairs = zip(ctx.saved_tensors, ctx.numbers, strict=True)
    return [number if tensor is None else tensor for tensor, number in pairs]


def _no_compiled_second_derivative() -> NotImplementedError:
    return NotImplementedError(
        "a loss has no second derivative under torch.compile: call the loss without torch.compile"
    )
