"""The figures of the papers draw what the papers describe."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "paper_figures"))

import neuralndcg
from rank_distribution import distributions

PAPER_1 = *neuralndcg.FIGURE_1[:3], 141
PAPER_2 = *neuralndcg.FIGURE_2[:3], 121


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
