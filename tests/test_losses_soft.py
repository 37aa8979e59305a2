"""The losses made of a soft permutation and a metric: their limits and their formulas."""

import math
from functools import partial

import pytest
import torch
from ragged import ragged, value_and_gradient

from ltr.errors import ConfigError
from ltr.losses import neural_ndcg_loss, ot_ndcg_loss, soft_ndcg_loss, softsort_ndcg_loss
from ltr.metrics import ndcg
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
@pytest.mark.parametrize("k", [None, 1, 2, 3, 5, 99])
def test_the_limit_is_ndcg(loss: str, k: int | None) -> None:
    data = ragged()
    torch.testing.assert_close(-SHARP[loss](*data, k=k), ndcg(*data, k=k), atol=1e-9, rtol=0)


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
    with pytest.raises(ConfigError, match=r"^n_samples=0 draws nothing: write an integer >= 1$"):
        neural_ndcg_loss(*data, stochastic=True, n_samples=0)
