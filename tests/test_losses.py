"""One battery over every loss in ``configs/loss/``, then what each loss promises by itself."""

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from ragged import Loss, ragged, value_and_gradient
from torch import Tensor

from ltr.errors import ConfigError
from ltr.losses import (
    lambdarank_loss,
    listnet_loss,
    mean_over_lists,
    neural_ndcg_loss,
    rmse_loss,
)
from ltr.losses.reduction import counted_lists
from ltr.metrics import ndcg

CHOICES = {
    "variant": ["ndcg1", "ndcg2"],
    "weight": ["log2"],
    "pair_weight": ["ndcg_beta"],
    "discount": ["sqrt_log2", "linear"],
}
VARIANTS: dict[str, dict[str, Any]] = {"neuralndcg_t": {"transposed": True}}
CONFIGS = sorted((Path(__file__).parents[1] / "configs" / "loss").glob("*.yaml"))


def read_config(path: Path) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """The function and the knobs of a loss config."""
    config = OmegaConf.load(path)
    suggested = OmegaConf.load(path.parents[1] / "train.yaml").suggested
    root = OmegaConf.create({"suggested": suggested, "loss": config.get("loss", config)})
    knobs: Any = OmegaConf.to_container(root.loss, resolve=True)
    assert knobs.pop("_partial_") is True
    module, _, function = knobs.pop("_target_").rpartition(".")
    return resolve_name(f"{module}:{function}"), knobs


def variants() -> list[Any]:
    """Every loss as configured, and with a cutoff and each switch turned where it has them."""
    found = []
    for path in CONFIGS:
        loss, knobs = read_config(path)
        changes: list[dict[str, Any]] = [{}]
        changes += [{"k": 3}] if "k" in knobs else []
        changes += [{knob: not on} for knob, on in knobs.items() if isinstance(on, bool)]
        changes += [{knob: value} for knob in knobs for value in CHOICES.get(knob, [])]
        for change in changes:
            name = "-".join([path.stem, *(f"{knob}={value}" for knob, value in change.items())])
            found.append(pytest.param(partial(loss, **{**knobs, **change}), id=name))
    return found


def in_any_order(loss: Loss, labels: Tensor) -> tuple[Loss, Tensor]:
    """Loss and labels such that nothing that is drawn depends on where an item stands.

    What is drawn for an item is another number in another place: noise on scores is turned off, and
    labels are made distinct where the order of equal ones is drawn.
    """
    knobs = inspect.signature(loss).parameters
    if "stochastic" in knobs:
        return partial(loss, beta=1e-300), labels
    if "generator" in knobs:
        return loss, torch.arange(8, dtype=labels.dtype).expand(3, 8)
    return loss, labels


battery = pytest.mark.parametrize("loss", variants())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_names_its_paper_and_holds_every_knob_with_its_default(path: Path) -> None:
    lines = path.read_text().splitlines()
    title = lines[1] if lines[0] == "# @package _global_" else lines[0]
    assert title.startswith("# ")
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
    defaults = {p.name: p.default for p in parameters[3:] if p.name != "generator"}
    if path.stem in VARIANTS:
        defaults |= VARIANTS[path.stem]
    assert knobs == defaults


@battery
def test_padding_is_never_read(loss: Loss) -> None:
    scores, labels, mask = ragged()
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    for junk in (math.nan, math.inf, -1e30):
        poisoned = scores.masked_fill(~mask, junk), labels.masked_fill(~mask, junk)
        found, slope = value_and_gradient(loss, *poisoned, mask)
        assert torch.equal(found, value)
        assert torch.equal(slope, gradient)
        assert (slope[~mask] == 0).all()


@battery
def test_more_padding_and_its_place_change_nothing(loss: Loss) -> None:
    scores, labels, mask = ragged()
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    for sides in ((0, 9), (5, 0), (3, 2)):
        padded = [torch.nn.functional.pad(x, sides, value=fill) for x, fill in
                  ((scores, math.nan), (labels, math.nan), (mask, False))]  # fmt: skip
        found, slope = value_and_gradient(loss, padded[0], padded[1], padded[2])
        torch.testing.assert_close(found, value, atol=1e-12, rtol=0)
        inner = slope[:, sides[0] : slope.shape[1] - sides[1]]
        torch.testing.assert_close(inner, gradient, atol=1e-12, rtol=0)
    loss, labels = in_any_order(loss, labels)
    value, _ = value_and_gradient(loss, scores, labels, mask)
    for i, real in enumerate(mask):
        found, _ = value_and_gradient(
            loss, scores[i:][:1, real], labels[i:][:1, real], real[real][None]
        )
        torch.testing.assert_close(found, value[i : i + 1], atol=1e-12, rtol=0)


@battery
def test_order_of_the_items_means_nothing(loss: Loss) -> None:
    scores, labels, mask = ragged()
    loss, labels = in_any_order(loss, labels)
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    found, slope = value_and_gradient(loss, scores[:, order], labels[:, order], mask[:, order])
    torch.testing.assert_close(found, value, atol=1e-12, rtol=0)
    torch.testing.assert_close(slope, gradient[:, order], atol=1e-12, rtol=0)


