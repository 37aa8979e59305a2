"""One battery over every loss in ``configs/loss/``, then what each loss promises by itself."""

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import torch
from ragged import ragged, value_and_gradient
from torch import Tensor

from ltr import metrics
from ltr.battery import DOES_NOT_APPLY, GOES_TO, HOLDS, LOSS_PROPERTIES, Subject, judge
from ltr.checks.functions import imported
from ltr.checks.losses import loss_config
from ltr.errors import ConfigError
from ltr.losses import (
    lambdarank_loss,
    listnet_loss,
    mean_over_batch,
    neural_ndcg_loss,
    rmse_loss,
)
from ltr.losses.batch import counted_lists
from ltr.losses.mix import OF_RUN, losses_by_name

CHOICES = {
    "variant": ["ndcg1", "ndcg2"],
    "weight": ["log2"],
    "pair_weight": ["ndcg_beta"],
    "discount": ["sqrt_log2", "linear"],
    "pairs": ["both"],
    "targets": ["isotonic"],
}
VARIANTS: dict[str, dict[str, Any]] = {"neuralndcg_t": {"transposed": True}}
CONFIGS = sorted((Path(__file__).parents[1] / "configs" / "loss").glob("*.yaml"))


def read_config(path: Path) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """The function and the knobs of a loss config."""
    config = loss_config(path.stem)
    return imported(config.target), config.values()


