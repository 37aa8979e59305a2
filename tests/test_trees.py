"""Boosted trees: they train, take options, go on, and are kept and applied like any model."""

import json
import logging
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose, letor_lists, make_lists
from folders import refused
from made_trees import (
    KINDS,
    LIBRARIES,
    after,
    booster_of,
    needed,
    reading,
    scores_of,
    tensors,
    train,
)
from omegaconf import OmegaConf

from ltr.console.compose import typed
from ltr.console.folders import register_resolvers
from ltr.data.batches import ItemTensors
from ltr.errors import CheckpointError, ConfigError, TrainingError
from ltr.experiment.build import build
from ltr.experiment.run import run
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.inference.explain.importances import importances
from ltr.inference.predict import predict_file
from ltr.models import MLP
from ltr.models.rounds import LightGBM, LossObjective
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import load_checkpoint
from ltr.training.evaluation import check_finite, predict
from ltr.training.interruption import Interrupted


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


@pytest.fixture(scope="module", params=LIBRARIES)
def learned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, dict[str, float]]:
    """A library, the folder of the run ``run`` of it and of its lists, what the run ended with."""
    model, folder = request.param, letor_lists(tmp_path_factory.mktemp("learned"))
    needed(model)
    args = (*reading(folder), f"model={model}", "epochs=30", "metrics=[ndcg@5,map]")
    return model, folder, train(folder / "run", *args)


@pytest.mark.slow
def test_it_learns_and_is_applied_like_any_model(learned, tmp_path) -> None:
    model, folder, got = learned
    out = folder / "run"
    results = json.loads((out / "results.json").read_text())
    history = pd.read_csv(out / "history.csv")
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    assert history.epoch.tolist() == list(range(len(history)))
    best = history["vali_ndcg@5"].iloc[1:]
    assert got["vali_ndcg@5"] == best.max() == results["vali"]["ndcg@5"]
    assert results["selected_epoch"] == best.idxmax()
    assert results["versions"][model]
    assert results["parameters"] > 0
    assert list(out.glob("events.out.tfevents.*"))
    assert not Path("catboost_info").exists()

    table = evaluate_model(compose(f"checkpoint={out}", config="evaluate"))
    assert f"{results['test']['ndcg@5']:.4f}" in table
    assert f"{results['test']['map']:.4f}" in table
    scored = tmp_path / "scores.csv"
    source = folder / "mine" / "test.txt"
    predict_file(
        compose(f"checkpoint={out}", f"input={source}", f"output={scored}", config="predict")
    )
    kept = pd.read_csv(out / "scores.csv").score.to_numpy(np.float32)
    np.testing.assert_array_equal(pd.read_csv(scored).score.to_numpy(np.float32), kept)
    assert len(set(kept)) > 2

    again = load_model(str(out), torch.device("cpu"))
    lists = make_lists([9, 4, 1], seed=5)
    one = predict(again.model, ItemTensors(lists, again.transform), items=4)
    two = predict(again.model, ItemTensors(lists, again.transform), items=999)
    np.testing.assert_array_equal(one, two)


