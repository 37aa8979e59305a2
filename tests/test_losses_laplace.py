"""LapNDCG: its ranks against the sum over all pairs, at ties, and on a list too long for pairs."""

import numpy as np
import pytest
import torch
from ragged import random_lists, value_and_gradient
from test_fast_paths import plain

from ltr.losses import lap_ndcg_loss


def ndcg_by_pairs(scores: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Minus NDCG of one list from ranks counted pair by pair."""
    gaps = (scores[:, None] - scores) / temperature  # of row j: s_j - s_i
    higher = np.where(gaps < 0, np.exp(-np.abs(gaps)) / 2, 1 - np.exp(-np.abs(gaps)) / 2)
    ranks = 0.5 + higher.sum(0)  # an item counts itself as 1/2
    gains = 2**labels - 1
    best = (np.sort(gains)[::-1] / np.log2(2 + np.arange(len(gains)))).sum()
    return float(-(gains / np.log2(1 + ranks)).sum() / best) if best else 0.0


@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_ranks_are_counted_pair_by_pair(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch, "lap_ndcg_loss")
    scores, labels, mask = random_lists(0, torch.float64)
    for temperature in (0.01, 0.5, 30.0):
        found = lap_ndcg_loss(scores, labels, mask, temperature=temperature)
        expected = [
            ndcg_by_pairs(s[m].numpy(), y[m].numpy(), temperature)
            for s, y, m in zip(scores, labels, mask, strict=True)
        ]
        assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert lap_ndcg_loss(scores[:, :0], labels[:, :0], mask[:, :0]).tolist() == [0] * 7


@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_the_slope_exists_at_ties(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch, "lap_ndcg_loss")
    scores = torch.tensor([[0.5, 0.5, -1.0, 0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    labels, mask = torch.tensor([[0.0, 2, 1, 3, 0]]).double(), torch.ones(1, 5, dtype=torch.bool)
    torch.autograd.gradcheck(lambda s: lap_ndcg_loss(s, labels, mask), scores, atol=1e-6)


def test_a_list_of_100000_items() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=100_000), rng.integers(0, 5, 100_000).astype(float)
    few = rng.choice(100_000, 20, replace=False)  # only these are relevant: their pairs are few
    labels[np.setdiff1d(np.arange(100_000), few)] = 0
    data = (torch.tensor(x)[None] for x in (scores, labels, np.ones(100_000, dtype=bool)))
    value, gradient = value_and_gradient(lambda *x: lap_ndcg_loss(*x, temperature=0.1), *data)
    near = np.exp(-np.abs(scores[:, None] - scores[few]) / 0.1) / 2
    ranks = 0.5 + np.where(scores[:, None] < scores[few], near, 1 - near).sum(0)
    gains = 2 ** labels[few] - 1
    best = (np.sort(gains)[::-1] / np.log2(2 + np.arange(20))).sum()
    assert value.item() == pytest.approx(-(gains / np.log2(1 + ranks)).sum() / best, rel=1e-11)
    assert abs(gradient.sum().item()) < 1e-12  # a shift of all scores changes nothing
