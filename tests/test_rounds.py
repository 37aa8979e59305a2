"""AdaRank and PRank: their formulas by hand, and runs of them from training to importances."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import compose, make_lists
from made_trees import after, reading, tensors
from runs import run

from ltr.console.cli import call_command
from ltr.console.compose import typed
from ltr.data.lists import Lists
from ltr.errors import CheckpointError, ConfigError, DataError, TrainingError
from ltr.experiment.build import build
from ltr.experiment.resume import resumed_config
from ltr.experiment.run_folder import RunFolder
from ltr.inference.explain.importances import importances
from ltr.metrics import Convention
from ltr.models.rounds import AdaRank, PRank, RankBoost
from ltr.models.rounds.boosting import _thresholds
from ltr.scorers.scorer import load_model
from ltr.training.evaluation import predict


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
    good, bad = 1.0, 1 / 2  # average precision of the one relevant item at rank 1, at rank 2
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
    lists, skipping = make_lists([6, 5, 7, 4], empty=(1,)), Convention(empty="skip")
    model = fitted(AdaRank(5), lists, 4, convention=skipping)
    without = fitted(AdaRank(5), lists.subset(np.array([0, 2, 3])), 4)
    np.testing.assert_allclose(model.content["alphas"], without.content["alphas"])
    with pytest.raises(DataError, match="choose another"):
        after(AdaRank(5), tensors(make_lists([3], empty=(0,))), convention=skipping)


def plain_prank(items, grades, order, count):
    """Figure 2 of the paper, item by item; also the mean over steps."""
    w, b, states = np.zeros(items.shape[1]), np.zeros(count - 1), []
    for i in order:
        score = w @ items[i]
        y = np.where(grades[i] > np.arange(count - 1), 1, -1)
        predicted = next((r for r in range(count - 1) if score - b[r] < 0), count - 1)
        if predicted != grades[i]:
            tau = np.where(y * (score - b) <= 0, y, 0)
            w, b = w + tau.sum() * items[i], b - tau
        assert (np.diff(b) >= 0).all(), "the thresholds stay in order"
        states.append(np.r_[w, b])
    return np.r_[w, b], np.mean(states, axis=0)


def test_prank_is_the_paper_s_and_its_mean() -> None:
    lists = make_lists([30, 20, 25])
    order = np.random.default_rng(1).permutation(75)
    last, mean = plain_prank(lists.features, lists.labels.astype(int), order, 3)
    for average, expected in ((False, last), (True, mean)):
        model = fitted(PRank(5, average=average), lists, 1)
        got = np.r_[model.content["weights"], model.content["thresholds"]]
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=adarank", "model.metric=dcg@5"], "model.metric=dcg@5"),
        (["model=adarank", "model.metric=mine.hits"], "model.metric=mine.hits"),
        (["model=adarank", "model.sharpness=0"], "model.sharpness=0"),
        (["model=adarank", "loss=listnet"], "leave out loss="),
        (["model=prank", "clip=1"], "clip: PRank does not"),
        (["model=prank", "transform.missing=keep"], "transform.missing=mean"),
    ],
)
def test_a_wrong_setting_is_one_line_before_data_is_read(overrides, said) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        build(compose(*overrides))
    assert "\n" not in str(caught.value)


def test_a_crafted_state_of_one_number_many_times_takes_no_memory() -> None:
    many = torch.zeros(1, dtype=torch.float64).expand(10**15)
    with pytest.raises(CheckpointError, match="no finite numbers"):
        AdaRank(3).set_extra_state({"features": many, "alphas": many})


def test_what_a_model_cannot_take_ends_with_the_remedy() -> None:
    lists = make_lists([4, 3])
    heavy = replace(lists, weights=np.array([1, 2], np.float32))
    real = replace(lists, labels=lists.labels + 0.5)
    for wrong, message in ((real, "PRank takes whole labels"), (heavy, "PRank takes no weights")):
        with pytest.raises(DataError, match=message):
            after(PRank(5), tensors(wrong))
    model = AdaRank(2)
    model.restore({"features": np.array([0.0]), "alphas": np.array([1e300])})
    with pytest.raises(TrainingError, match=r"not finite: train with transform=standardise"):
        predict(model, tensors(two_lists()))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["adarank", "rankboost", "prank"])
def test_a_run_is_trained_resumed_kept_and_its_features_listed(model, letor_folder, tmp_path):
    overrides = [*reading(letor_folder), f"model={model}", "transform=none"]
    for name, epochs in (("cut", 3), ("whole", 5)):
        (tmp_path / name).mkdir()
        got = run(compose(*overrides, f"epochs={epochs}"), tmp_path / name, {})
        assert got["vali_ndcg@5"] > 0.75
    cfg, choices = resumed_config(compose(f"resume={tmp_path}/cut", "epochs=5"), ["epochs=5"])
    run(cfg, tmp_path / "cut", choices)
    np.testing.assert_array_equal(*(RunFolder(tmp_path / n).scores for n in ("cut", "whole")))
    kept = load_model(str(tmp_path / "cut"), torch.device("cpu")).model
    assert "of 5 features used" in call_command(
        importances, typed("importances", [f"{tmp_path}/cut"])
    )
    state = kept.get_extra_state()
    for name in state:
        for wrong in (state[name] * torch.nan, state[name][None]):
            with pytest.raises(CheckpointError):
                kept.set_extra_state({**state, name: wrong})


def test_rankboost_takes_the_threshold_of_the_largest_r_and_labels_by_their_order() -> None:
    lists = make_lists([6, 5, 7, 4], empty=(3,))
    x, y = lists.features, lists.labels
    query = np.repeat(np.arange(4), lists.lengths)
    better, worse = np.nonzero((query[:, None] == query) & (y[:, None] > y))
    scores, alphas = np.zeros(len(x)), []
    for _ in range(3):
        weights = np.exp(scores[worse] - scores[better])
        weights /= weights.sum()
        found = {
            (k, theta): weights @ (1.0 * (x[better, k] > theta) - (x[worse, k] > theta))
            for k in range(5)
            for theta in x[:, k]
        }
        (k, theta), r = max(found.items(), key=lambda one: abs(one[1]))
        alphas.append(0.5 * np.log((1 + r) / (1 - r)))
        scores += alphas[-1] * (x[:, k] > theta)
    model = fitted(RankBoost(5), lists, 3)
    np.testing.assert_allclose(model.content["alphas"], alphas)
    np.testing.assert_allclose(predict(model, tensors(lists)), scores, rtol=1e-6)
    assert len(fitted(RankBoost(5, thresholds=2), lists, 3).content["alphas"]) == 3

    # each list has labels of its own, in the order of its grades
    grades = make_lists([8] * 50)
    real = replace(grades, labels=grades.labels + np.repeat(np.arange(50, dtype=np.float32), 8) * 3)
    one, other = (fitted(RankBoost(5, thresholds=7), lists, 4).content for lists in (real, grades))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def test_every_value_but_the_largest_is_a_cut() -> None:
    assert _thresholds(np.array([3.0, 1.0, 2.0, 3.0]), largest_count=9).tolist() == [1.0, 2.0]
