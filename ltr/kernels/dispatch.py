"""Choose between a plain PyTorch formula and its compiled loop; connect the loop to autograd.

A compiled loop of this package writes the value of each list, and its gradient with respect to the
scores, to NumPy arrays in float64. In this file, a kernel is a function of tensors that calls such
a loop. ``accelerated`` connects the kernel to the formula that it replaces: autograd treats the
gradient of the kernel as a constant, and second derivatives are those of the formula.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVarTuple

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Ints
from ltr.kernels.operators import scale_gradients
from ltr.knobs import python_number
from ltr.relaxations.second_derivatives import fast_path, plain_path
from ltr.typing import Mask, PerList, Scores

log = logging.getLogger(__name__)

Args = TypeVarTuple("Args")  # of a formula after its scores

# Minimum number of pairs per thread. Starting a thread costs as much as a few thousand pairs.
PAIRS_PER_THREAD = 1 << 16

Formula = Callable[[Tensor, *Args], Tensor]
# The forward pass of a kernel, and its vector-Jacobian product: two arguments of ``fast_path``.
FastPath = tuple[
    Callable[[Tensor, bool], tuple[Tensor, Tensor]], Callable[[Tensor, Tensor], Tensor]
]


def on_cpu(scores: Tensor) -> bool:
    """Return True if the scores are on the CPU and compiled loops work."""
    return scores.device.type == "cpu" and numba_works()


def on_cpu_or_copied(scores: Tensor) -> bool:
    """Return whether compiled loops work; if so, scores on a GPU are copied to the CPU.

    Under torch.compile, return False for scores on a GPU: copying them would break CUDA graphs.
    """
    if scores.device.type != "cpu" and torch.compiler.is_compiling():
        return False
    return numba_works()


def accelerated(
    kernel: Callable[[Tensor, bool, *Args], tuple[Tensor, Tensor]],
    *,
    applies: Callable[[Tensor], bool] = on_cpu,
) -> Callable[[Formula[*Args]], Formula[*Args]]:
    """Replace the decorated formula, which gives one value per list, by ``kernel``.

    The kernel is used if ``applies(scores)`` is True. It is a ``list_operator`` that takes the
    scores, ``need_grad``, and the other arguments of the formula, all as positional arguments.
    Second derivatives are those of the formula. So are all derivatives under torch.func and in
    forward mode. Under torch.compile, only first derivatives are available.
    """

    def make_path(*args: *Args) -> FastPath:
        def forward(scores: Tensor, need_grad: bool) -> tuple[Tensor, Tensor]:
            return kernel(scores, need_grad, *args)

        return forward, scale_gradients

    return lambda formula: _choose_path(formula, applies, make_path)


def accelerated_by_item(
    kernel: Callable[[Tensor, Tensor | None, *Args], Tensor],
    *,
    applies: Callable[[Tensor], bool] = on_cpu,
) -> Callable[[Formula[*Args]], Formula[*Args]]:
    """Do the same as ``accelerated`` for a formula that gives one value per item.

    ``kernel`` is an ``item_operator``.
    """

    def make_path(*args: *Args) -> FastPath:
        def forward(scores: Tensor, _: bool) -> tuple[Tensor, Tensor]:
            return kernel(scores, None, *args), scores

        def backward(upstream: Tensor, scores: Tensor) -> Tensor:
            return kernel(scores, upstream, *args)

        return forward, backward

    return lambda formula: _choose_path(formula, applies, make_path)


def _choose_path(
    formula: Formula[*Args],
    applies: Callable[[Tensor], bool],
    make_path: Callable[[*Args], FastPath],
) -> Formula[*Args]:
    """Return a function that takes the fast path where it applies, otherwise the formula."""

    @functools.wraps(formula)
    def choose(scores: Tensor, *args: *Args) -> Tensor:
        numbers: Any = tuple(map(python_number, args))  # Numba would compile again for NumPy's
        if plain_path(scores) or not applies(scores):
            return formula(scores, *numbers)
        forward, backward = make_path(*numbers)
        if torch.compiler.is_compiling():  # the operators have their own derivatives
            values, _ = forward(scores, scores.requires_grad and torch.is_grad_enabled())
            return values
        return fast_path(scores, forward, backward, lambda scores: formula(scores, *numbers))

    return choose


def numba_works() -> bool:
    """Return whether Numba can compile a function; log a warning if it cannot."""
    return _numba_works()


# As torch.compiler.assume_constant_result does, without importing the whole compiler.
numba_works._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _numba_works() -> bool:
    try:
        from ltr.kernels.compile import exp  # takes half a second

        exp(0.0)
    except Exception as error:  # Numba often lags behind a new NumPy, and may fail anywhere
        log.warning(
            "Numba does not work, so losses are computed without it, which is slower on a CPU: %r",
            error,
        )
        return False
    return True


def value_and_grad(
    loop: Callable[..., None],
    scores: Scores,
    arrays: Sequence[Tensor],
    knobs: Sequence[Any],
    costs: Ints,
    *,
    need_grad: bool,
) -> tuple[PerList, Scores]:
    """Run ``loop(lists, scores, *arrays, *knobs, need_grad, value, grad)``.

    Args:
        loop: a compiled loop of this package.
        scores, arrays: tensors, which the loop gets as NumPy arrays.
        knobs: further arguments of the loop.
        costs: the cost of each list; see ``over_lists``.
        need_grad: whether the gradient is needed.

    Returns:
        The value of each list, ``[batch]``, and the gradient, ``[batch, list]``.
    """
    value = np.zeros(len(scores))
    grad = np.zeros(scores.shape)
    args = [*map(as_array, (scores, *arrays)), *knobs, need_grad, value, grad]
    over_lists(lambda lists: loop(lists, *args), costs)
    return as_tensor(value, scores), as_tensor(grad, scores)


def item_values(
    loop: Callable[..., None],
    scores: Scores,
    weights: Scores | None,
    mask: Mask,
    knobs: Sequence[Any],
    costs: Ints,
    *,
    fill: float = 0,
) -> Scores:
    """Run ``loop(lists, scores, mask, *knobs, weights, backward, output)``.

    Args:
        loop: a compiled loop. It writes to ``output`` the value of each item or, if ``backward``,
            the gradient of the sum of weights times values with respect to the scores.
        scores, mask: ``[batch, list]``.
        weights: ``[batch, list]``; None if the values are needed, and not the gradient.
        knobs: further arguments of the loop.
        costs: the cost of each list; see ``over_lists``.
        fill: the value on padding. The gradient on padding is 0.

    Returns:
        The values or the gradient, ``[batch, list]``.
    """
    backward = weights is not None
    output = np.full(scores.shape, 0.0 if backward else fill, np.float64)
    weight_array = output if weights is None else as_array(weights)  # unused if not backward
    args = [as_array(scores), as_array(mask), *knobs, weight_array, backward, output]
    over_lists(lambda lists: loop(lists, *args), costs)
    return as_tensor(output, scores)


def over_lists(kernel: Callable[[Ints], None], costs: Ints) -> None:
    """Divide the indices of all lists among up to ``torch.get_num_threads()`` calls of ``kernel``.

    The calls run in parallel threads, so ``kernel`` must release Python's global interpreter lock.
    ``costs``, ``[batch]``, is the relative cost of each list, such as its number of pairs.
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
