"""Choose between a plain PyTorch formula and its compiled kernel, and connect it to autograd.

A kernel of this package writes the value of each list and its gradient with respect to the scores
in float64, to NumPy arrays. Autograd treats that gradient as a constant; second derivatives are
those of the plain formula.
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

# Minimum pairs per thread: starting a thread costs as much as some thousand pairs.
PAIRS_PER_THREAD = 1 << 16

# An accelerated implementation: its forward pass and its vector-Jacobian product, which are the
# arguments ``run`` and ``pull`` of ``fast_path``.
FastPath = tuple[Callable[[Tensor, bool], Any], Callable[..., Tensor]]


def accelerated(
    on_cpu: Callable[..., FastPath],
    elsewhere: Callable[..., FastPath | None] | None = None,
    *,
    via_cpu: bool = False,
) -> Callable[[F], F]:
    """Give the decorated plain formula ``plain(scores, ...)`` a fast path with the same arguments.

    Second derivatives are always those of the plain formula.

    Args:
        on_cpu: the fast path on the CPU, used if Numba works and nothing is traced.
        elsewhere: the fast path in all other cases; None, or a call that returns None, leaves the
            plain formula.
        via_cpu: use ``on_cpu`` on a GPU too, where a copy to the CPU and back takes less time than
            the plain formula.
    """

    def register(plain: F) -> F:
        @functools.wraps(plain)
        def choose_path(scores: Tensor, *args: Any) -> Tensor:
            args = tuple(map(python_number, args))  # Numba would compile again for NumPy's types
            make_path: Callable[..., FastPath | None] | None = None
            if kernels_apply(scores, via_cpu):
                make_path = on_cpu
            elif not plain_path(scores):
                make_path = elsewhere
            path = make_path(scores, *args) if make_path else None
            if path is None:
                return plain(scores, *args)
            return fast_path(scores, *path, lambda scores: plain(scores, *args))

        return choose_path  # type: ignore[return-value]

    return register


def kernels_apply(scores: Scores, via_cpu: bool) -> bool:
    """Return whether the compiled loops can be used for these scores.

    They can if the scores are on the CPU or may be copied there (``via_cpu``), nothing is traced by
    torch.compile, by torch.func or in forward mode, and Numba works.
    """
    is_reachable = scores.device.type == "cpu" or via_cpu
    if not is_reachable or torch.compiler.is_compiling() or plain_path(scores):
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


def path_of_list_values(kernel: str, *args: Any) -> FastPath:
    """Return a fast path with the values of a kernel, and its gradient.

    ``args`` are the arguments of ``value_and_grad`` after ``scores``, without ``need_grad``.
    """
    return path_with_grad(
        lambda scores, need: value_and_grad(kernel, scores, *args, need_grad=need)
    )


def path_with_grad(run: Callable[[Scores, bool], tuple[PerList, Scores]]) -> FastPath:
    """Return a fast path with the values of ``run``, and the gradient of ``run``.

    ``run(scores, need_grad)`` returns both; ``need_grad`` says whether the gradient is needed.
    """
    return run, lambda upstream, grad: upstream.unsqueeze(-1) * grad


def value_and_grad(
    kernel: str,
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: Ints,
    *,
    need_grad: bool = True,
) -> tuple[PerList, Scores]:
    """Run ``kernel(lists, scores, *arrays, *knobs, need_grad, value, grad)``.

    Args:
        kernel: ``"module:function"`` of this package.
        scores, arrays: tensors, which the kernel gets as NumPy arrays.
        knobs: further arguments of the kernel.
        costs: the cost of each list, see ``over_lists``.
        need_grad: whether the gradient is needed.

    Returns:
        The value of each list, ``[batch]``, and the gradient, ``[batch, list]``.
    """
    value = np.zeros(len(scores))
    grad = np.zeros(scores.shape)
    args = [*map(as_array, (scores, *arrays)), *knobs, need_grad, value, grad]
    run = _kernel(kernel)
    over_lists(lambda lists: run(lists, *args), costs)
    return as_tensor(value, scores), as_tensor(grad, scores)


def path_of_item_values(
    kernel: str, mask: Mask, knobs: Sequence[Any], *, costs: Any, fill: float = 0
) -> FastPath:
    """Return a fast path for a kernel that computes one value per item instead of one per list.

    The kernel is called as ``kernel(lists, scores, mask, *knobs, weights, backward, output)``. It
    writes to ``output`` the value of each item or, if ``backward``, the gradient of the sum of
    weights times values with respect to the scores. On padding the values are ``fill``. ``costs``
    are those of ``over_lists``.
    """
    run = _kernel(kernel)

    def call(scores: Tensor, weights: Tensor | None) -> Tensor:
        backward = weights is not None
        output = np.full(scores.shape, 0.0 if backward else fill, np.float64)
        weight_array = output if weights is None else as_array(weights)  # unused if not backward
        args = [as_array(scores), as_array(mask), *knobs, weight_array, backward, output]
        over_lists(lambda lists: run(lists, *args), costs)
        return as_tensor(output, scores)

    def forward(scores: Tensor, _: bool) -> tuple[Tensor, Tensor]:
        return call(scores, None), scores

    def backward(upstream: Tensor, scores: Tensor) -> Tensor:
        return call(scores, upstream)

    return forward, backward


def over_lists(kernel: Callable[[Ints], None], costs: Ints) -> None:
    """Call ``kernel`` with the indices of all lists, split over up to torch's number of threads.

    ``kernel`` must release Python's lock. ``costs``, ``[batch]``, is the relative cost of each
    list, such as its number of pairs.
    """
    lists = np.argsort(-costs, kind="stable")  # the most expensive first
    threads = min(torch.get_num_threads(), len(lists), int(costs.sum()) // PAIRS_PER_THREAD)
    if threads < 2:
        kernel(lists)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(kernel, [lists[i::threads] for i in range(threads)]):
            pass  # reading the results raises the errors of the threads


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
