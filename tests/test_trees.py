"""Boosted trees: they train, are kept and applied like any model, with any loss as objective."""

import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose, make_lists, real_data, write_letor
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import no_transform
from ltr.errors import CheckpointError, ConfigError, DataError, TrainingError
from ltr.experiment.apply import evaluate_kept, predict_kept
from ltr.experiment.build import build, make_loss
from ltr.experiment.cli import explain, register_resolvers
from ltr.experiment.kept import load_kept
from ltr.experiment.loss_configs import loss_names
from ltr.experiment.run import run
from ltr.metrics import Convention, parse_metric
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from ltr.training.evaluation import evaluate, means, predict
from ltr.training.interruption import Interrupted
from ltr.trees import CatBoost, LightGBM, LossObjective, XGBoost
from ltr.trees.model import BoostedTrees, Order
from ltr.trees.padded import Watched

LIBRARIES = ["lightgbm", "xgboost", "catboost"]
SMALL = {
    "lightgbm": ["model.min_data_in_leaf=3", "model.num_leaves=4"],
    "stumps": ["model.min_data_in_leaf=3"],
    "xgboost": ["model.max_depth=2"],
    "catboost": ["model.depth=2"],
}


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    """The overrides that name ``letor_folder``."""
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache",
    ]  # fmt: skip


def train(folder: Path, *overrides: str) -> dict[str, float]:
    folder.mkdir(exist_ok=True)
    (model,) = (o.partition("=")[2] for o in overrides if o.startswith("model="))
    return run(compose(*SMALL[model], *overrides), folder, {"model": model})


def needed(library: str) -> None:
    pytest.importorskip(library)


def booster_of(path: Path) -> bytes:
    return load_checkpoint(path)["model"]["_extra_state"].numpy().tobytes()


def tensors(lists: Lists) -> ItemTensors:
    return ItemTensors(lists, no_transform(lists))


def order_of(data: ItemTensors, loss: Any = None, **more: Any) -> Order:
    given: dict[str, Any] = {
        "data": {"train": data},
        "derivatives": None if loss is None else LossObjective(loss, data),
        "rounds": 10,
        "seed": 1,
        "threads": 1,
        "device": "cpu",
        "stop": lambda: False,
    }
    return Order(**(given | more))


def a_loss(name: str, *overrides: str) -> Any:
    return make_loss(compose(f"loss={name}", *overrides).loss)


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

    again = load_kept(str(out), torch.device("cpu"))
    lists = make_lists([9, 4, 1], seed=5)
    one = predict(again.model, ItemTensors(lists, again.transform), items=4)
    two = predict(again.model, ItemTensors(lists, again.transform), items=999)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost"])
def test_the_same_seed_gives_the_same_trees_whatever_vali_and_test_are(
    model, data, tmp_path, letor_folder
) -> None:
    needed(model)
    args = (*data, f"model={model}", "epochs=5", "patience=null", "select=last")
    train(tmp_path / "one", *args)
    for split in ("vali", "test"):
        write_letor(letor_folder / "mine" / f"{split}.txt", make_lists([7, 8], seed=77))
    train(tmp_path / "two", *args)
    scores = [load_kept(str(tmp_path / name), torch.device("cpu")).model for name in ("one", "two")]
    lists = tensors(make_lists([30, 20], seed=8))
    np.testing.assert_array_equal(*(predict(model, lists) for model in scores))


def test_seeds_draw(data, tmp_path) -> None:
    args = (*data, "model=lightgbm", "epochs=5", "model.bagging_fraction=0.5", "select=last")
    kept = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / name, *args, f"seed={seed}")
        kept[name] = booster_of(tmp_path / name / "last.pt")
    assert kept["a"] == kept["b"] != kept["c"]


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


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ("lightgbm", "rank_xendcg"),
        ("xgboost", "rank:pairwise"),
        ("catboost", "QueryRMSE"),
        ("catboost", "PairLogit"),
    ],
)
def test_other_objectives_of_the_libraries(model, objective, data, tmp_path) -> None:
    needed(model)
    args = (*data, f"model={model}", "epochs=10", "select=last")
    got = train(tmp_path / "other", *args, f"model.objective={objective}")
    results = json.loads((tmp_path / "other" / "results.json").read_text())
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    train(tmp_path / "own", *args)
    assert booster_of(tmp_path / "own/last.pt") != booster_of(tmp_path / "other/last.pt")


