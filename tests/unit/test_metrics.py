"""Metrics: slow float64 formulas under every convention; named conventions against their tools.

A tool that is not installed is skipped. The figures of the LETOR script are in test_scores_file.py.
"""

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import config as checking
from omegaconf import OmegaConf
from sklearn.metrics import ndcg_score

from ltr import metrics
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.cli.configs import CONFIGS
from ltr.cli.folders import convention_keys
from ltr.cli.options import parse_options
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.inference.evaluate import EvaluateOptions, chosen_conventions, evaluate_model
from ltr.losses import neural_err_loss
from ltr.metrics import Convention, Metric, err, mean_over_lists, ndcg, parse_metric
from ltr.metrics.ordering import order_by_score
from ltr.metrics.spec import METRICS
from ltr.metrics.ties import TiesAveraged
from ltr.parts.components import build_convention, build_part
from tests.helpers.paths import ROOT
from tests.helpers.runs import compose, run

CONVENTIONS = [
    Convention(),
    Convention(empty=0, discount="letor", short="zero"),
    Convention(empty=0.5, gain="linear", relevant=2, map_over="reachable"),
    Convention(empty=0.25, gain=[0, 1, 3, 3, 10]),
    Convention(empty=0.25, gain=[1, 1, 1, 1, 1]),
    Convention(empty=0.25, gain=[0, 0, 0, 3, 3]),
]


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def all_items(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def slow_value(name: str, y: Sequence[float], k: int | None, c: Convention) -> float:
    """Return one metric of a list with the labels ``y`` in the order of the ranks."""
    assert c.empty != "skip"
    if name == "dcg":
        return slow_dcg(y, k, c)
    if is_empty(name, y, c):
        return float(c.empty)
    if name in ("map", "mrr", "precision", "recall"):
        return slow_value_of_hits(name, [label >= c.relevant for label in y], k, c)
    return slow_value_of_grades(name, y, k, c)


def is_empty(name: str, y: Sequence[float], c: Convention) -> bool:
    """Return whether a list with the labels ``y`` is empty for a metric."""
    if name in ("map", "mrr", "precision", "recall"):
        return not any(label >= c.relevant for label in y)
    if name in ("err", "ndcg_beta"):
        return max(y) == 0
    return slow_dcg(sorted(y, reverse=True), None, c) == 0


def slow_dcg(y: Sequence[float], k: int | None, c: Convention) -> float:
    """Return DCG@k of a list with the labels ``y`` in the order of the ranks."""
    total = 0.0
    for rank, label in enumerate(y[:k], 1):
        if not isinstance(c.gain, str):
            gain = c.gain[int(label)]
        else:
            gain = 2**label - 1 if c.gain == "exp2" else label
        total += gain / math.log2(1 + rank if c.discount == "log2" else max(rank, 2))
    return total


def slow_value_of_hits(name: str, hits: Sequence[bool], k: int | None, c: Convention) -> float:
    """Return a metric of relevant items, which are True in ``hits``."""
    n = len(hits)
    top = n if k is None else min(k, n)
    if name == "precision":
        return sum(hits[:top]) / (k or n)
    if name == "recall":
        return sum(hits[:top]) / sum(hits)
    if name == "mrr":
        return next((1 / r for r in range(1, top + 1) if hits[r - 1]), 0)
    assert name == "map"
    divisor = min(sum(hits), k) if k and c.map_over == "reachable" else sum(hits)
    return sum(sum(hits[:r]) / r for r in range(1, top + 1) if hits[r - 1]) / divisor


def slow_value_of_grades(name: str, y: Sequence[float], k: int | None, c: Convention) -> float:
    """Return a metric of graded labels, which is not DCG."""
    n = len(y)
    top = n if k is None else min(k, n)
    ideal = sorted(y, reverse=True)
    if name == "ndcg":
        is_short = c.short == "zero" and k and n < k
        return 0 if is_short else slow_dcg(y, top, c) / slow_dcg(ideal, top, c)
    if name == "mean_ndcg":
        cutoffs = range(1, top + 1)
        return sum(slow_dcg(y, i, c) / (slow_dcg(ideal, i, c) or 1) for i in cutoffs) / top
    if name == "ndcg_beta":
        best = sum(label * (n - r) for r, label in enumerate(ideal[:top], 1))
        return 1 if n == 1 else sum(label * (n - r) for r, label in enumerate(y[:top], 1)) / best
    assert name == "err"
    total = 0.0
    reaching = 1.0
    for rank, label in enumerate(y[:top], 1):
        satisfied = (2**label - 1) / 2 ** (c.levels - 1)
        total += reaching * satisfied / rank
        reaching *= 1 - satisfied
    return total


def random_lists(
    lengths: Sequence[int], width: int, scores: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores of few values (ties), labels 0-4, some lists empty; NaN on all padding."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(lengths), width), dtype=bool)
    for row_mask, n in zip(mask, lengths, strict=True):
        row_mask[rng.choice(width, n, replace=False)] = True
    values = np.where(mask, rng.integers(-scores, scores, mask.shape) / 4.0, np.nan)
    labels = rng.choice([0, 0, 0, 1, 2, 3, 4], mask.shape)
    labels[::5] = 0
    return torch.tensor(values), torch.tensor(np.where(mask, labels, np.nan)), torch.tensor(mask)


def slow_values(
    name: str, k: int | None, convention: Convention, data: tuple[torch.Tensor, ...]
) -> list[float]:
    """Return the metric of each list; averaged ties are means over all orders by score."""
    values = []
    for s, y, m in zip(*data, strict=True):
        orders = [s[m].argsort(descending=True, stable=True).tolist()]
        if convention.ties == "averaged":
            ranked = s[m][orders[0]].tolist()
            permutations = itertools.permutations(range(len(ranked)))
            orders = [x for x in permutations if s[m][list(x)].tolist() == ranked]
        values.append(
            np.mean([slow_value(name, y[m][list(x)].tolist(), k, convention) for x in orders])
        )
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("convention", CONVENTIONS, ids=range(len(CONVENTIONS)))
@pytest.mark.parametrize("ties", ["file", "averaged"])
def test_metric_equals_slow_formula(name: str, convention: Convention, ties: str) -> None:
    data = random_lists([1, 1, 2, 3, 4, 7, 20, 20, 90], 100, scores=20)
    if ties == "averaged":
        data = random_lists([1, 2, 3, 4, 5, 5, 5], 8, scores=1, seed=1)
        convention = replace(convention, ties="file" if name == "err" else "averaged")
    for k in (None, 1, 3, 6, 10, 400):
        values = Metric(name, k)(*data, convention)
        assert values.dtype == torch.float64
        expected = slow_values(name, k, convention, data)
        np.testing.assert_allclose(values, expected, atol=1e-12, rtol=0)
        single = Metric(name, k)(data[0].float(), data[1].float(), data[2], convention)
        assert single.dtype == torch.float32
        np.testing.assert_allclose(single, values, atol=1e-5, rtol=1e-5)


def first_label(scores, labels, mask):
    """A custom metric without a rule for ties: the label of the item ranked first."""
    return labels.gather(-1, order_by_score(scores, mask))[:, 0].to(scores.dtype)


OWN = Metric("first_label", own=first_label)


@pytest.mark.parametrize(
    "metric", [*map(parse_metric, METRICS), parse_metric("map@2"), OWN], ids=str
)
def test_ties_averaged_ignores_order_of_rows(metric: Metric) -> None:
    scores, labels, mask = random_lists([1, 2, 3, 4, 5, 5, 7, 20], 24, scores=2, seed=5)
    averaged = TiesAveraged(metric)
    convention = Convention(empty="skip", levels=5)
    value = averaged(scores, labels, mask, convention)
    for descending in (True, False):
        order = labels.masked_fill(~mask, -9 if descending else 9).argsort(descending=descending)
        reordered = (values.gather(-1, order) for values in (scores, labels, mask))
        actual = averaged(*reordered, convention)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=0, equal_nan=True)
    if averaged.is_setting:
        expected = metric(scores, labels, mask, replace(convention, ties="averaged"))
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0, equal_nan=True)
    distinct = scores + torch.arange(scores.shape[-1]) * 1e-6
    plain = metric(distinct, labels, mask, convention)
    value = averaged(distinct, labels, mask, convention)
    assert torch.equal(value.nan_to_num(), plain.nan_to_num())


