"""DASALC: batch norm of the real items alone, and the latent cross."""

import pytest
import torch
from torch import nn

from ltr.models import DASALC
from ltr.models.dasalc import ItemNorm
from ltr.models.layers import Packing

MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=torch.bool)


@pytest.fixture(params=["packed", "dense"])
def packing(request: pytest.FixtureRequest) -> Packing:
    return Packing.of(MASK) if request.param == "packed" else Packing(MASK)


def test_batch_norm_is_pytorchs_over_the_real_items(packing: Packing) -> None:
    torch.manual_seed(0)
    ours, theirs = ItemNorm(3), nn.BatchNorm1d(3)
    for norm in (ours, theirs):
        nn.init.constant_(norm.weight, 2.0), nn.init.constant_(norm.bias, 0.5)
    for _ in range(3):
        padded = torch.randn(4, 4, 3) * 5 + 2
        items = packing.pack(padded).requires_grad_()
        found = packing.unpack(ours(items, packing))[MASK]
        expected = theirs(padded[MASK])
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.variance, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(packing.unpack(ours(items, packing))[MASK], theirs(padded[MASK]))


@pytest.mark.parametrize("items", [0, 1])
def test_fewer_than_two_items_are_normalised_by_the_running_numbers(items: int) -> None:
    norm, mask = ItemNorm(3), torch.zeros(1, 2, dtype=torch.bool)
    norm.mean.fill_(1.0)
    mask[0, :items] = True
    for packing in (Packing.of(mask), Packing(mask)):
        values = packing.pack(torch.full((1, 2, 3), 4.0))
        got = packing.unpack(norm(values, packing))[mask]
        torch.testing.assert_close(got, torch.full((items, 3), 3.0), rtol=1e-4, atol=0)
        assert norm.mean.tolist() == [1, 1, 1]
        assert norm.variance.tolist() == [1, 1, 1]


def test_the_score_is_of_the_latent_cross() -> None:
    torch.manual_seed(0)
    model = DASALC(5, hidden_sizes=(6, 8, 8), feed_forward=16).eval()
    features, mask = torch.randn(4, 4, 5), MASK
    items, packing = features[mask], Packing.of(mask)
    hidden = items
    for layer, residual in zip(model.layers, (False, False, True), strict=True):
        dense = (layer.linear(hidden) / (1 + 1e-5) ** 0.5).relu()  # the norm is new
        hidden = hidden + dense if residual else dense
    context = model.cross(model.encoder(model.entry(items), packing))
    expected = model.head.linear((1 + context) * hidden).squeeze(-1)
    torch.testing.assert_close(model(features, mask)[mask], expected)
