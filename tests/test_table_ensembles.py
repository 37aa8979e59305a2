"""Rows of a table that are ensembles of its other rows."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from folders import refused
from made_table import train_here, write_data
from orders import table_of
from test_table_numbers import ROWS, measured_row

from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.tables import table as table_module
from ltr.tables.ensembles import planned
from ltr.tables.runs import Run
from ltr.tables.spec import only, parse_table
from ltr.tables.table import make_table
from ltr.tables.verdicts import judge

TEXT = """
title: Mixed
settings: [model=linear, epochs=1, dataset=letor]
folds: all
metrics: [ndcg@5]
conventions: [paper]
published:
baseline: A
rows:
  A: [loss=listnet]
  B: [loss=rmse]
  both: {ensemble: [A, B], weights: [3, 1], seeds: each}
  all: {ensemble: [A, B]}
"""


def written(folder: Path, text: str = TEXT) -> Path:
    (folder / "mixed.yaml").write_text(text)
    return folder / "mixed.yaml"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{ensemble: [A, C]}", "C is not a trained row"),
        ("{ensemble: [A, all]}", "all is not a trained row"),
        ("{ensemble: A}", "names no rows"),
        ("{ensemble: [A, B], weights: [1]}", "1 for 2"),
        ("{ensemble: [A, B], seeds: some}", "all or each"),
        ("{ensemble: [A, B], seed: 1}", "seed is unknown"),
    ],
)
def test_a_wrong_ensemble_is_refused(row, said, tmp_path) -> None:
    path = written(tmp_path, TEXT.replace("{ensemble: [A, B], weights: [3, 1], seeds: each}", row))
    assert said in refused(lambda: parse_table(path), ConfigError)


def test_an_ensemble_brings_its_members_along(tmp_path) -> None:
    table = only(parse_table(written(tmp_path)), ["all"])
    assert list(table.rows) == ["all", "A", "B"]
    assert list(table.ensembles) == ["all"]


def test_members_are_of_the_fold_and_of_one_seed_or_of_all(tmp_path) -> None:
    table = parse_table(written(tmp_path))
    config = measured_row("A", 1, 0.5).run.config
    runs = [
        Run(label, fold, seed, (), config, f"{label}{fold}{seed}", tmp_path / "x")
        for label in ("A", "B")
        for fold in (1, 2)
        for seed in (1, 2)
    ]
    found = planned(table, runs, tmp_path)
    made = {(one.label, one.fold, one.seed): [m.known for m in one.members] for one in found}
    assert made == {
        ("both", 1, 1): ["A11", "B11"], ("both", 1, 2): ["A12", "B12"],
        ("both", 2, 1): ["A21", "B21"], ("both", 2, 2): ["A22", "B22"],
        ("all", 1, 1): ["A11", "A12", "B11", "B12"], ("all", 2, 1): ["A21", "A22", "B21", "B22"],
    }  # fmt: skip
    assert {one.weights for one in found} == {(0.75, 0.25), "equal"}
    assert len({one.known for one in found}) == len({one.folder for one in found}) == 6
    less = planned(table, [run for run in runs if run.seed == 1], tmp_path)
    assert {one.known for one in less if one.label == "all"}.isdisjoint(
        one.known for one in found if one.label == "all"
    )


def test_an_ensemble_of_all_seeds_is_one_training_beside_several() -> None:
    ensemble = measured_row("good", 1, 0.6)
    ensemble = replace(ensemble, run=replace(ensemble.run, label="all"))
    judged = judge([*ROWS, ensemble], "paper", "ndcg@5", folds=[None], baseline="bad", margin=0.005)
    assert judged.stacked.seeds == {
        "good": (1, 2, 3),
        "bad": (1, 2, 3),
        "twin": (1, 2, 3),
        "all": (1,),
    }
    assert judged.against["good"].word == "better"
    assert judged.against["all"].word == "differ"  # one seed tells nothing of the method
    assert judged.intervals["all"].spread.covers == "queries"


@pytest.mark.slow
def test_a_table_makes_its_ensembles_once_and_again_where_one_is_damaged(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(table_module, "execute", train_here)
    arguments = [
        f"table={written(tmp_path)}", "seeds=2", *write_data(tmp_path, queries=8),
        f"output_dir={tmp_path}/out", "threads=1", "workers=1",
    ]  # fmt: skip
    assert make_table(table_of(arguments))
    out = tmp_path / "out"
    frame = pd.read_csv(next(out.glob("tables/*/runs.csv")))
    assert frame.groupby("row").size().to_dict() == {"A": 2, "B": 2, "all": 1, "both": 2}
    (folder,) = out.glob("runs/all-*")
    kept = (folder / "scores.csv").read_bytes()
    capsys.readouterr()
    (folder / "scores.csv").write_text("damaged")
    assert make_table(table_of(arguments))
    assert "7 runs, 1 to do" in capsys.readouterr().err
    assert (folder / "scores.csv").read_bytes() == kept
    assert RunFolder(folder).damage() is None
