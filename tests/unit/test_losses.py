"""One battery over every loss in ``configs/loss/``, then the promises of single losses.

Also the output of ``ltr list_losses``, docs/reference/labels.md, and weights of lists in
training: a weight of 2 is the list twice.
"""

import inspect
import itertools
import math
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from jaxtyping import config as checking
from omegaconf import OmegaConf
from torch import Tensor

from ltr import losses
from ltr.__main__ import main
from ltr.boosting import LossObjective
from ltr.cli.keys import resolved
from ltr.data.lists import Lists
from ltr.data.memory import MemoryLists
from ltr.errors import ConfigError
from ltr.losses.batch import counted_lists
from ltr.losses.mix import RUNTIME_ARGS, losses_by_name
from ltr.parts.components import build_part
from ltr.parts.trust import config_for_checkpoint, trusted
from ltr.testing.list_losses import details, import_function, loss_config, loss_names
from ltr.testing.loss_properties import LOSS_PROPERTIES, SHARP_LIMIT_OF
from ltr.testing.subject import DOES_NOT_APPLY, HOLDS, Subject, judge
from tests.helpers import references
from tests.helpers.folders import refused
from tests.helpers.loss_cases import CHOICES, WRONG
from tests.helpers.made_columns import COLUMNS, mixed, mixed_data, train_mixed
from tests.helpers.made_trees import a_loss, tensors
from tests.helpers.paths import ROOT
from tests.helpers.ragged import NAMES, plain, ragged, value_and_gradient
from tests.helpers.runs import compose

CONFIGS = sorted((ROOT / "configs" / "loss").glob("*.yaml"))


def variants() -> list[Any]:
    """Return every loss as configured, then with a cutoff and with each switch turned."""
    cases = []
    for path in CONFIGS:
        config = loss_config(path.stem)
        loss = import_function(config.target)
        knobs = config.values
        changes: list[dict[str, Any]] = [{}]
        changes += [{"k": 3}] if "k" in knobs else []
        changes += [{knob: not on} for knob, on in knobs.items() if isinstance(on, bool)]
        changes += [{knob: value} for knob in knobs for value in CHOICES.get(knob, [])]
        for change in changes:
            name = "-".join([path.stem, *(f"{knob}={value}" for knob, value in change.items())])
            if name != "neuralndcg-transposed=True":  # which is another config
                cases.append(pytest.param(partial(loss, **{**knobs, **change}), id=name))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_loss_config_holds_every_knob_with_its_default_and_is_shown_in_full(path: Path) -> None:
    config = loss_config(path.stem)
    shown = details(path.stem)
    text = path.read_text()
    loss = import_function(config.target)
    knobs = config.values
    assert text in shown
    assert f"\n{config.target}(scores, labels, mask" in shown
    assert shown.endswith(inspect.cleandoc(loss.__doc__ or ""))
    lines = [line for line in text.splitlines() if line.strip().split(":")[0] in knobs]
    assert len(lines) == len(knobs)
    assert all("  # " in line for line in lines)
    stem = path.stem.removesuffix("_t")
    assert stem == "mix" or loss is losses_by_name()[stem]
    parameters = list(inspect.signature(loss).parameters.values())
    assert [p.name for p in parameters[:3]] == ["scores", "labels", "mask"]
    assert {p.kind for p in parameters[3:]} <= {inspect.Parameter.KEYWORD_ONLY}
    # a generator is no setting: the caller makes it
    defaults = {p.name: p.default for p in parameters[3:] if p.name not in RUNTIME_ARGS}
    if path.stem == "neuralndcg_t":
        defaults["transposed"] = True
    if "parts" in knobs:  # which lists the other losses with the weight 0
        assert set(knobs["parts"]) == set(losses_by_name())
        knobs["parts"] = {name: weight for name, weight in knobs["parts"].items() if weight}
    assert knobs == defaults


def list_losses_output(capsys, monkeypatch, *arguments: str) -> str:
    """Return the output of ``ltr list_losses``, run in this process."""
    monkeypatch.setattr(sys, "argv", ["ltr", "list_losses", *arguments])
    # a stop would end this process
    monkeypatch.setattr("ltr.__main__.end_when_stopped", lambda: None)
    main()
    return capsys.readouterr().out


