"""The boosting loop: cut off, resumed, ended early, broken down."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import make_lists
from made_trees import after, booster_of, reading, scores_of, tensors, train

from ltr.errors import TrainingError
from ltr.experiment.run_folder import RunFolder
from ltr.metrics import Convention, parse_metric
from ltr.models.rounds import LightGBM, LossObjective
from ltr.training.checkpoint import load_checkpoint
from ltr.training.evaluation import check_finite, means, metrics_of_scores, predict
from ltr.training.interruption import Interrupted


@pytest.fixture
def data(letor_folder: Path) -> list[str]:
    return reading(letor_folder)


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
    worths = [RunFolder(tmp_path / name).crossfit for name in ("whole", "cut")]
    assert worths[0] is not None
    assert worths[0] == worths[1]
    histories = [
        pd.read_csv(tmp_path / name / "history.csv").drop(columns="seconds")
        for name in ("cut", "whole")
    ]
    pd.testing.assert_frame_equal(*histories)


@pytest.mark.slow
def test_resuming_a_finished_run_changes_nothing_and_more_rounds_go_on(data, tmp_path) -> None:
    args = (*data, "model=lightgbm", "select=last")
    train(tmp_path / "short", *args, "epochs=3")
    before = (tmp_path / "short" / "last.pt").read_bytes()
    train(tmp_path / "short", *args, "epochs=3", f"resume={tmp_path / 'short'}")
    assert (tmp_path / "short" / "last.pt").read_bytes() == before
    train(tmp_path / "short", *args, "epochs=6", f"resume={tmp_path / 'short'}")
    train(tmp_path / "long", *args, "epochs=6")
    assert booster_of(tmp_path / "short/last.pt") == booster_of(tmp_path / "long/last.pt")


@pytest.mark.slow
def test_patience_and_no_round_at_all(data, tmp_path) -> None:
    train(tmp_path / "none", *data, "model=lightgbm", "epochs=0")
    results = json.loads((tmp_path / "none" / "results.json").read_text())
    assert (results["selected_epoch"], results["parameters"]) == (0, 0)
    assert results["vali"] == results["untrained_vali"]
    assert results["crossfit"] is None
    train(
        tmp_path / "stop", *data, "model=lightgbm", "epochs=50", "patience=3",
        "model.learning_rate=1e-30",
    )  # fmt: skip
    results = json.loads((tmp_path / "stop" / "results.json").read_text())
    assert results["epochs"] - results["best_epoch"] == 3
    for name, rounds in (("best", results["best_epoch"]), ("last", results["epochs"])):
        content = bytes(booster_of(tmp_path / "stop" / f"{name}.pt"))
        assert content.count(b"\nTree=") == rounds


def test_metrics_of_every_round_are_those_of_the_evaluation() -> None:
    lists = make_lists([1, 40, 3, 17, 9, 9, 2], empty=(4,))
    data, convention = tensors(lists), Convention(empty="skip")
    last = after(LightGBM(5, num_leaves=3), data)
    model = LightGBM(5)
    model.take(last.state())
    metrics = [parse_metric("ndcg@5"), parse_metric("map")]
    expected = metrics_of_scores(data, predict(model, data), metrics, convention)
    for items in (1, 50, 9999):
        found = metrics_of_scores(data, last.scores["train"], metrics, convention, items=items)
        assert means(found, convention) == means(expected, convention)


@pytest.mark.slow
def test_a_run_that_is_extended_keeps_its_trees_until_it_has_as_many(
    data, tmp_path, monkeypatch
) -> None:
    out, args = tmp_path / "run", (*data, "model=lightgbm", "select=last")
    train(out, *args, "epochs=6")
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


def break_in_round(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make every objective raise when it is called for the ``count``-th time."""
    original = LossObjective.__call__

    def broken(self, scores, train=None):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == count:
            raise TrainingError("the loss is not finite")
        return original(self, scores)

    monkeypatch.setattr(LossObjective, "__call__", broken)


@pytest.mark.slow
def test_a_round_that_breaks_down_leaves_those_before_it(data, tmp_path, monkeypatch) -> None:
    args = (*data, "model=lightgbm", "loss=ranknet")
    train(tmp_path / "five", *args, "epochs=5")
    break_in_round(monkeypatch, 6)
    out = tmp_path / "broken"
    with pytest.raises(TrainingError, match="the loss is not finite"):
        train(out, *args, "epochs=20")
    progress = load_checkpoint(out / "last.pt")["progress"]
    assert progress["epoch"] == 5
    assert len(progress["history"]) == len(pd.read_csv(out / "history.csv")) == 6
    for name in ("best.pt", "last.pt"):
        np.testing.assert_array_equal(scores_of(out / name), scores_of(tmp_path / "five" / name))


@pytest.mark.slow
def test_scores_that_are_not_finite_say_what_trees_can_do(data, tmp_path, monkeypatch) -> None:
    remedy = r"train with a lower model\.learning_rate or more regularisation"
    out, args = tmp_path / "run", (*data, "model=lightgbm", "epochs=9")
    with pytest.raises(TrainingError, match=rf"scores are not finite on lists .* q0, .*: {remedy}"):
        train(out, *args, "model.learning_rate=1e300")
    assert not (out / "best.pt").exists()

    rounds = iter(range(99))

    def worse(scores, *args, **kwargs):
        check_finite(scores * (np.inf if next(rounds) == 4 else 1), *args, **kwargs)

    monkeypatch.setattr("ltr.models.rounds.learner.check_finite", worse)
    with pytest.raises(TrainingError, match="not finite on lists"):
        train(out, *args)
    assert load_checkpoint(out / "last.pt")["progress"]["epoch"] == 3
    assert booster_of(out / "last.pt").count(b"\nTree=") == 3
    assert (out / "best.pt").exists()


def test_lists_with_scores_that_are_not_finite_are_named() -> None:
    data = tensors(make_lists([2] * 14))
    scores = torch.zeros(28)
    scores[[5, 6]] = torch.tensor([torch.nan, -torch.inf])
    with pytest.raises(TrainingError, match=r"on lists with query id q2, q3: look at them"):
        check_finite(scores, data, whose="model's", remedy="look at them")
    with pytest.raises(TrainingError, match=r"q0, q1, .*, q9 and 4 more: look"):
        check_finite(scores * torch.nan, data, whose="model's", remedy="look at them")
    last = after(LightGBM(5, num_leaves=2, min_data_in_leaf=1, learning_rate=1e300), data)
    model = LightGBM(5)
    model.take(last.state())
    with pytest.raises(TrainingError, match=r"the trees' scores are not finite: train with a low"):
        predict(model, data)
