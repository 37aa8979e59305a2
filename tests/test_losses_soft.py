"""The losses made of a soft permutation and a metric: their limits and their formulas."""

import math
from functools import partial

import pytest
import torch
from ragged import ragged, value_and_gradient

from ltr.errors import ConfigError
from ltr.losses import (
    neural_err_loss,
    neural_map_loss,
    neural_mrr_loss,
    neural_ndcg_loss,
    neural_precision_loss,
    ot_ndcg_loss,
    soft_ndcg_loss,
    softsort_ndcg_loss,
)
from ltr.relaxations import rank_distribution, sinkhorn

SHARP = {
    "otndcg": partial(ot_ndcg_loss, temperature=1e-5),
    "softsortndcg": partial(softsort_ndcg_loss, temperature=1e-4),
    "softndcg": partial(soft_ndcg_loss, sigma=1e-4),
    "softndcg normalised": partial(soft_ndcg_loss, sigma=1e-4, normalise=True),
    "stochastic": partial(neural_ndcg_loss, stochastic=True, temperature=1e-4, beta=1e-6),
    "stochastic transposed": partial(
        neural_ndcg_loss, stochastic=True, temperature=1e-4, beta=1e-6, transposed=True
    ),
}


@pytest.mark.parametrize("loss", SHARP)
def test_an_empty_list_has_no_gradient(loss: str) -> None:
    scores, _, mask = ragged()
    value, gradient = value_and_gradient(SHARP[loss], scores, torch.zeros(3, 8), mask)
    assert value.tolist() == [0, 0, 0]
    assert (gradient == 0).all()


def test_stochastic_neuralndcg_is_the_mean_over_draws() -> None:
    data = ragged()

    def draw(n: int, generator: torch.Generator) -> torch.Tensor:
        return neural_ndcg_loss(*data, stochastic=True, n_samples=n, generator=generator)

    assert torch.equal(
        draw(5, torch.Generator().manual_seed(7)), draw(5, torch.Generator().manual_seed(7))
    )
    generator = torch.Generator().manual_seed(0)
    single = torch.stack([draw(1, generator) for _ in range(300)])
    many = draw(300, torch.Generator().manual_seed(1))
    assert (single.std(0) > 1e-3).all()
    error = single.std(0) * math.sqrt(2 / 300)
    assert ((many - single.mean(0)).abs() < 4 * error).all()


