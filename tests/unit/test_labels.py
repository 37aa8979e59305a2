"""Requirements of losses and metrics on labels, checked before the first batch."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.cli.cli import call_command
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment, build
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.open_data import complete_settings
from ltr.experiment.resume import resumed_config
from ltr.experiment.train_lists import draw_lists
from ltr.inference.evaluate import evaluate_model, evaluate_scores
from ltr.losses import bce_loss
from ltr.metrics import Convention, mrr, parse_metric
from tests.helpers.folders import refused
from tests.helpers.runs import compose, identity, run


def letor_text(labels: list[list[float]]) -> str:
    """Return LETOR text of lists with these labels, after a comment."""
    rows = "# made\n"
    for query, list_labels in enumerate(labels):
        for item, label in enumerate(list_labels):
            rows += f"{label:g} qid:q{query} 1:{query + item / 7:.3f} 2:{label / 9:.3f}\n"
    return rows


def write_experiment(path: Path, **splits: list[list[float]]) -> list[str]:
    """Write lists with these labels; return the overrides of a small experiment on them."""
    for split in ("train", "vali", "test"):
        file = path / "mine" / f"{split}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(letor_text(splits.get(split, [[0, 1, 2], [1, 0]])))
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={path}", f"cache_dir={path}/cache",
        "dataset.labels=real", "model=linear", "transform=none", "epochs=1", "threads=1",
    ]  # fmt: skip


def complete(*overrides: str) -> Experiment:
    """Build an experiment and complete it with the facts of its lists."""
    experiment = build(compose(*overrides))
    lists = {split: experiment.dataset.split(split) for split in ("train", "vali", "test")}
    return complete_settings(experiment, lists)


TO_TEN = [[0, 10, 3], [7, 0]]


@pytest.mark.slow
def test_levels_come_from_train_and_are_recorded(tmp_path: Path) -> None:
    overrides = write_experiment(tmp_path, train=TO_TEN, vali=TO_TEN, test=TO_TEN)
    cfg = compose(*overrides, "loss=neuralerr", "metrics=[err@5]")
    out = tmp_path / "run"
    out.mkdir()
    run(cfg, out, {})
    results = json.loads((out / "results.json").read_text())
    assert results["convention"]["levels"] == results["protocol"]["loss"]["levels"] == 11
    resumed, _ = resumed_config(compose(f"resume={out}"), [f"resume={out}"])
    assert resumed.loss.levels == resumed.convention.levels == 11
    assert identity(resumed) == identity(cfg)

    def evaluate(*overrides: str) -> str:
        return call_command(
            evaluate_model, compose(f"checkpoint={out}", *overrides, config="evaluate")
        )

    assert "11 grades" in evaluate()
    write_experiment(tmp_path / "other", test=[[0, 11]])
    dataset = ["dataset=letor", "dataset.folder=mine", f"data_dir={tmp_path}/other"]
    message = refused(lambda: evaluate(*dataset, "metrics=[err]"), ConfigError)
    assert message.startswith("test, whose largest label is 11 (query id q0): levels=11 means")
    assert "convention.levels" in message
    assert "12 grades" in evaluate(*dataset, "metrics=[err]", "convention.levels=12")
    high_threshold = (*dataset, "metrics=[map]", "convention.relevant=11.5")
    assert "set convention.relevant" in refused(lambda: evaluate(*high_threshold), ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "overrides", "loss_levels", "metric_levels"),
    [
        (0.0, [], 2, 2), (2.5, [], 4, 4), (3.0, ["suggested.levels=20"], 20, 20),
        (3.0, ["loss.levels=12.5"], 12.5, 4),
    ],
)  # fmt: skip
def test_levels_are_the_largest_label_or_a_setting(
    largest, overrides, loss_levels, metric_levels, tmp_path: Path
) -> None:
    lists = {"train": [[0.0, largest], [0, 0]], "vali": [[0.0, 0.5]], "test": [[0, 0.5]]}
    experiment = complete(*write_experiment(tmp_path, **lists), "loss=rmse", *overrides)
    assert experiment.loss.keywords["levels"] == loss_levels
    assert experiment.convention.levels == metric_levels


TO_FOUR = [[0, 1], [4, 0]]
BELOW_ONE = [[0.2, 0.8], [0.1, 0.3]]
CLICKS = [[0, 5000, 3], [1, 0]]
THOUSAND = [[0, 1000], [1, 2]]
LINEAR = "convention.gain=linear"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "overrides", "message"),
    [
        ({"vali": TO_FOUR}, "loss=rmse", "from 0 to 2, but vali has the label 4 (query id q1)"),
        ({"test": TO_FOUR}, "loss=listnet metrics=[err@3]", "levels=3 means"),
        ({"train": BELOW_ONE, "vali": BELOW_ONE}, "loss=listnet metrics=[map] select_on=map",
         "no item of vali is relevant for map; the largest label is 0.8"),
        ({"test": [[0.1, 0.5]]}, "loss=rmse metrics=[mrr] convention.relevant=0.7",
         "no item of test is relevant for mrr; the largest label is 0.5"),
        ({"vali": [[0, 0, 0], [0, 0]]}, "loss=listnet",
         "no item of vali is relevant for ndcg@5; the largest label is 0 (query id q0): use"),
        ({"train": THOUSAND}, "loss=neuralndcg", "label, 1000 (query id q0)"),
        ({"vali": [[0, 2000]]}, "loss=listnet", "ndcg@5 of vali is not finite"),
        ({"train": CLICKS}, f"loss=neuralndcg {LINEAR}", "label, 5000 (query id q0)"),
        ({"train": CLICKS, "vali": CLICKS}, f"loss=ranknet {LINEAR} metrics=[err]", "err of vali"),
        ({"train": CLICKS}, f"loss=ordinal {LINEAR}", "levels=5001"),
        ({"train": BELOW_ONE}, "loss=bce", "no item of train is relevant for the loss"),
        ({"test": [[0, 1, 2], [1, 0.5]]}, "loss=ranknet convention.gain=[0,1,3]",
         "test, whose largest label is 2"),
        ({}, "loss=ranknet convention.gain=[0,1]", "label is 2 ("),
        ({"train": [[0, 1, 2], [1, 0.5]]}, "loss=svmndcg loss.gain=[0,1,3]",
         "train, whose largest label is 2 (query id q0): gain=[0, 1, 3] covers the grades 0 to 2"),
        ({}, "loss=mix +loss.knobs.neuralndcg.gain=[0,1]", "train, whose largest label is 2"),
        ({"vali": TO_FOUR}, "loss=rmse suggested.levels=5", None),
        ({"vali": TO_FOUR}, "loss=listnet", None),  # reads no grades
        ({"vali": TO_FOUR}, "model=lightgbm", None),
        ({"train": CLICKS, "vali": CLICKS}, f"loss=rmse {LINEAR}", None),
        ({"train": CLICKS, "vali": CLICKS, "test": BELOW_ONE}, "loss=plrank gain=linear", None),
        ({}, "loss=lambdarank gain=[0,1,3]", None),
        ({"train": BELOW_ONE}, "loss=bce loss.relevant=0.8", None),  # 0.800000012 in float32
        ({}, "loss=ranknet convention.gain=[0,1,3]", None),
    ],
)  # fmt: skip
def test_complete_settings_refuses_labels_that_loss_or_metric_cannot_use(
    labels, overrides, message, tmp_path: Path
) -> None:
    if "lightgbm" in overrides:
        pytest.importorskip("lightgbm")
    all_overrides = [*write_experiment(tmp_path, **labels), *overrides.split()]
    if message is None:
        complete(*all_overrides)
    else:
        assert message in refused(lambda: complete(*all_overrides), ConfigError)


def test_complete_settings_keeps_that_a_sweep_resumes_a_run(tmp_path: Path) -> None:
    experiment = build(compose(*write_experiment(tmp_path)))
    lists = {split: experiment.dataset.split(split) for split in ("train", "vali", "test")}
    for is_resumed in (False, True):
        begun = replace(experiment, is_resumed=is_resumed)
        assert complete_settings(begun, lists).is_resumed is is_resumed


@pytest.mark.parametrize(
    ("overrides", "size", "is_reported"),
    [
        ([], 2, True),  # 20 lists in 10 steps
        (["experiment=recommended"], 1, True),
        (["suggested.steps=5"], 4, True),
        (["batch_size=32"], 32, False),
        (["model=linear", "loss=ranknet"], 2, True),
        (["model=adarank"], 2, False),  # has no batches
    ],
)
def test_batch_size_is_small_for_few_lists(overrides, size, is_reported, tmp_path, caplog) -> None:
    data = write_experiment(tmp_path, train=[[1, 0, 2]] * 20, vali=[[1, 0]], test=[[1, 0]])
    caplog.set_level("INFO")
    experiment = complete(*data, *overrides)
    recorded = experiment.record.config["batch_size"]
    assert experiment.settings.batch_size == recorded == size
    assert (f"batch_size {size}: " in caplog.text) is is_reported


@pytest.mark.parametrize(
    ("lists", "overrides", "size", "steps"),
    [
        (20, ["bagging=0.72"], 1, 8),  # a bag of 14 lists
        (10, ["bagging=0.5"], 1, 5),  # a bag of 5 lists
        (20, ["bagging=bootstrap"], 2, 8),
    ],
)
def test_batch_size_reports_the_steps_of_the_bag(
    lists, overrides, size, steps, tmp_path, caplog
) -> None:
    data = write_experiment(tmp_path, train=[[1, 0, 2]] * lists, vali=[[1, 0]], test=[[1, 0]])
    caplog.set_level("INFO")
    experiment = complete(*data, "model=linear", "loss=ranknet", *overrides)
    bagging = experiment.record.config["bagging"]
    drawn = lists
    if bagging is not None:
        drawn = len(draw_lists(lists, bagging, experiment.settings.seed))
    assert experiment.settings.batch_size == size
    assert math.ceil(drawn / size) >= steps
    reason = f"an epoch should have at least {steps} steps"
    assert f"batch_size {size}: small, because {reason}" in caplog.text


def test_complete_settings_refuses_labels_and_weights_that_no_loss_can_use(
    tmp_path: Path,
) -> None:
    cfg = compose(*write_experiment(tmp_path), "gain=linear")
    lists = build(cfg).dataset.split("train")
    nan = np.where(lists.labels > 0, np.nan, lists.labels)
    for wrong, message in (
        ({"labels": -lists.labels}, "train has the label -"),
        ({"labels": nan}, "train has the label nan: expected labels >= 0"),
        ({"weights": -np.ones(len(lists), np.float32)}, "train has a list with the weight -1: "),
    ):
        wrong_lists = {"train": replace(lists, **wrong)}
        action = partial(complete_settings, build(cfg), wrong_lists)
        assert message in refused(action, ConfigError)
    negative = replace(lists, labels=-lists.labels)
    metrics = [parse_metric("ndcg")]
    message = refused(lambda: check_metrics("test", negative, metrics, Convention()), ConfigError)
    assert message.startswith("test has the label -")


def test_evaluate_scores_checks_labels_in_the_same_way(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    scores = tmp_path / "scores.txt"
    data.write_text(letor_text([[0.2, 0.7], [3.5, 0]]))
    scores.write_text("1\n2\n3\n4\n")

    def evaluate(*overrides: str) -> str:
        files = [f"scores={scores}", f"data={data}", "conventions=[paper]"]
        return call_command(evaluate_scores, compose(*files, *overrides, config="evaluate"))

    assert "5 grades" in evaluate("metrics=[err]")
    message = refused(lambda: evaluate("metrics=[err]", "convention.levels=4"), ConfigError)
    assert "largest label is 3.5 (query id q1)" in message


@pytest.mark.parametrize("written", [0.7, 0.1, 0.61, 3.0])
def test_relevant_means_the_label_that_a_file_writes(written: float) -> None:
    scores = torch.tensor([[2.0, 1.0]])
    mask = torch.tensor([[True, True]])
    as_read = torch.tensor([[written, 0.0]])  # float32
    for labels in (as_read, as_read.double(), torch.tensor([[written, 0.0]], dtype=torch.float64)):
        assert mrr(scores, labels, mask, relevant=written, empty=0).item() == 1
        assert mrr(scores, labels, mask, relevant=written * 1.000001, empty=0).item() == 0
        loss = bce_loss(scores, labels, mask, relevant=written)
        assert loss.item() == pytest.approx(bce_loss(scores, (labels > 0).float(), mask).item())
