"""A formula and its fast path: which of the two is taken, and what autograd sees of a kernel.

A kernel of this package writes the value of each list and its slopes by the scores in float64, on
NumPy arrays. The slopes are constants: second derivatives are those of the plain formula.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pkgutil import resolve_name
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Ints
from ltr.relaxations.second_derivatives import fast_path, plain_path
from ltr.typing import Mask, PerList, Scores

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Tensor])
WORTH_A_THREAD = 1 << 16  # a thread takes as long to start as some thousand pairs


# What a fast path computes, and its gradient: ``run`` and ``pull`` of ``fast_path``.
Work = tuple[Callable[[Tensor, bool], Any], Callable[..., Tensor]]


def with_kernel(
    fast: Callable[..., Work], elsewhere: Callable[..., Work | None] | None = None
) -> Callable[[F], F]:
    """Give the plain formula ``plain(scores, ...)`` a fast path of the same arguments.

    ``fast`` is taken on the CPU, where Numba works and nothing is traced; else ``elsewhere``,
    unless that is or returns None. Second derivatives are those of the plain formula.
    """

    def register(plain: F) -> F:
        @functools.wraps(plain)
        def either(scores: Tensor, *args: Any) -> Tensor:
            taken = fast if kernels_apply(scores) else None if plain_path() else elsewhere
            work = taken and taken(scores, *args)
            if work is None:
                return plain(scores, *args)
            return fast_path(scores, *work, lambda scores: plain(scores, *args))

        return either  # type: ignore[return-value]

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


def value_op(kernel: str, *given: Any) -> Work:
    """The values of ``value_and_slope(kernel, scores, *given)``, with the slopes as gradient."""
    return slope_op(lambda scores, wanted: value_and_slope(kernel, scores, *given, wanted=wanted))


def slope_op(run: Callable[[Scores, bool], tuple[PerList, Scores]]) -> Work:
    """The values of ``run(scores, whether the slopes are wanted)``, with its slopes as gradient."""
    return run, lambda grad, slope: grad.unsqueeze(-1) * slope


def value_and_slope(
    kernel: str,
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: Ints,
    *,
    wanted: bool = True,
) -> tuple[PerList, Scores]:
    """What ``kernel(lists, scores, *arrays, *knobs, wanted, value, slope)`` writes of each list.

    ``kernel`` is ``"module:function"`` of this package; ``costs`` as in ``over_lists``.
    """
    value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
    given = [*map(as_array, (scores, *arrays)), *knobs, wanted, value, slope]
    run = _kernel(kernel)
    over_lists(lambda lists: run(lists, *given), costs)
    return torch.from_numpy(value).to(scores.dtype), torch.from_numpy(slope).to(scores.dtype)


def vector_op(
    kernel: str, mask: Mask, knobs: Sequence[Any], *, costs: Any, fill: float = 0
) -> Work:
    """What ``kernel(lists, scores, mask, *knobs, weights, backward, found)`` writes of each item.

    Its gradient is what it writes with ``backward``, the slopes by the scores of the sum of weights
    times values. On padding the values are ``fill``.
    """

    def run(scores: Tensor, weights: Tensor | None) -> Tensor:
        backward = weights is not None
        found = np.full(scores.shape, 0.0 if backward else fill, np.float64)
        rest = found if weights is None else as_array(weights), backward, found
        given, call = [as_array(scores), as_array(mask), *knobs, *rest], _kernel(kernel)
        over_lists(lambda lists: call(lists, *given), costs)
        return torch.from_numpy(found).to(scores.dtype)

    return lambda scores, _: (run(scores, None), scores), lambda grad, s: run(s, grad)


def over_lists(kernel: Callable[[Ints], None], costs: Ints) -> None:
    """Call ``kernel`` with the numbers of all lists, in parts on up to torch's number of threads.

    ``kernel`` releases Python's lock; ``costs``, ``[batch]``, are such as the lists' pairs.
    """
    lists = np.argsort(-costs, kind="stable")  # the longest first
    parts = min(torch.get_num_threads(), len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass


def as_array(values: Tensor) -> Any:
    """A contiguous NumPy array for the kernels: float64, bool or int64."""
    array = values.detach().numpy()
    return np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else None)


def list_sizes(mask: Tensor) -> Ints:
    """The number of items of each list, ``[batch]``."""
    return mask.sum(-1).numpy()