@battery
def test_lists_do_not_see_each_other(loss: Loss) -> None:
    scores, labels, mask = ragged()
    value, gradient = value_and_gradient(loss, scores, labels, mask)
    for others in (math.nan, 0.0, 1e4):
        changed = scores.clone()
        changed[[0, 2]] = others
        found, slope = value_and_gradient(loss, changed, labels, mask)
        torch.testing.assert_close(found[1], value[1], atol=1e-13, rtol=0)
        torch.testing.assert_close(slope[1], gradient[1], atol=1e-13, rtol=0)


@battery
def test_gradient_agrees_with_finite_differences(loss: Loss) -> None:
    scores, labels, mask = ragged()

    def seeded(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        return loss(scores, labels, mask)

    assert torch.autograd.gradcheck(seeded, scores.requires_grad_())
    _, gradient = value_and_gradient(loss, scores, labels, mask)
    assert (gradient[mask] != 0).any()


DEGENERATE = {
    "empty": ([0.3, -0.2, 0.9], [0, 0, 0], [1, 1, 1]),
    "all of one grade": ([0.3, -0.2, 0.9], [2, 2, 2], [1, 1, 1]),
    "all tied": ([0.5, 0.5, 0.5], [0, 3, 1], [1, 1, 1]),
    "one item": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 1, 0]),
    "one item, empty": ([0.3, -0.2, 0.9], [0, 0, 1], [0, 1, 0]),
    "two items": ([0.3, -0.2, 0.9], [0, 3, 1], [1, 1, 0]),
    "no items": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 0, 0]),
    "far apart": ([1e4, -1e4, 0.0], [0, 3, 1], [1, 1, 1]),
    "all at 1e4": ([1e4, 1e4, 1e4], [0, 3, 1], [1, 1, 1]),
    "all at -1e4": ([-1e4, -1e4, -1e4], [0, 3, 1], [1, 1, 1]),
    "saturated": ([1.0, 1.0, -1.0], [0, 3, 1], [1, 1, 1]),
    "closer than a digit": ([1e-12, 0.0, -1e-12], [0, 3, 1], [1, 1, 1]),
}


@battery
@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_degenerate_lists_are_defined(loss: Loss, case: str, dtype: torch.dtype) -> None:
    scores, labels, present = DEGENERATE[case]
    mask = torch.tensor([present], dtype=torch.bool)
    given = torch.tensor([scores], dtype=dtype), torch.tensor([labels], dtype=torch.float32)
    value, gradient = value_and_gradient(loss, *given, mask)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.dtype == dtype
    if case == "no items":
        assert value.item() == 0
        assert (gradient == 0).all()


@battery
@pytest.mark.parametrize("size", [0, 1, 240])
def test_any_list_size(loss: Loss, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, size, generator=generator)
    labels = torch.randint(0, 5, (2, size), generator=generator).float()
    value, gradient = value_and_gradient(
        loss, scores, labels, torch.ones(2, size, dtype=torch.bool)
    )
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@battery
def test_following_the_gradient_lowers_the_loss(loss: Loss) -> None:
    scores, labels, mask = ragged()
    before, gradient = value_and_gradient(loss, scores, labels, mask)
    after, _ = value_and_gradient(loss, scores - 1e-3 * gradient, labels, mask)
    assert (after <= before + 1e-12).all()
    assert (after < before).any()


# NeuralNDCG


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k", [None, 1, 2, 3, 5, 99])
def test_neuralndcg_at_low_temperature_is_ndcg(k: int | None, transposed: bool) -> None:
    scores, labels, mask = ragged()
    found = neural_ndcg_loss(scores, labels, mask, k=k, temperature=1e-4, transposed=transposed)
    torch.testing.assert_close(-found, ndcg(scores, labels, mask, k=k), atol=1e-9, rtol=0)


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
    with pytest.raises(
        ConfigError, match=r"^max_iter=0, tol=1e-06 is out of range: write max_iter"
    ):
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
        mean_over_lists(data[0][:, 0], data[1], data[2], empty="drop")


def test_reduction_counts_lists() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    labels = torch.tensor([[0.0, 2.0], [0.0, 5.0], [1.0, 1.0]])  # relevant, empty, no items
    values = torch.tensor([3.0, 1.0, math.nan], requires_grad=True)
    for empty, expected, slopes in (
        ("keep", (3 + 1) / 2, [1 / 2, 1 / 2, 0]),
        ("skip", 3, [1, 0, 0]),
    ):
        mean = mean_over_lists(values, labels, mask, empty=empty)
        (gradient,) = torch.autograd.grad(mean, values)
        assert mean.item() == expected
        assert gradient.tolist() == slopes
        assert counted_lists(labels, mask, empty=empty).tolist() == [slope > 0 for slope in slopes]


@pytest.mark.parametrize("empty", ["keep", "skip"])
@battery
def test_a_batch_without_lists_to_count_can_be_trained_on(loss: Loss, empty: str) -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    labels, mask = torch.zeros(2, 3), torch.full((2, 3), empty == "skip")
    mean = mean_over_lists(loss(scores, labels, mask), labels, mask, empty=empty)
    mean.backward()
    assert mean.item() == 0
    assert scores.grad is not None
    assert (scores.grad == 0).all()
