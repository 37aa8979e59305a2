"""Losses with a fault: a piece inside a real one made wrong, or a small wrong one.

Each function plants one, undone with ``monkeypatch``, and gives the loss that has it.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ltr.losses import (
    approx_ndcg_loss,
    lambdarank_loss,
    listmle_loss,
    listnet_loss,
    mse_loss,
    neural_ndcg_loss,
    plrank_loss,
    ranknet_loss,
)
from ltr.losses.fused_permutation import neural_dcg
from ltr.losses.soft_permutation import minus_normalised
from ltr.metrics import dcg
from ltr.metrics.ordering import rank_of_item
from ltr.relaxations.noise import uniform_noise


def padding_read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListNet whose softmax runs over padding too."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return -(labels.softmax(-1) * scores.log_softmax(-1)).masked_fill(~mask, 0).sum(-1)

    return loss


def k_ignored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """NeuralNDCG that drops k on the way to the metric."""
    monkeypatch.setattr(
        "ltr.losses.soft_permutation.neural_dcg",
        lambda *lists, **knobs: neural_dcg(*lists, **knobs | {"k": None}),
    )
    monkeypatch.setattr(
        "ltr.losses.neuralndcg.minus_normalised",
        lambda found, labels, mask, k: minus_normalised(found, labels, mask, k=None),
    )
    return neural_ndcg_loss


def ideal_not_cut(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """NeuralNDCG@k over the ideal DCG of the whole list."""
    monkeypatch.setattr(
        "ltr.losses.soft_permutation.dcg",
        lambda scores, labels, mask, k: dcg(scores, labels, mask, k=None),
    )
    return neural_ndcg_loss


def lists_coupled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ApproxNDCG of scores divided by the largest of the batch."""

    def loss(
        scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None,
        temperature: float = 1.0,
    ) -> Tensor:  # fmt: skip
        scale = scores.masked_fill(~mask, 0).abs().amax().detach().clamp(min=1e-6)
        return approx_ndcg_loss(scores / scale, labels, mask, k=k, temperature=temperature)

    return loss


def ties_reversed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """LambdaRank whose tied items rank from the last to the first."""
    monkeypatch.setattr(
        "ltr.losses.lambdarank.rank_of_item",
        lambda scores, mask: rank_of_item(scores.flip(-1), mask.flip(-1)).flip(-1),
    )
    return lambdarank_loss


