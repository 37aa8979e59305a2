"""Rows of a table that are ensembles of its other rows."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from folders import refused
from made_table import train_here, write_data
from orders import table_of
from test_table_numbers import ROWS, measured_row, results_of

from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.tables import table as table_module
from ltr.tables.runs import plan
from ltr.tables.spec import read_table
from ltr.tables.table import make_table

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
        ("{ensemble: [A, C]}", "C is not known; choose of A, B"),
        ("{ensemble: [A, all]}", "all is not known"),
        ("{ensemble: A}", "both.ensemble"),
        ("{ensemble: [A, B], weights: [1]}", "each of the 2 runs"),
        ("{ensemble: [A, B], seeds: some}", "choose of all, each"),
        ("{ensemble: [A, B], seed: 1}", "'seed'"),
    ],
)
def test_a_wrong_ensemble_is_refused(row, said, tmp_path) -> None:
    text = TEXT.replace("{ensemble: [A, B], weights: [3, 1], seeds: each}", row)
    path = written(tmp_path, text)
    assert said in refused(lambda: read_table(str(path)), ConfigError)


def test_members_come_along_of_the_fold_and_of_one_seed_or_of_all(tmp_path) -> None:
    table = read_table(str(written(tmp_path)))
    assert list(table.only(["all"]).rows) == ["all", "A", "B"]
    runs = plan(table, ["dataset=mq2008"], [1, 2], tmp_path, absent_ok=True)
    assert [one.label for one in runs] == ["A"] * 10 + ["B"] * 10 + ["both"] * 10 + ["all"] * 5
    trained = {one.known: f"{one.label}{one.fold}{one.seed}" for one in runs if not one.members}
    made = [one for one in runs if one.members and one.fold == 2]
    assert [[trained[member.known] for member in one.members] for one in made] == [
        ["A21", "B21"], ["A22", "B22"], ["A21", "A22", "B21", "B22"],
    ]  # fmt: skip
    assert [one.weights for one in made] == [(0.75, 0.25), (0.75, 0.25), "equal"]
    assert len({one.known for one in runs}) == len({one.folder for one in runs}) == 35
    less = plan(table, ["dataset=mq2008"], [1], tmp_path, absent_ok=True)
    of_all = [{one.known for one in some if one.label == "all"} for some in (runs, less)]
    assert of_all[0].isdisjoint(of_all[1])


def test_an_ensemble_of_all_seeds_is_one_training_beside_several() -> None:
    ensemble = measured_row("good", 1, 0.6)
    ensemble = replace(ensemble, run=replace(ensemble.run, label="all"))
    judged = results_of([*ROWS, ensemble]).verdicts["ndcg@5"]
    seeds = {row: of.seeds for row, of in judged.intervals.items()}
    assert seeds == {"good": 3, "bad": 3, "twin": 3, "all": 1}
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
