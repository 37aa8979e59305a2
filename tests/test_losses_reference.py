"""Every loss against its formula in NumPy, at many sizes and at extreme scores."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import references as ref
import torch

from ltr import losses
from ltr.checks.losses import loss_names

SIZES = (1, 2, 3, 10, 100, 500)
SCORES: dict[str, Callable[[np.random.Generator, int], ref.Array]] = {
    "usual": lambda rng, n: rng.normal(size=n),
    "up to 1e4": lambda rng, n: 1e4 * rng.normal(size=n),
    "all equal": lambda rng, n: np.full(n, 0.3),
    "1e-12 apart": lambda rng, n: 1e-12 * rng.permutation(n),
    "saturated tanh": lambda rng, n: np.tanh(20 * rng.normal(size=n)),
}


def soft(metric, permutation, softness: float, scale: bool = True):
    """A reference of a metric over a soft permutation; ``scale`` applies Sinkhorn."""

    def value(s, y, k):
        matrix = permutation(s, softness)
        return metric(ref.sinkhorn(matrix) if scale else matrix, y, k)

    return value


def transposed(s, y, k):
    """Equation 6: scaled as the transposed matrix, summed over the items."""
    d = ref.discount(np.arange(1, len(y) + 1)) * (np.arange(len(y)) < (k or len(y)))
    scaled = ref.sinkhorn(ref.neural_sort(s, 1.0).T)
    return -((2**y - 1) * (scaled @ d)).sum() / ref.max_dcg(y, k)


neural = partial(soft, permutation=ref.neural_sort, softness=1.0)
WITH_K = {
    "neuralndcg": (losses.neural_ndcg_loss, neural(ref.soft_ndcg)),
    "neuralndcg_t": (partial(losses.neural_ndcg_loss, transposed=True), transposed),
    "neuralmap": (losses.neural_map_loss, neural(ref.soft_map)),
    "neuralmrr": (losses.neural_mrr_loss, neural(ref.soft_mrr)),
    "neuralerr": (losses.neural_err_loss, neural(ref.soft_err)),
    "neuralprecision": (losses.neural_precision_loss, neural(ref.soft_precision)),
    "otndcg": (losses.ot_ndcg_loss, soft(ref.soft_ndcg, ref.ot_sort, 0.01, scale=False)),
    "softsortndcg": (losses.softsort_ndcg_loss, soft(ref.soft_ndcg, ref.soft_sort, 1.0)),
    "softndcg": (
        losses.soft_ndcg_loss,
        soft(ref.soft_ndcg, ref.rank_distribution, 1.0, scale=False),
    ),
    "approxndcg": (losses.approx_ndcg_loss, ref.approxndcg),
    "lapndcg": (losses.lap_ndcg_loss, ref.lapndcg),
    "sodeep": (losses.sodeep_loss, ref.sodeep),
    "ranknet": (losses.ranknet_loss, ref.ranknet),
    "lambdarank": (losses.lambdarank_loss, ref.lambdarank),
    "lambdarank both": (
        partial(losses.lambdarank_loss, pairs="both"),
        partial(ref.lambdarank, pairs="both"),
    ),
    **{
        f"lambdaloss {variant}": (
            partial(losses.lambda_loss, variant=variant),
            partial(ref.lambdaloss, variant=variant),
        )
        for variant in ("ndcg1", "ndcg2", "ndcg2++")
    },
}
WITHOUT_K = {
    "mix": (
        losses.mix_loss,
        lambda s, y: neural(ref.soft_ndcg)(s, y, None) + 0.3 * ref.listnet(s, y),
    ),
    "rankprop": (losses.rankprop_loss, ref.rankprop),
    "bce": (losses.bce_loss, ref.bce),
    "mse": (losses.mse_loss, ref.mse),
    "rmse": (losses.rmse_loss, ref.rmse),
    "ordinal": (losses.ordinal_loss, ref.ordinal),
    "distil": (losses.distil_loss, ref.distil),
    "distil lambdas": (
        partial(losses.distil_loss, cost="lambdarank"),
        partial(ref.distil, cost="lambdarank"),
    ),
    "listnet": (losses.listnet_loss, ref.listnet),
    "listmle": (losses.listmle_loss, ref.listmle),
    "p_listmle": (losses.p_listmle_loss, partial(ref.listmle, weight="exp2")),
    "p_listmle log2": (
        partial(losses.p_listmle_loss, weight="log2"),
        partial(ref.listmle, weight="log2"),
    ),
    **{
        f"{name} {knobs}".removesuffix(" {}"): (partial(loss, **knobs), partial(formula, **knobs))
        for name, loss, formula, choices in (
            (
                "ranksvm",
                losses.ranksvm_loss,
                ref.ranksvm,
                [{}, {"squared": True}, {"pair_weight": "ndcg_beta"}],
            ),
            ("rankboost", losses.rankboost_loss, ref.rankboost, [{}, {"pair_weight": "ndcg_beta"}]),
        )
        for knobs in choices
    },
}
CASES = {f"{name} k={k}": (partial(loss, k=k), partial(formula, k=k))
         for name, (loss, formula) in WITH_K.items() for k in (None, 5)} | WITHOUT_K  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_loss_is_its_formula(case: str, size: int) -> None:
    loss, formula = CASES[case]
    rng = np.random.default_rng(size)
    for kind, draw in SCORES.items():
        if case.startswith("softndcg") and size == 500 and kind not in ("usual", "saturated tanh"):
            continue  # O(n^3)
        s, y = draw(rng, size), rng.integers(0, 5, size).astype(float)
        y[0] = max(y[0], 1)
        if "listmle" in case:  # the order of equal labels would be drawn
            y = rng.permutation(size).astype(float)
        # padding in front, between and behind
        mask = torch.ones(1, size + 3, dtype=torch.bool)
        mask[0, [0, 1 + size // 2, size + 2]] = False
        padded = [torch.full(mask.shape, torch.nan, dtype=torch.float64) for _ in (s, y)]
        for row, values in zip(padded, (s, y), strict=True):
            row[mask] = torch.from_numpy(values)
        found = loss(*padded, mask).item()
        assert found == pytest.approx(float(formula(s, y)), rel=1e-9, abs=1e-9), kind


def test_every_loss_has_a_reference() -> None:
    by_all_rankings = {"plrank", "svmmap", "svmndcg"}  # test_plrank.py, test_structured_hinge.py
    assert {case.split()[0] for case in CASES} | by_all_rankings == set(loss_names())
