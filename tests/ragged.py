"""The battery's lists, and the value and slope of a loss on lists."""

from collections.abc import Callable

from torch import Tensor

from ltr.battery.lists import ragged
from ltr.battery.subject import Subject

__all__ = ["ragged", "value_and_gradient"]

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def value_and_gradient(
    loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """One value per list, and the gradient of their weighted sum; a loss that draws is seeded."""
    return Subject(loss, grades=10**9).measure(scores, labels, mask)