def label_ties_in_file_order(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListMLE that takes the order of equal labels from the file."""
    monkeypatch.setattr(
        "ltr.losses.listmle.uniform_noise",
        lambda mask, samples, like, generator: (
            torch.arange(mask.shape[-1]).to(like).expand(1, *mask.shape)
        ),
    )
    return listmle_loss


def temperature_in_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """NeuralNDCG that does not sharpen."""

    def loss(
        scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None,
        temperature: float = 1.0,
    ) -> Tensor:  # fmt: skip
        return neural_ndcg_loss(scores, labels, mask, k=k, temperature=100 * temperature**0.01)

    return loss


def input_changed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """MSE that clears padding in the caller's labels."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        labels.masked_fill_(~mask, 0)
        return mse_loss(scores, labels, mask)

    return loss


def nan_at_ties(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListNet of scores that are divided by their deviation, 0 where all are tied."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        scores = scores.masked_fill(~mask, 0)
        mean = scores.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        away = (scores - mean).masked_fill(~mask, 0)
        return listnet_loss(away / away.square().sum(-1, keepdim=True).sqrt(), labels, mask)

    return loss


def global_generator(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListMLE that draws from torch's own generator whatever is given."""

    def loss(
        scores: Tensor, labels: Tensor, mask: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return listmle_loss(scores, labels, mask)

    return loss


def generator_without_a_knob(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListMLE without a generator to give."""
    return lambda scores, labels, mask: listmle_loss(scores, labels, mask)


def one_number(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """MSE that is reduced to one number."""
    return lambda scores, labels, mask: mse_loss(scores, labels, mask).mean()


def no_float64(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """MSE in float32 inside, float64 outside."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        wide = torch.promote_types(scores.dtype, torch.float32)
        return mse_loss(scores.float(), labels, mask).to(wide)

    return loss


def detached(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """MSE without a graph."""
    return lambda scores, labels, mask: mse_loss(scores.detach(), labels, mask)


def gradient_not_of_the_value(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A clamp that kills the gradient of a pair that is far wrong, added back to the value."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        value = ranknet_loss(scores, labels, mask)
        return value.detach() + ranknet_loss(scores.clamp(-0.3, 0.3), labels, mask) * 0.1

    return loss


def slopes_as_constants(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """MSE by the product of scores and slopes, as a backward of its own would write them."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        given = scores.detach().requires_grad_()
        with torch.enable_grad():
            value = mse_loss(given, labels, mask)
            (slope,) = torch.autograd.grad(value.sum(), given)
        return value.detach() + ((scores - given.detach()) * slope).masked_fill(~mask, 0).sum(-1)

    return loss


def nothing_to_learn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A constant with a graph."""
    return lambda scores, labels, mask: scores.masked_fill(~mask, 0).sum(-1) * 0 + 1.0


def nan_on_no_items(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A mean over items that divides by 0."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return (scores - labels).masked_fill(~mask, 0).square().sum(-1) / mask.sum(-1)

    return loss


def rises(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A sign lost in the backward pass."""

    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return -grad

    return lambda scores, labels, mask: listnet_loss(Lost.apply(scores), labels, mask)


def any_k_taken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """k = 0 means the whole list."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None) -> Tensor:
        return neural_ndcg_loss(scores, labels, mask, k=k if k and k > 0 else None)

    return loss


def k_beyond_the_list_is_an_error(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """The k best items are looked up, of which there may be fewer."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor, *, k: int | None = None) -> Tensor:
        scores.masked_fill(~mask, -math.inf).topk(k or 1)
        return neural_ndcg_loss(scores, labels, mask, k=k)

    return loss


def views_only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A view of what may not be contiguous."""
    return lambda scores, labels, mask: mse_loss(scores.view(-1).view_as(scores), labels, mask)


def drawn_but_in_file_order(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """ListMLE whose draws are too small to change the order of the file."""
    monkeypatch.setattr(
        "ltr.losses.listmle.uniform_noise",
        lambda *given: uniform_noise(*given) / 2 + torch.arange(given[0].shape[-1]),
    )
    return listmle_loss


def mean_over_places(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A mean that counts padding as items."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return (scores - labels).masked_fill(~mask, 0).square().sum(-1) / max(1, mask.shape[-1])

    return loss


def mean_over_the_batch_too(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """Values that are divided by the number of lists."""
    return lambda scores, labels, mask: mse_loss(scores, labels, mask) / len(mask)


def ideal_of_0(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """Gains over the ideal DCG, 0 / 0 for an empty list."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        shares = scores.masked_fill(~mask, -1e30).softmax(-1) * (labels.exp2() - 1)
        return -shares.masked_fill(~mask, 0).sum(-1) / dcg(labels, labels, mask)

    return loss


def epsilon_of_float64(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A guard against 0 / 0 that float32 rounds to 0."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        squares = (scores - labels).masked_fill(~mask, 0).square()
        return squares.sum(-1) / (mask.sum(-1).to(squares.dtype) + 1e-300)

    return loss


def largest_of_none(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """The largest score of a list of no places."""

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        scores = scores.masked_fill(~mask, 0)
        return listnet_loss(scores - scores.amax(-1, keepdim=True), labels, mask)

    return loss


def memory_of_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """A running mean of the values."""
    seen: list[float] = []

    def loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        value = mse_loss(scores, labels, mask)
        seen.append(value.mean().item())
        return value - sum(seen) / len(seen)

    return loss


def estimate_doubled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """PL-Rank whose estimate of the gradient is twice too large."""

    def loss(
        scores: Tensor,
        labels: Tensor,
        mask: Tensor,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        found = plrank_loss(scores, labels, mask, temperature=temperature, generator=generator)
        return 2 * found - found.detach()

    return loss
