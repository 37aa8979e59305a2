"""Tables of runs: their files compose and name what is known; what an order would run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import refused
from made_table import train_here, write_data
from orders import table_of

from ltr.console.configs import CONFIGS, files_of
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder
from ltr.tables import runs as runs_module
from ltr.tables.runs import plan
from ltr.tables.spec import read_table
from ltr.tables.table import make_table

SYNTHETIC = ["dataset=synthetic", "dataset.queries=9"]
MIXED = """
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
  all: {ensemble: [A, B]}
  both: {ensemble: [A, B], weights: [3, 1], seeds: each}
"""


def written(folder: Path, text: str = MIXED) -> str:
    (folder / "mixed.yaml").write_text(text)
    return f"{folder}/mixed.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", files_of("table"))
def test_every_row_of_every_table_composes(name: str, tmp_path: Path) -> None:
    table = read_table(name)
    for published in table.published.values():
        for of_label in published.values.values():
            for part, numbers in of_label.items():  # of a convention, or a split
                assert part in (*table.conventions, "test", "vali")
                assert set(numbers) <= set(table.metrics)
                values = np.array([*numbers.values()])
                assert ((values > 0) & (values < 1)).all()
    given = [*SYNTHETIC, f"cache_dir={tmp_path}"]
    rows = table.rows
    if name == "letor4_mq2007":  # most of its rows are composed for MQ2008
        other = read_table("letor4_mq2008").rows
        rows = {label: row for label, row in rows.items() if row != other.get(label)}
    runs = [run for run in plan(replace(table, rows=rows), given, [1], tmp_path) if not run.members]
    assert [run.label for run in runs] == [label for label, row in rows.items() if not row.ensemble]
    assert len({r.folder for r in runs}) == len(runs)  # no two rows are the same run
    assert {str(r.config.dataset.name) for r in runs} == {"synthetic"}


@pytest.mark.parametrize("name", ["letor4_mq2007", "letor4_mq2008"])
def test_letor4_tables_hold_every_loss(name: str) -> None:
    losses = {path.stem for path in (CONFIGS / "loss").glob("*.yaml")}
    rows = read_table(name).rows.values()
    found = {key[5:] for row in rows for key in row.settings if key.startswith("loss=")}
    assert found == losses - {"distil"}  # which has a table of its own


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("conventions: []", "mixed.yaml: rows, metrics and conventions: each names"),
        ("conventions: [papr]", "conventions: papr is not known; choose of "),
        ("verdicts: [ndcg@7]", "verdicts: ndcg@7 is not known; choose of ndcg@5"),
        ("baseline: C", "baseline: C is not known; choose of A"),
        ("metrics: [ncdg@5]", "ncdg"),
        ("metrics: ndcg@5", "metrics"),
        ("sort: up", "sort"),
        ("published: {mq2008: {source: s, values: {}, others: C}}", "published.mq2008: C is not"),
        ("published: {a: {source: s, values: {C: {}}, beside: {X: C}}}", "a.beside: X is not"),
        ("  both: {ensemble: [A, C]}", "C is not known; choose of A, B"),
        ("  both: {ensemble: [A, all]}", "all is not known"),
        ("  both: {ensemble: A}", "both.ensemble"),
        ("  both: {ensemble: [A, B], weights: [1]}", "each of the 2 runs"),
        ("  both: {ensemble: [A, B], seeds: some}", "choose of all, each"),
        ("  both: {ensemble: [A, B], seed: 1}", "'seed'"),
    ],
)
def test_a_line_that_names_nothing_is_refused(line: str, said: str, tmp_path: Path) -> None:
    key = line.partition(":")[0]
    others = [one for one in MIXED.splitlines() if not one.startswith(f"{key}:")]
    path = written(tmp_path, "\n".join([*others, line]))
    assert said in refused(lambda: read_table(path), ConfigError)


@pytest.mark.parametrize(
    ("folds", "part", "said"),
    [
        ("[1]", "test", "published.letor.A: a mean is over all folds: write folds: all"),
        ("all", "paper", "published.letor.A: paper is not known; choose of test, vali"),
    ],
)
def test_published_numbers_by_fold(folds: str, part: str, said: str, tmp_path: Path) -> None:
    published = f"published: {{letor: {{source: x, values: {{A: {{{part}: {{ndcg@5: 0.5}}}}}}}}}}"
    text = MIXED.replace("folds: all", f"folds: {folds}\nby_fold: true")
    path = written(tmp_path, text.replace("published:", published))
    assert said in refused(lambda: read_table(path), ConfigError)


@pytest.mark.slow
def test_members_come_along_of_the_fold_and_of_one_seed_or_of_all(tmp_path) -> None:
    table = read_table(written(tmp_path))
    assert table.published == {}
    assert list(table.select_rows(["all"]).rows) == ["all", "A", "B"]
    runs = plan(table, ["dataset=mq2008"], [1, 2], tmp_path, absent_ok=True)
    assert [one.label for one in runs] == ["A"] * 10 + ["B"] * 10 + ["all"] * 5 + ["both"] * 10
    trained = {one.identity: f"{one.label}{one.fold}{one.seed}" for one in runs if not one.members}
    made = [one for one in runs if one.members and one.fold == 2]
    assert [[trained[member.identity] for member in one.members] for one in made] == [
        ["A21", "A22", "B21", "B22"], ["A21", "B21"], ["A22", "B22"],
    ]  # fmt: skip
    assert [one.weights for one in made] == ["equal", (0.75, 0.25), (0.75, 0.25)]
    assert len({one.identity for one in runs}) == len({one.folder for one in runs}) == 35
    less = plan(table, ["dataset=mq2008"], [1], tmp_path, absent_ok=True)
    of_all = [{one.identity for one in some if one.label == "all"} for some in (runs, less)]
    assert of_all[0].isdisjoint(of_all[1])


def test_every_combination_of_choices_is_a_row() -> None:
    folds = read_table("letor4_baselines")
    rows = [label for label, row in folds.rows.items() if row.choice_of == "AdaRank-MAP"]
    assert rows[0] == "AdaRank-MAP model.repeat=true model.sharpness=1"
    assert folds.rows[rows[0]].settings[-2:] == ["model.repeat=true", "model.sharpness=1"]
    assert list(folds.select_rows(["adarank-map"]).rows) == rows
    assert (len(rows), "RankBoost" in folds.rows) == (4, True)


def test_a_dry_run_of_table_3_needs_no_data(tmp_path, capsys) -> None:
    given = ["table=neuralndcg_table3", "rows=NeuralNDCG@5,ListNet", "dataset=web30k"]
    given += [f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out"]
    assert make_table(table_of([*given, "dry_run=true"]))
    said = capsys.readouterr()
    assert said.out.count("ltr train") == 2
    assert "loss=neuralndcg loss.k=5" in said.out
    assert "Bialobrzeski, 2021), Table 3; 2 of 17 rows: 2 runs, 2 to do" in said.err
    assert make_table(table_of([*given[:2], *SYNTHETIC, *given[3:], "dry_run=true"]))
    title = "Rows of neuralndcg_table3 on dataset=synthetic dataset.queries=9; 2 of 17 rows:"
    assert capsys.readouterr().err.startswith(title)
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"download MSLR-WEB30K.zip"):
        make_table(table_of(given))


@pytest.mark.slow
def test_a_table_makes_its_ensembles_once_and_again_where_one_is_damaged(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(runs_module, "execute", train_here)
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