def test_ties_averaged_takes_mean_of_best_and_worst_order() -> None:
    scores = row(0.5, 0.5, 0.5, 0.1)
    labels = row(1, 4, 0, 3)
    value = TiesAveraged(OWN)(scores, labels, all_items(scores), Convention())
    assert value.item() == (4 + 0) / 2
    best, worst = (
        err(row(3, 2, 1, 0), row(*y, 3), all_items(scores)) for y in ((4, 1, 0), (0, 1, 4))
    )
    value = TiesAveraged(parse_metric("err"))(scores, labels, all_items(scores), Convention())
    assert value.item() == pytest.approx((best + worst).item() / 2, rel=1e-12)


def test_metric_accepts_integer_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    double_scores = row(0.9, 0.5, 0.1, 0.3)
    mask = torch.tensor([[True, True, True, False]])
    labels = torch.tensor([[1, 0, 2, 9]])
    for name in METRICS:
        for scores in (double_scores, double_scores.float()):
            expected = Metric(name, 2)(scores, labels.to(scores.dtype), mask)
            assert torch.equal(Metric(name, 2)(scores, labels, mask), expected), name


def test_ndcg_of_ideal_order_is_exactly_1() -> None:
    labels = torch.rand(200, 30, generator=torch.Generator().manual_seed(0))  # float32
    mask = torch.ones_like(labels, dtype=torch.bool)
    for name in ("ndcg", "mean_ndcg", "ndcg_beta"):
        assert Metric(name)(labels.double(), labels, mask).tolist() == [1.0] * 200