DISCOUNTS = {
    "log2": lambda r, n: 1 / math.log2(1 + r),
    "sqrt_log2": lambda r, n: 1 / math.sqrt(math.log2(1 + r)),
    "linear": lambda r, n: 1 - (r - 1) / n,
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("discount", DISCOUNTS)
def test_softndcg_is_the_expected_discount(discount: str, k: int | None, normalise: bool) -> None:
    scores, labels, mask = ragged()
    found = soft_ndcg_loss(
        scores, labels, mask, sigma=0.5, k=k, discount=discount, normalise=normalise
    )
    soft = rank_distribution(scores, mask, sigma=0.5)
    soft = sinkhorn(soft, mask) if normalise else soft
    for i, real in enumerate(mask):
        gains = [2**y - 1 for y in labels[i][real].tolist()]
        n = len(gains)
        d = [DISCOUNTS[discount](r, n) if r <= (k or n) else 0.0 for r in range(1, n + 1)]
        best = sum(g * x for g, x in zip(sorted(gains, reverse=True), d, strict=True))
        columns = soft[i][:n][:, real].T.tolist()
        expected = sum(
            g * sum(p * x for p, x in zip(column, d, strict=True))
            for g, column in zip(gains, columns, strict=True)
        )
        assert found[i].item() == pytest.approx(-expected / best, abs=1e-12)


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    with pytest.raises(ConfigError, match=r"^discount=flat is not known: choose one of log2, sqrt"):
        soft_ndcg_loss(*data, discount="flat")
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        ot_ndcg_loss(*data, k=0)
    with pytest.raises(ConfigError, match=r"^n_samples=0 is out of range: write an integer >= 1$"):
        neural_ndcg_loss(*data, stochastic=True, n_samples=0)


# Other metrics. The references are written on one list in its exact order.


def top_of(ordered: list[float], k: int | None) -> list[tuple[int, float]]:
    return list(enumerate(ordered, 1))[:k]


def precision(ordered: list[float], k: int | None, relevant: float) -> float:
    return sum(y >= relevant for _, y in top_of(ordered, k)) / (k or len(ordered))


def reciprocal_rank(ordered: list[float], k: int | None, relevant: float) -> float:
    return next((1 / r for r, y in top_of(ordered, k) if y >= relevant), 0.0)


def average_precision(ordered: list[float], k: int | None, relevant: float) -> float:
    hits = [r for r, y in top_of(ordered, k) if y >= relevant]
    all_hits = sum(y >= relevant for y in ordered)
    return sum(n / r for n, r in enumerate(hits, 1)) / max(1, all_hits)


def expected_reciprocal_rank(ordered: list[float], k: int | None, levels: float) -> float:
    found, unsatisfied = 0.0, 1.0
    for r, y in top_of(ordered, k):
        satisfied = (2**y - 1) / 2 ** (levels - 1)
        found += unsatisfied * satisfied / r
        unsatisfied *= 1 - satisfied
    return found


METRICS = {
    "precision": (neural_precision_loss, precision, {"relevant": [1, 2, 3]}),
    "mrr": (neural_mrr_loss, reciprocal_rank, {"relevant": [1, 2, 3]}),
    "map": (neural_map_loss, average_precision, {"relevant": [1, 2, 3]}),
    "err": (neural_err_loss, expected_reciprocal_rank, {"levels": [5, 7]}),
}


@pytest.mark.parametrize("k", [None, 1, 2, 3, 5, 99])
@pytest.mark.parametrize("metric", METRICS)
def test_the_limit_is_the_metric(metric: str, k: int | None) -> None:
    loss, exact, knobs = METRICS[metric]
    scores, labels, mask = ragged()
    labels = labels * torch.tensor([[1.0], [1.0], [0.0]])  # the last list is empty
    (knob, values), *_ = knobs.items()
    for value in values:
        found = loss(scores, labels, mask, k=k, temperature=1e-4, **{knob: value})
        for n, real in enumerate(mask):
            order = scores[n][real].argsort(descending=True)
            expected = exact(labels[n][real][order].tolist(), k, value)
            assert found[n].item() == pytest.approx(-expected, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_a_list_without_a_relevant_item_has_no_gradient(metric: str) -> None:
    scores, _, mask = ragged()
    value, gradient = value_and_gradient(METRICS[metric][0], scores, torch.zeros(3, 8), mask)
    assert value.tolist() == [0, 0, 0]
    assert (gradient == 0).all()


def test_the_formulas_at_a_high_temperature() -> None:
    """Every rank holds 2 of 4 relevant items, or the mean chance."""
    scores, mask = torch.randn(1, 4, dtype=torch.float64), torch.ones(1, 4, dtype=torch.bool)
    labels = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    found = {
        metric: -loss(scores, labels, mask, k=3, temperature=1e9).item()
        for metric, (loss, _, _) in METRICS.items()
    }
    c = (1 / 2**4) / 2
    assert found["precision"] == pytest.approx(3 * 0.5 / 3)
    assert found["mrr"] == pytest.approx(0.5 + 0.5**2 / 2 + 0.5**3 / 3)
    assert found["map"] == pytest.approx((0.5 * 1 + 0.5 * 1.5 / 2 + 0.5 * 2 / 3) / 2)
    assert found["err"] == pytest.approx(c + c * (1 - c) / 2 + c * (1 - c) ** 2 / 3)


@pytest.mark.parametrize("metric", METRICS)
def test_bad_knobs_of_the_metrics_end_with_the_remedy(metric: str) -> None:
    loss, _, knobs = METRICS[metric]
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        loss(*ragged(), k=0)
    (knob, _), *_ = knobs.items()
    with pytest.raises(ConfigError, match=rf"^{knob}=0 is out of range: write a finite"):
        loss(*ragged(), **{knob: 0})
