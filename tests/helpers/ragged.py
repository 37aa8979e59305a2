"""The battery's lists, and the value and slope of a loss on lists, by either path."""

import pytest
import torch
from torch import Tensor

from ltr import losses
from ltr.relaxations import neural_sort
from ltr.relaxations.neuralsort import drawn_scores
from ltr.testing.subject import Subject, ragged
from ltr.typing import Loss

__all__ = ["NAMES", "plain", "ragged", "random_lists", "value_and_gradient"]
NAMES = [name for name in vars(losses) if name.endswith("_loss")]


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every loss takes its plain path."""
    monkeypatch.setattr("ltr.kernels.dispatch.numba_works", lambda: False)
    monkeypatch.setattr("ltr.losses.structured_hinge.numba_works", lambda: False)


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
    return Subject(loss, grades=10**9).measure(scores, labels, mask)


def stochastic_neural_sort(
    scores: Tensor, mask: Tensor, *, temperature: float, n_samples: int, beta: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """NeuralSort of each draw of noisy scores, ``[sample, batch, rank, item]``."""
    drawn = drawn_scores(scores, mask, n_samples=n_samples, beta=beta, generator=generator)
    return torch.stack([neural_sort(one, mask, temperature=temperature) for one in drawn])
