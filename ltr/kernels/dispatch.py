"""A formula and its fast path: which of the two is taken, and what autograd sees of a kernel.

A kernel of this package writes the value of each list and its slopes by the scores in float64, on
NumPy arrays. They are rounded at the end, and backward is a product. The slopes are constants:
second derivatives are those of the plain formula, see ``ltr.relaxations.second_derivatives``.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pkgutil import resolve_name
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ltr.relaxations.second_derivatives import plain_path, twice
from ltr.typing import Mask, PerList, Scores

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Tensor])
WORTH_A_THREAD = 1 << 16  # a thread takes as long to start as some thousand pairs


def with_kernel(
    fast: Callable[..., Tensor],
    elsewhere: Callable[[Tensor], Callable[..., Tensor] | None] = lambda scores: None,
) -> Callable[[F], F]:
    """Give the plain formula ``plain(scores, ...)`` a fast path of the same arguments.

    ``fast`` is taken on the CPU, where Numba works and nothing is traced; else what ``elsewhere``
    returns, unless that is None. Second derivatives are those of the plain formula.
    """

    def register(plain: F) -> F:
        @functools.wraps(plain)
        def either(scores: Tensor, *args: Any, **knobs: Any) -> Tensor:
            if kernels_apply(scores):
                return fast(scores, *args, **knobs)
            other = None if plain_path() else elsewhere(scores)
            return (other or plain)(scores, *args, **knobs)

        return twice(either)  # type: ignore[return-value]

    return register


def kernels_apply(scores: Scores) -> bool:
    """Whether the compiled loops take these scores: on the CPU, not traced, once, Numba works."""
    if scores.device.type != "cpu" or torch.compiler.is_compiling() or plain_path():
        return False
    return numba_works()


@functools.cache
def numba_works() -> bool:
    """Whether Numba compiles a function; else warn."""
    try:
        from ltr.kernels.compile import exp  # half a second

        exp(0.0)
    except Exception as error:  # Numba often lags behind a new NumPy, and may fail anywhere
        log.warning("losses take their plain path, which is slower on a CPU: %r", error)
        return False
    return True


@functools.cache
def _kernel(name: str) -> Callable[..., None]:
    return resolve_name(f"ltr.kernels.{name}")


def value_op(
    kernel: str,
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: NDArray[np.int64],
) -> PerList:
    """The values of ``value_and_slope``, with the slopes as gradient."""
    return slope_op(
        scores, lambda wanted: value_and_slope(kernel, scores, arrays, knobs, costs, wanted=wanted)
    )


def value_and_slope(
    kernel: str,
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: NDArray[np.int64],
    *,
    wanted: bool = True,
) -> tuple[PerList, Scores]:
    """What ``kernel(lists, scores, *arrays, *knobs, wanted, value, slope)`` writes of each list.

    ``kernel`` is ``"module:function"`` of this package.
    """
    value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
    given = [*map(as_array, (scores, *arrays)), *knobs, wanted, value, slope]
    run = _kernel(kernel)
    over_lists(lambda lists: run(lists, *given), costs)
    return torch.from_numpy(value).to(scores.dtype), torch.from_numpy(slope).to(scores.dtype)


def slope_op(scores: Scores, run: Callable[[bool], tuple[PerList, Scores]]) -> PerList:
    """The values of ``run(whether the slopes are wanted)``, with its slopes as gradient."""
    return _Value.apply(scores, run)


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, run: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
        value, slope = run(ctx.needs_input_grad[0])
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * slope, None


def vector_op(
    scores: Scores, run: Callable[[Tensor, Tensor | None], NDArray[np.float64]]
) -> Tensor:
    """``run(scores, None)``, ``[batch, list]``, with ``run(scores, weights)`` as its gradient.

    The latter are the slopes by the scores of the sum of weights times values.
    """
    return _Vector.apply(scores, run)


class _Vector(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, run: Callable[..., NDArray[np.float64]]) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.run = run
        return torch.from_numpy(run(scores, None)).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        return torch.from_numpy(ctx.run(scores, grad)).to(scores.dtype), None


def rank_op(scores: Scores, mask: Mask, temperature: float, *, laplace: bool) -> Scores:
    """The soft ranks of ``ltr.kernels.ranks.soft_rank_lists``; 1 on padding."""
    costs = list_sizes(mask) * 64 if laplace else list_sizes(mask) ** 2

    def run(scores: Tensor, weights: Tensor | None) -> NDArray[np.float64]:
        found = np.ones(scores.shape) if weights is None else np.zeros(scores.shape)
        given = as_array(scores), as_array(mask), float(temperature), laplace
        rest = found if weights is None else as_array(weights), weights is not None, found
        kernel = _kernel("ranks:soft_rank_lists")
        over_lists(lambda lists: kernel(lists, *given, *rest), costs)
        return found

    return vector_op(scores, run)


def over_lists(kernel: Callable[[NDArray[np.int64]], None], costs: NDArray[np.int64]) -> None:
    """Call ``kernel`` with the numbers of all lists, in parts on up to torch's number of threads.

    Threads end with the call, so that a process can be forked at any time.

    Args:
        kernel: takes the numbers of its lists, ``[lists]``; releases Python's lock.
        costs: of each list, such as its number of pairs, ``[batch]``.

    >>> seen = []
    >>> over_lists(lambda part: seen.append(part.tolist()), np.array([1, 3, 2]))
    >>> seen  # too little work for a second thread; the longest first
    [[1, 2, 0]]
    """
    lists = np.argsort(-costs, kind="stable")
    parts = min(torch.get_num_threads(), len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass


def as_array(values: Tensor) -> Any:
    """A contiguous NumPy array for the kernels: float64, bool or int64."""
    values = values.detach()
    return np.ascontiguousarray((values.double() if values.is_floating_point() else values).numpy())


def list_sizes(mask: Tensor) -> NDArray[np.int64]:
    """The number of items of each list, ``[batch]``."""
    return mask.sum(-1).numpy()
