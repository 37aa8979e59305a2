"""Every loss beside its formula in NumPy, and the knobs with which it is tried."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ltr import losses
from ltr.losses.mix import losses_by_name
from ltr.testing.list_losses import import_function, loss_config
from tests.helpers import references as ref
from tests.helpers.ragged import ragged

CUT: list[dict[str, Any]] = [{"k": None}, {"k": 5}]
TABLE = [0, 1, 1, 5, 9]
GAINED: list[dict[str, Any]] = [*CUT, {"gain": "linear"}, {"k": 4, "gain": TABLE}]
SHARP: list[dict[str, Any]] = [*GAINED, {"k": 4, "temperature": 0.4}]
SLOPED: list[dict[str, Any]] = [*GAINED, {"k": 4, "temperature": 0.4, "cut_slope": 3.0}]
RELEVANT: list[dict[str, Any]] = [*CUT, {"k": 4, "temperature": 0.4, "relevant": 2}]
LOGISTIC: list[dict[str, Any]] = [{"k": 4, "sigma": 0.7}, {"k": 5, "pairs": "both"}]
MEAN = [{"pair_weight": "mean"}]
# name: the loss, its formula, and settings of knobs that both take
LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[dict[str, Any]]]] = {
    "neuralndcg": (losses.neural_ndcg_loss, partial(ref.neural, ref.soft_ndcg),
                   [*SHARP, {"max_iter": 2}]),
    "neuralndcg_t": (partial(losses.neural_ndcg_loss, transposed=True), ref.neuralndcg_t, SHARP),
    "neuralmap": (losses.neural_map_loss, partial(ref.neural, ref.soft_map), RELEVANT),
    "neuralmrr": (losses.neural_mrr_loss, partial(ref.neural, ref.soft_mrr), RELEVANT),
    "neuralerr": (losses.neural_err_loss, partial(ref.neural, ref.soft_err),
                  [*CUT, {"k": 4, "temperature": 0.4, "levels": 7}]),
    "neuralprecision": (losses.neural_precision_loss, partial(ref.neural, ref.soft_precision),
                        RELEVANT),
    "otndcg": (losses.ot_ndcg_loss, ref.otndcg, [*GAINED, {"k": 4, "temperature": 0.1}]),
    "networkndcg": (losses.network_ndcg_loss, ref.networkndcg,
                    [*GAINED, {"k": 4, "temperature": 0.4, "network": "odd_even"},
                     *({"distribution": x} for x in ("reciprocal", "optimal", "logistic"))]),
    "softsortndcg": (losses.softsort_ndcg_loss, ref.softsortndcg, [*SHARP, {"max_iter": 2}]),
    "softndcg": (losses.soft_ndcg_loss, ref.softndcg,
                 [*GAINED, {"sigma": 0.4, "discount": "linear"}, {"k": 4, "discount": "linear"},
                  {"k": 4, "discount": "sqrt_log2", "normalise": True}]),
    "approxndcg": (losses.approx_ndcg_loss, ref.approxndcg, SLOPED),
    "lapndcg": (losses.lap_ndcg_loss, ref.lapndcg, SLOPED),
    "sodeep": (losses.sodeep_loss, ref.sodeep, [*GAINED, {"k": 4, "cut_slope": 3.0}]),
    "ranknet": (losses.ranknet_loss, ref.ranknet,
                [*CUT, *LOGISTIC, {"pair_weight": "ndcg_beta"}, *MEAN,
                 *({"k": 4, "pairs": pairs, **MEAN[0]} for pairs in ("any", "both"))]),
    "lambdarank": (losses.lambdarank_loss, ref.lambdarank, [*GAINED, *LOGISTIC]),
    **{
        f"lambdaloss {variant}": (
            partial(losses.lambda_loss, variant=variant), partial(ref.lambdaloss, variant=variant),
            [*GAINED, {"k": 4, "sigma": 0.7, "mu": 5.0, "pairs": "both"}],
        )
        for variant in ("ndcg1", "ndcg2", "ndcg2++")
    },
    "mix": (losses.mix_loss,
            lambda s, y: ref.neural(ref.soft_ndcg, s, y) + 0.3 * ref.listnet(s, y), [{}]),
    "rankprop": (losses.rankprop_loss, ref.rankprop, [{}]),
    "bce": (losses.bce_loss, ref.bce, [{}, {"relevant": 2}]),
    "mse": (losses.mse_loss, ref.mse, [{}]),
    "rmse": (losses.rmse_loss, ref.rmse, [{}, {"levels": 7}]),
    "ordinal": (losses.ordinal_loss, ref.ordinal, [{}, {"levels": 7, "sigma": 1.5}]),
    "distil": (losses.distil_loss, ref.distil, [{}, {"cost": "lambdarank"}, {"temperature": 2.0}]),
    "listnet": (losses.listnet_loss, ref.listnet, [{}]),
    "listmle": (losses.listmle_loss, ref.listmle, [{}]),
    "p_listmle": (losses.p_listmle_loss, partial(ref.listmle, weight="exp2"),
                  [{}, {"weight": "log2"}]),
    "ranksvm": (losses.ranksvm_loss, ref.ranksvm,
                [{}, {"squared": True}, {"pair_weight": "ndcg_beta"}, *MEAN]),
    "rankboost": (losses.rankboost_loss, ref.rankboost, [{}, {"pair_weight": "ndcg_beta"}, *MEAN]),
}  # fmt: skip
ROWS: dict[str, list[dict[str, Any]]] = {name: rows for name, (_, _, rows) in LOSSES.items()}
SCALINGS: list[dict[str, Any]] = [
    {"temperature": 1e-3},
    {"temperature": 30.0},
    {"max_iter": 1},
    {"max_iter": 2, "tol": 0.0},
    {"tol": 0.0},
    {"tol": 0.1},
    {"max_iter": 200, "tol": 1e-12, "temperature": 0.3},
]
MORE: dict[str, list[dict[str, Any]]] = {
    "neuralndcg": [*SCALINGS, {"stochastic": True}],
    "neuralndcg_t": SCALINGS,
    "softsortndcg": [{"max_iter": 1}, {"max_iter": 300, "tol": 1e-3}],
    "svmmap": [{}, {"relevant": 3}],
    "svmndcg": [{}, {"k": 1}, {"k": 7}],
}
CHOICES = {  # knob: values with which every property of a loss is tested
    **{"variant": ["ndcg1", "ndcg2"], "weight": ["log2"], "pair_weight": ["mean", "ndcg_beta"]},
    **{"discount": ["sqrt_log2", "linear"], "pairs": ["both"], "targets": ["isotonic"]},
}
ABOVE_0 = "write a finite number above 0$"
AN_INTEGER = "write an integer >= 1$"
WRONG: dict[str, tuple[list[Any], str]] = {  # knob: the values it refuses, and the remedy
    "k": ([0, -1, 2.5, True], "is not a cutoff rank: write an integer k >= 1"),
    **dict.fromkeys(("temperature", "sigma", "cut_slope", "mu", "beta"), ([0.0, -1.0], ABOVE_0)),
    "relevant": ([0], ABOVE_0),
    **dict.fromkeys(("max_iter", "n_samples"), ([0, 2.5, True], AN_INTEGER)),
    "tol": ([-1.0, math.nan], "write a number >= 0$"),
    "alpha": ([-0.1, 2], "write a number from 0 to 1$"),
    "levels": ([0], "write a"),
    "pairs": (["all"], "choose one of any, both$"),
    "variant": (["2"], "choose one of ndcg1, ndcg2"),
    "weight": (["log"], "choose one of exp2, log2$"),
    "discount": (["flat"], "choose one of log2, sqrt_log2, linear$"),
    "targets": (["grades"], "choose one of ranks, isotonic$"),
    "gain": (["exp", [0], [0, 2, 1]], "write the gains of the grades"),
    "cost": (["hinge"], "choose one of listnet, lambdarank$"),
    "pair_weight": (["ndcg", "null"], "write .*None"),
}
CASES = [(name, knobs) for rows in (ROWS, MORE) for name in rows for knobs in rows[name]]
NO_KERNEL: list[tuple[str, dict[str, Any]]] = [
    ("plrank", {}),
    ("rankprop", {"targets": "isotonic"}),
]
NUMBERS = {"temperature", "max_iter", "tol", "sigma", "mu"}  # which choose no other code
EVERY = [case for case in CASES + NO_KERNEL if not case[1].keys() & NUMBERS]
MIXED = ("mix", {"parts": {"neuralndcg": 1.0, "ranknet": 0.3, "listmle": 0.1}})


def bind_loss(name: str, knobs: dict[str, Any]) -> partial[Tensor]:
    """The loss of this name with these knobs."""
    loss = LOSSES[name][0] if name in LOSSES else losses_by_name()[name]
    return partial(loss, **knobs)


def default_loss(name: str) -> partial[Tensor]:
    """The loss of ``configs/loss/NAME.yaml`` with two steps of its Sinkhorn scaling, if any."""
    config = loss_config(name)
    few_steps = {"max_iter": 2} if "max_iter" in config.values else {}
    return partial(import_function(config.target), **{**config.values, **few_steps})


def draws(loss: partial[Tensor]) -> bool:
    """Whether the loss draws random numbers."""
    state = torch.get_rng_state()
    loss(*ragged())
    return not torch.equal(torch.get_rng_state(), state)