@pytest.mark.slow
def test_list_losses_shows_every_config(capsys, monkeypatch) -> None:
    out = list_losses_output(capsys, monkeypatch)
    for path in CONFIGS:
        text = path.read_text()
        function = re.search(r"_target_: ltr\.losses\.(\w+)", text)[1]
        (line,) = [line for line in out.splitlines() if line.startswith(f"{path.stem} ")]
        title, knobs = re.match(rf"{path.stem} +{function} +(.{{,50}}?)  +(.*)", line).groups()
        assert f"# {title}" in text
        assert (knobs == "-") == (re.search(r"# .*No knobs\.", text) is not None)
        assert "k=null sigma=1.0 pairs=any" in knobs or path.stem != "ranknet"
        assert knobs == "levels=5" or path.stem != "rmse"
    assert [line.split()[0] for line in out.splitlines()[2:] if line[0] != " "] == loss_names()
    assert max(map(len, out.splitlines())) < 150


@pytest.mark.slow
def test_labels_page_matches_losses_metrics_and_trees() -> None:
    for library in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(library)
    table = runpy.run_path(str(ROOT / "docs" / "labels.py"))["label_table"]()
    assert (ROOT / "docs" / "reference" / "labels.md").read_text().endswith(f"\n{table}\n")
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")]
    assert [row[0].strip() for row in rows[1 : 1 + len(loss_names())]] == [
        f"loss={name}" for name in loss_names()
    ]
    assert all(cell.strip() not in ("", "not finite") for row in rows[1:] for cell in row)


@pytest.mark.slow
@pytest.mark.parametrize("loss", variants())
def test_loss_has_every_property(loss: partial[Tensor]) -> None:
    subject = Subject(loss, metric=SHARP_LIMIT_OF.get(loss.func.__name__))
    wrong = []
    for prop in LOSS_PROPERTIES:
        verdict = judge(prop, subject)
        expected = HOLDS if applies(prop.__name__, loss) else DOES_NOT_APPLY
        if verdict.outcome != expected or (expected == DOES_NOT_APPLY and not verdict.seen):
            wrong.append(verdict)
    assert not wrong


def applies(prop: str, loss: partial[Tensor]) -> bool:
    """Return whether a property applies to a loss of this package."""
    name = loss.func.__name__.removesuffix("_loss")
    knobs = loss.keywords
    normalised = (name.endswith("_ndcg") and name != "svm_ndcg") or name == "plrank"
    with_metric = normalised or name.startswith("neural_")
    return {
        "a_cutoff_below_1_is_refused": "k" in knobs,
        "a_cutoff_beyond_the_list_is_none": "k" in knobs,
        "the_cutoff_is_honoured": "k" in knobs,
        "the_sharp_limit_is_minus_the_metric": with_metric
        and knobs.get("discount", "log2") == "log2",
        "a_gain_is_a_scale_of_the_labels": "gain" in knobs and name not in ("mix", "distil"),
        "what_is_drawn_comes_from_the_generator": name in ("listmle", "p_listmle", "plrank")
        or bool(knobs.get("stochastic")),
    }.get(prop, True)


@pytest.mark.parametrize("name", [*NAMES, "distil_loss teacher"])
def test_loss_treats_labels_and_teacher_as_constants(name: str) -> None:
    name, *constants = name.split()
    scores, labels, mask = ragged()
    labels = labels.masked_fill(~mask, math.nan).requires_grad_()
    values = getattr(losses, name)(
        scores.requires_grad_(), labels, mask, **dict.fromkeys(constants, labels)
    )
    by_scores, by_labels = torch.autograd.grad(values.sum(), (scores, labels), allow_unused=True)
    assert by_scores.isfinite().all()
    assert by_labels is None


@pytest.mark.parametrize("name", sorted({*SHARP_LIMIT_OF, "ranknet_loss", "lambdarank_loss"}))
def test_loss_without_relevant_items_has_no_gradient(name: str) -> None:
    scores, _, mask = ragged()
    for knobs in ({}, {"stochastic": True}) if name == "neural_ndcg_loss" else ({},):
        loss = partial(getattr(losses, name), **knobs)
        value, gradient = value_and_gradient(loss, scores, torch.zeros(3, 8), mask)
        assert value.tolist() == [0, 0, 0]
        assert (gradient == 0).all()


both_paths = pytest.mark.parametrize("path", ["kernel", "plain"])


