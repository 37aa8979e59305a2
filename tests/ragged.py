"""Lists of several sizes with padding on every side, and the value and slope of a loss on lists."""

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def ragged(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 6, 3 and 4 items with padding behind, in front and between."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor(
        [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]],
        dtype=torch.bool,
    )
    scores = torch.randn(3, 8, dtype=dtype, generator=generator)
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).expand(3, 8).clone()
    return scores, labels, mask


def value_and_gradient(
    loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """One value per list, and the gradient of their weighted sum; a loss that draws is seeded."""
    torch.manual_seed(0)
    scores = scores.detach().clone().requires_grad_()
    values = loss(scores, labels, mask)
    assert values.shape == mask.shape[:1]
    weights = torch.arange(1, len(mask) + 1, dtype=values.dtype)
    (gradient,) = torch.autograd.grad((values * weights).sum(), scores)
    return values.detach(), gradient
