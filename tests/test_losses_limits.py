"""As its temperature (or sigma) goes to 0, each soft loss becomes minus its exact metric."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from ragged import ragged
from torch import Tensor

from ltr import losses, metrics

ndcg = partial(metrics.ndcg, empty=0.0)
SHARP: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "neuralndcg": (partial(losses.neural_ndcg_loss, temperature=1e-4), ndcg),
    "neuralndcg_t": (partial(losses.neural_ndcg_loss, temperature=1e-4, transposed=True), ndcg),
    "neuralndcg stochastic": (
        partial(losses.neural_ndcg_loss, temperature=1e-4, stochastic=True, beta=1e-6),
        ndcg,
    ),
    "neuralndcg_t stochastic": (
        partial(
            losses.neural_ndcg_loss, temperature=1e-4, stochastic=True, beta=1e-6, transposed=True
        ),
        ndcg,
    ),
    "approxndcg": (partial(losses.approx_ndcg_loss, temperature=1e-4, cut_slope=100.0), ndcg),
    "lapndcg": (partial(losses.lap_ndcg_loss, temperature=1e-4, cut_slope=100.0), ndcg),
    "softndcg": (partial(losses.soft_ndcg_loss, sigma=1e-4), ndcg),
    "softndcg normalised": (partial(losses.soft_ndcg_loss, sigma=1e-4, normalise=True), ndcg),
    "otndcg": (partial(losses.ot_ndcg_loss, temperature=1e-5), ndcg),
    "softsortndcg": (partial(losses.softsort_ndcg_loss, temperature=1e-4), ndcg),
    "neuralmap": (
        partial(losses.neural_map_loss, temperature=1e-4),
        partial(metrics.map, empty=0.0),
    ),
    "neuralmap from label 2": (
        partial(losses.neural_map_loss, temperature=1e-4, relevant=2),
        partial(metrics.map, empty=0.0, relevant=2),
    ),
    "neuralmrr": (
        partial(losses.neural_mrr_loss, temperature=1e-4),
        partial(metrics.mrr, empty=0.0),
    ),
    "neuralprecision": (
        partial(losses.neural_precision_loss, temperature=1e-4),
        partial(metrics.precision, empty=0.0),
    ),
    "neuralerr": (
        partial(losses.neural_err_loss, temperature=1e-4, levels=6),
        partial(metrics.err, empty=0.0, levels=6),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("padding", [True, False], ids=["padding", "no padding"])
@pytest.mark.parametrize("k", [None, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99])
@pytest.mark.parametrize("loss", SHARP)
def test_the_limit_is_the_metric(loss: str, k: int | None, padding: bool) -> None:
    soft, exact = SHARP[loss]
    scores, labels, mask = ragged()
    labels = torch.stack([row.roll(3 * i) for i, row in enumerate(labels)])
    if padding:  # which is not read
        scores, labels = (x.masked_fill(~mask, torch.nan) for x in (scores, labels))
    else:
        mask = torch.ones_like(mask)
    # a fourth list, empty
    scores, mask = torch.cat([scores, scores[:1]]), torch.cat([mask, mask[:1]])
    labels = torch.cat([labels, 0 * labels[:1]])
    found = soft(scores, labels, mask, k=k)
    torch.testing.assert_close(-found, exact(scores, labels, mask, k=k), atol=1e-9, rtol=0)
    assert found[3].item() == 0
    assert (found[:3] < 0).any()


@pytest.mark.parametrize("loss", SHARP)
def test_the_limit_is_approached(loss: str) -> None:
    """Ten times sharper is nearer, unless both are exact."""
    soft, exact = SHARP[loss]
    knob = "sigma" if "sigma" in soft.keywords else "temperature"
    start = 0.01 if loss == "otndcg" else 1.0
    data = ragged()
    errors = []
    for softness in (start, start / 10, start / 100):
        # the same draws each time
        torch.manual_seed(0)
        found = soft(*data, k=3, **{knob: softness})
        errors.append((found + exact(*data, k=3)).abs().sum().item())
    assert errors[0] > errors[1] >= errors[2]
    assert errors[2] < 0.05
