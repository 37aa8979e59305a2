"""Derivatives of functions that have only a first derivative, or that compute outside PyTorch.

A fast path is a compiled loop or a hand-written backward pass. It computes values and slopes (the
gradient) together. Autograd treats the slopes as constants, so differentiating them again would
silently give 0.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad


def plain_path(scores: Tensor) -> bool:
    """Return whether ``scores`` need plain PyTorch operations.

    They do while a torch.func transform is active, or if they carry a forward-mode tangent.
    """
    if torch._C._are_functorch_transforms_active():
        return True
    if torch.compiler.is_compiling():
        return False
    return forward_ad.unpack_dual(scores).tangent is not None


def fast_path(
    scores: Tensor,
    run: Callable[[Tensor, bool], Any],
    pull: Callable[..., Tensor],
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the values that a fast path computes, differentiable with respect to ``scores``.

    With ``create_graph=True``, the gradient is that of ``plain``, so it can be differentiated
    again. If ``plain_path(scores)`` is True, both the values and the gradient come from ``plain``.

    Args:
        scores: the tensor to differentiate with respect to.
        run: ``run(scores, need_grad)`` returns the values, followed by the tensors ``saved``.
        pull: ``pull(grad, *saved)`` returns the gradient with respect to ``scores``.
        plain: computes the same values with PyTorch operations. Neither ``plain`` nor ``run`` may
            draw random numbers.
    """
    if plain_path(scores):
        return plain(scores)
    return cast(Tensor, _FastPath.apply(scores, run, pull, plain))


class _FastPath(torch.autograd.Function):
    """The values of ``run``, with ``pull`` as first derivative and ``plain`` for higher ones."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, run: Any, pull: Any, plain: Any) -> Tensor:
        values, *saved = run(scores, ctx.needs_input_grad[0])
        ctx.save_for_backward(scores, *saved)
        ctx.pull = pull
        ctx.plain = plain
        return cast(Tensor, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, *saved = ctx.saved_tensors
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return ctx.pull(grad, *saved), None, None, None
        # create_graph=True: differentiate the plain formula
        values = ctx.plain(scores)
        (slope,) = torch.autograd.grad(values, scores, grad, create_graph=True)
        return slope, None, None, None


def forbid_second_derivative(values: Tensor, function: str) -> Tensor:
    """Return ``values``, but with a second derivative that raises ``NotImplementedError``.

    The first derivative is that of ``values``, under torch.func and in forward mode too. The error
    message names ``function``.
    """
    return cast(Tensor, _DifferentiableOnce.apply(values, function))


class _DifferentiableOnce(torch.autograd.Function):
    """The identity function, but with a derivative that cannot be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, function: str) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        values, ctx.function = inputs
        ctx.save_for_backward(values)
        ctx.save_for_forward(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _NotDifferentiable.apply(grad, *ctx.saved_tensors, ctx.function), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        return cast(Tensor, _NotDifferentiable.apply(tangent, *ctx.saved_tensors, ctx.function))


class _NotDifferentiable(torch.autograd.Function):
    """The identity function for a derivative, which autograd then tracks back to ``values``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, values: Tensor, function: str) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.function = inputs[-1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise _no_second_derivative(ctx.function)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        raise _no_second_derivative(ctx.function)


def _no_second_derivative(function: str) -> NotImplementedError:
    """Return the error for a second derivative of ``function``."""
    return NotImplementedError(
        f"{function} has no second derivative: compute only the first derivative, without "
        "create_graph=True or hessian"
    )


def constant_from_numbers(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Return ``compute(*tensors)`` as a constant; ``compute`` may work outside PyTorch.

    Under torch.func, a tensor may be a wrapper whose numbers cannot be read; ``compute`` then gets
    the wrapped tensors. All tensors, and the result, are ``[batch, list]``. The result for one list
    must not depend on other lists.
    """
    tensors = tuple(tensor.detach() for tensor in tensors)
    if not plain_path(tensors[0]):
        return compute(*tensors)
    return cast(Tensor, _ConstantFromNumbers.apply(compute, *tensors))


class _ConstantFromNumbers(torch.autograd.Function):
    """A function without a derivative; vmap calls it once, with the lists of all batches."""

    @staticmethod
    def forward(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return compute(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], compute: Any, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        size = info.batch_size
        batches = [
            tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        constant = constant_from_numbers(compute, *(batch.flatten(0, 1) for batch in batches))
        return constant.unflatten(0, (size, constant.shape[0] // size)), 0
