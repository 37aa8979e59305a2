"""Settings of tree models: those that work reach the library, others say what to do."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose
from hydra.errors import HydraException
from made_trees import KINDS, needed, reading, scores_of, train
from omegaconf import OmegaConf

from ltr.console.compose import explain
from ltr.console.folders import register_resolvers
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.models.rounds import CatBoost
from ltr.scorers.scorer import load_model


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


def mistake(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        build(compose(*overrides))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=mlp", "~loss"], "no loss is chosen: only boosted trees have an objective of"),
        (["model=lightgbm", "model.objective=mse"], "LightGBM has lambdarank, rank_xendcg here"),
        (
            ["model=lightgbm", "model.objective=rank_xendcg", "loss=listnet"],
            "model.objective=rank_xendcg and a loss: give one of them",
        ),
        (
            ["model=lightgbm", "clip=1", "l2=0.1"],
            "clip, l2: boosted trees do not support this",
        ),
        (["model=lightgbm", "augment.noise=0.1"], "augment: boosted trees do not support this"),
        (["model=lightgbm", "model.num_leaves=1"], "LightGBM: .*num_leaves.*; check the model.*"),
        (["model=lightgbm", "loss=neuralndcg", "loss.k=0"], "k=0 is not a cutoff"),
        (
            ["model=lightgbm", "+model.options.path_smoth=1"],
            r"model.options.path_smoth: LightGBM [\d.]+ has no parameter of that name",
        ),
        (["model=lightgbm", "+model.options.num_leaves=4"], "set model.num_leaves instead"),
        (["model=lightgbm", "+model.options.boosting=dart"], "the best round is kept"),
    ],
)
def test_a_mistake_ends_with_the_remedy(overrides, message) -> None:
    assert re.search(message, mistake(*overrides))


@pytest.mark.slow
def test_mistakes_of_other_libraries() -> None:
    needed("xgboost")
    assert "XGBoost: " in mistake("model=xgboost", "model.learning_rate=-1")
    assert "has no parameter of that" in mistake(
        "model=xgboost", "+model.options.grow_plicy=depthwise"
    )
    assert "set model.learning_rate" in mistake("model=xgboost", "+model.options.eta=0.3")
    needed("catboost")
    assert "CatBoost does not boost with a loss" in mistake("model=catboost", "loss=listnet")
    assert "CatBoost: " in mistake("model=catboost", "model.depth=99")
    assert "Unknown option {rms}" in mistake("model=catboost", "+model.options.rms=0.5")
    assert "set epochs instead" in mistake("model=catboost", "+model.options.iterations=5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("lightgbm", "extra_trees=true"),
        ("xgboost", "colsample_bylevel=0.4"),
        ("catboost", "rsm=0.5"),
    ],
)
def test_an_option_of_the_library_reaches_it(model, option, data, tmp_path) -> None:
    needed(model)
    for folder, more in (("without", []), ("with", [f"+model.options.{option}"])):
        train(tmp_path / folder, f"model={model}", "epochs=2", *data, *more)
    assert not np.allclose(scores_of(tmp_path / "without"), scores_of(tmp_path / "with"))


def test_a_library_that_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    message = mistake("model=xgboost")
    assert message.startswith("model=xgboost needs xgboost, which does not load here")
    assert "install the extra gbdt" in message
    monkeypatch.setitem(sys.modules, "catboost", None)
    assert "install the extra gbdt" in mistake("model=catboost")


def test_no_loss_is_named_where_there_is_none(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "model=lightgbm", "loss.k=5"])
    error = HydraException("Could not override 'loss.k'.")
    register_resolvers()
    assert explain(error, "train") == "loss.k: no loss is chosen; add loss=CHOICE"
    folder = OmegaConf.create({"at": "${run_dir:out,null,mq2008-lightgbm-None-seed1}"}).at
    assert re.fullmatch(r"out/[0-9_-]+_mq2008-lightgbm-seed1_[0-9a-f]{4}", folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "option", "remedy"),
    [
        ("catboost", "grow_policy=Lossguide", "only symmetric trees can be cut at the best round"),
        ("catboost", "early_stopping_rounds=5", "set patience instead"),
        ("catboost", "cat_features=[0]", "the lists say which features are categories"),
        ("lightgbm", "categorical_feature=[0]", "the lists say which features are categories"),
        ("lightgbm", "deterministic=false", "it is true, so that a run can be repeated"),
        ("lightgbm", "feature_pre_filter=true", "it is false: leave it out"),
        ("lightgbm", "force_row_wise=false", "it is true, so"),
        ("lightgbm", "force_col_wise=true", "it is by row, so"),
        ("lightgbm", "application=binary", "set model.objective instead"),
        ("lightgbm", "two_round=true", "LightGBM reads no file here"),
        ("lightgbm", "drop_rate=0.5", "no objective or boosting here uses it"),
        ("xgboost", "eval_metric=map", "set metrics and select_on instead"),
        ("xgboost", "process_type=update", "trees are always grown anew"),
    ],
)
def test_an_option_that_would_do_nothing_or_harm_is_refused(model, option, remedy) -> None:
    needed(model)
    message = mistake(f"model={model}", f"+model.options.{option}")
    assert message.startswith(f"model.options.{option.partition('=')[0]}: {remedy}")


@pytest.mark.parametrize("name", ["learner", "gradient_booster", "tree_train_param", "name"])
def test_a_place_in_xgboost_s_configuration_is_no_parameter(name) -> None:
    needed("xgboost")
    message = mistake("model=xgboost", f"+model.options.{name}=2")
    assert f"model.options.{name}: XGBoost " in message
    assert "has no parameter of that name" in message


def test_trees_that_cannot_be_cut_are_found_before_data_is_read(monkeypatch) -> None:
    needed("catboost")
    reserved = {k: v for k, v in CatBoost.reserved.items() if v != "grow_policy"}
    monkeypatch.setattr(CatBoost, "reserved", reserved)
    message = mistake("model=catboost", "+model.options.grow_policy=Depthwise")
    assert "Truncate support only symmetric trees; check the model.* settings" in message


@pytest.mark.parametrize("model", ["xgboost", "catboost"])  # LightGBM grows none of so few items
def test_trees_that_the_library_does_not_read_again_are_found(model, monkeypatch) -> None:
    needed(model)

    def unreadable(self, content):
        raise ValueError("unknown field")

    monkeypatch.setattr(KINDS[model], "load", unreadable)
    assert "does not read the trees again" in mistake(f"model={model}")


def test_empty_lists_can_be_left_out_of_a_loss_only() -> None:
    message = mistake("model=lightgbm", "empty_lists=skip")
    assert message.startswith("empty_lists=skip: LightGBM's own lambdarank takes every list; leave")
    build(compose("model=lightgbm", "empty_lists=skip", "loss=listnet"))
    build(compose("model=stumps", "empty_lists=skip"))


@pytest.mark.parametrize("model", ["lightgbm", "xgboost"])
def test_a_value_of_the_wrong_type_is_one_line(model) -> None:
    needed(model)
    message = mistake(f"model={model}", "+model.options.monotone_constraints={a:1}")
    assert message.endswith("; check the model.* settings")
    assert message.startswith(f"{KINDS[model].title}: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("lightgbm", "feature_contri=[0,1,1,1,1]"),
        ("lightgbm", "feature_contri='0,1,1,1,1'"),
        ("lightgbm", "max_bin_by_feature=[2,9,9,9,9]"),
        ("lightgbm", "monotone_constraints=[-1,0,0,0,0]"),
        ("xgboost", "monotone_constraints=[-1,0,0,0,0]"),
        ("xgboost", "monotone_constraints='(-1,0,0,0,0)'"),
        ("xgboost", "interaction_constraints=[[0],[1,2,3,4]]"),
        ("xgboost", "interaction_constraints='[[0],[1,2,3,4]]'"),
        ("catboost", "feature_weights=[0,1,1,1,1]"),
    ],
)
def test_options_of_each_feature_reach_the_library(model, option, data, tmp_path) -> None:
    needed(model)
    args = (*data, f"model={model}", "epochs=4")
    train(tmp_path / "with", *args, f"+model.options.{option}")
    train(tmp_path / "without", *args)
    assert not np.allclose(scores_of(tmp_path / "with"), scores_of(tmp_path / "without"))
    used = load_model(str(tmp_path / "with"), torch.device("cpu")).model.importances().gain
    if option.startswith(("feature_contri", "monotone")):
        assert used[0] < 0.05 * used.sum()


@pytest.mark.slow
def test_a_list_of_another_number_of_features_is_one_line(data, tmp_path) -> None:
    for model in ("lightgbm", "xgboost"):
        needed(model)
        with pytest.raises(
            ConfigError,
            match=r"options.monotone_constraints has 3 values, the lists have 5 features: give",
        ):
            train(
                tmp_path / model, *data, f"model={model}",
                "+model.options.monotone_constraints=[1,0,1]",
            )  # fmt: skip
