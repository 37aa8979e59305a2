"""AdaRank and PRank: their formulas by hand, and runs of them from training to importances."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ltr.boosting import AdaRank, PRank, RankBoost
from ltr.boosting.adarank_rankboost import _thresholds
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.data.lists import Lists
from ltr.errors import CheckpointError, ConfigError, DataError, TrainingError
from ltr.experiment.build import build
from ltr.experiment.resume import resumed_config
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.importances import importances
from ltr.metrics import Convention
from ltr.parts.scorer import load_model
from ltr.training.evaluation import predict
from tests.helpers.made_lists import make_lists
from tests.helpers.made_trees import after, reading, tensors
from tests.helpers.runs import compose, run


def fitted(model: Any, lists: Lists, rounds: int, **more: Any) -> Any:
    """``model`` after so many rounds on ``lists``."""
    last = after(model, tensors(lists), rounds, **more)
    model.restore(last.state())
    np.testing.assert_array_equal(predict(model, tensors(lists)), last.scores["train"])
    return model


def two_lists() -> Lists:
    """The first feature ranks the first list well, the second feature the second."""
    return Lists(
        features=np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.float32),
        labels=np.array([1, 0, 1, 0], np.float32),
        offsets=np.array([0, 2, 4]),
        qids=np.array(["1", "2"]),
    )


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_adarank_weighs_features_and_lists_as_in_figure_1_of_its_paper(sharpness) -> None:
    model = fitted(AdaRank(2, metric="map", sharpness=sharpness, repeat=False), two_lists(), 3)
    good = 1.0  # average precision of the one relevant item at rank 1
    bad = 1 / 2  # and at rank 2
    first = (good + bad) / 2
    weights = np.exp(-sharpness * np.array([good, bad]))
    second = weights @ [bad, good] / weights.sum()
    alphas = [0.5 * np.log((1 + mean) / (1 - mean)) for mean in (first, second)]
    assert model.content["features"].tolist() == [0, 1]  # and no third round
    np.testing.assert_allclose(model.content["alphas"], alphas)
    np.testing.assert_allclose(model.importances().gain, alphas)
    assert model.importances().splits.tolist() == [1, 1]


def test_adarank_does_not_choose_a_constant_feature_for_the_order_of_the_rows() -> None:
    """A feature with equal values would leave rows that are sorted by label in the ideal order."""
    good = np.tile(np.float32([3, 1, 2, 0]), 10)
    lists = Lists(
        features=np.stack([np.ones_like(good), good], axis=1),
        labels=np.tile(np.float32([3, 2, 1, 0]), 10),
        offsets=np.arange(0, 41, 4),
        qids=np.arange(10).astype(str),
    )
    model = fitted(AdaRank(2, metric="ndcg"), lists, 1)
    assert model.content["features"].tolist() == [1]


def test_adarank_leaves_out_lists_that_the_convention_skips() -> None:
    lists = make_lists([6, 5, 7, 4], empty=(1,))
    skipping = Convention(empty="skip")
    model = fitted(AdaRank(5), lists, 4, convention=skipping)
    without = fitted(AdaRank(5), lists.subset(np.array([0, 2, 3])), 4)
    np.testing.assert_allclose(model.content["alphas"], without.content["alphas"])
    with pytest.raises(DataError, match="choose another"):
        after(AdaRank(5), tensors(make_lists([3], empty=(0,))), convention=skipping)


def plain_prank(items, grades, order, count):
    """Figure 2 of the paper, item by item; also the mean over steps."""
    w = np.zeros(items.shape[1])
    b = np.zeros(count - 1)
    states = []
    for i in order:
        score = w @ items[i]
        y = np.where(grades[i] > np.arange(count - 1), 1, -1)
        predicted = next((r for r in range(count - 1) if score - b[r] < 0), count - 1)
        if predicted != grades[i]:
            tau = np.where(y * (score - b) <= 0, y, 0)
            w = w + tau.sum() * items[i]
            b = b - tau
        assert (np.diff(b) >= 0).all(), "the thresholds stay in order"
        states.append(np.r_[w, b])
    return np.r_[w, b], np.mean(states, axis=0)


def test_prank_follows_figure_2_of_its_paper_or_its_mean() -> None:
    lists = make_lists([30, 20, 25])
    order = np.random.default_rng(1).permutation(75)
    last, mean = plain_prank(lists.features, lists.labels.astype(int), order, 3)
    for average, expected in ((False, last), (True, mean)):
        model = fitted(PRank(5, average=average), lists, 1)
        content = np.r_[model.content["weights"], model.content["thresholds"]]
        np.testing.assert_allclose(content, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=adarank", "model.metric=dcg@5"], "model.metric=dcg@5"),
        (["model=adarank", "model.metric=mine.hits"], "model.metric=mine.hits"),
        (["model=adarank", "model.sharpness=0"], "model.sharpness=0"),
        (["model=adarank", "loss=listnet"], "leave out loss="),
        (["model=prank", "clip=1"], "PRank does not support clip: leave out clip"),
        (["model=prank", "transform.missing=keep"], "transform.missing=mean"),
    ],
)
def test_build_refuses_wrong_settings_of_rounds_in_one_line(overrides, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build(compose(*overrides))
    assert "\n" not in str(caught.value)


def test_set_extra_state_refuses_an_expanded_tensor() -> None:
    expanded = torch.zeros(1, dtype=torch.float64).expand(10**15)
    with pytest.raises(CheckpointError, match="values that are not finite"):
        AdaRank(3).set_extra_state({"features": expanded, "alphas": expanded})


def test_round_models_refuse_what_they_cannot_fit_with_the_remedy() -> None:
    lists = make_lists([4, 3])
    heavy = replace(lists, weights=np.array([1, 2], np.float32))
    real = replace(lists, labels=lists.labels + 0.5)
    for wrong, message in (
        (real, "PRank takes whole-number labels"),
        (heavy, "PRank does not support weights"),
    ):
        with pytest.raises(DataError, match=message):
            after(PRank(5), tensors(wrong))
    model = AdaRank(2)
    model.restore({"features": np.array([0.0]), "alphas": np.array([1e300])})
    with pytest.raises(TrainingError, match=r"not finite: train with transform=standardise"):
        predict(model, tensors(two_lists()))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["adarank", "rankboost", "prank"])
def test_round_models_train_resume_load_and_list_importances(model, letor_folder, tmp_path):
    overrides = [*reading(letor_folder), f"model={model}", "transform=none"]
    for name, epochs in (("cut", 3), ("uncut", 5)):
        (tmp_path / name).mkdir()
        metrics = run(compose(*overrides, f"epochs={epochs}"), tmp_path / name, {})
        assert metrics["vali_ndcg@5"] > 0.75
    cfg, choices = resumed_config(compose(f"resume={tmp_path}/cut", "epochs=5"), ["epochs=5"])
    run(cfg, tmp_path / "cut", choices)
    resumed_scores = RunFolder(tmp_path / "cut").scores
    np.testing.assert_array_equal(resumed_scores, RunFolder(tmp_path / "uncut").scores)
    loaded = load_model(str(tmp_path / "cut"), torch.device("cpu")).model
    assert "of 5 features used" in call_command(
        importances, typed("importances", [f"{tmp_path}/cut"])
    )
    state = loaded.get_extra_state()
    for name in state:
        for wrong in (state[name] * torch.nan, state[name][None]):
            with pytest.raises(CheckpointError):
                loaded.set_extra_state({**state, name: wrong})


def test_rankboost_takes_the_threshold_of_the_largest_r_and_the_order_of_labels() -> None:
    lists = make_lists([6, 5, 7, 4], empty=(3,))
    x = lists.features
    y = lists.labels
    query = np.repeat(np.arange(4), lists.lengths)
    better, worse = np.nonzero((query[:, None] == query) & (y[:, None] > y))
    scores = np.zeros(len(x))
    alphas = []
    for _ in range(3):
        weights = np.exp(scores[worse] - scores[better])
        weights /= weights.sum()
        r_values = {
            (k, theta): weights @ (1.0 * (x[better, k] > theta) - (x[worse, k] > theta))
            for k in range(5)
            for theta in x[:, k]
        }
        k, theta = max(r_values, key=lambda threshold: abs(r_values[threshold]))
        r = r_values[k, theta]
        alphas.append(0.5 * np.log((1 + r) / (1 - r)))
        scores += alphas[-1] * (x[:, k] > theta)
    model = fitted(RankBoost(5), lists, 3)
    np.testing.assert_allclose(model.content["alphas"], alphas)
    np.testing.assert_allclose(predict(model, tensors(lists)), scores, rtol=1e-6)
    assert len(fitted(RankBoost(5, thresholds=2), lists, 3).content["alphas"]) == 3

    # each list has labels of its own, in the order of its grades
    grades = make_lists([8] * 50)
    real = replace(grades, labels=grades.labels + np.repeat(np.arange(50, dtype=np.float32), 8) * 3)
    of_real_labels = fitted(RankBoost(5, thresholds=7), real, 4).content
    of_grades = fitted(RankBoost(5, thresholds=7), grades, 4).content
    for name, array in of_real_labels.items():
        np.testing.assert_array_equal(array, of_grades[name])


def test_thresholds_are_all_values_but_the_largest() -> None:
    assert _thresholds(np.array([3.0, 1.0, 2.0, 3.0]), largest_count=9).tolist() == [1.0, 2.0]
