"""Second derivatives: those of the plain path by any path, or an error in one line."""

from functools import partial
from typing import Any

import pytest
import torch
from ragged import ragged
from test_fast_paths import EVERY, SWITCHES, plain
from test_models import lists
from torch import Tensor

from ltr import losses
from ltr.models.layers import attend
from ltr.relaxations import rank_distribution

REFUSED = {"plrank_loss": {}, "rankprop_loss": {"targets": "isotonic"}}
MIXED = ("mix_loss", {"parts": {"neuralndcg": 1.0, "ranknet": 0.3, "listmle": 0.1}})


def slopes(loss: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the loss, and that of its squares added to it."""
    scores = given[0].clone().requires_grad_()
    torch.manual_seed(0)
    values = loss(scores, *given[1:])
    (gradient,) = torch.autograd.grad(values.sum(), scores, create_graph=True)
    (penalised,) = torch.autograd.grad(values.sum() + 10 * gradient.square().sum(), scores)
    return gradient.detach(), penalised


@pytest.mark.slow
@pytest.mark.parametrize(("name", "knobs"), [*EVERY, *SWITCHES, MIXED])
def test_a_penalty_of_the_gradient_counts_on_any_path(
    name: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, given = partial(getattr(losses, name), **knobs), ragged()
    if REFUSED.get(name) == knobs:
        with pytest.raises(
            NotImplementedError, match=r"no second derivative.*without create_graph"
        ):
            slopes(loss, *given)
        return
    gradient, found = slopes(loss, *given)
    plain(monkeypatch)
    expected = slopes(loss, *given)
    torch.testing.assert_close((gradient, found), expected, atol=1e-11, rtol=1e-9)


@pytest.mark.slow
def test_ranks_of_a_long_list_are_differentiable_twice() -> None:
    # its recursion is computed in parts, and again for the gradient
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights, mask = scores.sin().unsqueeze(-1), torch.ones(1, 40, dtype=torch.bool)

    def value(scores: Tensor) -> Tensor:
        return (rank_distribution(scores, mask) * weights).sum()

    assert torch.autograd.gradgradcheck(value, scores.requires_grad_(), fast_mode=True)


def test_the_values_may_be_changed_in_place() -> None:
    scores, labels, mask = ragged()
    loss = losses.ranknet_loss
    expected, given = slopes(loss, scores, labels, mask)[0], scores.clone().requires_grad_()
    loss(given, labels, mask).mul_(2).sum().backward()
    torch.testing.assert_close(given.grad, 2 * expected)


def test_attention_refuses_a_second_derivative() -> None:
    packed, _, values = lists()
    items = packed.pack(values).requires_grad_()
    attended = attend(items, packed, heads=1, rate=0.0)
    with pytest.raises(NotImplementedError, match=r"no second derivative.*model=mlp"):
        torch.autograd.grad(attended.sum(), items, create_graph=True)