def test_the_seed_draws_the_items_of_a_tree() -> None:
    data = tensors(make_lists([60, 40]))
    model = LightGBM(5, bagging_fraction=0.5)
    one, same, other = (after(model, data, 3, seed=s).scores["train"] for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.slow
def test_the_command_line_says_what_it_boosts_with(data, tmp_path, caplog) -> None:
    for args, loss in (
        (["model=lightgbm", "loss=neuralndcg"], "neural_ndcg_loss"),
        (["loss=listnet", "model=xgboost"], "listnet_loss"),
        (["model=stumps"], "rankboost_loss"),
        (["model=mlp"], "neural_ndcg_loss"),
    ):
        assert compose(*args).loss._target_.endswith(loss)
    assert (compose("model=lightgbm").epochs, compose("model=lightgbm").patience) == (500, 50)
    assert compose("model=mlp").patience is None
    with caplog.at_level(logging.INFO):
        for name, loss in (("own", []), ("given", ["loss=neuralndcg"])):
            (tmp_path / name).mkdir()
            cfg = compose(*data, "model=lightgbm", "epochs=0", *loss)
            run(cfg, tmp_path / name, {"model": "lightgbm", "loss": "neuralndcg"})
    assert "lightgbm (LightGBM" in caplog.text
    assert "with its own objective lambdarank on letor" in caplog.text
    assert "with neuralndcg on letor" in caplog.text


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Send this process SIGTERM when vali is evaluated for the ``count``-th time."""
    calls = iter(range(1, 10**6))

    def stop_then_check(*args, **kwargs):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGTERM)
        check_finite(*args, **kwargs)

    monkeypatch.setattr("ltr.models.rounds.learner.check_finite", stop_then_check)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [[], ["loss=listmle"]])
def test_a_run_cut_off_comes_to_the_same_trees(data, tmp_path, monkeypatch, loss) -> None:
    args = (*data, "model=lightgbm", "epochs=8", *loss, "model.bagging_fraction=0.7")
    train(tmp_path / "whole", *args)
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(Interrupted, match=r"SIGTERM"):
            train(tmp_path / "cut", *args)
    assert load_checkpoint(tmp_path / "cut" / "last.pt")["progress"]["epoch"] == 4
    torch.manual_seed(99)  # what the process did in between must not matter
    train(tmp_path / "cut", *args, f"resume={tmp_path / 'cut'}")
    for name in ("best.pt", "last.pt"):
        assert booster_of(tmp_path / "cut" / name) == booster_of(tmp_path / "whole" / name)
    for name in ("scores.csv", "queries.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    worths = [RunFolder(tmp_path / name).results.get("crossfit") for name in ("whole", "cut")]
    assert worths[0] is not None
    assert worths[0] == worths[1]
    histories = [
        pd.read_csv(tmp_path / name / "history.csv").drop(columns="seconds")
        for name in ("cut", "whole")
    ]
    pd.testing.assert_frame_equal(*histories)


@pytest.mark.slow
def test_patience_and_no_round_at_all(data, tmp_path) -> None:
    def results(name: str, *args: str) -> dict:
        train(tmp_path / name, *data, "model=lightgbm", *args)
        return json.loads((tmp_path / name / "results.json").read_text())

    none = results("none", "epochs=0")
    assert (none["selected_epoch"], none["parameters"], none["crossfit"]) == (0, 0, None)
    assert none["vali"] == none["untrained_vali"]
    stop = results("stop", "epochs=50", "patience=3", "model.learning_rate=1e-30")
    assert stop["epochs"] - stop["best_epoch"] == 3
    for name, rounds in (("best", stop["best_epoch"]), ("last", stop["epochs"])):
        content = bytes(booster_of(tmp_path / "stop" / f"{name}.pt"))
        assert content.count(b"\nTree=") == rounds


@pytest.mark.slow
def test_a_run_that_is_extended_keeps_its_trees_until_it_has_as_many(
    data, tmp_path, monkeypatch
) -> None:
    out, args = tmp_path / "run", (*data, "model=lightgbm", "select=last")
    train(out, *args, "epochs=6")
    train(tmp_path / "long", *args, "epochs=12")
    before = {name: (out / name).read_bytes() for name in ("last.pt", "best.pt")}
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        with pytest.raises(Interrupted):
            train(out, *args, "epochs=12", f"resume={out}", "checkpoint_minutes=1e-9")
    assert before == {name: (out / name).read_bytes() for name in before}
    train(out, *args, "epochs=6", f"resume={out}")  # as it was, and its history with it
    assert len(pd.read_csv(out / "history.csv")) == 7
    with monkeypatch.context() as patch:
        stop_at(patch, 9)
        with pytest.raises(Interrupted):
            train(out, *args, "epochs=12", f"resume={out}")
    assert load_checkpoint(out / "last.pt")["progress"]["epoch"] == 8
    train(out, *args, "epochs=12", f"resume={out}")
    assert booster_of(out / "last.pt") == booster_of(tmp_path / "long" / "last.pt")


@pytest.mark.slow
def test_a_round_that_breaks_down_leaves_those_before_it(data, tmp_path, monkeypatch) -> None:
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


def test_lists_with_scores_that_are_not_finite_are_named() -> None:
    data = tensors(make_lists([2] * 14))
    scores = torch.zeros(28)
    scores[[5, 6]] = torch.tensor([torch.nan, -torch.inf])
    with pytest.raises(TrainingError, match=r"on 2 lists, with query id q2, q3: look at them"):
        check_finite(scores, data, whose="model's", remedy="look at them")
    with pytest.raises(TrainingError, match=r"14 lists, .* q0, q1, .*, q9, ...: look"):
        check_finite(scores * torch.nan, data, whose="model's", remedy="look at them")
    data.features[4, 2] = torch.nan
    with pytest.raises(TrainingError, match=r"not finite on 1 lists, with query id q2: train"):
        predict(MLP(5), data)
    data.features[4, 2] = 0.0
    last = after(LightGBM(5, num_leaves=2, min_data_in_leaf=1, learning_rate=1e300), data)
    model = LightGBM(5)
    model.take(last.state())
    with pytest.raises(TrainingError, match=r"the trees' scores are not finite: train with a low"):
        predict(model, data)


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_booster_that_is_damaged_or_of_other_features_is_refused(library) -> None:
    needed(library)
    model = KINDS[library](5)
    for content in (b"not trees", b"tree\nversion=v4\n", b"\x00" * 64):
        state = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
        with pytest.raises(CheckpointError, match=r"trees kept are not a model that") as error:
            model.load_state_dict({"_extra_state": state})
        assert "\n" not in str(error.value)
    for state in ({}, {"_extra_state": [1, 2]}, {"_extra_state": torch.zeros(3)}):
        with pytest.raises((CheckpointError, RuntimeError)):  # RuntimeError: within ``fitting``
            model.load_state_dict(state)
    last = after(KINDS[library](5), tensors(make_lists([30, 25])))
    with pytest.raises(CheckpointError, match=r"have other features than their config"):
        KINDS[library](6).take(last.state())


@pytest.mark.slow
def test_importances(learned, tmp_path) -> None:
    model, folder, _ = learned
    out, written = folder / "run", tmp_path / "a folder"
    trees = load_model(str(out), torch.device("cpu")).model
    gain, splits = trees.importances()
    assert gain.shape == splits.shape == (5,)
    assert gain[0] > gain[1:].sum()  # the feature that tells the label
    if model == "catboost":
        assert np.isnan(splits).all()
        assert gain.sum() == pytest.approx(100)
    else:  # a tree has one leaf more than splits
        rounds = json.loads((out / "results.json").read_text())["selected_epoch"]
        assert splits.sum() == trees.fitted - rounds
        assert ((splits > 0) == (gain > 0)).all()
    lines = importances_of(out, "top=2", f"write={written}").splitlines()
    used = int((gain > 0).sum())
    assert lines[0].endswith(f"{trees.title} {trees.version}, {used} of 5 features used")
    assert lines[1].split() == ["feature", "share"] + ["splits"] * (model != "catboost")
    assert lines[3].split()[:2] == ["1", f"{gain[0] / gain.sum():.4f}"]
    table = pd.read_csv(written / "importances.csv")
    np.testing.assert_allclose(table.sort_values("feature").gain, gain)
    assert table.gain.is_monotonic_decreasing


def importances_of(run: Path, *keys: str) -> str:
    """What ``scripts/importances.py RUN KEY=VALUE ...`` prints."""
    return importances(typed("importances", [str(run), *keys]))


@pytest.mark.slow
def test_importances_of_what_has_none(data, tiny, tmp_path) -> None:
    nothing = torch.full((1, 2, 3), torch.nan), torch.tensor([[True, False]])
    assert LightGBM(3)(*nothing).tolist() == [[0.0, 0.0]]
    out = tmp_path / "network"
    out.mkdir()
    run(compose(*tiny, "epochs=0"), out, {})
    with pytest.raises(CheckpointError, match=r"no importances .*, rankboost, .*explain"):
        importances_of(out)
    train(tmp_path / "none", *data, "model=lightgbm", "epochs=0")
    with pytest.raises(CheckpointError, match=r"has no trees .*: resume it, or give another"):
        importances_of(tmp_path / "none")
    for wrong in ("top=many", "depth=2"):
        with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
            importances_of(tmp_path / "none", wrong)


def mistake(*overrides: str) -> str:
    """The error of a run on these settings, before or as its first tree is grown."""

    def begin() -> None:
        parts = build(compose(*overrides))
        after(parts.model(5), tensors(make_lists([30, 25])), loss=parts.loss)

    return refused(begin, ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model=mlp ~loss", "no loss is chosen: only boosted trees have an objective of"),
        ("model=lightgbm model.objective=mse", "LightGBM has lambdarank, rank_xendcg here"),
        ("model=lightgbm model.objective=rank_xendcg loss=listnet", "and a loss: give one of them"),
        ("model=lightgbm clip=1 l2=0.1", "clip, l2: LightGBM does not support this"),
        ("model=lightgbm model.num_leaves=1", "LightGBM: .*num_leaves.*; check the model.*"),
        ("model=lightgbm loss=neuralndcg loss.k=0", "k=0 is not a cutoff"),
        (
            "model=lightgbm empty_lists=skip",
            "empty_lists=skip: LightGBM fits its own lambdarank: leave",
        ),
        ("model=lightgbm +path_smoth=1", r"path_smoth: LightGBM [\d.]+ has no parameter of that"),
        ("model=lightgbm +num_leaves=4", "set model.num_leaves instead"),
        ("model=lightgbm +categorical_feature=[0]", "the lists say which features are categories"),
        ("model=lightgbm +deterministic=false", "the run sets it"),
        ("model=lightgbm +monotone_constraints={a:1}", "LightGBM: .*; check the model.*"),
        ("model=xgboost model.learning_rate=-1", "XGBoost: "),
        ("model=xgboost +grow_plicy=depthwise", "has no parameter of that name"),
        ("model=xgboost +tree_train_param=2", "has no parameter of that name"),
        ("model=xgboost +monotone_constraints={a:1}", "XGBoost: .*; check the model.*"),
        ("model=catboost loss=listnet", "CatBoost fits its own YetiRank: leave out loss="),
        ("model=catboost model.depth=99", "CatBoost: "),
        ("model=catboost +rms=0.5", "Unknown option {rms}"),
        ("model=catboost +grow_policy=Lossguide", "only symmetric trees can be cut at the best"),
        ("model=catboost +early_stopping_rounds=5", "set patience instead"),
    ],
)
def test_a_mistake_ends_with_the_remedy(overrides: str, message: str) -> None:
    if (library := overrides.split()[0].partition("=")[2]) in KINDS:
        needed(library)
    assert re.search(message, mistake(*overrides.replace(" +", " +model.options.").split()))


def test_a_library_that_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    said = "xgboost does not load here (import of xgboost halted; None in sys.modules): install"
    assert mistake("model=xgboost").startswith(f"{said} the extra gbdt: pip install '.[gbdt]'")
    monkeypatch.setitem(sys.modules, "catboost", None)
    assert "install the extra gbdt" in mistake("model=catboost")


def test_no_loss_is_named_where_there_is_none() -> None:
    register_resolvers()
    folder = OmegaConf.create({"at": "${run_dir:out,null,mq2008-lightgbm-None-seed1}"}).at
    assert re.fullmatch(r"out/[0-9_-]+_mq2008-lightgbm-seed1_[0-9a-f]{4}", folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("lightgbm", "objective=rank_xendcg"),
        ("xgboost", "objective=rank:pairwise"),
        ("catboost", "objective=PairLogit"),
        ("lightgbm", "extra_trees=true"),
        ("xgboost", "colsample_bylevel=0.4"),
        ("catboost", "rsm=0.5"),
        ("lightgbm", "feature_contri='0,1,1,1,1'"),
        ("lightgbm", "monotone_constraints=[-1,0,0,0,0]"),
        ("xgboost", "monotone_constraints='(-1,0,0,0,0)'"),
        ("xgboost", "interaction_constraints=[[0],[1,2,3,4]]"),
        ("catboost", "feature_weights=[0,1,1,1,1]"),
    ],
)
def test_an_objective_or_option_of_the_library_reaches_it(model, option) -> None:
    needed(model)
    data, key = tensors(make_lists([30, 25, 20] * 4)), "+model.options."
    if option.startswith("objective"):
        key = "model."
    made = [build(compose(f"model={model}", *own)).model(5) for own in ([], [f"{key}{option}"])]
    plain, other = (after(one, data, 8) for one in made)
    assert not np.allclose(plain.scores["train"], other.scores["train"])
    if option.startswith(("feature_contri", "monotone")):
        made[1].take(other.state())
        used = made[1].importances().gain
        assert used[0] < 0.05 * used.sum()
