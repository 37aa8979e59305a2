"""What labels ask of losses and metrics: found in train, checked before the first batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import compose
from folders import refused

from ltr.data.lists import Lists
from ltr.errors import ConfigError
from ltr.experiment import resume
from ltr.experiment.build import build
from ltr.experiment.identity import identity
from ltr.experiment.labels import check_metrics, resolve_labels
from ltr.experiment.run import run
from ltr.losses import bce_loss, neural_err_loss
from ltr.metrics import Convention, err, mrr, parse_metric
from ltr.scoring.evaluate import evaluate_kept, evaluate_scores


def text(labels: list[list[float]]) -> str:
    """LETOR text of lists with these labels, a comment first."""
    rows = [
        f"{label:g} qid:q{q} 1:{q + i / 7:.3f} 2:{label / 9:.3f}"
        for q, own in enumerate(labels)
        for i, label in enumerate(own)
    ]
    return "\n".join(["# made", *rows]) + "\n"


def folder(path: Path, **splits: list[list[float]]) -> list[str]:
    """Overrides of a small experiment on lists with these labels."""
    for split in ("train", "vali", "test"):
        file = path / "mine" / f"{split}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text(splits.get(split, [[0, 1, 2], [1, 0]])))
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={path}", f"cache_dir={path}/cache",
        "model=linear", "transform=none", "epochs=1", "threads=1",
    ]  # fmt: skip


def resolved(*overrides: str):
    cfg = compose(*overrides)
    experiment = build(cfg)
    lists = {split: experiment.dataset.split(split) for split in ("train", "vali", "test")}
    return resolve_labels(cfg, experiment, lists)


def no(*overrides: str) -> str:
    return refused(lambda: resolved(*overrides), ConfigError)


TEN = [[0, 10, 3], [7, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["rmse", "neuralerr"])
def test_grades_come_from_train_and_are_kept(loss, tmp_path: Path) -> None:
    given = folder(tmp_path, train=TEN, vali=TEN, test=TEN)
    cfg = compose(*given, f"loss={loss}", "metrics=[err@5]")
    out = tmp_path / "run"
    out.mkdir()
    run(cfg, out, {})
    results = json.loads((out / "results.json").read_text())
    assert results["convention"]["levels"] == 11
    assert results["protocol"]["loss"]["levels"] == 11
    again, _ = resume.resumed(compose(f"resume={out}"), [f"resume={out}"])
    assert again.loss.levels == again.convention.levels == 11
    assert identity(again) == identity(cfg)
    assert "11 grades" in evaluate_kept(compose(f"checkpoint={out}", config="evaluate"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "levels"), [(0.0, 2), (1.0, 2), (3.0, 4), (2.5, 4), (31.0, 32)]
)
def test_real_labels_are_rounded_up(largest, levels, tmp_path: Path) -> None:
    lists = [[0.0, largest], [0, 0]]
    given = folder(tmp_path, train=lists, vali=[[0.0, 0.5]], test=[[0, 0.5]])
    cfg, experiment = resolved(*given, "dataset.labels=real", "loss=rmse")
    assert cfg.suggested.levels == experiment.convention.levels == levels
    assert experiment.loss.keywords["levels"] == levels


@pytest.mark.slow
def test_who_says_the_number_is_obeyed(tmp_path: Path) -> None:
    given = folder(tmp_path, train=TEN)
    _, experiment = resolved(*given, "loss=rmse", "suggested.levels=20")
    assert experiment.loss.keywords["levels"] == experiment.convention.levels == 20
    _, experiment = resolved(*given, "loss=rmse", "loss.levels=12.5")
    assert experiment.loss.keywords["levels"] == 12.5
    assert experiment.convention.levels == 11
    for name, levels in {
        "web30k": 5,
        "web10k": 5,
        "istella": 5,
        "mq2008": 3,
        "synthetic": 5,
    }.items():
        assert compose(f"dataset={name}").convention.levels == levels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "loss"), [("vali", "rmse"), ("test", "ordinal"), ("test", "neuralerr")]
)
def test_a_label_above_the_grades_stops(split, loss, tmp_path: Path) -> None:
    given = folder(tmp_path, **{split: [[0, 1], [4, 0]]})
    said = no(*given, f"loss={loss}")
    assert said.startswith(f"{split} has label 4 (query id q1), but loss.levels=3")
    assert "set loss.levels=5 " in said
    resolved(*given, f"loss={loss}", "suggested.levels=5")
    resolved(*given, "loss=listnet")  # reads no grades
    assert "set convention.levels=5 " in no(*given, "loss=listnet", "metrics=[err@3]")


def test_boosted_trees_are_checked_as_well(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    given = folder(tmp_path, vali=[[0, 1], [4, 0]])
    assert "levels=5" in no(*given, "model=lightgbm", "metrics=[err]")
    assert "levels=5" in no(*given, "model=lightgbm", "loss=rmse")
    resolved(*given, "model=lightgbm")


REAL = [[0.2, 0.8], [0.1, 0.3]]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["map", "mrr", "precision@5", "recall@5"])
def test_a_metric_that_finds_nothing_relevant_stops(metric, tmp_path: Path) -> None:
    given = folder(tmp_path, train=REAL, vali=REAL, test=[[0.1, 0.5]])
    real = [*given, "dataset.labels=real", "loss=listnet", f"metrics=[{metric}]"]
    said = no(*real, f"select_on={metric}")
    assert said.startswith(
        f"{metric} of vali: no list has a relevant item, the largest label is 0.8"
    )
    assert "set convention.relevant=0.8 or lower" in said
    assert "of test" in no(*real, "convention.relevant=0.8")
    resolved(*real, "convention.relevant=0.5")
    assert "of train" not in no(*real, "select_on=ndcg@5")


def test_labels_that_are_all_zero_say_nothing(tmp_path: Path) -> None:
    given = folder(tmp_path, test=[[0, 0], [0]])
    assert no(*given, "loss=listnet").startswith("ndcg@5 of test: no list has a relevant item")
    assert "be left out" in no(*given, "loss=listnet", "convention.empty=skip")


@pytest.mark.slow
def test_evaluations_are_checked_in_the_same_way(tmp_path: Path) -> None:
    given = folder(tmp_path)
    out = tmp_path / "run"
    out.mkdir()
    run(compose(*given, "loss=listnet"), out, {})
    folder(tmp_path / "other", test=[[0, 9]])
    other = [
        f"checkpoint={out}", "dataset=letor", "dataset.folder=mine", f"data_dir={tmp_path}/other",
    ]  # fmt: skip

    def evaluated(*more: str) -> str:
        return evaluate_kept(compose(*other, *more, config="evaluate"))

    assert "set convention.levels=10" in refused(lambda: evaluated("metrics=[err]"), ConfigError)
    assert "10 grades" in evaluated("metrics=[err]", "convention.levels=10")
    evaluated("metrics=[ndcg]")
    said = refused(lambda: evaluated("metrics=[map]", "convention.relevant=9.5"), ConfigError)
    assert "set convention.relevant=9 or lower" in said


def test_scores_of_other_tools_are_checked_in_the_same_way(tmp_path: Path) -> None:
    data, scores = tmp_path / "data.txt", tmp_path / "scores.txt"
    data.write_text(text([[0.2, 0.7], [3.5, 0]]))
    scores.write_text("1\n2\n3\n4\n")

    def evaluated(*more: str) -> str:
        given = [f"scores={scores}", f"data={data}", "metrics_as=paper", *more]
        return evaluate_scores(compose(*given, config="evaluate"))

    assert "5 grades" in evaluated("metrics=[err]")
    said = refused(lambda: evaluated("metrics=[err]", "convention.levels=4"), ConfigError)
    assert "label 3.5 (query id q1)" in said
    said = refused(lambda: evaluated("metrics=[map]", "convention.relevant=4"), ConfigError)
    assert "set convention.relevant=3.5 or lower" in said


def test_a_gain_too_large_is_blamed_before_training(tmp_path: Path) -> None:
    lists = [[0, 1000], [1, 2]]
    real = [*folder(tmp_path, train=lists), "dataset.labels=real"]
    said = no(*real, "loss=neuralndcg")
    assert "the gain of label 1000 (query id q0)" in said
    assert "loss=ranknet convention.gain=linear" in said
    assert "2^1000" in no(*real, "loss=neuralerr")
    resolved(*real, "loss=listnet")
    huge = [*folder(tmp_path, vali=[[0, 2000]]), "dataset.labels=real", "loss=listnet"]
    assert "set convention.gain=linear" in no(*huge)
    resolved(*huge, "convention.gain=linear")


CLICKS = [[0, 5000, 3], [1, 0]]


@pytest.mark.slow
def test_clicks_count_by_their_order_or_their_size(tmp_path: Path) -> None:
    given = [*folder(tmp_path, train=CLICKS, vali=CLICKS), "convention.gain=linear"]
    for loss in ("ranknet", "rmse", "mse", "bce"):
        resolved(*given, f"loss={loss}")
    assert "label 5000 (query id q0)" in no(*given, "loss=neuralndcg")
    said = no(*given, "loss=ordinal")
    assert "levels=5001" in said
    assert "loss=rmse" in said
    assert "leave err out of metrics" in no(*given, "loss=ranknet", "metrics=[err]")


@pytest.mark.slow
def test_a_number_of_grades_beyond_all_sense_costs_no_memory(tmp_path: Path) -> None:
    huge = [[0, 1e12]]
    given = [*folder(tmp_path, train=huge, vali=huge, test=huge), "dataset.labels=real"]
    given += ["convention.gain=linear"]
    assert "leave err out" in no(*given, "loss=ranknet", "metrics=[err]")
    assert "levels=1e+12" in no(*given, "loss=ordinal")
    assert "is not finite" in no(*given, "loss=neuralerr")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["bce", "neuralmap", "neuralmrr", "neuralprecision"])
def test_a_loss_that_finds_nothing_relevant_stops(loss: str, tmp_path: Path) -> None:
    real = [[0.2, 0.7], [0.1, 0.3]]
    given = [*folder(tmp_path, train=real, vali=real, test=real), "dataset.labels=real"]
    given += [f"loss={loss}", "metrics=[map]", "convention.relevant=0.7"]
    assert "set loss.relevant=0.7 or lower" in no(*given)
    resolved(*given, "loss.relevant=0.7")  # 0.699999988 in float32
    assert "set loss.relevant=0.7 or lower" in no(*given, "loss.relevant=0.70001")


@pytest.mark.slow
def test_a_label_without_a_gain_of_the_table_stops_with_its_line(tmp_path: Path) -> None:
    given = folder(tmp_path, test=[[0, 1, 2], [1, 0.5]])
    real = [*given, "dataset.labels=real", "loss=ranknet"]
    said = no(*real, "convention.gain=[0,1,3]")
    assert said.startswith("test has label 0.5 (query id q1), ")
    assert "convention.gain=linear" in said
    assert "label 2 " in no(*folder(tmp_path), "loss=ranknet", "convention.gain=[0,1]")
    resolved(*folder(tmp_path), "loss=ranknet", "convention.gain=[0,1,3]")


def test_an_item_is_named_by_its_query() -> None:
    labels = np.array([0, 1, 6, 2], np.float32)
    lists = Lists(np.zeros((4, 1), np.float32), labels, np.array([0, 2, 4]), np.array(["a", "b"]))
    metrics = [parse_metric("err@5")]
    said = refused(lambda: check_metrics("test", lists, metrics, Convention()), ConfigError)
    assert said.startswith("test has label 6 (query id b), but convention.levels=5")
    check_metrics("test", lists, metrics, Convention(levels=7))


@pytest.mark.parametrize("written", [0.7, 0.1, 0.61, 3.0])
def test_a_threshold_means_the_label_that_a_file_writes(written: float) -> None:
    scores, mask = torch.tensor([[2.0, 1.0]]), torch.tensor([[True, True]])
    kept = torch.tensor([[written, 0.0]])  # float32, as the reader keeps it
    for labels in (kept, kept.double(), torch.tensor([[written, 0.0]], dtype=torch.float64)):
        assert mrr(scores, labels, mask, relevant=written, empty=0).item() == 1
        assert mrr(scores, labels, mask, relevant=written * 1.000001, empty=0).item() == 0
        found = bce_loss(scores, labels, mask, relevant=written)
        assert found.item() == pytest.approx(bce_loss(scores, (labels > 0).float(), mask).item())


def test_a_hundred_grades_are_finite() -> None:
    scores, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[100.0, 0.0]])
    mask = torch.tensor([[True, True]])
    for dtype in (torch.float32, torch.float64):
        assert err(scores, labels.to(dtype), mask, levels=101).item() == pytest.approx(1 / 2)
    assert neural_err_loss(scores, labels, mask, levels=101, temperature=0.01).item() == (
        pytest.approx(-1 / 2, abs=1e-4)
    )