def variants() -> list[Any]:
    """Every loss as configured, and with a cutoff and each switch turned where it has them."""
    found = []
    as_configured = [read_config(path) for path in CONFIGS]
    for path, (loss, knobs) in zip(CONFIGS, as_configured, strict=True):
        changes: list[dict[str, Any]] = [{}]
        changes += [{"k": 3}] if "k" in knobs else []
        changes += [{knob: not on} for knob, on in knobs.items() if isinstance(on, bool)]
        changes += [{knob: value} for knob in knobs for value in CHOICES.get(knob, [])]
        for change in changes:
            name = "-".join([path.stem, *(f"{knob}={value}" for knob, value in change.items())])
            changed = {**knobs, **change}
            if not change or (loss, changed) not in as_configured:  # another config may be that
                found.append(pytest.param(partial(loss, **changed), id=name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_names_its_paper_and_holds_every_knob_with_its_default(path: Path) -> None:
    lines = path.read_text().splitlines()
    title = lines[1] if lines[0] == "# @package _global_" else lines[0]
    assert title.startswith("# ")
    assert "_partial_: true" in [line.strip() for line in lines]
    loss, knobs = read_config(path)
    assert loss.__name__.endswith("_loss")
    name, stem = loss.__name__.replace("_", ""), path.stem
    if path.stem in VARIANTS:
        stem = stem.rpartition("_")[0]
    assert name.removesuffix("loss") == stem.replace("_", "").removesuffix("loss")
    parameters = list(inspect.signature(loss).parameters.values())
    assert [p.name for p in parameters[:3]] == ["scores", "labels", "mask"]
    assert {p.kind for p in parameters[3:]} <= {inspect.Parameter.KEYWORD_ONLY}
    # a generator is no setting: it is made by who calls
    defaults = {p.name: p.default for p in parameters[3:] if p.name not in OF_RUN}
    if path.stem in VARIANTS:
        defaults |= VARIANTS[path.stem]
    if "parts" in knobs:  # the names of others stand there with the weight 0
        assert set(knobs["parts"]) == set(losses_by_name())
        knobs["parts"] = {name: weight for name, weight in knobs["parts"].items() if weight}
    assert knobs == defaults


@pytest.mark.slow
@pytest.mark.parametrize("loss", variants())
def test_battery(loss: partial[Tensor]) -> None:
    subject = Subject(loss, metric=GOES_TO.get(loss.func.__name__))
    wrong = []
    for prop in LOSS_PROPERTIES:
        verdict = judge(prop, subject)
        expected = HOLDS if applies(prop.__name__, loss) else DOES_NOT_APPLY
        if verdict.outcome != expected or (expected == DOES_NOT_APPLY and not verdict.seen):
            wrong.append(verdict)
    assert not wrong


def applies(prop: str, loss: partial[Tensor]) -> bool:
    """Whether a property means something for a loss, from what is known of our losses."""
    name, knobs = loss.func.__name__, loss.keywords
    normalised = {
        *("neural_ndcg", "approx_ndcg", "lap_ndcg", "soft_ndcg", "ot_ndcg", "softsort_ndcg"),
        "plrank",
    }
    with_metric = normalised | {"neural_map", "neural_mrr", "neural_err", "neural_precision"}
    known = name.removesuffix("_loss")
    return {
        "a_cutoff_below_1_is_refused": "k" in knobs,
        "a_cutoff_beyond_the_list_is_none": "k" in knobs,
        "the_cutoff_is_honoured": "k" in knobs,
        "the_best_order_is_the_bound_at_every_cutoff": known in normalised,
        "the_sharp_limit_is_minus_the_metric": known in with_metric
        and knobs.get("discount", "log2") == "log2",
        "what_is_drawn_comes_from_the_generator": draws(known, knobs),
        "the_order_of_the_items_means_nothing_on_average_over_draws": draws(known, knobs),
    }.get(prop, True)


def draws(name: str, knobs: dict[str, Any]) -> bool:
    return name in ("listmle", "p_listmle", "plrank") or bool(knobs.get("stochastic"))


def test_losses_and_metrics_take_the_same_labels_for_relevant() -> None:
    scores, labels, mask = ragged()
    given = scores.float(), labels.float(), mask
    above = 1.00000001  # float32 has no number between it and 1
    for loss in losses_by_name().values():
        if "relevant" in inspect.signature(loss).parameters:
            assert torch.equal(loss(*given, relevant=above), loss(*given, relevant=2))
            assert not torch.equal(loss(*given, relevant=above), loss(*given, relevant=1))
    for metric in (metrics.precision, metrics.recall, metrics.map, metrics.mrr):
        assert torch.equal(metric(*given, k=2, relevant=above), metric(*given, k=2, relevant=2))


# NeuralNDCG


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k", [2, 5])
def test_neuralndcg_is_equations_5_and_6(k: int, transposed: bool) -> None:
    scores = np.array([0.5, 0.2, 0.1, 0.01, 0.65, 0.3])
    labels = np.array([4.0, 2, 1, 0, 4, 3])
    temperature, n = 0.5, 6
    distances = np.abs(scores[:, None] - scores).sum(1)
    logits = [((n + 1 - 2 * i) * scores - distances) / temperature for i in range(1, n + 1)]
    soft = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if transposed:
        soft = soft.T
    for _ in range(30):
        soft = soft / soft.sum(0, keepdims=True)
        soft = soft / soft.sum(1, keepdims=True)
        if max(np.abs(soft.sum(axis) - 1).max() for axis in (0, 1)) < 1e-6:
            break
    gains, discounts = 2**labels - 1, 1 / np.log2(1 + np.arange(1, n + 1))
    best = (np.sort(gains)[::-1] * discounts)[:k].sum()
    if transposed:
        expected = (gains * (soft @ np.where(np.arange(n) < k, discounts, 0))).sum() / best
    else:
        expected = ((soft @ gains) * discounts)[:k].sum() / best
    found = neural_ndcg_loss(
        torch.tensor(scores)[None], torch.tensor(labels)[None], torch.ones(1, 6, dtype=torch.bool),
        k=k, temperature=temperature, transposed=transposed,
    )  # fmt: skip
    assert found.item() == pytest.approx(-expected, abs=1e-12)


def test_neuralndcg_stopped_early_is_another_value() -> None:
    data = ragged()
    converged = neural_ndcg_loss(*data)
    assert not torch.allclose(neural_ndcg_loss(*data, max_iter=1), converged, atol=1e-6)
    assert torch.equal(neural_ndcg_loss(*data, tol=1e3), neural_ndcg_loss(*data, max_iter=1))


def test_neuralndcg_of_an_empty_list_has_no_gradient() -> None:
    scores, _, mask = ragged()
    value, gradient = value_and_gradient(neural_ndcg_loss, scores, torch.zeros(3, 8), mask)
    assert value.tolist() == [0, 0, 0]
    assert (gradient == 0).all()


# ListNet


def test_listnet_by_hand() -> None:
    scores, labels = [0.3, -1.0, 2.0], [1.0, 3.0, 0.0]
    found = listnet_loss(
        torch.tensor([scores], dtype=torch.float64),
        torch.tensor([labels], dtype=torch.float64),
        torch.ones(1, 3, dtype=torch.bool),
    )
    of_labels, of_scores = sum(map(math.exp, labels)), sum(map(math.exp, scores))
    expected = -sum(
        math.exp(y) / of_labels * math.log(math.exp(s) / of_scores)
        for s, y in zip(scores, labels, strict=True)
    )
    assert found.item() == pytest.approx(expected, abs=1e-14)


def test_listnet_is_least_where_scores_are_labels() -> None:
    _, labels, mask = ragged()
    _, gradient = value_and_gradient(listnet_loss, labels, labels, mask)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_listnet_of_an_empty_list_pulls_to_the_uniform_distribution() -> None:
    mask = torch.ones(1, 4, dtype=torch.bool)
    value, gradient = value_and_gradient(
        listnet_loss, torch.tensor([[1.0, 0, 0, 0]]), torch.zeros(1, 4), mask
    )
    assert value.item() == pytest.approx(math.log(math.e + 3) - 1 / 4)
    assert gradient[0, 0].item() == pytest.approx(math.e / (math.e + 3) - 1 / 4)


# LambdaRank


def explicit_lambdarank(
    scores: list[float], labels: list[float], k: int, sigma: float, pairs: str
) -> tuple[float, list[float]]:
    """Value and gradient by the lambdas of the RankNet note, pair by pair."""
    n = len(scores)
    order = sorted(range(n), key=lambda i: -scores[i])
    rank = {item: r for r, item in enumerate(order, 1)}

    def discount(r: int) -> float:
        return 1 / math.log2(1 + r) if r <= k else 0.0

    best = sum((2**y - 1) * discount(r) for r, y in enumerate(sorted(labels, reverse=True), 1))
    value, gradient = 0.0, [0.0] * n
    for i, j in itertools.permutations(range(n), 2):
        top = (rank[i] <= k) + (rank[j] <= k)
        if labels[i] <= labels[j] or top < (2 if pairs == "both" else 1):
            continue
        change = abs(2 ** labels[i] - 2 ** labels[j]) * abs(discount(rank[i]) - discount(rank[j]))
        y_hat = 1 / (1 + math.exp(-sigma * (scores[i] - scores[j])))
        value -= change / best * math.log(y_hat)
        lambda_ij = sigma * (1 - y_hat) * change / best
        gradient[i] -= lambda_ij
        gradient[j] += lambda_ij
    return value, gradient


@pytest.mark.parametrize("pairs", ["any", "both"])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("k", [1, 2, 4, None])
def test_lambdarank_is_the_sum_of_lambdas(k: int | None, sigma: float, pairs: str) -> None:
    scores, labels, mask = ragged()
    loss = partial(lambdarank_loss, k=k, sigma=sigma, pairs=pairs)
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    for i, real in enumerate(mask):
        expected, slopes = explicit_lambdarank(
            scores[i][real].tolist(), labels[i][real].tolist(), k or 99, sigma, pairs
        )
        assert value[i].item() == pytest.approx(expected, abs=1e-12)
        assert (gradient[i][real] / (i + 1)).tolist() == pytest.approx(slopes, abs=1e-12)


def test_lambdarank_pairs_across_the_cutoff() -> None:
    data = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    _, across = value_and_gradient(partial(lambdarank_loss, k=1), *data, mask)
    _, inside = value_and_gradient(partial(lambdarank_loss, k=1, pairs="both"), *data, mask)
    assert across[0, 2] < 0  # lifted into the top
    assert (inside == 0).all()


@pytest.mark.parametrize("gap", [50.0, 1e3, 1e4])
def test_lambdarank_is_exact_at_any_difference(gap: float) -> None:
    labels = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    weight = 1 - 1 / math.log2(1 + 2)
    wrong = torch.tensor([[-gap, 0.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(lambdarank_loss, wrong, labels, mask)
    assert value.item() == pytest.approx(weight * gap, rel=1e-14)
    assert gradient.tolist()[0] == pytest.approx([-weight, weight], rel=1e-14)
    value, gradient = value_and_gradient(lambdarank_loss, -wrong, labels, mask)
    assert value.item() == pytest.approx(weight * math.exp(-gap), rel=1e-12)
    assert gradient.tolist()[0] == pytest.approx(
        [-weight * math.exp(-gap), weight * math.exp(-gap)], rel=1e-12
    )


# RMSE


@pytest.mark.parametrize("levels", [2, 5])
def test_rmse_by_hand(levels: int) -> None:
    scores, labels = [0.3, -1.0, 2.0], [1.0, 2.0, 0.0]
    found = rmse_loss(
        torch.tensor([[*scores, 9.0]], dtype=torch.float64),
        torch.tensor([[*labels, 9.0]], dtype=torch.float64),
        torch.tensor([[True, True, True, False]]),
        levels=levels,
    )
    squares = [(levels / (1 + math.exp(-s)) - y) ** 2 for s, y in zip(scores, labels, strict=True)]
    assert found.item() == pytest.approx(math.sqrt(sum(squares) / 3), abs=1e-14)


def test_rmse_of_exactly_0_has_gradient_0() -> None:
    data = torch.zeros(1, 2), torch.tensor([[2.5, 2.5]]), torch.ones(1, 2, dtype=torch.bool)
    value, gradient = value_and_gradient(rmse_loss, *data)
    assert value.item() == 0
    assert gradient.tolist() == [[0, 0]]


# Knobs and reduction


def test_bad_knobs_end_with_the_remedy() -> None:
    data = ragged()
    with pytest.raises(ConfigError, match=r"^k=0 is not a cutoff: write an integer k >= 1"):
        neural_ndcg_loss(*data, k=0)
    with pytest.raises(ConfigError, match=r"^temperature=0.0 is out of range: write a finite"):
        neural_ndcg_loss(*data, temperature=0.0)
    with pytest.raises(ConfigError, match=r"^max_iter=0 is out of range: write an integer >= 1$"):
        neural_ndcg_loss(*data, max_iter=0)
    with pytest.raises(ConfigError, match=r"^k=-1 is not a cutoff: write an integer k >= 1"):
        lambdarank_loss(*data, k=-1)
    with pytest.raises(ConfigError, match=r"^sigma=-1.0 is out of range: write a finite number"):
        lambdarank_loss(*data, sigma=-1.0)
    with pytest.raises(ConfigError, match=r"^pairs=all is not known: choose one of any, both$"):
        lambdarank_loss(*data, pairs="all")
    with pytest.raises(ConfigError, match=r"^levels=0 is out of range: write a finite number"):
        rmse_loss(*data, levels=0)
    with pytest.raises(ConfigError, match=r"^empty=drop is not known: choose one of keep, skip$"):
        mean_over_batch(data[0][:, 0], data[1], data[2], empty="drop")


WRONG_TYPES = """
import torch
from functools import partial
from ltr.errors import ConfigError
from ltr.losses import lambdarank_lambdas, neural_ndcg_loss, ordinal_loss, plrank_loss
from ltr.relaxations import sampled_rank_distribution
scores = torch.tensor([[0.5, 0.2]])
mask = scores > 0
drawn = partial(neural_ndcg_loss, stochastic=True)
sampled = lambda scores, _, mask, **knobs: sampled_rank_distribution(scores, mask, **knobs)
for function, knob, least in (
    (plrank_loss, "n_samples", 1),
    (drawn, "n_samples", 1),
    (sampled, "n_samples", 1),
    (neural_ndcg_loss, "max_iter", 1),
    (lambdarank_lambdas, "block", 1),
    (ordinal_loss, "levels", 2),
):
    function(scores, scores.round(), mask, **{knob: least})
    for value in (2.5, True):
        try:
            function(scores, scores.round(), mask, **{knob: value})
        except ConfigError as error:
            assert str(error).startswith(f"{knob}={value} is ") and "write an integer" in str(error)
        else:
            raise AssertionError((function, knob, value))
"""


@pytest.mark.slow
def test_a_knob_of_another_type_is_refused() -> None:
    """In a process of its own, where no test tool checks the types first."""
    done = processes.run(WRONG_TYPES)
    assert done.returncode == 0, done.stderr


def test_reduction_counts_lists() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    labels = torch.tensor([[0.0, 2.0], [0.0, 5.0], [1.0, 1.0]])  # relevant, empty, no items
    values = torch.tensor([3.0, 1.0, math.nan], requires_grad=True)
    for empty, expected, slopes in (
        ("keep", (3 + 1) / 2, [1 / 2, 1 / 2, 0]),
        ("skip", 3, [1, 0, 0]),
    ):
        mean = mean_over_batch(values, labels, mask, empty=empty)
        (gradient,) = torch.autograd.grad(mean, values)
        assert mean.item() == expected
        assert gradient.tolist() == slopes
        assert counted_lists(labels, mask, empty=empty).tolist() == [slope > 0 for slope in slopes]
