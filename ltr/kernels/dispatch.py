"""Choose between a plain PyTorch formula and its compiled kernel, and connect it to autograd.

A kernel of this package writes the value of each list and its slopes (its gradient with respect to
the scores) in float64, to NumPy arrays. Autograd treats the slopes as constants; second derivatives
are those of the plain formula.
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
from ltr.knobs import python_number
from ltr.relaxations.second_derivatives import fast_path, plain_path
from ltr.typing import Mask, PerList, Scores

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Tensor])
WORTH_A_THREAD = 1 << 16  # pairs per thread at least: starting one costs some thousand pairs


# What a fast path computes, and its gradient: the arguments ``run`` and ``pull`` of ``fast_path``.
Work = tuple[Callable[[Tensor, bool], Any], Callable[..., Tensor]]


def with_kernel(
    fast: Callable[..., Work],
    elsewhere: Callable[..., Work | None] | None = None,
    *,
    copied: bool = False,
) -> Callable[[F], F]:
    """Give the decorated plain formula ``plain(scores, ...)`` a fast path with the same arguments.

    ``fast`` is used on the CPU if Numba works and nothing is traced; with ``copied`` also on a GPU,
    where a copy to the CPU and back takes less time than the plain formula. Otherwise ``elsewhere``
    is used, or the plain formula if ``elsewhere`` is None or returns None. Second derivatives are
    always those of the plain formula.
    """

    def register(plain: F) -> F:
        @functools.wraps(plain)
        def either(scores: Tensor, *args: Any) -> Tensor:
            args = tuple(map(python_number, args))  # NumPy's would compile a kernel again
            without = None if plain_path(scores) else elsewhere
            taken = fast if kernels_apply(scores, copied) else without
            work = taken and taken(scores, *args)
            if work is None:
                return plain(scores, *args)
            return fast_path(scores, *work, lambda scores: plain(scores, *args))

        return either  # type: ignore[return-value]

    return register


def kernels_apply(scores: Scores, copied: bool) -> bool:
    """Return whether the compiled loops can be used for these scores.

    They can if the scores are on the CPU or may be ``copied`` there, nothing is traced by
    torch.compile, by torch.func or in forward mode, and Numba works.
    """
    if (
        (scores.device.type != "cpu" and not copied)
        or torch.compiler.is_compiling()
        or plain_path(scores)
    ):
        return False
    return numba_works()


@functools.cache
def numba_works() -> bool:
    """Return whether Numba can compile a function; warn if not."""
    try:
        from ltr.kernels.compile import exp  # takes half a second

        exp(0.0)
    except Exception as error:  # Numba often lags behind a new NumPy, and may fail anywhere
        log.warning("losses take their plain path, which is slower on a CPU: %r", error)
        return False
    return True


@functools.cache
def _kernel(name: str) -> Callable[..., None]:
    return resolve_name(f"ltr.kernels.{name}")


def value_op(kernel: str, *given: Any) -> Work:
    """Return a fast path with the values of a kernel, and its slopes as the gradient.

    ``given`` are the arguments of ``value_and_slope`` after ``scores``, without ``wanted``.
    """
    return slope_op(lambda scores, wanted: value_and_slope(kernel, scores, *given, wanted=wanted))


def slope_op(run: Callable[[Scores, bool], tuple[PerList, Scores]]) -> Work:
    """Return a fast path with the values of ``run``, and the slopes of ``run`` as gradient.

    ``run(scores, wanted)`` returns both; ``wanted`` says whether the slopes are needed.
    """
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
    """Run ``kernel(lists, scores, *arrays, *knobs, wanted, value, slope)``; return value and slope.

    Args:
        kernel: ``"module:function"`` of this package.
        scores, arrays: tensors, which the kernel gets as NumPy arrays.
        knobs: further arguments of the kernel.
        costs: the cost of each list, see ``over_lists``.
        wanted: whether the slopes are needed.
    """
    value, slope = np.zeros(len(scores)), np.zeros(scores.shape)
    given = [*map(as_array, (scores, *arrays)), *knobs, wanted, value, slope]
    run = _kernel(kernel)
    over_lists(lambda lists: run(lists, *given), costs)
    return as_tensor(value, scores), as_tensor(slope, scores)


def vector_op(
    kernel: str, mask: Mask, knobs: Sequence[Any], *, costs: Any, fill: float = 0
) -> Work:
    """Return a fast path for a kernel that computes one value per item instead of one per list.

    The kernel is called as ``kernel(lists, scores, mask, *knobs, weights, backward, found)``, and
    writes to ``found`` the value of each item or, if ``backward``, the gradient of the sum of
    weights times values with respect to the scores. On padding the values are ``fill``. ``costs``
    are those of ``over_lists``.
    """

    def run(scores: Tensor, weights: Tensor | None) -> Tensor:
        backward = weights is not None
        found = np.full(scores.shape, 0.0 if backward else fill, np.float64)
        rest = found if weights is None else as_array(weights), backward, found
        given, call = [as_array(scores), as_array(mask), *knobs, *rest], _kernel(kernel)
        over_lists(lambda lists: call(lists, *given), costs)
        return as_tensor(found, scores)

    return lambda scores, _: (run(scores, None), scores), lambda grad, s: run(s, grad)


def over_lists(kernel: Callable[[Ints], None], costs: Ints) -> None:
    """Call ``kernel`` with the indices of all lists, split over up to torch's number of threads.

    ``kernel`` must release Python's lock. ``costs``, ``[batch]``, is the relative cost of each
    list, such as its number of pairs.
    """
    lists = np.argsort(-costs, kind="stable")  # the most expensive first
    parts = min(torch.get_num_threads(), len(lists), int(costs.sum()) // WORTH_A_THREAD)
    if parts < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(parts) as pool:
        for _ in pool.map(kernel, [lists[i::parts] for i in range(parts)]):
            pass


def as_array(values: Tensor) -> Any:
    """Return a contiguous NumPy array for the kernels: float64, bool or int64."""
    array = values.detach().cpu().numpy()
    return np.ascontiguousarray(array, np.float64 if array.dtype.kind == "f" else None)


def as_tensor(array: Any, like: Tensor) -> Tensor:
    """Return the array as a tensor of the dtype and on the device of ``like``."""
    return torch.from_numpy(array).to(like.dtype).to(like.device)


def list_sizes(mask: Tensor) -> Ints:
    """Return the number of items of each list, ``[batch]``."""
    return mask.sum(-1).cpu().numpy()
