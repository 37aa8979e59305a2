"""The pairwise losses against their formulas, pair by pair."""

import itertools
import math
from functools import partial

import pytest
import torch
from ragged import ragged, value_and_gradient

from ltr.errors import ConfigError
from ltr.losses import (
    lambda_loss,
    lambdarank_loss,
    rankboost_loss,
    ranknet_loss,
    ranksvm_loss,
)
from ltr.losses.pairs import pair_weights
from ltr.metrics import dcg


def ranks_of(scores: list[float]) -> dict[int, int]:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return {item: r for r, item in enumerate(order, 1)}


def counted(rank: dict[int, int], i: int, j: int, k: int | None, pairs: str) -> bool:
    top = [r <= (k or 99) for r in (rank[i], rank[j])]
    return any(top) if pairs == "any" else all(top)


@pytest.mark.parametrize("pairs", ["any", "both"])
@pytest.mark.parametrize("k", [1, 2, 4, None])
def test_ranknet_is_the_sum_over_pairs(k: int | None, pairs: str) -> None:
    scores, labels, mask = ragged()
    value, gradient = value_and_gradient(
        partial(ranknet_loss, k=k, sigma=0.7, pairs=pairs), scores, labels, mask
    )
    for n, real in enumerate(mask):
        s, y = scores[n][real].tolist(), labels[n][real].tolist()
        rank = ranks_of(s)
        expected, slopes = 0.0, [0.0] * len(s)
        for i, j in itertools.permutations(range(len(s)), 2):
            if y[i] > y[j] and counted(rank, i, j, k, pairs):
                y_hat = 1 / (1 + math.exp(-0.7 * (s[i] - s[j])))
                expected -= math.log(y_hat)
                slopes[i] -= 0.7 * (1 - y_hat)
                slopes[j] += 0.7 * (1 - y_hat)
        assert value[n].item() == pytest.approx(expected, abs=1e-12)
        assert (gradient[n][real] / (n + 1)).tolist() == pytest.approx(slopes, abs=1e-12)


@pytest.mark.parametrize("gap", [50.0, 1e3, 1e4])
def test_ranknet_is_exact_at_any_difference(gap: float) -> None:
    labels = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    wrong = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(ranknet_loss, wrong, labels, labels >= 0)
    assert value.item() == pytest.approx(gap, rel=1e-14)
    assert gradient.tolist()[0] == pytest.approx([-1, 1], rel=1e-14)
    value, _ = value_and_gradient(ranknet_loss, -wrong, labels, labels >= 0)
    assert value.item() == pytest.approx(math.exp(-gap), rel=1e-12)


def test_ranknet_of_a_list_without_pairs_has_no_gradient() -> None:
    scores, _, mask = ragged()
    value, gradient = value_and_gradient(ranknet_loss, scores, torch.full((3, 8), 2.0), mask)
    assert value.tolist() == [0, 0, 0]
    assert (gradient == 0).all()


def pair_weight(variant: str, gain: tuple[float, float], rank: tuple[int, int], mu: float) -> float:
    def d(r: int) -> float:
        return 1 / math.log2(1 + r)

    distance = abs(rank[0] - rank[1])
    delta = d(distance) - d(distance + 1)
    rho = abs(d(rank[0]) - d(rank[1]))
    return {
        "ndcg1": gain[0] * d(rank[0]),
        "ndcg2": delta * (gain[0] - gain[1]),
        "ndcg2++": (rho + mu * delta) * (gain[0] - gain[1]),
    }[variant]


