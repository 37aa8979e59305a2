"""Second derivatives of functions whose fast path has first derivatives only.

A fast path, a compiled loop or a backward of its own, writes the slopes beside the values, as
constants: differentiated once more, they would count as 0 without a word.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor


def plain_path() -> bool:
    """Whether torch.func differentiates, which takes operations of PyTorch only."""
    compiles = torch.compiler.is_compiling()
    return not compiles and bool(torch._C._are_functorch_transforms_active())


def fast_path(
    scores: Tensor,
    run: Callable[[Tensor, bool], Any],
    pull: Callable[..., Tensor],
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """The first of ``run(scores, whether the gradient is wanted)``.

    ``pull(grad, *rest)`` is its gradient by the scores, of the tensors that ``run`` returns beside
    it. Where ``create_graph=True`` asks for a gradient that can be differentiated, it is that of
    ``plain(scores)``, as everything is under ``plain_path``. Neither draws.
    """
    if plain_path():
        return plain(scores)
    return cast(Tensor, _FastPath.apply(scores, run, pull, plain))


class _FastPath(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, run: Any, pull: Any, plain: Any) -> Tensor:
        values, *rest = run(scores, ctx.needs_input_grad[0])
        ctx.save_for_backward(scores, *rest)
        ctx.pull, ctx.plain = pull, plain
        return cast(Tensor, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, *rest = ctx.saved_tensors
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return ctx.pull(grad, *rest), None, None, None
        # by create_graph=True
        values = ctx.plain(scores)
        (slope,) = torch.autograd.grad(values, scores, grad, create_graph=True)
        return slope, None, None, None


def once(values: Tensor, what: str) -> Tensor:
    """``values``, whose backward raises ``NotImplementedError`` under ``create_graph=True``."""

    def refuse(_: Tensor) -> Tensor:
        raise NotImplementedError(
            f"{what} has no second derivative: take the first alone, without create_graph=True "
            "and torch.func"
        )

    return fast_path(values, lambda values, _: (values.detach(),), lambda grad: grad, refuse)
