"""Boosted trees: they learn, go on and are kept; what they boost with; the libraries themselves."""

import logging
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf

from ltr.boosting import LightGBM, LossObjective, XGBoost
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.cli.folders import register_resolvers
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.errors import CheckpointError, ConfigError, DataError, TrainingError
from ltr.experiment.build import build
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.inference.explain.importances import importances
from ltr.inference.predict import predict_file
from ltr.models import MLP
from ltr.parts.scorer import load_model
from ltr.training.checkpoint import load_checkpoint
from ltr.training.evaluation import check_finite, padded_batches, predict
from ltr.training.interruption import Interrupted
from tests.helpers.folders import refused
from tests.helpers.made_columns import mixed_data, train_mixed
from tests.helpers.made_lists import letor_lists, make_lists
from tests.helpers.made_trees import (
    KINDS,
    LIBRARIES,
    SMALL,
    a_loss,
    after,
    booster_of,
    needed,
    reading,
    scores_of,
    tensors,
    train,
)
from tests.helpers.runs import compose, run


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


@pytest.fixture(scope="module", params=LIBRARIES)
def learned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, dict[str, float]]:
    """A library, the folder of its lists and of its run ``run``, and the metrics of the run."""
    model = request.param
    folder = letor_lists(tmp_path_factory.mktemp("learned"))
    needed(model)
    args = (*reading(folder), f"model={model}", "epochs=30", "metrics=[ndcg@5,map]")
    return model, folder, train(folder / "run", *args)