def test_err_of_many_grades_is_finite() -> None:
    scores = row(0.1, 0.3)
    mask = all_items(scores)
    for levels in (128, 129, 1000):
        for dtype in (torch.float32, torch.float64):
            labels = torch.tensor([[levels - 1, 0]], dtype=dtype)
            value = err(scores.to(dtype), labels, mask, levels=levels)
            assert value.item() == pytest.approx(1 / 2)  # satisfied at rank 2
    hundred_grades = scores.float(), torch.tensor([[100.0, 0]]), mask
    soft = neural_err_loss(*hundred_grades, levels=101, temperature=0.01).item()
    assert soft == pytest.approx(-1 / 2, abs=1e-4)
    assert 0 <= err(scores, row(4, 0), mask, levels=1100).item() < 1e-300  # 15 / 2^1099
    assert 0 <= -neural_err_loss(scores, row(4, 0), mask, levels=1100).item() < 1e-300


@pytest.mark.parametrize("ties", ["file", "averaged"])
@pytest.mark.parametrize("name", METRICS)
def test_metric_is_nan_for_list_with_nan_label_only(name: str, ties: str) -> None:
    scores = torch.tensor([[0.5, 0.1], [0.5, 0.1], [0.5, 0.1]])
    labels = torch.tensor([[1.0, math.nan], [0, math.nan], [1, math.nan]])
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    knobs = {} if name == "err" else {"ties": ties}
    for k in (None, 1):
        values = getattr(metrics, name)(scores, labels, mask, k=k, **knobs)
        assert values.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("gain", ["exp2", "linear"])
@pytest.mark.parametrize("name", METRICS)
def test_metric_is_nan_for_list_with_label_below_0_only(
    name: str, gain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 4)
    labels = torch.tensor([[2.0, 0.0, 1.0], [2.0, 0.0, -0.5], [-1.0, 2.0, 0.0], [-1.0, -1.0, -1.0]])
    padded = all_items(scores)
    padded[0, 1] = False
    for k, empty in itertools.product((None, 1, 3), (1.0, "skip")):
        for typed_labels in (labels, labels.long()):  # -0.5 becomes 0
            convention = Convention(gain=gain, empty=empty)
            values = Metric(name, k)(scores, typed_labels, padded, convention)
            is_float = typed_labels.is_floating_point()
            assert values.isnan().tolist() == [False, is_float, True, True]
    labels[0, 1] = -1  # on padding
    assert not Metric(name)(scores, labels, padded)[0].isnan()