@both_paths
def test_loss_is_nan_where_gain_table_lacks_a_label(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores, labels, mask = ragged()
    labels[1, 4] = 1.5
    for name in sorted(set(NAMES) - {"distil_loss"}):  # whose labels count nothing by default
        loss = getattr(losses, name)
        if "gain" in inspect.signature(loss).parameters:
            result = value_and_gradient(partial(loss, gain=[0, 1, 3, 3, 9]), scores, labels, mask)
            assert result.value.isnan().tolist() == [False, True, False], name
            assert result.gradient[[0, 2]].isfinite().all()


# The losses that take labels below 0: those of their order, of their size or of a threshold.
ANY_LABEL = {
    *("bce_loss", "distil_loss", "listmle_loss", "listnet_loss", "mse_loss", "ordinal_loss"),
    *("p_listmle_loss", "rankboost_loss", "ranknet_loss", "rankprop_loss", "ranksvm_loss"),
    "rmse_loss",
}


@both_paths
def test_loss_of_gains_or_grades_is_nan_for_label_below_0(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores, labels, mask = ragged()
    labels[1] = -1  # the only label of the list
    labels[2, 0] = -0.5
    wrong = []
    for name in NAMES:
        loss = getattr(losses, name)
        knobs = [{}]
        if "pair_weight" in inspect.signature(loss).parameters:
            knobs += [{"pair_weight": "ndcg_beta"}]
        for arguments in knobs:
            value, gradient = value_and_gradient(partial(loss, **arguments), scores, labels, mask)
            nan = arguments != {} or name not in ANY_LABEL
            if value.isnan().tolist() != [False, nan, nan] or not gradient[0].isfinite().all():
                wrong.append((name, arguments, value))
    assert not wrong


@both_paths
def test_lap_ndcg_has_gradient_at_ties(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    scores = torch.tensor([[0.5, 0.5, -1.0, 0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0.0, 2, 1, 3, 0]]).double()
    mask = torch.ones(1, 5, dtype=torch.bool)
    torch.autograd.gradcheck(lambda s: losses.lap_ndcg_loss(s, labels, mask), scores, atol=1e-6)


@pytest.mark.parametrize("loss", [losses.listmle_loss, losses.p_listmle_loss])
def test_listmle_keeps_its_digits_under_a_shift(
    loss: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(monkeypatch)
    scores, _, mask = ragged(torch.float32)
    scores = (32 * scores).round() / 32  # exact near the shift too
    actual, expected = (
        value_and_gradient(loss, scores + shift, torch.arange(8.0).expand(3, 8), mask)
        for shift in (1e5, 0)
    )
    torch.testing.assert_close(actual, expected)


def test_listmle_draws_orders_of_ties_evenly() -> None:
    repeats = 6000
    scores = torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    mask = torch.ones(repeats, 4, dtype=torch.bool)
    labels = torch.tensor([0.0, 1, 0, 0])
    generator = torch.Generator().manual_seed(0)
    values = losses.listmle_loss(
        scores.expand(repeats, 4), labels.expand(repeats, 4), mask, generator=generator
    )
    orders = [[1, *tied_items] for tied_items in itertools.permutations([0, 2, 3])]
    expected = [references.listmle(scores[x].numpy(), np.arange(4.0, 0, -1)) for x in orders]
    counts = [((values - value).abs() < 1e-9).sum().item() for value in expected]
    assert sum(counts) == repeats
    deviation = math.sqrt(repeats * 1 / 6 * 5 / 6)
    assert max(abs(count - repeats / 6) for count in counts) < 4 * deviation


def test_ordinal_counts_label_between_two_grades_as_both() -> None:
    scores = torch.tensor([[0.3, -1.0, 2.0, 9.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 2.0, 0.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])

    def loss_of_raised_labels(x: float) -> Tensor:
        increase = torch.tensor([x, 0.0, x, 0.0])
        return losses.ordinal_loss(scores, labels + increase, mask, levels=5, sigma=1.5)

    expected = 0.75 * loss_of_raised_labels(0.0) + 0.25 * loss_of_raised_labels(1.0)
    torch.testing.assert_close(loss_of_raised_labels(0.25), expected, rtol=1e-14, atol=0)
    label = torch.tensor([[0.61]])  # a label below the first grade is not 0
    two_grades = partial(losses.ordinal_loss, levels=2)
    _, gradient = value_and_gradient(two_grades, torch.tensor([[0.5]]), label, label > 0)
    assert gradient.item() == pytest.approx(0.5 - 0.61, abs=1e-6)  # sigmoid(s - 1/2) - y


@both_paths
def test_loss_refuses_wrong_knob_with_remedy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    tried = set()
    for name in sorted(set(NAMES) - {"mix_loss"}):
        knobs = inspect.signature(getattr(losses, name)).parameters
        drawn = {"stochastic": True} if "stochastic" in knobs else {}
        for knob in knobs.keys() & WRONG.keys():
            for value in WRONG[knob][0]:
                arguments = drawn if knob in ("beta", "n_samples") else {}
                with pytest.raises(ConfigError, match=f"^{knob}=.*{WRONG[knob][1]}"):
                    getattr(losses, name)(*ragged(), **{knob: value}, **arguments)
                tried.add(knob)
    assert tried == set(WRONG)
    for levels, remedy in ((1, "write an integer >= 2"), (1001, "loss=rmse"), (2.5, "write an in")):
        with pytest.raises(ConfigError, match=f"^levels={levels} .*{remedy}"):
            losses.ordinal_loss(*ragged(), levels=levels)
    scores, labels, mask = ragged()
    with pytest.raises(ConfigError, match=r"^empty=drop is not known: choose one of keep, skip$"):
        losses.mean_over_batch(scores[:, 0], labels, mask, empty="drop")


@both_paths
def test_loss_accepts_numbers_of_numpy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "plain":
        plain(monkeypatch)
    monkeypatch.setattr(checking, "jaxtyping_disable", True)  # which checks types in tests alone
    numbers = {
        **dict.fromkeys(("temperature", "sigma", "mu", "cut_slope", "beta"), np.float32(0.3)),
        **{
            "k": np.int64(3),
            "relevant": np.int32(2),
            "levels": np.uint8(5),
            "alpha": np.float32(0.3),
        },
        **{"max_iter": np.int64(3), "tol": np.float32(1e-3), "n_samples": np.int64(2)},
        "gain": np.array([0, 1, 3, 3, 9]),
    }
    for name in NAMES:
        loss = getattr(losses, name)
        of_numpy = {k: numbers[k] for k in inspect.signature(loss).parameters if k in numbers}
        of_python = {knob: value.tolist() for knob, value in of_numpy.items()}
        actual = value_and_gradient(partial(loss, **of_numpy), *ragged())
        expected = value_and_gradient(partial(loss, **of_python), *ragged())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    mixed = partial(losses.mix_loss, parts={"mse": np.float32(0.5), "ranknet": np.int64(1)})
    assert value_and_gradient(mixed, *ragged()).value.isfinite().all()


def test_mean_over_batch_is_nan_for_weight_below_0() -> None:
    values = torch.tensor([4.0, 2.0])
    labels = torch.tensor([[1.0], [0.0]])
    mask = torch.ones(2, 1, dtype=torch.bool)
    for weights in torch.tensor([[-1.0, 1.0], [2.0, -1.0], [-1.0, -2.0]]):
        for empty in ("keep", "skip"):
            mean = losses.mean_over_batch(values, labels, mask, weights=weights, empty=empty)
            assert mean.isnan()


def test_mean_over_batch_counts_lists() -> None:
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
    weights = torch.tensor([2.0, 1.0, 9.0])  # as if the lists were repeated as often
    for empty, expected in (("keep", (3 + 3 + 1) / 3), ("skip", 3)):
        mean = losses.mean_over_batch(values, labels, mask, empty=empty, weights=weights)
        assert mean.item() == pytest.approx(expected)
    assert losses.mean_over_batch(values, labels, mask, weights=torch.zeros(3)) == 0


def test_mix_is_sum_of_its_parts_which_draw_from_its_generator() -> None:
    overrides = [
        *("loss=mix", "suggested.levels=7", "loss.parts.rmse=0.5", "loss.parts.listnet=0"),
        *("loss.parts.neuralndcg=2", "+loss.knobs.neuralndcg.temperature=0.1"),
    ]
    data = ragged()
    mix = build_part(compose(*overrides).loss, "loss")(*data)
    expected = 2 * losses.neural_ndcg_loss(*data, temperature=0.1)
    torch.testing.assert_close(mix, expected + 0.5 * losses.rmse_loss(*data, levels=7))
    mix = losses.mix_loss(*data, parts={"lambdarank": 1}, gain="linear")
    assert torch.equal(mix, losses.lambdarank_loss(*data, gain="linear"))
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    mix = losses.mix_loss(*data, parts={"listmle": 2.0}, generator=generators[0])
    assert torch.equal(mix, 2 * losses.listmle_loss(*data, generator=generators[1]))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"parts": {"listnte": 1}},
            "listnte is not a loss that can be part of a mix: choose from approxndcg, bce, ",
        ),
        (
            {"parts": {"mix": 1}},
            "mix is not a loss that can be part of a mix: choose from approxndcg, ",
        ),
        ({"knobs": {"neuralndcg": {"sigma": 1}}}, "knobs.neuralndcg.sigma: neuralndcg has no such"),
        (
            {"knobs": {"lambdarank": {"k": 3}}},
            "knobs.lambdarank is set, but lambdarank is not a part of this mix: set parts.",
        ),
        (
            {"parts": {"listnet": -1}},
            "parts.listnet=-1 is not a weight: write a finite number >= 0",
        ),
        (
            {"parts": {"listnet": 0}},
            "no part of the mix has a weight above 0: set loss.parts.NAME=1",
        ),
    ],
)
def test_mix_names_wrong_argument(knobs: dict[str, Any], message: str) -> None:
    assert refused(lambda: losses.mix_loss(*ragged(), **knobs), ConfigError).startswith(message)


def test_mix_in_checkpoint_refuses_foreign_code(tmp_path: Path) -> None:
    cfg = compose("loss=mix", "+loss.knobs.listnet={}")
    stored = config_for_checkpoint(OmegaConf.to_container(cfg), resolved(cfg))
    assert build_part(trusted(stored, ["loss"]).loss, "loss") is not None
    stored["loss"]["knobs"]["listnet"] = {"_target_": "os.system", "command": "true"}
    assert "trust=[MODULE]" in refused(lambda: trusted(stored, ["loss"]), ConfigError)


def with_list_twice(lists: Lists, index: int) -> Lists:
    """Return ``lists`` with a copy of one list at the end."""
    rows = slice(lists.offsets[index], lists.offsets[index + 1])
    return replace(
        lists,
        features=np.concatenate([lists.features, lists.features[rows]]),
        labels=np.concatenate([lists.labels, lists.labels[rows]]),
        offsets=np.append(lists.offsets, lists.items + lists.lengths[index]),
        qids=np.append(lists.qids, "again"),
    )


def with_weight_2(lists: Lists, index: int) -> Lists:
    """Return ``lists`` with the weight 2 for one list, 1 for the others."""
    return replace(lists, weights=1 + np.eye(len(lists), dtype=np.float32)[index])


@pytest.mark.parametrize("loss", ["neuralndcg", "mse"])
def test_loss_objective_doubles_gradient_of_list_with_weight_2(loss: str) -> None:
    lists = mixed(5)
    scores = np.random.default_rng(0).normal(size=lists.items)
    unweighted = LossObjective(a_loss(loss), tensors(lists)).gradient(scores)
    weighted = LossObjective(a_loss(loss), tensors(with_weight_2(lists, 3))).gradient(scores)
    factor = np.repeat([1, 1, 1, 2, 1], lists.lengths)
    np.testing.assert_allclose(weighted, factor * unweighted, rtol=1e-6)


@pytest.mark.slow
def test_training_on_list_of_weight_2_equals_list_twice(tmp_path: Path) -> None:
    train = mixed(8)
    vali_and_test = {"vali": mixed(5, seed=1), "test": mixed(5, seed=2)}
    assert train.columns == COLUMNS
    for model, overrides in (
        ("linear", ["loss=mse", "batch_size=99", "optimizer.lr=0.1", "transform=none"]),
        ("lightgbm", ["model.min_data_in_leaf=1", "+model.options.min_data_in_bin=1"]),
    ):
        scores = {}
        for name, lists in (
            ("twice", with_list_twice(train, 3)),
            ("heavy", with_weight_2(train, 3)),
        ):
            data = MemoryLists(name="m", lists={"train": lists, **vali_and_test})
            args = (f"model={model}", *overrides, "epochs=3", "select=last", "threads=1")
            train_mixed(tmp_path / f"{model}-{name}", data, *args)
            scores[name] = pd.read_csv(tmp_path / f"{model}-{name}" / "scores.csv").score
        np.testing.assert_allclose(scores["heavy"], scores["twice"], atol=2e-5)
        assert scores["heavy"].nunique() > 3


@pytest.mark.slow
def test_epoch_loss_is_weighted_mean_for_any_batching(
    tmp_path: Path,
) -> None:
    data = mixed_data(6, weights=True)
    means = []
    for name, batching in (("steps", ["batch_size=4"]), ("others", ["batch_size=3"])):
        args = ("model=linear", "loss=mse", "optimizer.lr=0", "epochs=1", "threads=1", *batching)
        train_mixed(tmp_path / name, data, *args)
        means.append(pd.read_csv(tmp_path / name / "history.csv").loss[1])
    assert means[0] == pytest.approx(means[1], rel=1e-5)


def test_rmse_of_exactly_0_has_gradient_0() -> None:
    data = torch.zeros(1, 2), torch.tensor([[2.5, 2.5]]), torch.ones(1, 2, dtype=torch.bool)
    value, gradient = value_and_gradient(losses.rmse_loss, *data)
    assert (value.item(), gradient.tolist()) == (0, [[0, 0]])
