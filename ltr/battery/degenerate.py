"""Properties on lists that have little to say: empty, tied, of one item, of none, very long."""

import torch

from ltr.battery.findings import Broken, expect_finite
from ltr.battery.lists import DEGENERATE
from ltr.battery.subject import Measured, Subject


def degenerate_lists_are_defined_in_float64(loss: Subject) -> None:
    """Empty, tied, single, far apart, saturated: value and gradient are finite in float64."""
    _defined(loss, torch.float64)


def degenerate_lists_are_defined_in_float32(loss: Subject) -> None:
    """The same in float32."""
    _defined(loss, torch.float32)


def degenerate_lists_are_defined_in_bfloat16(loss: Subject) -> None:
    """The same for scores in bfloat16."""
    _defined(loss, torch.bfloat16)


def a_list_of_no_items_is_worth_0(loss: Subject) -> None:
    """A list of padding only has the value 0 and the gradient 0."""
    for dtype in (torch.float64, torch.float32):
        value, gradient = _measured(loss, "a list of no items", dtype)
        if value.item() != 0 or (gradient != 0).any():
            raise Broken(
                f"a list of no items has the value {value.item():.6g} and a gradient up to "
                f"{gradient.abs().max().item():.6g}, not 0"
            )


def lists_of_any_size_are_defined(loss: Subject) -> None:
    """Lists of 0, 1 and 240 places have finite values and gradients."""
    generator = torch.Generator().manual_seed(0)
    for size in (0, 1, 240):
        scores = torch.randn(2, size, generator=generator)
        labels = torch.randint(0, loss.grades, (2, size), generator=generator).float()
        value, gradient = loss.measure(scores, labels, torch.ones(2, size, dtype=torch.bool))
        expect_finite(value, "the value", f"of a list of {size} items")
        expect_finite(gradient, "the gradient", f"of a list of {size} items")


def _defined(loss: Subject, dtype: torch.dtype) -> None:
    for case in DEGENERATE:
        value, gradient = _measured(loss, case, dtype)
        when = f"for {case} in {str(dtype).removeprefix('torch.')}"
        expect_finite(value, "the value", when)
        expect_finite(gradient, "the gradient", when)


def _measured(loss: Subject, case: str, dtype: torch.dtype) -> Measured:
    scores, labels, present = DEGENERATE[case]
    mask = torch.tensor([present], dtype=torch.bool)
    return loss.measure(
        torch.tensor([scores], dtype=dtype), torch.tensor([labels], dtype=torch.float32), mask
    )
