"""One battery over every loss in ``configs/loss/``, then what each loss promises by itself."""

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
import torch
from jaxtyping import config as checking
from ragged import ragged, value_and_gradient
from test_fast_paths import NAMES, plain
from torch import Tensor

from ltr import losses
from ltr.checks.list_losses import import_function, loss_config
from ltr.checks.loss_properties import GOES_TO, LOSS_PROPERTIES
from ltr.checks.subject import DOES_NOT_APPLY, HOLDS, Subject, judge
from ltr.errors import ConfigError
from ltr.losses.batch import counted_lists
from ltr.losses.mix import OF_RUN, losses_by_name
from ltr.relaxations.neuralsort import uniform_noise

CHOICES = {
    **{"variant": ["ndcg1", "ndcg2"], "weight": ["log2"], "pair_weight": ["ndcg_beta"]},
    **{"discount": ["sqrt_log2", "linear"], "pairs": ["both"], "targets": ["isotonic"]},
}
VARIANTS: dict[str, dict[str, Any]] = {"neuralndcg_t": {"transposed": True}}
CONFIGS = sorted((Path(__file__).parents[1] / "configs" / "loss").glob("*.yaml"))


def read_config(path: Path) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """The function and the knobs of a loss config."""
    config = loss_config(path.stem)
    return import_function(config.target), config.values


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
            if name != "neuralndcg-transposed=True":  # which is another config
                found.append(pytest.param(partial(loss, **{**knobs, **change}), id=name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_names_its_paper_and_holds_every_knob_with_its_default(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[lines[0] == "# @package _global_"].startswith("# ")
    assert "_partial_: true" in [line.strip() for line in lines]
    loss, knobs = read_config(path)
    stem = path.stem.removesuffix("_t")
    assert stem == "mix" or loss is losses_by_name()[stem]
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
    known, knobs = loss.func.__name__.removesuffix("_loss"), loss.keywords
    normalised = (known.endswith("_ndcg") and known != "svm_ndcg") or known == "plrank"
    with_metric = normalised or known.startswith("neural_")
    return {
        "a_cutoff_below_1_is_refused": "k" in knobs,
        "a_cutoff_beyond_the_list_is_none": "k" in knobs,
        "the_cutoff_is_honoured": "k" in knobs,
        "the_sharp_limit_is_minus_the_metric": with_metric
        and knobs.get("discount", "log2") == "log2",
        "what_is_drawn_comes_from_the_generator": draws(known, knobs),
    }.get(prop, True)


def draws(name: str, knobs: dict[str, Any]) -> bool:
    return name in ("listmle", "p_listmle", "plrank") or bool(knobs.get("stochastic"))


@pytest.mark.parametrize("name", [*NAMES, "distil_loss teacher"])
def test_labels_and_a_teacher_are_constants(name: str) -> None:
    name, *given = name.split()
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, math.nan).requires_grad_()
    values = getattr(losses, name)(
        scores.requires_grad_(), labels, mask, **dict.fromkeys(given, labels)
    )
    by_scores, by_labels = torch.autograd.grad(values.sum(), (scores, labels), allow_unused=True)
    assert by_scores.isfinite().all()
    assert by_labels is None


@pytest.mark.parametrize("name", sorted({*GOES_TO, "ranknet_loss", "lambdarank_loss"}))
def test_a_list_of_one_grade_without_relevant_items_has_no_gradient(name: str) -> None:
    scores, _, mask = ragged()
    for knobs in ({}, {"stochastic": True}) if name == "neural_ndcg_loss" else ({},):
        loss = partial(getattr(losses, name), **knobs)
        value, gradient = value_and_gradient(loss, scores, torch.zeros(3, 8), mask)
        assert value.tolist() == [0, 0, 0]
        assert (gradient == 0).all()


both_paths = pytest.mark.parametrize("path", ["kernel", "plain"])


@both_paths
def test_the_slope_of_lapndcg_exists_at_ties(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores = torch.tensor([[0.5, 0.5, -1.0, 0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    labels, mask = torch.tensor([[0.0, 2, 1, 3, 0]]).double(), torch.ones(1, 5, dtype=torch.bool)
    torch.autograd.gradcheck(lambda s: losses.lap_ndcg_loss(s, labels, mask), scores, atol=1e-6)


@pytest.mark.parametrize("loss", [losses.listmle_loss, losses.p_listmle_loss])
def test_a_shift_of_all_scores_costs_no_digits(
    loss: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch)
    scores, _, mask = ragged(torch.float32)
    scores = (32 * scores).round() / 32  # exact near the shift too
    found, expected = (
        value_and_gradient(loss, scores + shift, torch.arange(8.0).expand(3, 8), mask)
        for shift in (1e5, 0)
    )
    torch.testing.assert_close(found, expected)


def test_ties_are_drawn_evenly_among_the_orders_that_the_labels_allow() -> None:
    repeats, scores = 6000, torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    mask = torch.ones(repeats, 4, dtype=torch.bool)
    labels = torch.tensor([0.0, 1, 0, 0])
    generator = torch.Generator().manual_seed(0)
    found = losses.listmle_loss(
        scores.expand(repeats, 4), labels.expand(repeats, 4), mask, generator=generator
    )
    orders = [[1, *rest] for rest in itertools.permutations([0, 2, 3])]
    expected = [references.listmle(scores[x].numpy(), np.arange(4.0, 0, -1)) for x in orders]
    counts = [((found - value).abs() < 1e-9).sum().item() for value in expected]
    assert sum(counts) == repeats
    deviation = math.sqrt(repeats * 1 / 6 * 5 / 6)
    assert max(abs(count - repeats / 6) for count in counts) < 4 * deviation


def test_ties_that_are_drawn_mostly_in_file_order_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    biased = lambda *given: uniform_noise(*given) / 2 + torch.arange(given[0].shape[-1])  # noqa: E731
    monkeypatch.setattr("ltr.losses.listwise.uniform_noise", biased)
    with pytest.raises(AssertionError):
        test_ties_are_drawn_evenly_among_the_orders_that_the_labels_allow()


def test_ordinal_counts_a_label_between_two_grades_as_both() -> None:
    scores = torch.tensor([[0.3, -1.0, 2.0, 9.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 2.0, 0.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])

    def found(x: float) -> Tensor:
        more = torch.tensor([x, 0.0, x, 0.0])
        return losses.ordinal_loss(scores, labels + more, mask, levels=5, sigma=1.5)

    expected = 0.75 * found(0.0) + 0.25 * found(1.0)
    torch.testing.assert_close(found(0.25), expected, rtol=1e-14, atol=0)
    share = torch.tensor([[0.61]])  # a label below the first grade is not 0
    two = partial(losses.ordinal_loss, levels=2)
    _, gradient = value_and_gradient(two, torch.tensor([[0.5]]), share, share > 0)
    assert gradient.item() == pytest.approx(0.5 - 0.61, abs=1e-6)  # sigmoid(s - 1/2) - y


ABOVE_0, WHOLE = "write a finite number above 0$", "write an integer >= 1$"
WRONG: dict[str, tuple[list[Any], str]] = {  # what a knob of that name refuses, and the remedy
    "k": ([0, -1, 2.5, True], "is not a cutoff: write an integer k >= 1"),
    **dict.fromkeys(("temperature", "sigma", "cut_slope", "mu", "beta"), ([0.0, -1.0], ABOVE_0)),
    "relevant": ([0], ABOVE_0),
    **dict.fromkeys(("max_iter", "n_samples"), ([0, 2.5, True], WHOLE)),
    "tol": ([-1.0, math.nan], "write a number >= 0$"),
    "alpha": ([-0.1, 2], "write a number from 0 to 1$"),
    "levels": ([0], "write a"),
    "pairs": (["all"], "choose one of any, both$"),
    "variant": (["2"], "choose one of ndcg1, ndcg2"),
    "weight": (["log"], "choose one of exp2, log2$"),
    "discount": (["flat"], "choose one of log2, sqrt_log2, linear$"),
    "targets": (["grades"], "choose one of ranks, isotonic$"),
    "cost": (["hinge"], "choose one of listnet, lambdarank$"),
    "pair_weight": (["ndcg", "null"], "write .*None"),
}


@both_paths
def test_bad_knobs_end_with_the_remedy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    tried = set()
    for name in sorted(set(NAMES) - {"mix_loss"}):
        knobs = inspect.signature(getattr(losses, name)).parameters
        drawn = {"stochastic": True} if "stochastic" in knobs else {}
        for knob in knobs.keys() & WRONG.keys():
            for value in WRONG[knob][0]:
                given = drawn if knob in ("beta", "n_samples") else {}
                with pytest.raises(ConfigError, match=f"^{knob}=.*{WRONG[knob][1]}"):
                    getattr(losses, name)(*ragged(), **{knob: value}, **given)
                tried.add(knob)
    assert tried == set(WRONG)
    for levels, remedy in ((1, "write an integer >= 2"), (1001, "loss=rmse"), (2.5, "write an in")):
        with pytest.raises(ConfigError, match=f"^levels={levels} .*{remedy}"):
            losses.ordinal_loss(*ragged(), levels=levels)
    scores, labels, mask = ragged()
    with pytest.raises(ConfigError, match=r"^empty=drop is not known: choose one of keep, skip$"):
        losses.mean_over_batch(scores[:, 0], labels, mask, empty="drop")


def test_reduction_counts_lists() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    labels = torch.tensor([[0.0, 2.0], [0.0, 5.0], [1.0, 1.0]])  # relevant, empty, no items
    values = torch.tensor([3.0, 1.0, math.nan], requires_grad=True)
    for empty, expected, slopes in (
        ("keep", (3 + 1) / 2, [1 / 2, 1 / 2, 0]),
        ("skip", 3, [1, 0, 0]),
    ):
        mean = losses.mean_over_batch(values, labels, mask, empty=empty)
        (gradient,) = torch.autograd.grad(mean, values)
        assert mean.item() == expected
        assert gradient.tolist() == slopes
        assert counted_lists(labels, mask, empty=empty).tolist() == [slope > 0 for slope in slopes]
