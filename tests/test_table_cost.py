"""What a dry run says: every run, also where the data are not here, and about how long."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_table import made, write_data
from orders import table_of

from ltr.errors import DataError
from ltr.tables import cost
from ltr.tables.cost import estimate
from ltr.tables.runs import plan
from ltr.tables.spec import Table, only, read_table
from ltr.tables.table import make_table
from ltr.tables.timing import Cost, Shape, drawn_lists, measured, shape_of

COST = Cost(step=2.0, steps=10, epochs=3, evaluation=5.0, last=7.0)


def absent(name: str, tmp_path: Path, *more: str, rows: tuple[str, ...] = ("ListNet",)):
    table = read_table("neuralndcg_table3")
    assert isinstance(table, Table)
    given = [f"dataset={name}", f"data_dir={tmp_path}/none", f"cache_dir={tmp_path}", *more]
    return plan(only(table, rows), given, [1], tmp_path, absent_ok=True)


def test_a_run_is_its_steps_and_its_evaluations() -> None:
    # three epochs of ten steps, vali before and after each epoch, both splits at the end
    assert COST.seconds == 3 * 10 * 2.0 + 4 * 5.0 + 7.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lists", "length"),
    [
        ("web30k", {"train": 18919, "vali": 6306, "test": 6306}, 3771125 / 31531),
        ("istella", {"train": 17414, "vali": 5805, "test": 9799}, 10454629 / 33018),
        ("istella_s", {"train": 19811, "vali": 6604, "test": 6604}, 3408630 / 33018),
        ("web10k", {"train": 6000, "vali": 2000, "test": 2000}, 723412 / 6000),
        ("mq2008", {"train": 471, "vali": 157, "test": 156}, 15211 / 784),
    ],
)
def test_data_that_are_not_here_have_their_published_shape(
    name: str, lists: dict[str, int], length: float, tmp_path: Path
) -> None:
    (run,) = absent(name, tmp_path)
    assert "download" in str(run.absent)
    shape = shape_of(run)
    assert shape.lists == lists
    assert shape.length == pytest.approx(length)
    assert not shape.known


def test_data_that_are_here_are_counted(tmp_path: Path) -> None:
    table = read_table("neuralndcg_table3")
    assert isinstance(table, Table)
    (run,) = plan(only(table, ["ListNet"]), write_data(tmp_path), [1], tmp_path)
    shape = shape_of(run)
    assert shape.lists == {"train": 24, "vali": 8, "test": 30}
    assert shape.known


@pytest.mark.slow
def test_lists_of_nobody_are_not_guessed(tmp_path: Path) -> None:
    (run,) = absent("letor", tmp_path, "dataset.folder=nothing")
    with pytest.raises(DataError, match="nothing: no such folder"):
        shape_of(run)
    assert "not estimated" in estimate([run], workers=1, threads=1)


def test_drawn_lists_have_the_shape() -> None:
    shape = Shape({"train": 9, "vali": 9, "test": 9}, length=120.0)
    lists = drawn_lists(shape, 4000, 3)
    assert (len(lists), lists.width) == (4000, 3)
    assert lists.items / len(lists) == pytest.approx(120, rel=0.05)
    assert lists.lengths.min() >= 1
    assert (drawn_lists(shape, 4000, 3).features == lists.features).all()
    counted = Shape(shape.lists, length=120.0, lengths=np.array([3, 700]))
    assert set(drawn_lists(counted, 50, 3).lengths) == {3, 700}


@pytest.mark.slow
def test_what_is_finished_counts_for_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made(tmp_path, "rows=RankNet", "seeds=2")
    table = read_table("ranknet_report")
    assert isinstance(table, Table)
    table = only(table, ["RankNet", "untrained"])
    given = table_of(done.arguments).overrides
    runs = plan(table, given, [1, 2, 3], tmp_path / "out")
    assert [run.done for run in runs] == [True, True, False] + [False] * 3
    asked = []

    def known(run):
        asked.append(run.label)
        return COST

    monkeypatch.setattr(cost, "measured", known)
    text = estimate(runs, workers=2, threads=1)
    assert asked == ["untrained"]
    assert "as its finished runs took" in text
    assert "3 epochs of 10 steps of 2.000 s, evaluation 5.0 s" in text
    assert "with 2 at a time" in text
    assert "with 1 at a time" in estimate(runs[-1:], workers=2, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["XGBoost", "boosted"])
def test_trees_are_measured_too(row: str, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    table = read_table("neuralndcg_table3")
    assert isinstance(table, Table)
    table = replace(table, rows=dict(table.rows) | {"boosted": ("model=xgboost", "loss=listnet")})
    given = [*write_data(tmp_path), "epochs=30", "patience=5"]
    (run,) = plan(only(table, [row]), given, [1], tmp_path)
    found = measured(run)
    assert found.step > 0
    assert found.evaluation > 0
    assert found.seconds >= 30 * found.step
    assert "30 rounds of " in str(found)
    text = estimate([run], workers=1, threads=1)
    assert "at most" in text
    assert "patience 5" in text


@pytest.mark.slow
def test_a_dry_run_of_table_3_needs_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = table_of(
        [
            *("table=neuralndcg_table3", "dataset=web30k", "rows=NeuralNDCG@5,ListNet"),
            *(f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out", "dry_run=true"),
            *("batch_size=2", "list_size=8", "model.fc_sizes=[4]", "model.feed_forward=4"),
            *("threads=1", "workers=1", "evaluation_items=100000"),
        ]
    )
    assert make_table(order)
    out = capsys.readouterr().out
    assert "loss=neuralndcg loss.k=5" in out
    assert "100 epochs of 9460 steps of" in out
    assert "lists train 18,919, vali 6,306, test 6,306" in out
    assert "as published; the data are not here" in out
    assert not (tmp_path / "out").exists()


def test_a_real_run_still_needs_its_data(tmp_path: Path) -> None:
    order = table_of(
        ["table=neuralndcg_table3", "rows=ListNet", f"data_dir={tmp_path}", "dataset=web30k"]
    )
    with pytest.raises(DataError, match=r"download MSLR-WEB30K.zip"):
        make_table(order)
