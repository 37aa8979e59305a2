"""The figures of the papers draw what the papers describe."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.relaxations import neural_sort, sinkhorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "paper_figures"))

import neuralndcg
from rank_distribution import distributions

PAPER_1 = *neuralndcg.FIGURE_1[:3], 141
PAPER_2 = *neuralndcg.FIGURE_2[:3], 121


def log2(rank: int) -> float:
    return math.log2(1 + rank)


def test_figure_1_steps_where_x_passes_an_item_with_a_gain() -> None:
    data = neuralndcg.curves(*PAPER_1, [1.0])
    best = 3 + 1 / log2(2)
    for low, high, dcg in [
        (-1, 1, best),  # zeros may stand in any order
        (1, 4, 3 + 1 / log2(3)),
        (4, 6, 3 / log2(2) + 1 / log2(3)),
    ]:
        piece = data.ndcg[(data.x > low + 1e-9) & (data.x < high - 1e-9)]
        assert len(piece) > 10
        np.testing.assert_allclose(piece, dcg / best, rtol=1e-12)


def test_figure_1_shows_what_sinkhorn_scaling_mends() -> None:
    data = neuralndcg.curves(*PAPER_1, [1.0])
    without = data.unscaled_1[(data.x >= 0) & (data.x <= 1)]
    assert without.max() > without.iloc[0] + 0.02  # it rises towards the step
    assert without.max() > without.iloc[-1] + 0.005  # before it falls
    assert np.diff(data.neuralndcg_1).max() < 1e-5  # the scaling stops after 30 iterations
    one = torch.tensor([[4.0, 1, 0, 0, data.x[40]]], dtype=torch.float64)
    mask, gains = torch.ones(1, 5, dtype=torch.bool), torch.tensor([3.0, 1, 0, 0, 0]).double()
    of_rank = torch.tensor([1 / log2(r) for r in range(1, 6)], dtype=torch.float64)
    soft = neural_sort(one, mask)
    for column, matrix in (("neuralndcg_1", sinkhorn(soft, mask)), ("unscaled_1", soft)):
        value = (of_rank @ matrix[0] @ gains).item() / (3 + 1 / log2(2))
        assert data[column][40] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "steps"), [(PAPER_1, [0, 1, 4]), (PAPER_2, [1, 2, 3, 4])], ids=["1", "2"]
)
def test_at_temperature_0_a_curve_is_the_step_function(settings, steps) -> None:
    data = neuralndcg.curves(*settings, [1e-3])
    far = np.abs(data.x.to_numpy()[:, None] - np.array(steps)).min(-1) > 0.03
    assert far.sum() > 100
    for column in ("neuralndcg_0.001", "unscaled_0.001"):
        np.testing.assert_allclose(data[column][far], data.ndcg[far], atol=1e-9)


def test_table_1_has_the_entries_that_the_paper_prints_and_says_what_its_sums_are() -> None:
    data = neuralndcg.computed()
    assert data[data["rank"] != "sum"].agrees.all()
    assert data[data["rank"] == "sum"].agrees.tolist() == [True, False, False, False]
    first, _, last = neuralndcg.about_sums(data)
    assert "0.01, 14.00004339, adds up the rounded entries" in first
    assert "1, 10.388, is not that of its entries, 13.7781 (10.3888 without the first)" in last


def test_table_1_does_not_call_a_wrong_entry_equal(monkeypatch) -> None:
    printed = [*neuralndcg.PRINTED[0.1][:4], "0.9988", "0.3136", "14"]
    monkeypatch.setitem(neuralndcg.PRINTED, 0.1, printed)
    assert neuralndcg.computed().groupby("temperature").agrees.sum().tolist() == [7, 6, 5, 6]


SCORES = torch.tensor([[2.0, 1.2, 1.0, 0.4, 0.0]], dtype=torch.float64)


def exact_by_quadrature(means: list[float], sigma: float) -> np.ndarray:
    """Given an item's own score the contests are independent: integrate over that score."""
    steps = np.linspace(-8, 8, 801)
    weights = np.exp(-0.5 * steps**2) / np.exp(-0.5 * steps**2).sum()
    columns = []
    for item, mean in enumerate(means):
        others = [m for i, m in enumerate(means) if i != item]
        column = np.zeros(len(means))
        for step, weight in zip(steps, weights, strict=True):
            chances = [0.5 * math.erfc((mean - m + sigma * step) / sigma / 2**0.5) for m in others]
            found = np.ones(1)
            for chance in chances:
                found = np.convolve(found, [1 - chance, chance])
            column += weight * found
        columns.append(column)
    return np.stack(columns, -1)


def test_the_exact_rank_distribution_is_what_an_integral_gives() -> None:
    n = 50_000
    found = distributions(SCORES, sigma=0.7, n_samples=n, seed=0)["exact"].numpy()
    expected = exact_by_quadrature(SCORES[0].tolist(), 0.7)
    error = 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-5
    assert (np.abs(found - expected) < error).all()


def test_rank_distributions_sum_to_one_and_the_scaled_one_is_nearer() -> None:
    found = distributions(SCORES, sigma=0.7, n_samples=20_000, seed=0)
    ones = torch.ones(5, dtype=torch.float64)
    for name, matrix in found.items():
        torch.testing.assert_close(matrix.sum(0), ones, atol=1e-4, rtol=0)
        if name != "rank_binomial":
            torch.testing.assert_close(matrix.sum(1), ones)
    far = {
        name: 0.5 * (matrix - found["exact"]).abs().sum(0).mean().item()
        for name, matrix in found.items()
    }
    assert far["exact"] == 0 < far["scaled"] < far["rank_binomial"] < 0.25
    ranks = torch.arange(1.0, 6, dtype=torch.float64)  # the expected rank needs no independence
    torch.testing.assert_close(
        ranks @ found["rank_binomial"], ranks @ found["exact"], atol=0.05, rtol=0
    )
