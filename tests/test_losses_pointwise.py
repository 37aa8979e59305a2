"""BCE, MSE and ordinal regression by arithmetic."""

import math

import pytest
import torch
from ragged import ragged, value_and_gradient

from ltr.errors import ConfigError
from ltr.losses import bce_loss, mse_loss, ordinal_loss

SCORES, LABELS = [0.3, -1.0, 2.0], [1.0, 2.0, 0.0]


def one_list() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The list above, with padding behind."""
    scores = torch.tensor([[*SCORES, 9.0]], dtype=torch.float64)
    labels = torch.tensor([[*LABELS, 9.0]], dtype=torch.float64)
    return scores, labels, torch.tensor([[True, True, True, False]])


@pytest.mark.parametrize("relevant", [1, 2, 0.5])
def test_bce_by_hand(relevant: float) -> None:
    found = bce_loss(*one_list(), relevant=relevant)
    expected = 0.0
    for s, y in zip(SCORES, LABELS, strict=True):
        p = 1 / (1 + math.exp(-s))
        expected -= math.log(p if y >= relevant else 1 - p) / 3
    assert found.item() == pytest.approx(expected, abs=1e-14)


def test_bce_is_exact_at_any_score() -> None:
    scores = torch.tensor([[1e4, -1e4]], dtype=torch.float64)
    labels, mask = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]])
    value, gradient = value_and_gradient(bce_loss, scores, labels, mask)
    assert value.item() == 1e4
    assert gradient.tolist() == [[0.5, -0.5]]


def test_mse_by_hand() -> None:
    found = mse_loss(*one_list())
    assert found.item() == pytest.approx((0.7**2 + 3.0**2 + 2.0**2) / 3, abs=1e-14)


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_ordinal_by_hand(levels: int) -> None:
    found = ordinal_loss(*one_list(), levels=levels, sigma=1.5)
    expected = 0.0
    for s, y in zip(SCORES, LABELS, strict=True):
        for grade in range(1, levels):
            at_least = 1 / (1 + math.exp(-1.5 * (s - (grade - 0.5))))
            expected -= math.log(at_least if y >= grade else 1 - at_least) / 3
    assert found.item() == pytest.approx(expected, abs=1e-13)


def test_ordinal_counts_a_label_between_two_grades_as_both() -> None:
    scores, labels, mask = one_list()

    def found(*more: float) -> torch.Tensor:
        return ordinal_loss(scores, labels + torch.tensor(more), mask, levels=5, sigma=1.5)

    nothing, up, third = ([x, 0.0, x, 0.0] for x in (0.0, 1.0, 0.25))
    expected = 0.75 * found(*nothing) + 0.25 * found(*up)
    torch.testing.assert_close(found(*third), expected, rtol=1e-14, atol=0)
    share = torch.tensor([[0.61]])  # a label below the first grade is not 0
    _, gradient = value_and_gradient(
        lambda *data: ordinal_loss(*data, levels=2), torch.tensor([[0.5]]), share, share > 0
    )
    assert gradient.item() == pytest.approx(0.5 - 0.61, abs=1e-6)  # sigmoid(s - 1/2) - y


@pytest.mark.parametrize("grade", range(5))
def test_ordinal_is_least_near_the_label(grade: int) -> None:
    scores = torch.arange(-2, 7, 0.1, dtype=torch.float64)[:, None]
    labels = torch.full_like(scores, grade)
    best = scores[ordinal_loss(scores, labels, labels >= 0, sigma=20.0).argmin()].item()
    if grade in (0, 4):  # nothing stands beyond
        assert best == pytest.approx(-2 if grade == 0 else 6.9)
    else:
        assert best == pytest.approx(grade, abs=0.06)


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    with pytest.raises(ConfigError, match=r"^relevant=0 is out of range: write a finite"):
        bce_loss(*data, relevant=0)
    with pytest.raises(ConfigError, match=r"^levels=1 is not a number of grades: write an"):
        ordinal_loss(*data, levels=1)
    with pytest.raises(ConfigError, match=r"^levels=1001 .*loss=rmse"):
        ordinal_loss(*data, levels=1001)
    with pytest.raises(ConfigError, match=r"^sigma=0.0 is out of range: write a finite number"):
        ordinal_loss(*data, sigma=0.0)
