"""Boosted trees: they train, are kept and applied like any model."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose, make_lists, real_data, write_letor
from made_trees import LIBRARIES, needed, reading, scores_of, train

from ltr.data.batches import ItemTensors
from ltr.experiment.run import run
from ltr.models.rounds import LightGBM
from ltr.models.rounds.trees import BoostedTrees
from ltr.scorers.scorer import load_model
from ltr.scoring.evaluate import evaluate_kept
from ltr.scoring.predict import predict_kept
from ltr.training.evaluation import predict


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


@pytest.mark.slow
@pytest.mark.parametrize("model", LIBRARIES)
def test_it_learns_and_is_applied_like_any_model(model, data, tmp_path, letor_folder) -> None:
    needed(model)
    out = tmp_path / "run"
    got = train(out, *data, f"model={model}", "epochs=30", "metrics=[ndcg@5,map]")
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

    table = evaluate_kept(compose(f"checkpoint={out}", config="evaluate"))
    assert f"{results['test']['ndcg@5']:.4f}" in table
    assert f"{results['test']['map']:.4f}" in table
    scored = tmp_path / "scores.csv"
    source = letor_folder / "mine" / "test.txt"
    predict_kept(
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


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost"])
def test_the_same_seed_gives_the_same_trees_whatever_vali_and_test_are(
    model, data, tmp_path, letor_folder
) -> None:
    needed(model)
    args = (*data, f"model={model}", "epochs=5", "patience=null", "select=last")
    args += ("model.bagging_fraction=0.5",) if model == "lightgbm" else ()
    train(tmp_path / "one", *args)
    for split in ("vali", "test"):
        write_letor(letor_folder / "mine" / f"{split}.txt", make_lists([7, 8], seed=77))
    train(tmp_path / "two", *args)
    np.testing.assert_array_equal(scores_of(tmp_path / "one"), scores_of(tmp_path / "two"))
    if model == "lightgbm":
        train(tmp_path / "other", *args, "seed=2")
        assert not np.array_equal(scores_of(tmp_path / "one"), scores_of(tmp_path / "other"))


@pytest.mark.slow
def test_the_command_line_says_what_it_boosts_with(data, tmp_path, caplog) -> None:
    assert compose("model=lightgbm").get("loss") is None
    assert compose("model=lightgbm", "loss=neuralndcg").loss._target_.endswith("neural_ndcg_loss")
    assert compose("loss=listnet", "model=xgboost").loss._target_.endswith("listnet_loss")
    assert compose("model=stumps").loss._target_.endswith("rankboost_loss")
    assert compose("model=mlp").loss._target_.endswith("neural_ndcg_loss")
    assert (compose("model=lightgbm").epochs, compose("model=lightgbm").patience) == (500, 50)
    assert compose("model=mlp").patience is None
    with caplog.at_level(logging.INFO):
        train(tmp_path / "own", *data, "model=lightgbm", "epochs=1")
        run(
            compose(*data, "model=lightgbm", "epochs=1", "loss=neuralndcg"),
            tmp_path,
            {"model": "lightgbm", "loss": "neuralndcg"},
        )
    assert "with its own objective lambdarank on letor" in caplog.text
    assert "lightgbm (boosted trees, LightGBM" in caplog.text
    assert "with neuralndcg on letor" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "objective"),
    [("lightgbm", "rank_xendcg"), ("xgboost", "rank:pairwise"), ("catboost", "PairLogit")],
)
def test_other_objectives_of_the_libraries(model, objective, data, tmp_path) -> None:
    needed(model)
    args = (*data, f"model={model}", "epochs=10", "select=last")
    train(tmp_path / "other", *args, f"model.objective={objective}")
    train(tmp_path / "own", *args)
    assert not np.allclose(scores_of(tmp_path / "own"), scores_of(tmp_path / "other"))


@pytest.mark.slow
def test_stumps_have_one_split_and_boost_rankboost(data, tmp_path) -> None:
    got = train(tmp_path / "run", *data, "model=stumps", "epochs=20", "select=last")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["parameters"] == 2 * 20
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    history = pd.read_csv(tmp_path / "run" / "history.csv")
    assert history.loss.iloc[-1] < history.loss.iloc[1] * 0.8


@pytest.mark.slow
def test_constant_columns_and_lists_of_nothing_relevant_do_no_harm(tmp_path) -> None:
    for seed, split in enumerate(("train", "vali", "test")):
        lists = make_lists([5, 1, 6], seed=seed, empty=(0, 1, 2) if split == "train" else ())
        lists.features[:] = 3
        write_letor(tmp_path / "mine" / f"{split}.txt", lists)
    for model in ("lightgbm", "xgboost"):
        needed(model)
        got = train(
            tmp_path / model, "dataset=letor", "dataset.folder=mine", f"data_dir={tmp_path}",
            f"cache_dir={tmp_path}/cache", f"model={model}", "epochs=3",
        )  # fmt: skip
        assert 0 <= got["test_ndcg@5"] <= 1


def test_every_tree_model_is_one_and_scores_0_before_it_is_fitted() -> None:
    model: BoostedTrees = LightGBM(3)
    mask = torch.tensor([[True, False]])
    assert model(torch.full((1, 2, 3), torch.nan), mask).tolist() == [[0.0, 0.0]]


@pytest.mark.slow
@real_data
def test_real_lists_are_learned(tmp_path) -> None:
    folder = os.environ["LTR_DATA_DIR"]
    args = (
        "dataset=mq2008", f"data_dir={folder}", f"cache_dir={tmp_path}/cache",
        "metrics_as=letor4", "metrics=[mean_ndcg]", "select_on=mean_ndcg", "epochs=30",
    )  # fmt: skip
    for model, least in (("lightgbm", 0.40), ("stumps", 0.40)):
        got = run(compose(*args, f"model={model}"), tmp_path, {})
        assert got["test_mean_ndcg"] > least
