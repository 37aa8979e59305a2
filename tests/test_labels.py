"""What labels ask of losses and metrics: found in train, checked before the first batch."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose
from folders import refused
from runs import identity, run

from ltr.console.cli import call_command
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment, build
from ltr.experiment.data_checks import check_metrics
from ltr.experiment.open_data import complete_settings
from ltr.experiment.resume import resumed_config
from ltr.experiment.train_lists import draw_lists
from ltr.inference.evaluate import evaluate_model, evaluate_scores
from ltr.losses import bce_loss
from ltr.metrics import Convention, mrr, parse_metric


def text(labels: list[list[float]]) -> str:
    """LETOR text of lists with these labels, a comment first."""
    rows = "# made\n"
    for q, own in enumerate(labels):
        for i, label in enumerate(own):
            rows += f"{label:g} qid:q{q} 1:{q + i / 7:.3f} 2:{label / 9:.3f}\n"
    return rows


def folder(path: Path, **splits: list[list[float]]) -> list[str]:
    """Overrides of a small experiment on lists with these labels."""
    for split in ("train", "vali", "test"):
        file = path / "mine" / f"{split}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text(splits.get(split, [[0, 1, 2], [1, 0]])))
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={path}", f"cache_dir={path}/cache",
        "dataset.labels=real", "model=linear", "transform=none", "epochs=1", "threads=1",
    ]  # fmt: skip


def completed(*overrides: str) -> Experiment:
    experiment = build(compose(*overrides))
    lists = {split: experiment.dataset.split(split) for split in ("train", "vali", "test")}
    return complete_settings(experiment, lists)


TEN = [[0, 10, 3], [7, 0]]


@pytest.mark.slow
def test_grades_come_from_train_and_are_kept(tmp_path: Path) -> None:
    given = folder(tmp_path, train=TEN, vali=TEN, test=TEN)
    cfg = compose(*given, "loss=neuralerr", "metrics=[err@5]")
    out = tmp_path / "run"
    out.mkdir()
    run(cfg, out, {})
    results = json.loads((out / "results.json").read_text())
    assert results["convention"]["levels"] == results["protocol"]["loss"]["levels"] == 11
    again, _ = resumed_config(compose(f"resume={out}"), [f"resume={out}"])
    assert again.loss.levels == again.convention.levels == 11
    assert identity(again) == identity(cfg)

    def evaluated(*more: str) -> str:
        return call_command(evaluate_model, compose(f"checkpoint={out}", *more, config="evaluate"))

    assert "11 grades" in evaluated()
    folder(tmp_path / "other", test=[[0, 11]])
    other = ["dataset=letor", "dataset.folder=mine", f"data_dir={tmp_path}/other"]
    said = refused(lambda: evaluated(*other, "metrics=[err]"), ConfigError)
    assert said.startswith("test, where the largest is label 11 (query id q0): levels=11 means")
    assert "convention.levels" in said
    assert "12 grades" in evaluated(*other, "metrics=[err]", "convention.levels=12")
    high = (*other, "metrics=[map]", "convention.relevant=11.5")
    assert "set convention.relevant" in refused(lambda: evaluated(*high), ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "more", "loss", "metrics"),
    [
        (0.0, [], 2, 2), (2.5, [], 4, 4), (3.0, ["suggested.levels=20"], 20, 20),
        (3.0, ["loss.levels=12.5"], 12.5, 4),
    ],
)  # fmt: skip
def test_the_number_of_grades_is_the_largest_label_or_what_is_said(
    largest, more, loss, metrics, tmp_path: Path
) -> None:
    given = folder(tmp_path, train=[[0.0, largest], [0, 0]], vali=[[0.0, 0.5]], test=[[0, 0.5]])
    experiment = completed(*given, "loss=rmse", *more)
    assert experiment.loss.keywords["levels"] == loss
    assert experiment.convention.levels == metrics


FOUR, REAL = [[0, 1], [4, 0]], [[0.2, 0.8], [0.1, 0.3]]
CLICKS, THOUSAND = [[0, 5000, 3], [1, 0]], [[0, 1000], [1, 2]]
LINEAR = "convention.gain=linear"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "overrides", "said"),
    [
        ({"vali": FOUR}, "loss=rmse", "vali has label 4 (query id q1), but loss.levels has 3"),
        ({"test": FOUR}, "loss=listnet metrics=[err@3]", "levels=3 means"),
        ({"train": REAL, "vali": REAL}, "loss=listnet metrics=[map] select_on=map",
         "no item of vali is relevant for map, the largest is label 0.8"),
        ({"test": [[0.1, 0.5]]}, "loss=rmse metrics=[mrr] convention.relevant=0.7",
         "no item of test is relevant for mrr, the largest is label 0.5"),
        ({"vali": [[0, 0, 0], [0, 0]]}, "loss=listnet",
         "no item of vali is relevant for ndcg@5, the largest is label 0 (query id q0): give"),
        ({"train": THOUSAND}, "loss=neuralndcg", "label 1000 (query id q0)"),
        ({"vali": [[0, 2000]]}, "loss=listnet", "ndcg@5 of vali has no finite value"),
        ({"train": CLICKS}, f"loss=neuralndcg {LINEAR}", "label 5000 (query id q0)"),
        ({"train": CLICKS, "vali": CLICKS}, f"loss=ranknet {LINEAR} metrics=[err]", "err of vali"),
        ({"train": CLICKS}, f"loss=ordinal {LINEAR}", "levels=5001"),
        ({"train": REAL}, "loss=bce", "no item of train is relevant for the loss"),
        ({"test": [[0, 1, 2], [1, 0.5]]}, "loss=ranknet convention.gain=[0,1,3]",
         "test, where the largest is label 2"),
        ({}, "loss=ranknet convention.gain=[0,1]", "label 2 "),
        ({"train": [[0, 1, 2], [1, 0.5]]}, "loss=svmndcg loss.gain=[0,1,3]",
         "train, where the largest is label 2 (query id q0): gain=[0, 1, 3] has the grades 0 to 2"),
        ({}, "loss=mix +loss.knobs.neuralndcg.gain=[0,1]", "train, where the largest is label 2"),
        ({"vali": FOUR}, "loss=rmse suggested.levels=5", None),
        ({"vali": FOUR}, "loss=listnet", None),  # reads no grades
        ({"vali": FOUR}, "model=lightgbm", None),
        ({"train": CLICKS, "vali": CLICKS}, f"loss=rmse {LINEAR}", None),
        ({"train": CLICKS, "vali": CLICKS, "test": REAL}, "loss=plrank gain=linear", None),
        ({}, "loss=lambdarank gain=[0,1,3]", None),
        ({"train": REAL}, "loss=bce loss.relevant=0.8", None),  # 0.800000012 in float32
        ({}, "loss=ranknet convention.gain=[0,1,3]", None),
    ],
)  # fmt: skip
def test_what_a_loss_or_a_metric_cannot_take_stops(labels, overrides, said, tmp_path: Path) -> None:
    if "lightgbm" in overrides:
        pytest.importorskip("lightgbm")
    given = [*folder(tmp_path, **labels), *overrides.split()]
    if said is None:
        completed(*given)
    else:
        assert said in refused(lambda: completed(*given), ConfigError)


@pytest.mark.parametrize(
    ("given", "size", "tells"),
    [
        ([], 2, True),  # 20 lists in 10 steps
        (["experiment=recommended"], 1, True),
        (["suggested.steps=5"], 4, True),
        (["batch_size=32"], 32, False),
        (["model=linear", "loss=ranknet"], 2, True),
        (["model=adarank"], 2, False),  # has no batches
    ],
)
def test_few_lists_are_trained_in_small_batches(given, size, tells, tmp_path, caplog) -> None:
    place = folder(tmp_path, train=[[1, 0, 2]] * 20, vali=[[1, 0]], test=[[1, 0]])
    caplog.set_level("INFO")
    experiment = completed(*place, *given)
    recorded = experiment.record.config["batch_size"]
    assert experiment.settings.batch_size == recorded == size
    assert (f"batch_size {size}: " in caplog.text) is tells


@pytest.mark.parametrize(
    ("lists", "given", "size", "steps"),
    [
        (20, ["bagging=0.72"], 1, 8),  # a bag of 14 lists
        (10, ["bagging=0.5"], 1, 5),  # a bag of 5 lists
        (20, ["bagging=bootstrap"], 2, 8),
    ],
)
def test_batch_size_promises_the_steps_of_the_bag(
    lists, given, size, steps, tmp_path, caplog
) -> None:
    place = folder(tmp_path, train=[[1, 0, 2]] * lists, vali=[[1, 0]], test=[[1, 0]])
    caplog.set_level("INFO")
    experiment = completed(*place, "model=linear", "loss=ranknet", *given)
    bagging = experiment.record.config["bagging"]
    drawn = lists
    if bagging is not None:
        drawn = len(draw_lists(lists, bagging, experiment.settings.seed))
    assert experiment.settings.batch_size == size
    assert math.ceil(drawn / size) >= steps
    assert f"batch_size {size}: at least {steps} steps" in caplog.text


def test_labels_and_weights_that_no_loss_can_take_stop_a_data_set_of_ones_own(
    tmp_path: Path,
) -> None:
    cfg = compose(*folder(tmp_path), "gain=linear")
    lists = build(cfg).dataset.split("train")
    nan = np.where(lists.labels > 0, np.nan, lists.labels)
    for wrong, said in (
        ({"labels": -lists.labels}, "train has the label -"),
        ({"labels": nan}, "train has the label nan: labels are >= 0"),
        ({"weights": -np.ones(len(lists), np.float32)}, "train has a list with the weight -1: "),
    ):
        given = {"train": replace(lists, **wrong)}
        assert said in refused(lambda g=given: complete_settings(build(cfg), g), ConfigError)
    below = replace(lists, labels=-lists.labels)
    metrics = [parse_metric("ndcg")]
    said = refused(lambda: check_metrics("test", below, metrics, Convention()), ConfigError)
    assert said.startswith("test has the label -")


def test_scores_of_other_tools_are_checked_in_the_same_way(tmp_path: Path) -> None:
    data, scores = tmp_path / "data.txt", tmp_path / "scores.txt"
    data.write_text(text([[0.2, 0.7], [3.5, 0]]))
    scores.write_text("1\n2\n3\n4\n")

    def evaluated(*more: str) -> str:
        given = [f"scores={scores}", f"data={data}", "metrics_as=paper", *more]
        return call_command(evaluate_scores, compose(*given, config="evaluate"))

    assert "5 grades" in evaluated("metrics=[err]")
    said = refused(lambda: evaluated("metrics=[err]", "convention.levels=4"), ConfigError)
    assert "label 3.5 (query id q1)" in said


@pytest.mark.parametrize("written", [0.7, 0.1, 0.61, 3.0])
def test_a_threshold_means_the_label_that_a_file_writes(written: float) -> None:
    scores, mask = torch.tensor([[2.0, 1.0]]), torch.tensor([[True, True]])
    kept = torch.tensor([[written, 0.0]])  # float32, as the reader keeps it
    for labels in (kept, kept.double(), torch.tensor([[written, 0.0]], dtype=torch.float64)):
        assert mrr(scores, labels, mask, relevant=written, empty=0).item() == 1
        assert mrr(scores, labels, mask, relevant=written * 1.000001, empty=0).item() == 0
        found = bce_loss(scores, labels, mask, relevant=written)
        assert found.item() == pytest.approx(bce_loss(scores, (labels > 0).float(), mask).item())