# ---------------------------------------------------------------- losses of the registry


@pytest.mark.parametrize("loss", loss_names())
@pytest.mark.parametrize("kind", [LightGBM, XGBoost])
def test_every_loss_as_objective_lowers_itself_on_train(kind, loss) -> None:
    needed(kind.library)
    torch.manual_seed(0)
    data = tensors(make_lists([12, 1, 7, 20, 9], empty=(2,)))
    knobs = {"min_data_in_leaf": 3} if kind is LightGBM else {"max_depth": 3}
    order = order_of(data, a_loss(loss, "dataset=mq2008"))
    assert isinstance(order.derivatives, LossObjective)
    boosting = kind(5, **knobs).boost(order)
    order.derivatives(boosting.scores("train").astype(float))
    before = order.derivatives.value
    for _ in range(12):
        boosting.round()
    order.derivatives(boosting.scores("train").astype(float))
    assert order.derivatives.value < before - 0.02 * abs(before)


@pytest.mark.parametrize("loss", loss_names())
def test_the_gradient_is_autograd_s_of_the_sum_over_lists(loss) -> None:
    lists = make_lists([12, 1, 7, 20, 9], empty=(2,))
    data, function = tensors(lists), a_loss(loss, "dataset=mq2008")
    objective = LossObjective(function, data, items=20)  # so that the lists are in several batches
    scores = np.random.default_rng(0).normal(size=lists.items)
    torch.manual_seed(0)
    gradient, curvature = objective(scores)
    torch.manual_seed(0)
    expected, total = [], 0.0
    # the longest list first, as the batches are made: a loss that draws must draw the same
    places = {}
    for i in np.argsort(-lists.lengths, kind="stable"):
        rows = slice(lists.offsets[i], lists.offsets[i + 1])
        given = torch.from_numpy(scores[None, rows]).requires_grad_()
        labels = torch.from_numpy(lists.labels[None, rows]).double()
        value = function(given, labels, torch.ones_like(labels, dtype=torch.bool)).sum()
        (places[i],) = torch.autograd.grad(value, given)
        total += value.item()
    expected = np.concatenate([places[i][0].numpy() for i in range(len(lists))])
    if loss not in ("listmle",):  # draws by batch
        np.testing.assert_allclose(gradient, expected * objective.unit, rtol=1e-4, atol=1e-6)
        assert objective.value == pytest.approx(total / len(lists))
    assert (curvature >= 0).all()
    assert (curvature[gradient != 0] > 0).all()
    assert np.isfinite(curvature).all()


def test_lists_weigh_the_same_and_empty_ones_can_be_left_out() -> None:
    data = tensors(make_lists([8, 8], empty=(1,)))
    scores = np.linspace(0, 1, 16)
    keep = LossObjective(a_loss("listnet"), data)
    skip = LossObjective(a_loss("listnet"), data, empty="skip")
    assert np.any(keep(scores)[0][8:])
    gradient, curvature = skip(scores)
    assert not np.any(gradient[8:])
    assert not np.any(curvature[8:])
    assert (keep.lists, skip.lists) == (2, 1)


def test_a_gradient_that_is_not_finite_names_the_list() -> None:
    data = tensors(make_lists([3, 4]))

    def broken(scores, labels, mask):
        return (scores * torch.where(labels.sum(-1, keepdim=True) >= 0, torch.nan, 1.0)).sum(-1)

    with pytest.raises(TrainingError, match=r"not finite on lists with query id q1, q0: lower"):
        LossObjective(broken, data)(np.zeros(7))


def test_a_loss_that_draws_and_long_lists_boost() -> None:
    data = tensors(make_lists([10_050, 3]))
    torch.manual_seed(0)
    loss = a_loss("listmle")
    boosting = LightGBM(5, num_leaves=2).boost(order_of(data, loss))
    boosting.round()
    assert boosting.trees == 1


