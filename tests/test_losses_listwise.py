"""ApproxNDCG, ListMLE and position-aware ListMLE against their formulas and limits."""

import itertools
import math
from functools import partial

import pytest
import torch
from ragged import ragged, value_and_gradient

from ltr import losses
from ltr.errors import ConfigError
from ltr.losses import approx_ndcg_loss, listmle_loss, p_listmle_loss


@pytest.mark.parametrize("k", [None, 2])
def test_approxndcg_by_its_formula(k: int | None) -> None:
    scores, labels, mask = ragged()
    found = approx_ndcg_loss(scores, labels, mask, k=k, temperature=0.4, cut_slope=3.0)
    for n, real in enumerate(mask):
        s, y = scores[n][real].tolist(), labels[n][real].tolist()
        best = sum(
            (2**label - 1) / math.log2(1 + r)
            for r, label in enumerate(sorted(y, reverse=True)[:k], 1)
        )
        expected = 0.0
        for j in range(len(s)):
            others = [1 / (1 + math.exp((s[j] - s[i]) / 0.4)) for i in range(len(s)) if i != j]
            rank = 1 + sum(others)
            cut = 1 / (1 + math.exp(3.0 * (rank - k - 0.5))) if k else 1
            expected -= (2 ** y[j] - 1) * cut / math.log2(1 + rank) / best
        assert found[n].item() == pytest.approx(expected, abs=1e-12)


def test_approxndcg_of_an_empty_list_has_no_gradient() -> None:
    scores, _, mask = ragged()
    value, gradient = value_and_gradient(approx_ndcg_loss, scores, torch.zeros(3, 8), mask)
    assert value.tolist() == [0, 0, 0]
    assert (gradient == 0).all()


def plain_listmle(ordered: list[float], weights: list[float]) -> float:
    return sum(
        w * -math.log(math.exp(s) / sum(math.exp(q) for q in ordered[r:]))
        for r, (s, w) in enumerate(zip(ordered, weights, strict=True))
    )


def position_weights(n: int, weight: str) -> list[float]:
    if weight == "log2":
        return [1 / math.log2(1 + r) for r in range(1, n + 1)]
    return [(2 ** (n - r) - 1) / (2 ** (n - 1) - 1) for r in range(1, n + 1)]


@pytest.mark.parametrize("weight", [None, "exp2", "log2"])
def test_listmle_by_its_formula(weight: str | None) -> None:
    scores, _, mask = ragged()
    labels = torch.tensor([3.0, 7, 1, 0, 6, 2, 5, 4]).expand(3, 8)
    loss = partial(p_listmle_loss, weight=weight) if weight else listmle_loss
    found = loss(scores, labels, mask)
    for n, real in enumerate(mask):
        s = scores[n][real]
        ordered = s[labels[n][real].argsort(descending=True)].tolist()
        weights = position_weights(len(s), weight) if weight else [1.0] * len(s)
        assert found[n].item() == pytest.approx(plain_listmle(ordered, weights), abs=1e-12)


@pytest.mark.parametrize("loss", [listmle_loss, p_listmle_loss])
def test_a_shift_of_all_scores_costs_no_digits(loss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ltr.losses.listmle.kernels_apply", lambda scores: False)
    scores, _, mask = ragged(torch.float32)
    scores = (32 * scores).round() / 32  # exact near the shift too
    labels = torch.arange(8.0).expand(3, 8)
    for shift in (1e5, -1e5):
        found = value_and_gradient(loss, scores + shift, labels, mask)
        torch.testing.assert_close(found, value_and_gradient(loss, scores, labels, mask))


def test_p_listmle_stays_finite_on_the_longest_lists() -> None:
    scores = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(1000.0)[None]
    value, gradient = value_and_gradient(p_listmle_loss, scores, labels, labels >= 0)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_ties_are_drawn_evenly_among_the_orders_that_the_labels_allow() -> None:
    generator = torch.Generator().manual_seed(0)
    repeats = 6000
    scores = torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    found = listmle_loss(
        scores.expand(repeats, 4), torch.tensor([0.0, 1, 0, 0]).expand(repeats, 4),
        torch.ones(repeats, 4, dtype=torch.bool), generator=generator,
    )  # fmt: skip
    orders = [[1, *rest] for rest in itertools.permutations([0, 2, 3])]
    expected = [plain_listmle(scores[order].tolist(), [1.0] * 4) for order in orders]
    counts = [((found - value).abs() < 1e-9).sum().item() for value in expected]
    assert sum(counts) == repeats
    deviation = math.sqrt(repeats * 1 / 6 * 5 / 6)
    assert max(abs(count - repeats / 6) for count in counts) < 4 * deviation


@pytest.mark.parametrize("loss", [listmle_loss, p_listmle_loss])
def test_the_generator_draws_and_nothing_else(loss) -> None:
    data = ragged()
    before = torch.get_rng_state()
    same = [loss(*data, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 0)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(same[0], same[1])
    torch.manual_seed(0)
    assert torch.equal(loss(*data), same[2])
    assert len({loss(*data)[0].item() for _ in range(9)}) > 1


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        approx_ndcg_loss(*data, k=0)
    with pytest.raises(ConfigError, match=r"^temperature=0.0 is out of range: write a finite"):
        approx_ndcg_loss(*data, temperature=0.0)
    with pytest.raises(ConfigError, match=r"^cut_slope=0.0 is out of range: write a finite"):
        approx_ndcg_loss(*data, cut_slope=0.0)
    with pytest.raises(ConfigError, match=r"^weight=log is not known: choose one of exp2, log2$"):
        p_listmle_loss(*data, weight="log")


@pytest.mark.parametrize("name", [name for name in losses.__all__ if name.endswith("_loss")])
@pytest.mark.parametrize("teacher", [False, True])
def test_labels_and_a_teacher_are_constants(name: str, teacher: bool) -> None:
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, math.nan).requires_grad_()
    given = {"teacher": labels} if teacher and name == "distil_loss" else {}
    values = getattr(losses, name)(scores.requires_grad_(), labels, mask, **given)
    by_scores, by_labels = torch.autograd.grad(values.sum(), (scores, labels), allow_unused=True)
    assert by_scores.isfinite().all()
    assert by_labels is None