@pytest.mark.parametrize("pairs", ["any", "both"])
@pytest.mark.parametrize("k", [2, None])
@pytest.mark.parametrize("variant", ["ndcg1", "ndcg2", "ndcg2++"])
def test_lambdaloss_is_the_weighted_sum(variant: str, k: int | None, pairs: str) -> None:
    scores, labels, mask = ragged()
    found = lambda_loss(scores, labels, mask, variant=variant, k=k, sigma=1.3, mu=5.0, pairs=pairs)
    for n, real in enumerate(mask):
        s, y = scores[n][real].tolist(), labels[n][real].tolist()
        rank = ranks_of(s)
        best = sum(
            (2**label - 1) / math.log2(1 + r)
            for r, label in enumerate(sorted(y, reverse=True)[:k], 1)
        )
        expected = 0.0
        for i, j in itertools.permutations(range(len(s)), 2):
            either = variant == "ndcg1" and rank[i] <= (k or 99)
            if (y[i] > y[j] or either) and counted(rank, i, j, k, pairs):
                gain = ((2 ** y[i] - 1) / best, (2 ** y[j] - 1) / best)
                weight = pair_weight(variant, gain, (rank[i], rank[j]), mu=5.0)
                expected += weight * math.log(1 + math.exp(-1.3 * (s[i] - s[j])))
        assert found[n].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("fused", [True, False])