# ---------------------------------------------------------------- stumps


def test_stumps_have_one_split_and_boost_rankboost(data, tmp_path) -> None:
    got = train(tmp_path / "run", *data, "model=stumps", "epochs=20", "select=last")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["parameters"] == 2 * 20
    assert got["vali_ndcg@5"] > results["untrained_vali"]["ndcg@5"] + 0.1
    history = pd.read_csv(tmp_path / "run" / "history.csv")
    assert history.loss.iloc[-1] < history.loss.iloc[1] * 0.8


# ---------------------------------------------------------------- the run


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Send this process SIGTERM when vali is evaluated for the ``count``-th time."""
    original, calls = Watched.means, iter(range(1, 10**6))

    def means_then_stop(self, scores):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, scores)

    monkeypatch.setattr(Watched, "means", means_then_stop)


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
    histories = [
        pd.read_csv(tmp_path / name / "history.csv").drop(columns="seconds")
        for name in ("cut", "whole")
    ]
    pd.testing.assert_frame_equal(*histories)


def test_resuming_a_finished_run_changes_nothing_and_more_rounds_go_on(data, tmp_path) -> None:
    args = (*data, "model=lightgbm", "select=last")
    train(tmp_path / "short", *args, "epochs=3")
    before = (tmp_path / "short" / "last.pt").read_bytes()
    train(tmp_path / "short", *args, "epochs=3", f"resume={tmp_path / 'short'}")
    assert (tmp_path / "short" / "last.pt").read_bytes() == before
    train(tmp_path / "short", *args, "epochs=6", f"resume={tmp_path / 'short'}")
    train(tmp_path / "long", *args, "epochs=6")
    assert booster_of(tmp_path / "short/last.pt") == booster_of(tmp_path / "long/last.pt")


def test_patience_and_no_round_at_all(data, tmp_path) -> None:
    train(tmp_path / "none", *data, "model=lightgbm", "epochs=0")
    results = json.loads((tmp_path / "none" / "results.json").read_text())
    assert (results["selected_epoch"], results["parameters"]) == (0, 0)
    assert results["vali"] == results["untrained_vali"]
    train(
        tmp_path / "stop", *data, "model=lightgbm", "epochs=50", "patience=3",
        "model.learning_rate=1e-30",
    )  # fmt: skip
    results = json.loads((tmp_path / "stop" / "results.json").read_text())
    assert results["epochs"] - results["best_epoch"] == 3
    for name, rounds in (("best", results["best_epoch"]), ("last", results["epochs"])):
        content = bytes(booster_of(tmp_path / "stop" / f"{name}.pt"))
        assert content.count(b"\nTree=") == rounds


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


def test_metrics_of_every_round_are_those_of_the_evaluation() -> None:
    lists = make_lists([1, 40, 3, 17, 9, 9, 2], empty=(4,))
    data, convention = tensors(lists), Convention(empty="skip")
    boosting = LightGBM(5, num_leaves=3).boost(order_of(data))
    boosting.round()
    model = LightGBM(5)
    model.take(boosting.content(1))
    metrics = [parse_metric("ndcg@5"), parse_metric("map")]
    expected = means(evaluate(model, data, metrics, convention), convention)
    for items in (1, 50, 9999):
        watched = Watched(data, metrics, convention, items=items)
        assert watched.means(boosting.scores("train")) == expected


# ---------------------------------------------------------------- mistakes


def mistake(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        build(compose(*overrides))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=mlp", "~loss"], "no loss is chosen: only boosted trees have an objective of"),
        (["model=lightgbm", "model.objective=mse"], "LightGBM has lambdarank, rank_xendcg here"),
        (
            ["model=lightgbm", "model.objective=rank_xendcg", "loss=listnet"],
            "model.objective=rank_xendcg and a loss: give one of them",
        ),
        (["model=lightgbm", "clip=1", "l2=0.1"], "clip, l2: boosted trees have no such thing"),
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


@pytest.mark.parametrize(
    ("model", "option"),
    [("lightgbm", "extra_trees=true"), ("xgboost", "num_parallel_tree=2"), ("catboost", "rsm=0.5")],
)
def test_an_option_of_the_library_reaches_it(model, option, data, tmp_path) -> None:
    needed(model)
    for folder, more in (("without", []), ("with", [f"+model.options.{option}"])):
        train(tmp_path / folder, f"model={model}", "epochs=2", *data, *more)
    before, after = (booster_of(tmp_path / folder / "last.pt") for folder in ("without", "with"))
    assert before != after


def test_a_library_that_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    message = mistake("model=xgboost")
    assert message.startswith("model=xgboost needs xgboost, which does not load here")
    assert message.endswith("pip install 'ltr[gbdt]'")
    monkeypatch.setitem(sys.modules, "catboost", None)
    assert mistake("model=catboost").endswith("pip install 'ltr[gbdt]'")


def test_no_loss_is_named_where_there_is_none(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "model=lightgbm", "loss.k=5"])
    error = HydraException("Could not override 'loss.k'.")
    register_resolvers()
    assert explain(error, "train") == "loss.k: no loss is chosen; add loss=CHOICE"
    folder = OmegaConf.create({"at": "${run_dir:out,null,mq2008-lightgbm-None-seed1}"}).at
    assert re.fullmatch(r"out/[0-9_-]+_mq2008-lightgbm-seed1_[0-9a-f]{4}", folder)


def with_labels(labels: list[float]) -> ItemTensors:
    lists = make_lists([len(labels)])
    lists.labels[:] = labels
    return tensors(lists)


def test_labels_and_lists_that_an_objective_cannot_take() -> None:
    with pytest.raises(
        DataError, match=r"lambdarank takes whole labels .* 0\.5: boost with a loss"
    ):
        LightGBM(5).boost(order_of(with_labels([0, 0.5])))
    with pytest.raises(DataError, match=r"at most 10,000 items, train has one of 10,001: boost"):
        LightGBM(5).boost(order_of(tensors(make_lists([10_001]))))
    LightGBM(5).boost(order_of(with_labels([0, 40, 32, 5]))).round()  # beyond LightGBM's own 31
    LightGBM(5).boost(order_of(with_labels([0, 0.5]), a_loss("ranknet"))).round()
    needed("xgboost")
    with pytest.raises(DataError, match=r"rank:ndcg takes whole labels from 0 to 31, .* 32: set"):
        XGBoost(5).boost(order_of(with_labels([0, 32])))
    XGBoost(5, objective="rank:pairwise").boost(order_of(with_labels([0, 32.5]))).round()


@pytest.mark.parametrize("content", [b"not trees", b"tree\nversion=v4\n", b"\x00" * 64])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_booster_that_is_damaged_is_refused(library, content) -> None:
    needed(library)
    model = {"lightgbm": LightGBM, "xgboost": XGBoost, "catboost": CatBoost}[library](5)
    state = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
    with pytest.raises(CheckpointError, match=r"trees kept are not a model that") as error:
        model.load_state_dict({"_extra_state": state})
    assert "\n" not in str(error.value)


def test_a_checkpoint_without_trees_is_refused(data, tmp_path) -> None:
    train(tmp_path / "run", *data, "model=lightgbm", "epochs=1", "select=last")
    path = tmp_path / "run" / "last.pt"
    for state in ({}, {"_extra_state": [1, 2]}, {"_extra_state": torch.zeros(3)}):
        save_checkpoint(path, load_checkpoint(path) | {"model": state})
        with pytest.raises(CheckpointError):
            load_kept(str(path), torch.device("cpu"))


def test_trees_of_other_features_are_refused() -> None:
    data = tensors(make_lists([8, 9]))
    boosting = LightGBM(5, num_leaves=2, min_data_in_leaf=1).boost(order_of(data))
    boosting.round()
    with pytest.raises(CheckpointError, match=r"are of 5 features, the config is of 6"):
        LightGBM(6).take(boosting.content(1))


def test_every_tree_model_is_one_and_scores_0_before_it_is_fitted() -> None:
    model: BoostedTrees = LightGBM(3)
    mask = torch.tensor([[True, False]])
    assert model(torch.full((1, 2, 3), torch.nan), mask).tolist() == [[0.0, 0.0]]


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
