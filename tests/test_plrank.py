"""PL-Rank-3 has no bias: over all rankings, by their chances, it is the gradient of the mean."""

import itertools

import pytest
import torch
from ragged import value_and_gradient
from torch import Tensor

from ltr.losses import plrank_loss
from ltr.metrics import ndcg

SCORES = torch.tensor([0.4, -0.3, 1.1, 0.2], dtype=torch.float64)
LABELS = torch.tensor([2.0, 0.0, 1.0, 1.0], dtype=torch.float64)
RANKINGS = torch.tensor(list(itertools.permutations(range(4))))


def chances(m: Tensor) -> Tensor:
    """The Plackett-Luce model's chance of each of ``RANKINGS``."""
    ranked = m[RANKINGS]
    left = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    return (ranked - left).sum(-1).exp()


@pytest.mark.parametrize("k", [1, 2, 3, None])
def test_it_has_no_bias(k: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    places = RANKINGS.argsort(-1).double()
    temperature, mask = 0.7, torch.ones(24, 4, dtype=torch.bool)
    m = (SCORES / temperature).requires_grad_()
    values = ndcg(-places, LABELS.expand(24, 4), mask, k=k)
    expected = -(chances(m) * values).sum()
    (slope,) = torch.autograd.grad(expected, m)

    # noise under which each copy of the list draws another of the rankings
    least = m.detach().log_softmax(-1) + places
    noise = torch.exp(-torch.exp(least))[None]
    monkeypatch.setattr("ltr.losses.plrank.uniform_noise", lambda *_: noise)
    value, gradient = value_and_gradient(
        lambda *data: plrank_loss(*data, k=k, n_samples=1, temperature=temperature),
        SCORES.expand(24, 4), LABELS.expand(24, 4), mask,
    )  # fmt: skip
    torch.testing.assert_close(value, -values)
    each = gradient / torch.arange(1, 25).unsqueeze(-1)
    found = (chances(m).detach().unsqueeze(-1) * each).sum(0)
    torch.testing.assert_close((chances(m) * value).sum(), expected)
    torch.testing.assert_close(found, slope / temperature, atol=1e-12, rtol=1e-12)
