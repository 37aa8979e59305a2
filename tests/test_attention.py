"""Attention inside lists and the dropout drawn for it: both layouts agree, draws are fair."""

import math

import pytest
import torch
from torch import nn

from ltr.kernels.attention import keep_factors
from ltr.models.layers import Dropout, Packing, attend

LENGTHS = (5, 0, 1, 7)
SIZE = 6


def lists(dtype: torch.dtype = torch.float64) -> tuple[Packing, Packing, torch.Tensor]:
    """The same lists packed and padded, and the padded projections ``[batch, list, 3 * size]``."""
    mask = torch.arange(8) < torch.tensor(LENGTHS)[:, None]
    mask[3] = mask[3].roll(1)  # padding in front
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 8, 3 * SIZE, dtype=dtype, generator=generator)
    return Packing.of(mask), Packing(mask), values


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 3])
def test_packed_and_padded_attention_agree(heads: int) -> None:
    packed, padded, values = lists()
    values.requires_grad_()
    found, slopes = [], []
    for packing in (packed, padded):
        attended = attend(packing.pack(values), packing, heads=heads, rate=0.0)
        found.append(packing.unpack(attended).masked_fill(~packing.mask[..., None], 0))
        slopes += torch.autograd.grad(found[-1].sin().sum(), values)
    torch.testing.assert_close(*found, atol=1e-12, rtol=0)
    torch.testing.assert_close(*slopes, atol=1e-12, rtol=0)
    assert found[0].abs().sum() > 1


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 2])
def test_gradient_of_packed_attention_with_dropout(heads: int) -> None:
    packed, _, values = lists()
    items = packed.pack(values).requires_grad_()

    def attended(items: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)  # the same masks every time
        return attend(items, packed, heads=heads, rate=0.4)

    assert torch.autograd.gradcheck(attended, items)
    plain = attend(items, packed, heads=heads, rate=0.0)
    assert not torch.allclose(attended(items), plain)


def test_dropout_falls_on_the_attention_weights() -> None:
    packed, _, values = lists()
    items = packed.pack(values)
    torch.manual_seed(1)
    found = attend(items, packed, heads=1, rate=0.5)
    torch.manual_seed(1)
    keep = keep_factors((5 * 5 + 1 + 7 * 7,), 0.5).double()[:25].view(5, 5)
    query, key, value = items[:5].chunk(3, -1)
    weights = (query @ key.T / math.sqrt(SIZE)).softmax(-1)
    torch.testing.assert_close(found[:5], (weights * keep) @ value, atol=1e-12, rtol=0)


def test_dropout_keeps_its_rate_and_the_expected_value() -> None:
    torch.manual_seed(0)
    count, rate = 10**6, 0.3
    keep = keep_factors((1000, 1000), rate)
    dropped = (keep == 0).double()
    assert abs(dropped.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / count)
    assert keep.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-4)
    for other in (keep.roll(1, 1), keep.roll(4, 1), keep.roll(1, 0)):  # neighbours, same 64 bits
        both = (dropped * (other == 0)).mean()
        assert abs(both - rate**2) < 5 * math.sqrt(rate**2 / count)


def test_the_seed_of_torch_governs_dropout_in_training_alone() -> None:
    torch.manual_seed(5)
    first, second = keep_factors((50,), 0.5), keep_factors((50,), 0.5)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(keep_factors((50,), 0.5), first)
    values = torch.ones(100)
    assert Dropout(0.5).eval()(values) is Dropout(0.0)(values) is values
    assert Dropout(0.5)(values).unique().tolist() == [0, 2]


def test_dropout_in_place_has_the_same_gradient() -> None:
    slopes = []
    for inplace in (True, False):
        torch.manual_seed(2)
        linear = nn.Linear(3, 4)
        Dropout(0.4, inplace=inplace)(linear(torch.ones(2, 3))).relu_().sum().backward()
        slopes.append(linear.weight.grad)
    assert torch.equal(*slopes)
    assert slopes[0].abs().sum() > 0
