"""Settings of tree models: those that work reach the library, others say what to do."""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose, letor_lists
from hydra.errors import HydraException
from made_trees import KINDS, needed, reading, scores_of, train
from numpy.typing import NDArray
from omegaconf import OmegaConf

from ltr.console.compose import explain
from ltr.console.folders import register_resolvers
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.scorers.scorer import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny lists, and the runs on them."""
    return letor_lists(tmp_path_factory.mktemp("lists"))


@pytest.fixture(scope="module")
def plain(folder: Path) -> Callable[[str], NDArray[np.float32]]:
    """The scores of a library that is given no option, trained once."""

    @cache
    def scores(model: str) -> NDArray[np.float32]:
        train(folder / model, *reading(folder), f"model={model}", "epochs=8", "select=last")
        return scores_of(folder / model)

    return scores


def mistake(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        build(compose(*overrides))
    assert "\n" not in str(error.value)
    return str(error.value)


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


@pytest.mark.parametrize("model", ["xgboost", "catboost"])  # LightGBM grows none of so few items
def test_trees_that_the_library_does_not_read_again_are_found(model, monkeypatch) -> None:
    needed(model)

    def unreadable(self, content):
        raise ValueError("unknown field")

    monkeypatch.setattr(KINDS[model], "load", unreadable)
    assert "does not read its own trees again" in mistake(f"model={model}")


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
def test_an_objective_or_option_of_the_library_reaches_it(
    model, option, folder, plain, tmp_path
) -> None:
    needed(model)
    key = "model." if option.startswith("objective") else "+model.options."
    args = (*reading(folder), f"model={model}", "epochs=8", "select=last", f"{key}{option}")
    train(tmp_path / "with", *args)
    assert not np.allclose(scores_of(tmp_path / "with"), plain(model))
    used = load_model(str(tmp_path / "with"), torch.device("cpu")).model.importances().gain
    if option.startswith(("feature_contri", "monotone")):
        assert used[0] < 0.05 * used.sum()