@pytest.mark.slow
def test_boosted_trees_learn_and_are_applied_like_any_model(learned, tmp_path) -> None:
    model, folder, metrics = learned
    out = folder / "run"
    results = RunFolder(out).results
    scores = RunFolder(out).scores
    assert metrics["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    history = RunFolder(out).history
    averaged = history.get("ties_averaged", history["vali_ndcg@5"])
    chosen_by = averaged.fillna(history["vali_ndcg@5"])
    assert results["selected_epoch"] == chosen_by.idxmax()
    assert results["ties_averaged"]["vali"]["ndcg@5"] == chosen_by.max()
    printed = history["vali_ndcg@5"][chosen_by.idxmax()]
    assert metrics["vali_ndcg@5"] == results["vali"]["ndcg@5"] == printed
    assert results["versions"][model]
    assert not Path("catboost_info").exists()

    table = call_command(evaluate_model, compose(f"checkpoint={out}", config="evaluate"))
    assert f"{results['test']['ndcg@5']:.4f}" in table
    assert f"{results['test']['map']:.4f}" in table
    output = tmp_path / "scores.csv"
    source = folder / "mine" / "test.txt"
    call_command(
        predict_file,
        compose(f"checkpoint={out}", f"input={source}", f"output={output}", config="predict"),
    )
    np.testing.assert_array_equal(pd.read_csv(output).score.astype("f4"), scores.astype("f4"))
    assert len(set(scores)) > 2

    scorer = load_model(str(out), torch.device("cpu"))
    lists = ItemTensors(make_lists([9, 4, 1], seed=5), scorer.transform)
    in_small_batches = predict(scorer.model, lists, items=4)
    np.testing.assert_array_equal(in_small_batches, predict(scorer.model, lists, items=999))


def test_lightgbm_seed_draws_the_items_of_a_tree() -> None:
    data = tensors(make_lists([60, 40]))
    model = LightGBM(5, bagging_fraction=0.5)
    scores = after(model, data, 3, seed=1).scores["train"]
    np.testing.assert_array_equal(scores, after(model, data, 3, seed=1).scores["train"])
    assert not np.array_equal(scores, after(model, data, 3, seed=2).scores["train"])


@pytest.mark.slow
def test_train_logs_the_objective_of_boosted_trees(data, tmp_path, caplog) -> None:
    for args, loss in (
        (["model=lightgbm", "loss=neuralndcg"], "neural_ndcg_loss"),
        (["loss=listnet", "model=xgboost"], "listnet_loss"),
        (["model=stumps"], "rankboost_loss"),
        (["model=mlp"], "neural_ndcg_loss"),
    ):
        assert compose(*args).loss._target_.endswith(loss)
    assert compose("model=lightgbm").epochs == 500
    assert compose("model=lightgbm").patience == 50
    assert compose("model=mlp").patience is None
    with caplog.at_level(logging.INFO):
        for name, loss in (("own", []), ("given", ["loss=neuralndcg"])):
            (tmp_path / name).mkdir()
            cfg = compose(*data, "model=lightgbm", "epochs=0", *loss)
            run(cfg, tmp_path / name, {"model": "lightgbm", "loss": "neuralndcg"})
    assert "lightgbm (LightGBM" in caplog.text
    assert "with its own objective lambdarank on letor" in caplog.text
    assert "with neuralndcg on letor" in caplog.text
    register_resolvers()
    folder = OmegaConf.create({"at": "${run_dir:out,null,mq2008-lightgbm-None-seed1}"}).at
    assert re.fullmatch(r"out/[0-9_-]+_mq2008-lightgbm-seed1_[0-9a-f]{4}", folder)


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Send this process SIGTERM when vali is evaluated for the ``count``-th time."""
    calls = iter(range(1, 10**6))

    def stop_then_check(*args, **kwargs):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGTERM)
        check_finite(*args, **kwargs)

    monkeypatch.setattr("ltr.boosting.learner.check_finite", stop_then_check)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [[], ["loss=listmle"]])
def test_boosting_interrupted_and_resumed_gives_the_same_trees(
    data, tmp_path, monkeypatch, loss
) -> None:
    args = (*data, "model=lightgbm", "epochs=8", *loss, "model.bagging_fraction=0.7")
    train(tmp_path / "uncut", *args)
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(Interrupted, match=r"SIGTERM"):
            train(tmp_path / "cut", *args)
    assert load_checkpoint(tmp_path / "cut" / "last.pt")["progress"]["epoch"] == 4
    torch.manual_seed(99)  # draws in between must not matter
    train(tmp_path / "cut", *args, f"resume={tmp_path / 'cut'}")
    for name in ("best.pt", "last.pt"):
        assert booster_of(tmp_path / "cut" / name) == booster_of(tmp_path / "uncut" / name)
    uncut = RunFolder(tmp_path / "uncut")
    cut = RunFolder(tmp_path / "cut")
    np.testing.assert_array_equal(uncut.scores, cut.scores)
    assert uncut.results["crossfit"] == cut.results["crossfit"] is not None
    histories = (run_folder.history.drop(columns="seconds") for run_folder in (uncut, cut))
    pd.testing.assert_frame_equal(*histories)


@pytest.mark.slow
def test_boosting_ends_by_patience_or_without_a_round(data, tmp_path) -> None:
    def results(name: str, *args: str) -> dict:
        train(tmp_path / name, *data, "model=lightgbm", *args)
        return RunFolder(tmp_path / name).results

    untrained = results("none", "epochs=0")
    assert untrained["selected_epoch"] == 0
    assert untrained["parameters"] == 0
    chosen_by = untrained["ties_averaged"]["vali"]
    assert untrained["crossfit"] == chosen_by[untrained["select_on"]]  # no round was chosen
    assert untrained["vali"] == untrained["untrained_vali"]
    stopped = results("stop", "epochs=50", "patience=3", "model.learning_rate=1e-30")
    assert stopped["epochs"] - stopped["best_epoch"] == 3
    for name, rounds in (("best", stopped["best_epoch"]), ("last", stopped["epochs"])):
        content = bytes(booster_of(tmp_path / "stop" / f"{name}.pt"))
        assert content.count(b"\nTree=") == rounds


@pytest.mark.slow
def test_boosting_extended_keeps_its_checkpoints_until_it_has_as_many_trees(
    data, tmp_path, monkeypatch
) -> None:
    out = tmp_path / "run"
    args = (*data, "model=lightgbm", "select=last")
    train(out, *args, "epochs=6")
    train(tmp_path / "long", *args, "epochs=12")
    checkpoints = {name: (out / name).read_bytes() for name in ("last.pt", "best.pt")}
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        with pytest.raises(Interrupted):
            train(out, *args, "epochs=12", f"resume={out}", "checkpoint_minutes=1e-9")
    assert checkpoints == {name: (out / name).read_bytes() for name in checkpoints}
    train(out, *args, "epochs=6", f"resume={out}")  # as it was, and its history with it
    assert len(RunFolder(out).history) == 7
    with monkeypatch.context() as patch:
        stop_at(patch, 9)
        with pytest.raises(Interrupted):
            train(out, *args, "epochs=12", f"resume={out}")
    assert load_checkpoint(out / "last.pt")["progress"]["epoch"] == 8
    train(out, *args, "epochs=12", f"resume={out}")
    assert booster_of(out / "last.pt") == booster_of(tmp_path / "long" / "last.pt")


@pytest.mark.slow
def test_boosting_saves_the_rounds_before_one_that_fails(data, tmp_path, monkeypatch) -> None:
    args = (*data, "model=lightgbm", "loss=ranknet")
    train(tmp_path / "five", *args, "epochs=5")
    original = LossObjective.__call__

    def broken(self, scores, train=None):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 6:
            raise TrainingError("the loss is not finite")
        return original(self, scores)

    monkeypatch.setattr(LossObjective, "__call__", broken)
    out = tmp_path / "broken"
    with pytest.raises(TrainingError, match="the loss is not finite"):
        train(out, *args, "epochs=20")
    progress = load_checkpoint(out / "last.pt")["progress"]
    assert progress["epoch"] == 5
    assert len(progress["history"]) == len(pd.read_csv(out / "history.csv")) == 6
    for name in ("best.pt", "last.pt"):
        np.testing.assert_array_equal(scores_of(out / name), scores_of(tmp_path / "five" / name))


def test_check_finite_names_the_lists() -> None:
    data = tensors(make_lists([2] * 14))
    scores = torch.zeros(28)
    scores[[5, 6]] = torch.tensor([torch.nan, -torch.inf])
    with pytest.raises(TrainingError, match=r"2 of the lists \(query ids q2, q3\): look at them"):
        check_finite(scores, data, whose="model's", remedy="look at them")
    with pytest.raises(TrainingError, match=r"14 of the lists .* q0, q1, .*, q9, ...\): look"):
        check_finite(scores * torch.nan, data, whose="model's", remedy="look at them")
    data.features[4, 2] = torch.nan
    with pytest.raises(TrainingError, match=r"finite on 1 of the lists \(query ids q2\): train"):
        predict(MLP(5), data)
    data.features[4, 2] = 0.0
    last = after(LightGBM(5, num_leaves=2, min_data_in_leaf=1, learning_rate=1e300), data)
    model = LightGBM(5)
    model.restore(last.state())
    with pytest.raises(TrainingError, match=r"the model's scores are not finite: train with a low"):
        predict(model, data)


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_boosted_trees_refuse_a_damaged_booster_or_other_features(library) -> None:
    needed(library)
    model = KINDS[library](5)
    for content in (b"not trees", b"tree\nversion=v4\n", b"\x00" * 64):
        state = {"_extra_state": torch.from_numpy(np.frombuffer(content, np.uint8).copy())}
        message = refused(lambda state=state: model.load_state_dict(state), CheckpointError)
        assert "cannot read the saved trees" in message
    for state in ({}, {"_extra_state": [1, 2]}, {"_extra_state": torch.zeros(3)}):
        with pytest.raises((CheckpointError, RuntimeError)):  # RuntimeError: within ``fitting``
            model.load_state_dict(state)
    last = after(KINDS[library](5), tensors(make_lists([30, 25])))
    with pytest.raises(
        CheckpointError, match=r"the features of the saved trees do not match the config"
    ):
        KINDS[library](6).restore(last.state())


@pytest.mark.slow
def test_importances_of_boosted_trees(learned, tmp_path) -> None:
    model, folder, _ = learned
    out = folder / "run"
    written = tmp_path / "a folder"
    trees = load_model(str(out), torch.device("cpu")).model
    gain, splits = trees.importances()
    assert gain.shape == splits.shape == (5,)
    assert gain[0] > gain[1:].sum()  # the feature that tells the label
    if model == "catboost":
        assert np.isnan(splits).all()
        assert gain.sum() == pytest.approx(100)
    else:  # a tree has one leaf more than splits
        assert splits.sum() == trees.fitted - RunFolder(out).results["selected_epoch"]
        assert ((splits > 0) == (gain > 0)).all()
    lines = call_command(
        importances, typed("importances", [str(out), "top=2", f"write={written}"])
    ).splitlines()
    assert len(lines) == 3 + 2 + 1  # title and head, two features, the file of all
    used = int((gain > 0).sum())
    assert lines[0].endswith(f"{trees.title} {trees.version}, {used} of 5 features used")
    assert lines[1].split() == ["feature", "share"] + ["splits"] * (model != "catboost")
    assert lines[3].split()[:2] == ["1", f"{gain[0] / gain.sum():.4f}"]
    table = pd.read_csv(written / "importances.csv")
    np.testing.assert_allclose(table.sort_values("feature").gain, gain)
    assert table.gain.is_monotonic_decreasing


@pytest.mark.slow
def test_importances_refuses_models_without_any(data, tiny, tmp_path) -> None:
    nothing = torch.full((1, 2, 3), torch.nan), torch.tensor([[True, False]])
    assert LightGBM(3)(*nothing).tolist() == [[0.0, 0.0]]
    out = tmp_path / "network"
    out.mkdir()
    run(compose(*tiny, "epochs=0"), out, {})
    untrained = tmp_path / "none"
    train(untrained, *data, "model=lightgbm", "epochs=0")
    for args, error_type, message in (
        ([out], CheckpointError, r"no feature importances.*, rankboost, .*explain"),
        (
            [untrained],
            CheckpointError,
            r"has no trees, because the selected epoch is 0 \(before training\): name a run",
        ),
        ([untrained, "top=many"], ConfigError, "top"),
        ([untrained, "depth=2"], ConfigError, "depth"),
    ):
        with pytest.raises(error_type, match=message):
            call_command(importances, typed("importances", [*map(str, args)]))


def mistake(*overrides: str) -> str:
    """The error of a run on these settings, before or as its first tree is grown."""

    def begin() -> None:
        parts = build(compose(*overrides))
        after(parts.make_model(5), tensors(make_lists([30, 25])), loss=parts.loss)

    return refused(begin, ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model=mlp ~loss", "no loss is chosen, and only boosted trees"),
        (
            "model=lightgbm model.objective=mse",
            "choose one of lambdarank, rank_xendcg for LightGBM",
        ),
        (
            "model=lightgbm model.objective=rank_xendcg loss=listnet",
            "and a loss: give only one of them",
        ),
        ("model=lightgbm clip=1 l2=0.1", "LightGBM does not support clip, l2: leave out clip, l2"),
        ("model=lightgbm model.num_leaves=1", "LightGBM: .*num_leaves.*; check the model.*"),
        ("model=lightgbm loss=neuralndcg loss.k=0", "k=0 is not a cutoff"),
        (
            "model=lightgbm empty_lists=skip",
            "LightGBM fits its own objective, lambdarank: leave empty_lists out",
        ),
        ("model=lightgbm +path_smoth=1", r"path_smoth: LightGBM [\d.]+ has no parameter of this"),
        ("model=lightgbm +num_leaves=4", "set model.num_leaves instead"),
        (
            "model=lightgbm +categorical_feature=[0]",
            "the data set defines which features are categories",
        ),
        ("model=lightgbm +deterministic=false", "ltr sets this option"),
        ("model=lightgbm +monotone_constraints={a:1}", "LightGBM: .*; check the model.*"),
        ("model=xgboost model.learning_rate=-1", "XGBoost: "),
        ("model=xgboost +grow_plicy=depthwise", "has no parameter of this name"),
        ("model=xgboost +monotone_constraints={a:1}", "XGBoost: .*; check the model.*"),
        (
            "model=catboost loss=listnet",
            "CatBoost fits its own objective, YetiRank: leave out loss=",
        ),
        ("model=catboost model.depth=99", "CatBoost: "),
        ("model=catboost +rms=0.5", "Unknown option {rms}"),
        ("model=catboost +grow_policy=Lossguide", "only symmetric trees can be cut at the best"),
        ("model=catboost +early_stopping_rounds=5", "set patience instead"),
    ],
)
def test_boosted_trees_refuse_mistakes_with_the_remedy(overrides: str, message: str) -> None:
    library = overrides.split()[0].partition("=")[2]
    if library in KINDS:
        needed(library)
    assert re.search(message, mistake(*overrides.replace(" +", " +model.options.").split()))


def test_boosted_trees_name_a_missing_library(monkeypatch) -> None:
    for name in ("xgboost", "catboost"):
        monkeypatch.setitem(sys.modules, name, None)
        message = f"{name} cannot be imported (import of {name} halted; None in sys.modules)"
        expected = f"model: {message}: run pip install 'ltr-torch[gbdt]'"
        assert mistake(f"model={name}").startswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("lightgbm", "objective=rank_xendcg"),
        ("xgboost", "objective=rank:pairwise"),
        ("catboost", "objective=PairLogit"),
        ("lightgbm", "feature_contri='0,1,1,1,1'"),
        ("lightgbm", "monotone_constraints=[-1,0,0,0,0]"),
        ("xgboost", "monotone_constraints='(-1,0,0,0,0)'"),
        ("xgboost", "interaction_constraints=[[0],[1,2,3,4]]"),
        ("catboost", "feature_weights=[0,1,1,1,1]"),
    ],
)
def test_boosted_trees_pass_objectives_and_options_to_the_library(model, option) -> None:
    needed(model)
    data = tensors(make_lists([30, 25, 20] * 4))
    key = "model." if option.startswith("objective") else "+model.options."
    default = build(compose(f"model={model}")).make_model(5)
    changed = build(compose(f"model={model}", f"{key}{option}")).make_model(5)
    default_round = after(default, data, 8)
    changed_round = after(changed, data, 8)
    assert not np.allclose(default_round.scores["train"], changed_round.scores["train"])
    if option.startswith(("feature_contri", "monotone")):
        changed.restore(changed_round.state())
        gain = changed.importances().gain
        assert gain[0] < 0.05 * gain.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", ["rmse", "listnet", "lambdarank", "neuralndcg", "svmmap", "plrank"]
)
def test_loss_objective_gradient_is_that_of_the_sum_over_lists(loss) -> None:
    lists = make_lists([12, 1, 7, 20, 9], empty=(2,))
    data = tensors(lists)
    function = a_loss(loss, "dataset=mq2008")
    objective = LossObjective(function, data, items=20)  # so that the lists are in several batches
    scores = np.random.default_rng(0).normal(size=lists.items)
    torch.manual_seed(0)
    gradient, curvature = objective(scores)
    torch.manual_seed(0)
    expected = np.zeros(lists.items)
    total = 0.0
    for i in np.argsort(lists.lengths, kind="stable")[::-1]:  # as the batches are: some losses draw
        start, end = lists.offsets[i : i + 2]
        leaf = torch.from_numpy(scores[None, start:end]).requires_grad_()
        labels = torch.from_numpy(lists.labels[None, start:end]).double()
        value = function(leaf, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
        expected[start:end] = torch.autograd.grad(value, leaf)[0][0]
        total += value.item()
    if loss != "plrank":  # it draws by batch
        np.testing.assert_allclose(gradient, expected * objective.unit, rtol=1e-4, atol=1e-6)
        assert objective.value == pytest.approx(total / len(lists))
    assert (curvature >= 0).all()
    assert (curvature[gradient != 0] > 0).all()
    assert np.isfinite(curvature).all()


def test_loss_objective_curvature_is_that_of_its_docstring() -> None:
    rng = np.random.default_rng(3)
    square = rng.normal(size=(6, 6))
    hessian = square @ square.T / 6
    slope = rng.normal(size=6)

    def quadratic(scores, labels, mask):
        h = torch.from_numpy(hessian)
        b = torch.from_numpy(slope)
        return torch.einsum("bi,ij,bj->b", scores, h, scores) / 2 - scores @ b

    objective = LossObjective(quadratic, tensors(make_lists([6])), seed=11)
    draws = np.random.default_rng(11)
    unit = 0.0
    for scores in rng.normal(size=(4, 6)):
        v = draws.choice([-1.0, 1.0], 6)
        changes = np.abs(hessian @ v)
        g = hessian @ scores - slope
        curvature = np.maximum(changes, np.abs(g))
        assert 0 < (changes > np.abs(g)).sum() < 6  # each of the two counts somewhere
        unit = unit or 1 / curvature.mean()
        scaled_gradient, scaled_curvature = objective(scores)
        np.testing.assert_allclose(scaled_gradient, g * unit, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scaled_curvature, curvature * unit, rtol=1e-5)
        assert objective.unit == pytest.approx(unit)


def test_loss_objective_bounds_the_pairs_of_a_batch() -> None:
    data = tensors(make_lists([300] * 10 + [40, 2, 700]))
    shapes = []

    def pairwise(scores, labels, mask):
        shapes.append(tuple(scores.shape))
        pair_mask = mask[:, :, None] & mask[:, None, :]
        differences = scores[:, :, None] - scores[:, None, :] - labels[:, :, None]
        return (differences.tanh() * pair_mask).sum((1, 2))

    scores = np.random.default_rng(0).normal(size=data.offsets[-1])
    in_batches = LossObjective(pairwise, data, items=3000).gradient(scores)
    assert shapes == [(1, 700), (8, 300), (4, 300)], "at most 240 pairs for each of 3000 items"
    at_once = LossObjective(pairwise, data, items=10**6).gradient(scores)
    np.testing.assert_allclose(in_batches, at_once, rtol=1e-9, atol=1e-9)
    (longest, *_) = padded_batches(data, items=3000, pairs=1)  # a list beyond the limit on pairs
    assert longest.mask.shape == (1, 700)


def test_loss_objective_weighs_lists_equally_and_can_skip_empty_ones() -> None:
    data = tensors(make_lists([8, 8], empty=(1,)))
    scores = np.linspace(0, 1, 16)
    keep = LossObjective(a_loss("listnet"), data)
    skip = LossObjective(a_loss("listnet"), data, empty="skip")
    assert np.any(keep(scores)[0][8:])
    gradient, curvature = skip(scores)
    assert not np.any(gradient[8:])
    assert not np.any(curvature[8:])
    assert keep.lists == 2
    assert skip.lists == 1


def test_loss_objective_names_the_lists_of_a_gradient_that_is_not_finite() -> None:
    data = tensors(make_lists([3, 4]))

    def broken(scores, labels, mask):
        return (scores * torch.where(labels.sum(-1, keepdim=True) >= 0, torch.nan, 1.0)).sum(-1)

    with pytest.raises(
        TrainingError, match=r"not finite on lists with the query ids q1, q0: lower"
    ):
        LossObjective(broken, data)(np.zeros(7))


def test_lightgbm_boosts_a_loss_that_draws_and_long_lists() -> None:
    last = after(LightGBM(5), tensors(make_lists([10_050, 3])), loss=a_loss("listmle"))
    assert last.columns["trees"] == 1


def test_lightgbm_refuses_a_list_that_is_too_long_with_the_remedy() -> None:
    lists = replace(make_lists([3, 10_001]), qids=np.array(["short", "long"]))
    message = refused(lambda: after(LightGBM(5), tensors(lists)), DataError)
    assert message.startswith(
        "query id long of train has 10,001 items, but LightGBM's lambdarank takes"
    )
    for remedy in ("model.objective=rank_xendcg", "loss=ranknet", "model=xgboost"):
        assert remedy in message
    after(LightGBM(5), tensors(make_lists([3, 10_000])))
    after(LightGBM(5, objective="rank_xendcg"), tensors(lists))


def test_boosted_trees_refuse_labels_beyond_their_objective() -> None:
    def with_labels(labels: list[float]) -> ItemTensors:
        return tensors(replace(make_lists([len(labels)]), labels=np.array(labels, np.float32)))

    with pytest.raises(
        DataError, match=r"lambdarank takes whole-number labels .* 0\.5: boost with a"
    ):
        after(LightGBM(5), with_labels([0, 0.5]))
    after(LightGBM(5), with_labels([0, 40, 32, 5]))  # beyond LightGBM's own 31
    after(LightGBM(5), with_labels([0, 1022]))
    with pytest.raises(
        DataError, match=r"from 0 to 1022, but train has the label 1023: boost with a loss"
    ):
        after(LightGBM(5), with_labels([0, 1023]))
    after(LightGBM(5), with_labels([0, 0.5]), loss=a_loss("ranknet"))
    needed("xgboost")
    with pytest.raises(
        DataError, match=r"rank:ndcg takes whole-number labels from 0 to 31, .* 32: set"
    ):
        after(XGBoost(5), with_labels([0, 32]))
    after(XGBoost(5, objective="rank:pairwise"), with_labels([0, 32.5]))


ROUNDS = 8


def scores_by_library(library: str, train: Lists, test: Lists) -> NDArray[np.floating]:
    """The scores of ``test`` by the ranker of the library as its users call it."""
    qid = np.repeat(np.arange(len(train)), train.lengths)
    weights = None if train.weights is None else np.repeat(train.weights, train.lengths)
    module = pytest.importorskip(library)
    if library == "lightgbm":
        ranker = module.LGBMRanker(
            n_estimators=ROUNDS, min_child_samples=3, num_leaves=4, seed=1, verbose=-1,
            deterministic=True, force_row_wise=True, n_jobs=1,
        )  # fmt: skip
        ranker.fit(
            train.features, train.labels, group=train.lengths, sample_weight=weights,
            categorical_feature=[1, 3],
        )  # fmt: skip
        return ranker.predict(test.features)
    if library == "xgboost":
        ranker = module.XGBRanker(
            n_estimators=ROUNDS, max_depth=2, learning_rate=0.1, tree_method="hist", base_score=0.0,
            random_state=1, feature_types=["q", "c", "q", "c"], enable_categorical=True, n_jobs=1,
            lambdarank_pair_method="topk", lambdarank_num_pair_per_sample=32,
        )  # fmt: skip
        ranker.fit(train.features, train.labels, qid=qid, sample_weight=train.weights)
        return ranker.predict(test.features)
    ranker = module.CatBoostRanker(
        iterations=ROUNDS, depth=2, learning_rate=0.1, loss_function="YetiRank", random_seed=1,
        thread_count=1, allow_writing_files=False, silent=True, random_strength=1.0,
        l2_leaf_reg=3.0, border_count=254,
    )  # fmt: skip
    ranker.fit(
        as_table(train.features), train.labels, group_id=qid, group_weight=weights,
        cat_features=[1, 3],
    )  # fmt: skip
    return ranker.predict(as_table(test.features))


def as_table(features: NDArray[np.float32]) -> pd.DataFrame:
    table = pd.DataFrame(features)
    for column in (1, 3):
        codes = features[:, column]
        table[column] = ["-1" if np.isnan(code) else str(int(code)) for code in codes]
    return table


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_boosted_trees_score_like_the_ranker_of_the_library(library, weights, tmp_path) -> None:
    data = mixed_data(weights=weights)
    expected = scores_by_library(library, data.split("train"), data.split("test"))
    train_mixed(
        tmp_path / "run", data, f"model={library}", *SMALL[library], f"epochs={ROUNDS}",
        "select=last", "threads=1",
    )  # fmt: skip
    ours = RunFolder(tmp_path / "run").scores.astype(np.float32)
    assert np.isfinite(ours).all()
    assert len(set(ours)) > 8
    np.testing.assert_array_equal(ours, expected.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "overrides"),
    [("lightgbm", ["loss=ranknet"]), ("xgboost", ["loss=neuralndcg"]), ("catboost", [])],
)
def test_boosted_trees_split_on_categories_and_missing_values(model, overrides, tmp_path) -> None:
    needed(model)
    out = tmp_path / "run"
    data = mixed_data()
    args = (f"model={model}", *SMALL[model], *overrides, "epochs=30", "select=last")
    assert train_mixed(out, data, *args)["test_ndcg@5"] > 0.8
    loaded = load_model(str(out), torch.device("cpu"))
    assert loaded.model.categories == [1, 3]
    gain = loaded.model.importances().gain
    assert gain.argmax() == 1, "the brand tells most of the label"
    assert gain[0] > 0, "a price tells something where it is missing"
    test = ItemTensors(data.split("test"), loaded.transform)
    assert test.features[:, :2].isnan().any(0).all()
    test_scores = RunFolder(out).scores.astype(np.float32)
    np.testing.assert_array_equal(predict(loaded.model, test).numpy(), test_scores)
    lines = call_command(
        importances, typed("importances", [str(out), f"write={tmp_path}"])
    ).splitlines()
    assert lines[1].split()[:3] == ["feature", "name", "share"]
    assert lines[3].split()[:3] == ["2", "brand", "(category)"]
    table = pd.read_csv(tmp_path / "importances.csv").sort_values("feature")
    assert table.category.tolist() == [False, True, False, True]
    if model == "catboost":
        loaded.model.categories = [1]
        with pytest.raises(
            CheckpointError, match="the categories of the saved trees do not match the config"
        ):
            loaded.model.restore(loaded.model.content)


def test_loss_objective_starts_beside_equal_scores_where_the_loss_is_flat() -> None:
    flat, sloped = (
        LossObjective(a_loss(name), tensors(make_lists([12, 7])))
        for name in ("softsortndcg", "listnet")
    )
    assert not flat.gradient(np.zeros(19)).any()
    gradient, curvature = flat(np.zeros(19))
    assert gradient.any()
    assert curvature.any()
    expected = sloped.gradient(np.zeros(19))
    gradient, _ = sloped(np.zeros(19))
    np.testing.assert_allclose(gradient, sloped.unit * expected, rtol=1e-6)
