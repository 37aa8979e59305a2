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


def random_lists(seed: int, dtype: torch.dtype, size: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 0 to ``size`` items with holes, some without a relevant item, some with ties."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(7, 1, generator=generator)
    mask = torch.rand(7, size, generator=generator) < share
    mask[0], mask[1] = True, False
    scores = torch.randn(7, size, dtype=dtype, generator=generator)
    scores[3] = (2 * scores[3]).round()
    labels = torch.randint(0, 5, (7, size), generator=generator).to(dtype)
    labels[4] = 0
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
