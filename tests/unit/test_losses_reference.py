"""Every loss against its formula in NumPy, with every knob, at many sizes and extreme scores.

Losses that are defined over all rankings are compared with all rankings: SVM-MAP and SVM-NDCG find
the worst, and PL-Rank is unbiased. The isotonic targets of RankProp are the closest.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from ltr import losses, metrics
from ltr.testing.list_losses import loss_names
from ltr.testing.loss_properties import the_gradient_agrees_with_finite_differences
from ltr.testing.subject import HOLDS, Subject, judge
from tests.helpers import planted_faults
from tests.helpers import references as ref
from tests.helpers.loss_cases import LOSSES, TABLE
from tests.helpers.ragged import plain, random_lists, value_and_gradient

SIZES = (1, 2, 10, 300)
SCORES: dict[str, Callable[[np.random.Generator, int], ref.Array]] = {
    "usual": lambda rng, n: rng.normal(size=n),
    "up to 1e4": lambda rng, n: 1e4 * rng.normal(size=n),
    "all equal": lambda rng, n: np.full(n, 0.3),
    "1e-12 apart": lambda rng, n: 1e-12 * rng.permutation(n),
    "saturated tanh": lambda rng, n: np.tanh(20 * rng.normal(size=n)),
}
CASES = [
    pytest.param(name, knobs, id=" ".join([name, *(f"{k}={v}" for k, v in knobs.items())]))
    for name, (_, _, rows) in LOSSES.items()
    for knobs in rows
]
TURNED = [case for case in CASES if {"k": None} != case.values[1] != {}]


def check(name: str, loss: Callable[..., Any], knobs: dict[str, Any], size: int) -> None:
    """Assert that a loss is the formula of ``name`` at every kind of scores."""
    formula = LOSSES[name][1]
    rng = np.random.default_rng(size)
    for kind, draw in SCORES.items():
        if (
            name == "softndcg"
            and size == 300
            and (kind != "usual" or {"discount", "gain"} & {*knobs})
        ):
            continue  # O(n^3)
        s = draw(rng, size)
        y = rng.integers(0, 5, size).astype(float)
        y[0] = max(y[0], 1)
        if knobs.get("gain") == "linear":
            y *= 12.7  # real labels, too large for 2^y
        if "listmle" in name:  # the order of equal labels would be drawn
            y = rng.permutation(size).astype(float)
        # padding in front, between and behind
        mask = torch.ones(1, size + 3, dtype=torch.bool)
        mask[0, [0, 1 + size // 2, size + 2]] = False
        padded = [torch.full(mask.shape, torch.nan, dtype=torch.float64) for _ in (s, y)]
        for row, values in zip(padded, (s, y), strict=True):
            row[mask] = torch.from_numpy(values)
        value = loss(*padded, mask, **knobs).item()
        assert value == pytest.approx(float(formula(s, y, **knobs)), rel=1e-9, abs=1e-9), kind


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "knobs"), CASES)
def test_loss_equals_its_formula(name: str, knobs: dict[str, Any], size: int) -> None:
    check(name, LOSSES[name][0], knobs, size)


@pytest.mark.parametrize(("name", "knobs"), TURNED)
def test_loss_gradient_with_other_knobs_agrees_with_finite_differences(
    name: str, knobs: dict[str, Any]
) -> None:
    subject = Subject(partial(LOSSES[name][0], **knobs), grades=4)
    verdict = judge(the_gradient_agrees_with_finite_differences, subject)
    assert verdict.outcome == HOLDS, verdict


@pytest.mark.slow
@pytest.mark.parametrize("fault", planted_faults.OF_KNOBS)
def test_loss_formula_catches_planted_fault_of_knob(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fault.split()[0]
    wrong, patches = planted_faults.OF_KNOBS[fault]
    for target, value in patches.items():
        monkeypatch.setattr(target, value)
    caught = []
    for knobs in LOSSES[name][2]:
        try:
            check(name, wrong, knobs, 10)
        except AssertionError:
            caught.append(knobs)
    assert caught
    assert LOSSES[name][2][0] not in caught, "not with its knobs as they are"


def test_references_cover_every_loss() -> None:
    by_all_rankings = {"plrank", "svmmap", "svmndcg"}  # below
    assert {name.split()[0] for name in LOSSES} | by_all_rankings == set(loss_names())


def rankings(n: int) -> Tensor:
    """Return the rank of each item in every ranking of ``n`` items, ``[rankings, item]``."""
    return torch.tensor(list(itertools.permutations(range(1, n + 1))), dtype=torch.float64)


def small_lists() -> list[tuple[Tensor, Tensor]]:
    """Return scores and labels of lists of 1 to 6 items, some tied, some far apart."""
    generator = torch.Generator().manual_seed(1)
    lists = []
    for n in (1, 2, 3, 4, 5, 6, 6, 6):
        scores = torch.randn(n, dtype=torch.float64, generator=generator)
        labels = torch.randint(0, 4, (n,), generator=generator).double()
        lists += [(scores, labels), ((2 * scores).round(), labels), (0.05 * scores, labels)]
    return lists


def check_worst(
    loss: Callable[..., Tensor], scores: Tensor, labels: Tensor, objective: Tensor
) -> None:
    """Assert that value and subgradient are those of the largest ``objective``, ``[rankings]``.

    The objective is linear in the scores.
    """
    mask = torch.ones(1, len(scores), dtype=torch.bool)
    value, gradient = value_and_gradient(loss, scores[None], labels[None], mask)
    assert value.item() == pytest.approx(objective.max().item(), abs=1e-12)
    (slopes,) = torch.autograd.grad(objective.max(), scores)
    if (objective > objective.max() - 1e-9).sum() == 1:
        torch.testing.assert_close(gradient[0], slopes, atol=1e-12, rtol=0)


@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_svm_map_is_maximum_over_all_rankings(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    for scores, labels in small_lists():
        scores.requires_grad_()
        ranks = rankings(len(scores))
        relevant = labels >= 2
        signs = (ranks.unsqueeze(-1) < ranks.unsqueeze(-2)).double() * 2 - 1
        pairs = relevant.unsqueeze(-1) & ~relevant
        differences = (scores.unsqueeze(-1) - scores) * pairs / pairs.sum().clamp(min=1)
        exact = metrics.map(-ranks, labels.expand_as(ranks), ranks > 0, relevant=2)
        objective = 1 - exact + (signs * differences).sum((-2, -1)) - differences.sum()
        check_worst(partial(losses.svm_map_loss, relevant=2), scores, labels, objective)


each_gain = pytest.mark.parametrize("gain", ["exp2", "linear", TABLE], ids=str)


@each_gain
@pytest.mark.parametrize("k", [None, 1, 2, 4])
def test_svm_ndcg_is_maximum_over_all_rankings(k: int | None, gain: Any) -> None:
    for scores, labels in small_lists():
        n = len(scores)
        scores.requires_grad_()
        ranks = rankings(n)
        weight = (min(k or n, n) + 1 - ranks).clamp(min=0)
        means = (weight * scores).sum(-1) / weight[0].sum()
        exact = metrics.ndcg(-ranks, labels.expand_as(ranks), ranks > 0, k=k, gain=gain)
        ideal = means[exact > 1 - 1e-12].max()  # of the ideal orders, equal gains by score
        if k is not None:  # also below k they are ordered by gain
            item_gains = ref.gains(labels.numpy(), gain)
            order = sorted(range(n), key=lambda i: (-item_gains[i], -scores[i].detach()))
            ideal = (weight[0].sort(descending=True).values * scores[order]).sum() / weight[0].sum()
        loss = partial(losses.svm_ndcg_loss, k=k, gain=gain)
        check_worst(loss, scores, labels, 1 - exact + means - ideal)


def test_svm_ndcg_by_grades_equals_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, labels = (torch.rand(3, 40, generator=generator).double() for _ in range(2))
    labels[0] = (5 * labels[0]).floor()  # few grades beside many
    mask = torch.arange(40) < torch.tensor([[40], [40], [31]])
    results = []
    for max_grades in (0, 24, 1000):
        monkeypatch.setattr("ltr.losses.structured_hinge._MAX_GRADES", max_grades)
        leaf = scores.clone().requires_grad_()
        values = losses.svm_ndcg_loss(leaf, labels, mask, k=10, gain="linear")
        values.sum().backward()
        results.append(torch.cat([values.detach().unsqueeze(-1), leaf.grad], dim=-1))
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


@each_gain
@pytest.mark.parametrize("k", [None, 1, 3])
def test_lambdarank_weight_is_ndcg_change_of_swap(k: int | None, gain: Any) -> None:
    for scores, labels in small_lists():
        ranks = torch.from_numpy(ref.ranks(scores.numpy())).double()
        better, worse = (labels[:, None] > labels).nonzero(as_tuple=True)
        swapped = ranks.repeat(len(better) + 1, 1)  # a row for each pair; the last is not swapped
        pairs = torch.arange(len(better))
        swapped[pairs, better] = ranks[worse]
        swapped[pairs, worse] = ranks[better]
        mask = torch.ones_like(swapped, dtype=torch.bool)
        ndcg = metrics.ndcg(-swapped, labels.expand_as(swapped), mask, k=k, gain=gain)
        change = (ndcg[:-1] - ndcg[-1]).abs()
        total = (change * torch.logaddexp(torch.zeros(()), scores[worse] - scores[better])).sum()
        value = losses.lambdarank_loss(scores[None], labels[None], mask[:1], k=k, gain=gain)
        assert value.item() == pytest.approx(total.item(), abs=1e-12)


@pytest.mark.parametrize("path", ["function", "operator"])
def test_rankprop_isotonic_targets_are_closest(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "operator":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    lists = random_lists(3, torch.float64, size=12)
    scores, labels, mask = (x[lists[-1].any(-1)] for x in lists)
    values = losses.rankprop_loss(scores, labels, mask, targets="isotonic")
    for value, s, y, m in zip(values, scores.numpy(), labels.numpy(), mask.numpy(), strict=True):
        order = np.lexsort((-s[m], -y[m]))
        regression = IsotonicRegression(increasing=False)
        closest = regression.fit_transform(np.arange(m.sum()), s[m][order])
        assert value.item() == pytest.approx(np.square(s[m][order] - closest).mean(), abs=1e-12)
    scores[0, mask[0].nonzero()[0]] = torch.nan
    assert losses.rankprop_loss(scores, labels, mask, targets="isotonic").isnan().tolist() == [
        True, *[False] * (len(scores) - 1)
    ]  # fmt: skip


@each_gain
@pytest.mark.parametrize("k", [1, 2, 3, None])
def test_plrank_is_unbiased(k: int | None, gain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    temperature = 0.7
    scores = torch.tensor([0.4, -0.3, 1.1, 0.2], dtype=torch.float64)
    positions = rankings(4) - 1
    mask = torch.ones(24, 4, dtype=torch.bool)
    labels = torch.tensor([2.0, 0, 1, 1], dtype=torch.float64).expand(24, 4)
    m = (scores / temperature).requires_grad_()
    ranked = m[positions.argsort(-1)]
    log_z = ranked.flip(-1).logcumsumexp(-1).flip(-1)
    probabilities = (ranked - log_z).sum(-1).exp()  # of each ranking, by the Plackett-Luce model
    values = metrics.ndcg(-positions, labels, mask, k=k, gain=gain)
    expected = -(probabilities * values).sum()
    (slope,) = torch.autograd.grad(expected, m)

    # noise with which each copy of the list draws another of the rankings
    minus_gumbel = m.detach().log_softmax(-1) + positions
    noise = torch.exp(-torch.exp(minus_gumbel))[None]
    monkeypatch.setattr("ltr.losses.plrank.uniform_noise", lambda *_: noise)
    loss = partial(losses.plrank_loss, k=k, gain=gain, n_samples=1, temperature=temperature)
    value, gradient = value_and_gradient(loss, scores.expand(24, 4), labels, mask)
    torch.testing.assert_close(value, -values)
    gradients = gradient / torch.arange(1, 25).unsqueeze(-1)
    mean = (probabilities.detach().unsqueeze(-1) * gradients).sum(0)
    torch.testing.assert_close(mean, slope / temperature, atol=1e-12, rtol=1e-12)
