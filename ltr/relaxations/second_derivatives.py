"""Second derivatives of functions whose fast path has first derivatives only.

A fast path is a compiled loop or a hand-written backward. It computes values and slopes (the
gradient) together, and autograd sees the slopes as constants: differentiating them once more would
silently give 0.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor


def plain_path() -> bool:
    """Return whether a torch.func transform is active, which needs plain PyTorch operations."""
    compiles = torch.compiler.is_compiling()
    return not compiles and bool(torch._C._are_functorch_transforms_active())


def fast_path(
    scores: Tensor,
    run: Callable[[Tensor, bool], Any],
    pull: Callable[..., Tensor],
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the values that a fast path computes, differentiable with respect to ``scores``.

    With ``create_graph=True``, the gradient is that of ``plain``, so that it can be differentiated
    again. If ``plain_path()`` is True, values and gradient both come from ``plain``.

    Args:
        scores: the tensor to differentiate with respect to.
        run: ``run(scores, wanted)`` returns the values and further tensors ``rest``; ``wanted``
            says whether the gradient is needed.
        pull: ``pull(grad, *rest)`` returns the gradient with respect to ``scores``.
        plain: computes the same values with PyTorch operations. Neither it nor ``run`` may draw
            random numbers.
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
        # create_graph=True: differentiate the plain formula
        values = ctx.plain(scores)
        (slope,) = torch.autograd.grad(values, scores, grad, create_graph=True)
        return slope, None, None, None


def once(values: Tensor, what: str) -> Tensor:
    """Return ``values`` with a backward that raises ``NotImplementedError`` for second derivatives.

    The backward raises under ``create_graph=True`` and in torch.func; ``what`` is the name of the
    function in the message.
    """

    def refuse(_: Tensor) -> Tensor:
        raise NotImplementedError(
            f"{what} has no second derivative: take the first alone, without create_graph=True "
            "and torch.func"
        )

    return fast_path(values, lambda values, _: (values.detach(),), lambda grad: grad, refuse)