@pytest.mark.parametrize("k", [1, 10, 30])
def test_sklearn_convention_equals_sklearn_with_ties(k: int) -> None:
    rng = np.random.default_rng(k)
    labels = rng.choice([0, 0, 0, 1, 2, 4], (60, 15))
    scores = rng.integers(0, 4, (60, 15))
    labels[:3] = 0
    convention = Convention(empty=0, gain="linear", ties="averaged")
    data = torch.tensor(scores).double(), torch.tensor(labels).double()
    values = Metric("ndcg", k)(*data, all_items(data[0]), convention)
    expected = [ndcg_score(y[None], s[None], k=k) for y, s in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(values, expected, atol=1e-12, rtol=0)
    assert mean_over_lists(values, empty=0) == pytest.approx(ndcg_score(labels, scores, k=k))


def test_metric_treats_score_of_minus_infinity_as_not_retrieved() -> None:
    scores = row(2, -math.inf, 1, -math.inf)
    labels = row(1, 1, 1, 9)
    mask = torch.tensor([[True, True, True, False]])
    assert ndcg(scores, labels, mask).item() == pytest.approx(
        (1 + 1 / math.log2(3)) / (1 + 1 / math.log2(3) + 1 / math.log2(4))
    )
    expected = {"map": 2 / 3, "recall": 2 / 3, "precision": 1, "precision@4": 2 / 4, "mrr": 1}
    for name, value in expected.items():
        for ties in ("file", "averaged"):
            values = parse_metric(name)(scores, labels, mask, Convention(ties=ties))
            assert values.item() == pytest.approx(value)


REFUSED: list[tuple[str, Any, str]] = [
    ("gain", "2", "choose one of exp2, linear, or write the gains of"),
    *(("gain", table, "is not a valid table of gains") for table in ([0], [0, 2, 1], [-1, 2])),
    ("discount", "2", "choose one of log2, letor$"),
    ("ties", "random", "choose one of file, averaged$"),
    ("short", "0", "choose one of scored, zero$"),
    *(("relevant", wrong, "write a finite number above 0$") for wrong in (0, 10**400)),
    ("map_over", "k", "choose one of relevant, reachable$"),
    *(("levels", wrong, "write an integer >= 2") for wrong in (1, 10**400)),
    *(("empty", wrong, "from 0 to 1, or skip$") for wrong in ("one", 2.0, -1, math.nan, None)),
    *(("gain", wrong, "is not a valid table of gains") for wrong in (["a", "b"], None, 2)),
    *(("relevant", "one", "number above"), ("levels", "5", "integer >= 2"), ("short", 0, "one of")),
]


def test_metric_and_convention_refuse_wrong_values_with_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    data = row(1), row(1), all_items(row(1))
    for knob, value, remedy in REFUSED:
        with pytest.raises(ConfigError, match=rf"^{knob}=.* {remedy}"):
            Convention(**{knob: value})
    for name in METRICS:
        with pytest.raises(
            ConfigError, match=r"^ties=random is not known: choose one of file, ave"
        ):
            getattr(metrics, name)(*data, ties="random")
        for k in (0, 10**18):
            with pytest.raises(ConfigError, match=f"k={k} is not a cutoff"):
                getattr(metrics, name)(*data, k=k)
    with pytest.raises(
        ConfigError, match=r"^err does not support averaged ties: leave err out, or set ties"
    ):
        Metric("err", 5)(*data, Convention(ties="averaged"))
    for labels in (row(3), row(0.5), row(math.nan)):
        with pytest.raises(ConfigError, match=r"^gain=\[0, 2, 7\] covers the grades 0 to 2, but"):
            ndcg(row(1), labels, data[2], gain=[0, 2, 7])
    with pytest.raises(ConfigError, match=r"^levels=3 means labels up to 2, .* number of grades"):
        err(row(0.1), row(3), all_items(row(1)), levels=3)


def test_mean_over_lists_skips_empty_lists_but_no_broken_model() -> None:
    values = torch.tensor([1.0, math.nan])
    assert mean_over_lists(values, empty="skip") == 1
    assert math.isnan(mean_over_lists(values, empty=1.0))
    assert math.isnan(mean_over_lists(values[:0]))
    scores = row(0.9, 0.1).repeat(4, 1)
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    for convention in (Convention(), Convention(empty="skip"), Convention(ties="averaged")):
        for name, dtype in itertools.product(METRICS, (torch.float64, torch.float32)):
            if name == "err" and convention.ties == "averaged":
                continue
            metric = Metric(name)
            typed_scores = scores.to(dtype)
            typed_labels = labels.to(dtype)
            mask = all_items(scores)
            values = metric(typed_scores, typed_labels, mask, convention)
            assert not math.isnan(mean_over_lists(values))
            diverged = typed_scores.clone()
            diverged[3, 1] = math.nan
            values = metric(diverged, typed_labels, mask, convention)
            assert math.isnan(mean_over_lists(values)), name
            assert math.isnan(mean_over_lists(torch.cat([values, values[:1]])[1:].clone()))
            unjudged = metric(typed_scores, -typed_labels, mask, convention)
            assert math.isnan(mean_over_lists(unjudged)), name
    values = torch.full((100_000,), 0.1)
    assert mean_over_lists(values) == pytest.approx(float(values[0]), rel=1e-13)  # in float64


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16, torch.float32])
def test_custom_metric_keeps_its_digits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    scores = torch.tensor([[3, 1, 0], [2, 1, 0]])
    labels = torch.tensor([[0.0, 1.0, 0.0]] * 2)
    metric = Metric("two_thirds", own=lambda s, y, m: torch.tensor([2 / 3, math.nan]))
    values = metric(scores.to(dtype), labels, all_items(scores))
    assert values.dtype == torch.float32
    assert values[0].item() == pytest.approx(2 / 3, rel=1e-6)
    assert mean_over_lists(values) == pytest.approx(2 / 3, rel=1e-6)  # a list with NaN is left out
    if dtype.is_floating_point:  # but not where the model broke down
        broken = scores.to(dtype).masked_fill(torch.tensor([[False], [True]]), math.nan)
        assert math.isnan(mean_over_lists(metric(broken, labels, all_items(scores))))


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_metric_accepts_numbers_of_numpy(
    integer: type, real: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    convention = Convention(
        empty=real(0.5), gain=np.array([0, 1, 3, 3, 9]), relevant=integer(2), levels=integer(5)
    )
    assert convention == Convention(empty=0.5, gain=[0, 1, 3, 3, 9], relevant=2, levels=5)
    assert {type(value) for value in (convention.empty, *convention.gain)} == {float, int}
    assert type(convention.levels) is type(Metric("ndcg", integer(3)).k) is int
    data = random_lists([4, 7, 20], 20, scores=20)
    knobs = {"k": integer(3), "empty": real(0.5), "gain": [integer(0), real(1), 3, 3, integer(9)]}
    knobs |= {"relevant": real(2), "levels": integer(5)}
    for name in METRICS:
        arguments = {key: knobs[key] for key in ("k", *Metric(name).parts) if key in knobs}
        values = getattr(metrics, name)(*data, **arguments)
        assert torch.equal(values, Metric(name, 3)(*data, convention))
    with pytest.raises(ConfigError, match="is not a cutoff"):
        Metric("ndcg", real(2.5))
    with pytest.raises(ConfigError, match="is not a cutoff"):
        Metric("ndcg", np.True_)


def test_convention_describes_every_key() -> None:
    convention = Convention("skip", [0, 1, 2.5], "letor", "averaged", "zero", 2, "reachable", 3)
    for field, value in vars(convention).items():
        description = convention.describe([field])
        assert description != Convention().describe([field])
        assert value not in (2, 3) or str(value) in description
    assert "gains [0, 1, 2.5]" in convention.describe()
    assert hash(convention) == hash(replace(convention, gain=(0, 1, 2.5)))


MISSPELT = [
    *("ndgc@5", "ndcg@0", "ndcg@-1", "ndcg@", "ndcg@5.0", "NDCG@5", "ndcg_5", "ndcg@05"),
    *("", "ndcg @5", "ndcg@5\n", "ndcg@\N{ARABIC-INDIC DIGIT FIVE}", "ndcg@" + "1" * 5000),
]


def test_parse_metric_round_trips_and_refuses_misspelt_names() -> None:
    for text in ("ndcg", "dcg@100", "mean_ndcg", "ndcg_beta", "a.b2.C@7"):
        assert str(parse_metric(text)) == text
    for text in MISSPELT:
        with pytest.raises(
            ConfigError, match=f"^'{re.escape(text)}' is not .* where <name> is one of dcg, "
        ):
            parse_metric(text)


@pytest.mark.slow
def test_metrics_parse_and_losses_list_without_torch() -> None:
    code = (
        "import sys; from ltr.metrics import Convention, parse_metric; parse_metric('ndcg@5'); "
        "from ltr.testing.list_losses import all_losses; all_losses(); "
        "Convention().describe(); assert 'torch' not in sys.modules; "
        "from ltr.metrics import ndcg, dcg, mean_over_lists; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


NAMED = {
    "paper": Convention(),
    "lightgbm": Convention(relevant=0.50000001, map_over="reachable"),
    "letor4": Convention(empty=0, discount="letor", short="zero"),
    "trec": Convention(empty=0, gain="linear"),
    "sklearn": Convention(empty=0, gain="linear", ties="averaged"),
}


def evaluate_conventions(defaults: dict[str, Any], *overrides: str) -> dict[str, Convention]:
    """The conventions that ``ltr evaluate`` takes from ``overrides``."""
    options = parse_options(EvaluateOptions, typed("evaluate", overrides))
    named = {name: convention_keys(name) for name in options.conventions}
    return chosen_conventions(named, options.convention, defaults)


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in (CONFIGS / "convention").glob("*.yaml")])
def test_convention_sets_every_key_but_levels(name: str) -> None:
    cfg = compose(f"convention={name}")
    keys_of_file = OmegaConf.load(CONFIGS / "convention" / f"{name}.yaml")
    assert {*keys_of_file} == {*vars(Convention())} - {"levels"}
    assert build_convention(cfg) == NAMED[name]
    assert evaluate_conventions({}, f"convention={name}") == {name: NAMED[name]}


