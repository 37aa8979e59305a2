"""What is defined over all rankings: SVM-MAP and SVM-NDCG find the worst, PL-Rank-3 has no bias.

And the isotonic targets of RankProp are the closest.
"""

import itertools

import numpy as np
import pytest
import torch
from ragged import random_lists, value_and_gradient
from sklearn.isotonic import IsotonicRegression
from test_fast_paths import plain
from torch import Tensor

from ltr import metrics
from ltr.losses import plrank_loss, rankprop_loss, svm_map_loss, svm_ndcg_loss


def rankings(n: int) -> Tensor:
    """The rank of each item in every ranking of ``n`` items, ``[rankings, item]``."""
    return torch.tensor(list(itertools.permutations(range(1, n + 1))), dtype=torch.float64)


def small_lists() -> list[tuple[Tensor, Tensor]]:
    """Scores and labels of lists of 1 to 6 items, some tied, some far apart."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for n in (1, 2, 3, 4, 5, 6, 6, 6):
        scores = torch.randn(n, dtype=torch.float64, generator=generator)
        labels = torch.randint(0, 4, (n,), generator=generator).double()
        found += [(scores, labels), ((2 * scores).round(), labels), (0.05 * scores, labels)]
    return found


def slope_is_of_the_worst(found: tuple[Tensor, Tensor], worth: Tensor, scores: Tensor) -> None:
    """Value and subgradient of the largest of ``worth``, linear in the scores, [rankings]."""
    value, gradient = found
    assert value.item() == pytest.approx(worth.max().item(), abs=1e-12)
    (slopes,) = torch.autograd.grad(worth.max(), scores)
    if (worth > worth.max() - 1e-9).sum() == 1:
        torch.testing.assert_close(gradient[0], slopes, atol=1e-12, rtol=0)


@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_svm_map_is_the_largest_of_all_rankings(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    for scores, labels in small_lists():
        ranks = rankings(len(scores))
        scores = scores.requires_grad_()
        good = labels >= 2
        in_front = (ranks.unsqueeze(-1) < ranks.unsqueeze(-2)).double() * 2 - 1
        pairs = good.unsqueeze(-1) & ~good
        if not pairs.any():
            assert svm_map_loss(scores[None], labels[None], pairs[:1] == pairs[:1], relevant=2) == 0
            continue
        apart = (scores.unsqueeze(-1) - scores) * pairs / pairs.sum()
        mask = torch.ones_like(ranks, dtype=torch.bool)
        exact = metrics.map(-ranks, labels.expand_as(ranks), mask, relevant=2)
        worth = 1 - exact + (in_front * apart).sum((-2, -1)) - apart.sum()
        data = scores.detach()[None], labels[None], mask[:1]
        found = value_and_gradient(lambda *x: svm_map_loss(*x, relevant=2), *data)
        slope_is_of_the_worst(found, worth, scores)


@pytest.mark.parametrize("k", [None, 1, 2, 4])
def test_svm_ndcg_is_the_largest_of_all_rankings(k: int | None) -> None:
    for scores, labels in small_lists():
        n = len(scores)
        ranks, scores = rankings(n), scores.requires_grad_()
        mask = torch.ones_like(ranks, dtype=torch.bool)
        weight = (min(k or n, n) + 1 - ranks).clamp(min=0)
        means = (weight * scores).sum(-1) / weight[0].sum()
        exact = metrics.ndcg(-ranks, labels.expand_as(ranks), mask, k=k)
        ideal = means[exact > 1 - 1e-12].max()  # of the ideal orders, equal labels by score
        if k is not None:  # also below k they stand by label
            order = sorted(range(n), key=lambda i: (-labels[i], -scores[i].detach()))
            ideal = (weight[0].sort(descending=True).values * scores[order]).sum() / weight[0].sum()
        worth = 1 - exact + means - ideal
        found = value_and_gradient(
            lambda *x: svm_ndcg_loss(*x, k=k), scores.detach()[None], labels[None], mask[:1]
        )
        if not labels.any():
            assert found[0].item() == 0
            continue
        slope_is_of_the_worst(found, worth, scores)


@pytest.mark.parametrize("path", ["scipy", "plain"])
def test_isotonic_targets_are_the_closest(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    scores, labels, mask = random_lists(3, torch.float64, size=12)
    found = rankprop_loss(scores, labels, mask, targets="isotonic")
    for value, s, y, m in zip(found, scores.numpy(), labels.numpy(), mask.numpy(), strict=True):
        order = np.lexsort((-s[m], -y[m]))
        closest = IsotonicRegression(increasing=False).fit_transform(
            np.arange(m.sum()), s[m][order]
        ) if m.any() else s[m]  # fmt: skip
        expected = np.square(s[m][order] - closest).sum() / max(1, m.sum())
        assert value.item() == pytest.approx(expected, abs=1e-12)


SCORES = torch.tensor([0.4, -0.3, 1.1, 0.2], dtype=torch.float64)
LABELS = torch.tensor([2.0, 0.0, 1.0, 1.0], dtype=torch.float64)
RANKINGS = rankings(4).long() - 1


def chances(m: Tensor) -> Tensor:
    """The Plackett-Luce model's chance of each of ``RANKINGS``."""
    ranked = m[RANKINGS]
    left = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    return (ranked - left).sum(-1).exp()


@pytest.mark.parametrize("k", [1, 2, 3, None])
def test_pl_rank_has_no_bias(k: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    places = RANKINGS.argsort(-1).double()
    temperature, mask = 0.7, torch.ones(24, 4, dtype=torch.bool)
    m = (SCORES / temperature).requires_grad_()
    values = metrics.ndcg(-places, LABELS.expand(24, 4), mask, k=k)
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
