"""Second derivatives of functions whose fast path has first derivatives only.

A fast path, a compiled loop or a backward of its own, writes the slopes beside the values, as
constants: differentiated once more, they would count as 0 without a word.
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

F = TypeVar("F", bound=Callable[..., Tensor])
_again: ContextVar[bool] = ContextVar("again", default=False)


def plain_path() -> bool:
    """Whether only operations may be used that PyTorch differentiates as often as one likes."""
    if torch.compiler.is_compiling():
        return False
    return _again.get() or bool(torch._C._are_functorch_transforms_active())


def twice(function: F) -> F:
    """Give ``function(scores, ...)`` second derivatives by its scores.

    Where ``create_graph=True`` asks for a gradient that can be differentiated, backward calls it
    again, under ``plain_path``, and differentiates that. It draws nothing; its other arguments are
    constants.
    """

    @functools.wraps(function)
    def called(scores: Tensor, *args: Any, **knobs: Any) -> Tensor:
        values = function(scores, *args, **knobs)
        return _gated(values, scores, lambda scores: function(scores, *args, **knobs))

    return cast(F, called)


def once_by(scores: Tensor, run: Callable[[bool], Any], pull: Callable[..., Tensor]) -> Tensor:
    """The first of ``run(whether the gradient is wanted)``, by the scores, which it detaches.

    ``pull(grad, *rest)`` is its gradient, of the tensors that ``run`` returns beside it.
    """
    return cast(Tensor, _Once.apply(scores, run, pull))


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, run: Any, pull: Any) -> Tensor:
        values, *rest = run(ctx.needs_input_grad[0])
        ctx.save_for_backward(*rest)
        ctx.pull = pull
        return cast(Tensor, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pull(grad, *ctx.saved_tensors), None, None


def once(values: Tensor, what: str) -> Tensor:
    """``values``, whose backward raises ``NotImplementedError`` under ``create_graph=True``."""

    def refuse(_: Any) -> Tensor:
        raise NotImplementedError(
            f"{what} has no second derivative: take the first alone, without create_graph=True "
            "and torch.func"
        )

    if plain_path():
        refuse(values)
    return _gated(values, values, refuse)


def _gated(values: Tensor, scores: Tensor, plain: Callable[[Tensor], Tensor]) -> Tensor:
    if torch.compiler.is_compiling() or plain_path() or not values.requires_grad:
        return values
    return cast(Tensor, _Gate.apply(values, scores, plain))


class _Gate(torch.autograd.Function):
    """Passes first derivatives; second ones go by ``plain(scores)``."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scores: Tensor, plain: Any) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores)
        ctx.plain = plain
        return values.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None or not torch.is_grad_enabled():  # it is by create_graph=True
            return grad, None, None
        (scores,) = ctx.saved_tensors
        token = _again.set(True)
        try:
            values = ctx.plain(scores)
        finally:
            _again.reset(token)
        (slope,) = torch.autograd.grad(values, scores, grad, create_graph=True)
        return None, slope, None