def test_ndcg_loss_1_bounds_the_ndcg_cost(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fused:
        monkeypatch.setattr("ltr.losses.lambdaloss.kernels_apply", lambda scores: False)
    generator = torch.Generator().manual_seed(0)
    for size in range(1, 11):
        shape = (2000, size)
        scores = torch.randn(shape, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 5, shape, generator=generator).double()
        mask = torch.ones(shape, dtype=torch.bool)
        best = dcg(labels, labels, mask)
        best = best.masked_fill(best == 0, 1)
        cost = ((2**labels - 1).sum(-1) - dcg(scores, labels, mask)) / best
        bound = lambda_loss(scores, labels, mask, variant="ndcg1") / math.log(2)
        assert (bound >= cost - 1e-12).all()


def test_ndcg_loss_1_of_two_items_alike() -> None:
    scores, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    found = lambda_loss(scores, labels, labels > 0, variant="ndcg1").item()
    first, second = 1.0, 1 / math.log2(1 + 2)
    above, below = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert found == pytest.approx((first * above + second * below) / (first + second), rel=1e-6)


def test_lambdaloss_without_mu_is_lambdarank() -> None:
    data = ragged()
    found = lambda_loss(*data, mu=1e-300)
    torch.testing.assert_close(found, lambdarank_loss(*data), atol=1e-14, rtol=0)


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        ranknet_loss(*data, k=0)
    with pytest.raises(ConfigError, match=r"^pairs=all is not known: choose one of any, both$"):
        ranknet_loss(*data, pairs="all")
    with pytest.raises(ConfigError, match=r"^sigma=0.0 is out of range: write a finite number"):
        ranknet_loss(*data, sigma=0.0)
    with pytest.raises(ConfigError, match=r"^variant=2 is not known: choose one of ndcg1, ndcg2"):
        lambda_loss(*data, variant="2")
    with pytest.raises(ConfigError, match=r"^mu=-1.0 is out of range: write a finite number"):
        lambda_loss(*data, mu=-1.0)
    with pytest.raises(ConfigError, match=r"^k=True is not a cutoff"):
        lambda_loss(*data, k=True)


# RankSVM and RankBoost


def ndcg_beta(scores: list[float], labels: list[float]) -> float:
    """Equation 12 of the RankNet report: an item counts its label times the items below it."""

    def dcg_beta(by: list[float]) -> float:
        order = sorted(range(len(by)), key=lambda i: -by[i])
        return sum(labels[i] * (len(by) - r) for r, i in enumerate(order, 1))

    return dcg_beta(scores) / dcg_beta(labels)


def ideal_dcg_beta(labels: list[float]) -> float:
    return sum(y * (len(labels) - r) for r, y in enumerate(sorted(labels, reverse=True), 1))


COSTS = {
    "hinge": (ranksvm_loss, lambda d: max(0.0, 1 - d)),
    "squared": (partial(ranksvm_loss, squared=True), lambda d: max(0.0, 1 - d) ** 2),
    "exponential": (rankboost_loss, lambda d: math.exp(-d)),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("pair_weight", [None, "ndcg_beta"])
def test_ranksvm_and_rankboost_are_sums_over_pairs(cost: str, pair_weight: str | None) -> None:
    loss, of_difference = COSTS[cost]
    scores, labels, mask = ragged()
    found = loss(scores, labels, mask, pair_weight=pair_weight)
    for n, real in enumerate(mask):
        s, y = scores[n][real].tolist(), labels[n][real].tolist()
        expected = 0.0
        for i, j in itertools.permutations(range(len(s)), 2):
            if y[i] > y[j]:
                tau = (y[i] - y[j]) / ideal_dcg_beta(y) if pair_weight else 1
                expected += tau * of_difference(s[i] - s[j])
        assert found[n].item() == pytest.approx(expected, abs=1e-12)


def test_weights_of_the_pairs_in_the_wrong_order_add_up_to_the_lost_ndcg_beta() -> None:
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, 0)
    weights = pair_weights(labels, mask, "ndcg_beta")
    wrong = scores.unsqueeze(-1) < scores.unsqueeze(-2)
    for n, real in enumerate(mask):
        lost = 1 - ndcg_beta(scores[n][real].tolist(), labels[n][real].tolist())
        assert (weights[n] * wrong[n]).sum().item() == pytest.approx(lost, abs=1e-14)
        for loss, _ in COSTS.values():
            bound = loss(scores, labels, mask, pair_weight="ndcg_beta")[n].item()
            assert bound >= lost


@pytest.mark.parametrize("gap", [29.0, 31.0, 1e4])
def test_rankboost_goes_on_as_its_tangent(gap: float) -> None:
    labels = torch.tensor([[1.0, 0.0]])
    wrong = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(rankboost_loss, wrong, labels, labels >= 0)
    slope = math.exp(min(gap, 30))
    assert value.item() == pytest.approx(slope * (1 + max(0, gap - 30)), rel=1e-13)
    assert gradient.tolist()[0] == pytest.approx([-slope, slope], rel=1e-13)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("fast", [True, False])
def test_only_pairs_of_some_weight_count(cost: str, fast: bool, monkeypatch) -> None:
    for module in ("ranksvm", "rankboost"):
        monkeypatch.setattr(f"ltr.losses.{module}.kernels_apply", lambda scores: fast)
    labels, mask = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    for far in (1e26, 3e38):  # the cost of the pair (j, i), and s_j - s_i itself, overflow
        value, gradient = value_and_gradient(
            COSTS[cost][0], torch.tensor([[far, -far]]), labels, mask
        )
        assert value.tolist() == [0]
        assert (gradient == 0).all()


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("wrong", ["ndcg", "null"])
def test_bad_pair_weight_ends_with_the_remedy(
    cost: str, fast: bool, wrong: str, monkeypatch
) -> None:
    for module in ("ranksvm", "rankboost"):
        monkeypatch.setattr(f"ltr.losses.{module}.kernels_apply", lambda scores: fast)
    with pytest.raises(ConfigError, match=rf"^pair_weight='{wrong}' is not known: write .*None"):
        COSTS[cost][0](*ragged(), pair_weight=wrong)


@pytest.mark.parametrize(
    "loss",
    [
        partial(ranknet_loss, sigma=0.7),
        partial(ranknet_loss, k=2, pairs="both"),
        partial(lambdarank_loss, sigma=2.0),
        partial(lambdarank_loss, k=2),
        lambda_loss,
        partial(lambda_loss, variant="ndcg1", k=3),
    ],
)
def test_value_and_slope_in_one_pass_are_those_of_the_kernels(loss, monkeypatch) -> None:
    data = ragged()
    expected = value_and_gradient(loss, *data)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # off the CPU
    for found, wanted in zip(value_and_gradient(loss, *data), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-10)
