"""The lambdas of LambdaRank against the gradient that autograd finds, and their memory."""

import pytest
import torch
from ragged import ragged
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.errors import ConfigError
from ltr.losses import lambdarank_lambdas, lambdarank_loss


@pytest.mark.parametrize("pairs", ["any", "both"])
@pytest.mark.parametrize("k", [None, 1, 2, 5, 99])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_lambdas_are_minus_the_gradient(sigma: float, k: int | None, pairs: str) -> None:
    scores, labels, mask = ragged()
    scores = scores.masked_fill(~mask, torch.nan).requires_grad_()
    value = lambdarank_loss(scores, labels, mask, k=k, sigma=sigma, pairs=pairs)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    for block in (1, 3, 64):
        lambdas = lambdarank_lambdas(
            scores, labels, mask, k=k, sigma=sigma, pairs=pairs, block=block
        )
        torch.testing.assert_close(lambdas, -gradient, atol=1e-14, rtol=1e-12)
        assert not lambdas.requires_grad


def test_backward_with_lambdas_trains_as_the_loss_does() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 8, 4, generator=generator, dtype=torch.float64)
    _, labels, mask = ragged()
    weights = torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()
    (expected,) = torch.autograd.grad(
        lambdarank_loss(features @ weights, labels, mask).sum(), weights
    )
    scores = features @ weights
    scores.backward(-lambdarank_lambdas(scores, labels, mask))
    torch.testing.assert_close(weights.grad, expected)


@pytest.mark.parametrize("gap", [50.0, 1e4])
def test_lambdas_are_exact_at_any_difference(gap: float) -> None:
    labels = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    scores = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    assert lambdarank_lambdas(scores, labels, labels >= 0, k=1).tolist() == [[1.0, -1.0]]


class LargestTensor(TorchDispatchMode):
    """The number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


@pytest.mark.parametrize("block", [1, 16])
def test_pairs_are_formed_for_one_block_at_a_time(block: int) -> None:
    scores, labels = torch.randn(2, 128), torch.randint(0, 5, (2, 128)).float()
    with LargestTensor() as largest:
        lambdarank_lambdas(scores, labels, labels >= 0, block=block)
    assert largest.entries == 2 * block * 128


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    for knobs, message in (
        ({"k": 0}, r"^k=0 is not a cutoff: write an integer k >= 1"),
        ({"sigma": 0.0}, r"^sigma=0.0 is out of range: write a finite number above 0$"),
        ({"pairs": "all"}, r"^pairs=all is not known: choose one of any, both$"),
        ({"block": 0}, r"^block=0 is out of range: write an integer >= 1$"),
    ):
        with pytest.raises(ConfigError, match=message):
            lambdarank_lambdas(*data, **knobs)