def test_keys_of_convention_override_its_choice() -> None:
    cfg = compose("convention=letor4", "convention.empty=skip", "convention.gain=[0,1,4]")
    assert build_convention(cfg) == Convention("skip", [0, 1, 4], "letor", short="zero")
    assert build_convention(compose()) == Convention()
    assert build_convention(compose("dataset=mq2008")).levels == 3
    overrides = ["convention=letor4,trec", "convention.empty=0.5"]
    assert evaluate_conventions({"levels": 3}, *overrides) == {
        "letor4": Convention(empty=0.5, discount="letor", short="zero", levels=3),
        "trec": Convention(empty=0.5, gain="linear", levels=3),
    }
    conventions = evaluate_conventions({"empty": 0}, "convention.gain=[0,1]")
    assert conventions == {"own": Convention(0, [0, 1])}


@pytest.mark.parametrize(
    ("overrides", "loss", "metric"),
    [
        ("", "exp2", "exp2"),
        ("gain=linear", "linear", "linear"),
        ("gain=[0,1,3] convention=letor4", [0, 1, 3], (0, 1, 3)),
        ("convention=trec", "exp2", "linear"),  # says how to measure, not how to train
        ("convention=trec gain=exp2", "exp2", "exp2"),
        ("gain=linear loss.gain=exp2", "exp2", "linear"),
        ("gain=linear convention.gain=exp2", "linear", "exp2"),
        ("gain=linear loss=mix", "linear", "linear"),
    ],
)
def test_gain_sets_loss_and_metrics(overrides: str, loss: Any, metric: Any) -> None:
    cfg = compose(*overrides.split())
    assert (build_part(cfg.loss, "loss").keywords["gain"], build_convention(cfg).gain) == (
        loss,
        metric,
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("convention=[letor4,paper]", "expected one convention for training"),
        (
            "convention=sklearn metrics=[ndcg@5,err@5]",
            "err does not support averaged ties: leave err out",
        ),
        ("+convention.gian=linear", "unexpected keyword argument 'gian'"),
    ],
)
def test_build_refuses_wrong_convention_before_data_is_read(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(compose(*overrides.split()))


@pytest.mark.slow
def test_run_stores_its_convention_and_evaluate_takes_others(
    tiny: list[str], tmp_path: Path
) -> None:
    cfg = compose(*tiny, "epochs=1", "convention=letor4", "metrics=[ndcg@5,map,mean_ndcg,err]")
    results = run(cfg, tmp_path, {})
    assert '"short": "zero"' in (tmp_path / "results.json").read_text()
    text = call_command(evaluate_model, compose(f"checkpoint={tmp_path}", config="evaluate"))
    assert f"{results['test_mean_ndcg']:.4f}" in text
    assert text.endswith(Convention(0, discount="letor", short="zero", levels=3).describe())
    overrides = [f"checkpoint={tmp_path}", "conventions=[letor4,paper]", "metrics=[ndcg@5]"]
    both = compose(*overrides, f"output={tmp_path / 'queries.csv'}", config="evaluate")
    table, described = call_command(evaluate_model, both).split("\n\n")[1:]
    assert table.split()[-2] == f"{results['test_ndcg@5']:.4f}"
    assert described.splitlines()[1] == f"paper: {Convention(levels=3).describe()}"
    head = (tmp_path / "queries.csv").read_text().splitlines()[0]
    assert head == "qid,items,empty,letor4 ndcg@5,paper ndcg@5"


CUTOFFS = (1, 3, 5, 10)


def lists(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores and labels of 120 lists: grades, some lists empty, perhaps with equal scores.

    ``real``: labels from 0 to 1 on both sides of 0.5, some exactly there and some just above.
    """
    rng = np.random.default_rng(0)
    scores, labels, mask = random_lists(rng.integers(2, 40, 120), 40, scores=4)
    if kind != "ties":
        scores = scores + torch.from_numpy(
            rng.permuted(np.tile(np.arange(40) / 99, (120, 1)), axis=1)
        )
    if kind == "real":
        edges = np.array([0.2, 0.2, 0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.75])
        labels = torch.from_numpy(rng.choice(edges, mask.shape))
    return scores, labels, mask


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grades", "ties", "real"])
def test_lightgbm_convention_equals_lightgbm(kind: str) -> None:
    """Train a tree that cannot split, so that LightGBM evaluates the initial scores.

    It refuses real-valued labels for ndcg.
    """
    lightgbm = pytest.importorskip("lightgbm")
    real = kind == "real"
    padded_scores, padded_labels, mask = lists(kind)
    scores = padded_scores[mask].numpy()
    labels = padded_labels[mask].numpy()
    items = np.arange(len(scores), dtype=float)[:, None]
    sizes = mask.sum(-1).numpy()
    data = lightgbm.Dataset(items, labels, group=sizes, init_score=scores)
    printed: dict[str, dict[str, list[float]]] = {}
    params = {
        "objective": "regression" if real else "lambdarank",
        "metric": ["map"] if real else ["ndcg", "map"],
        "boost_from_average": False,
        "eval_at": list(CUTOFFS),
        "min_data_in_leaf": len(scores),
        "verbose": -1,
        "num_threads": 1,
    }
    callbacks = [lightgbm.record_evaluation(printed)]
    lightgbm.train(params, data, 1, valid_sets=[data], callbacks=callbacks)
    assert len(printed["training"]) == (1 if real else 2) * len(CUTOFFS)
    for name, (expected,) in printed["training"].items():
        values = parse_metric(name)(padded_scores, padded_labels, mask, NAMED["lightgbm"])
        assert mean_over_lists(values, empty=1) == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("name", ["ndcg", "map", "mrr", "precision", "recall", "err"])
def test_metric_of_empty_list_is_1_by_default(name: str) -> None:
    data = torch.tensor([[0.9, 0.5]]), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    assert getattr(metrics, name)(*data).tolist() == [1.0]
