"""Warnings of metrics that mean less than they seem to: ties, and lists with nothing to rank."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr import Ranker
from ltr.cli.cli import call_command
from ltr.experiment.build import build
from ltr.experiment.open_data import complete_settings
from ltr.inference.evaluate import evaluate_scores
from ltr.metrics import Convention, parse_metric
from ltr.training.caveats import warn_of_measurement, warn_of_nothing_to_rank
from ltr.training.evaluation import means, metrics_of_scores
from tests.helpers.folders import write_folder
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import compose


def sorted_lists(count: int = 10):
    """Return lists of three items, the best item first."""
    lists = make_lists([3] * count, seed=1)
    return replace(lists, labels=np.tile(np.float32([2, 1, 0]), count))


def warnings_of(caplog, scores, lists, *names: str) -> list[str]:
    """Return the warnings when the metrics ``names`` measure ``scores``."""
    caplog.clear()
    metrics = [parse_metric(name) for name in names]
    convention = Convention()
    printed = means(metrics_of_scores(lists, scores, metrics, convention), convention)
    warn_of_measurement("mine", lists, scores, metrics, convention, printed)
    return [record.getMessage() for record in caplog.records]


def test_warn_of_measurement_names_ties_that_decide_a_value(caplog) -> None:
    lists = sorted_lists()
    scores = np.tile([1.0, 1.0, 0.0], 10)
    (line,) = warnings_of(caplog, scores, lists, "ndcg@3", "ndcg@1")
    averaged = (3 + 1) / 2 / 3
    assert f"mine ndcg@1 is 1.0000 in the order of the rows, and {averaged:.4f} averaged" in line
    assert "convention.ties=averaged" in line
    (line,) = warnings_of(caplog, scores, lists, "err@1")  # which has no averaged ties
    assert "shuffle the rows" in line
    assert "convention.ties" not in line


def test_warn_of_measurement_ignores_ties_that_decide_nothing(caplog) -> None:
    lists = sorted_lists()
    assert not warnings_of(caplog, np.tile([3.0, 2.0, 1.0], 10), lists, "ndcg@3")
    assert not warnings_of(caplog, np.tile([3.0, 1.0, 1.0], 10), lists, "ndcg@1")
    equal = replace(lists, labels=np.tile(np.float32([2, 1, 1]), 10))
    assert not warnings_of(caplog, np.tile([3.0, 1.0, 1.0], 10), equal, "ndcg@3")


def test_warn_of_measurement_names_metrics_that_no_order_changes(caplog) -> None:
    lists = sorted_lists()
    relevant = replace(lists, labels=lists.labels + 1)
    scores = np.tile([3.0, 2.0, 1.0], 10)
    (line,) = warnings_of(caplog, scores, relevant, "map", "ndcg@3", "recall@2")
    assert line.startswith("map, recall@2 cannot tell models apart on mine: the order")
    assert not warnings_of(caplog, scores, lists, "map", "ndcg@3")


def test_warn_of_measurement_names_constant_scores(caplog) -> None:
    lists = sorted_lists()
    constant, ties = warnings_of(caplog, np.repeat(np.arange(10.0), 3), lists, "ndcg@3")
    assert "equal scores matters" in ties
    assert "in every list of mine (10 lists), all items have equal scores" in constant


@pytest.mark.parametrize(
    ("labels", "lengths"), [([1.0] * 30, [3] * 10), ([2, 1, 0] * 10, [1] * 30)]
)
def test_warn_of_nothing_to_rank_counts_lists(labels, lengths, caplog) -> None:
    lists = replace(make_lists(lengths, seed=1), labels=np.float32(labels))
    warn_of_nothing_to_rank({"train": sorted_lists(), "vali": lists, "test": lists})
    (line,) = [record.getMessage() for record in caplog.records]
    count = f"{len(lengths)} of {len(lengths)} lists"
    assert f"nothing to rank in vali ({count}), test ({count})" in line


def test_warn_of_nothing_to_rank_ignores_a_few_lists(caplog) -> None:
    labels = np.tile(np.float32([2, 1, 0]), 10)
    labels[:24] = 0
    warn_of_nothing_to_rank({"train": replace(sorted_lists(), labels=labels)})
    assert not caplog.records


def test_training_and_evaluation_warn_of_nothing_to_rank(tmp_path: Path, caplog) -> None:
    text = "".join(f"{q % 2 + 1} qid:{q} 1:{q}\n" for q in range(8))
    write_folder(tmp_path / "mine", {f"{split}.txt": text for split in ("train", "vali", "test")})
    data = tmp_path / "mine" / "test.txt"
    (tmp_path / "scores.txt").write_text("1\n" * 8)
    overrides = [f"scores={tmp_path}/scores.txt", f"data={data}", "metrics=[ndcg@5]"]
    call_command(evaluate_scores, compose(*overrides, config="evaluate"))
    assert "nothing to rank" in caplog.text
    assert "8 of 8 lists" in caplog.text
    caplog.clear()
    config = compose(
        "dataset=letor", "dataset.folder=mine", "model=linear", f"data_dir={tmp_path}",
        f"cache_dir={tmp_path}/cache",
    )  # fmt: skip
    experiment = build(config)
    lists = {split: experiment.dataset.split(split) for split in ("train", "vali")}
    complete_settings(experiment, lists)
    assert "nothing to rank in train (8 of 8 lists), vali (8 of 8 lists)" in caplog.text


@pytest.mark.slow
def test_ranker_score_does_not_depend_on_the_order_of_rows(caplog) -> None:
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"]).assign(
        qid=np.repeat(np.arange(30), 10)
    )
    table["grade"] = np.clip(np.round(table.a + rng.normal(size=300) + 1), 0, 3).astype(int)
    ranker = Ranker("lightgbm", epochs=1, random_state=1, threads=1, verbose=0)
    ranker.fit(table.drop(columns="grade"), table.grade)
    caplog.clear()
    values = []
    printed = []
    for ascending in (True, False):
        rows = table.sort_values(["qid", "grade"], ascending=[True, ascending])
        X = rows.drop(columns="grade")
        y = rows.grade
        values.append(ranker.score(X, y))
        printed.append(ranker.evaluate(X, y)["ndcg@5"].mean())
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert printed[0] < values[0] - 0.02 < values[0] + 0.02 < printed[1]
    for value in (*values, *printed):
        assert f"{value:.4f}" in caplog.text
