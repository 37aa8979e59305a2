"""Tables of runs: their files compose and name what is known; what an order would run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.cli.configs import CONFIGS, files_of
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder
from ltr.lab.tables import runs as runs_module
from ltr.lab.tables.runs import plan
from ltr.lab.tables.spec import read_table
from ltr.lab.tables.table import make_table
from tests.helpers.folders import refused
from tests.helpers.made_table import train_here, write_data
from tests.helpers.orders import table_of

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


def write_table(folder: Path, text: str = MIXED) -> str:
    (folder / "mixed.yaml").write_text(text)
    return f"{folder}/mixed.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", files_of("table"))
def test_plan_composes_every_row_of_every_table(name: str, tmp_path: Path) -> None:
    table = read_table(name)
    for published in table.published.values():
        for groups in published.values.values():
            for group, numbers in groups.items():  # of a convention, or a split
                assert group in (*table.conventions, "test", "vali")
                assert set(numbers) <= set(table.metrics)
                values = np.array([*numbers.values()])
                assert ((values > 0) & (values < 1)).all()
    overrides = [*SYNTHETIC, f"cache_dir={tmp_path}"]
    rows = table.rows
    if name == "letor4_mq2007":  # most of its rows are composed for MQ2008
        mq2008_rows = read_table("letor4_mq2008").rows
        rows = {label: row for label, row in rows.items() if row != mq2008_rows.get(label)}
    runs = [
        run for run in plan(replace(table, rows=rows), overrides, [1], tmp_path) if not run.members
    ]
    assert [run.label for run in runs] == [label for label, row in rows.items() if not row.ensemble]
    assert len({r.folder for r in runs}) == len(runs)  # no two rows are the same run
    assert {str(r.config.dataset.name) for r in runs} == {"synthetic"}


@pytest.mark.parametrize("name", ["letor4_mq2007", "letor4_mq2008"])
def test_read_table_finds_every_loss_in_letor4_tables(name: str) -> None:
    losses = {path.stem for path in (CONFIGS / "loss").glob("*.yaml")}
    rows = read_table(name).rows.values()
    table_losses = {key[5:] for row in rows for key in row.settings if key.startswith("loss=")}
    assert table_losses == losses - {"distil"}  # which has a table of its own


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conventions: []", "mixed.yaml: expected at least one entry in each of rows, metrics"),
        ("conventions: [papr]", "conventions: unknown name papr; choose one of "),
        ("verdicts: [ndcg@7]", "verdicts: unknown name ndcg@7; choose one of ndcg@5"),
        ("baseline: C", "baseline: unknown name C; choose one of A"),
        ("metrics: [ncdg@5]", "ncdg"),
        ("metrics: ndcg@5", "metrics"),
        ("sort: up", "sort"),
        (
            "published: {mq2008: {source: s, values: {}, others: C}}",
            "published.mq2008: unknown name C",
        ),
        (
            "published: {a: {source: s, values: {C: {}}, beside: {X: C}}}",
            "a.beside: unknown name X",
        ),
        ("  both: {ensemble: [A, C]}", "unknown name C; choose one of A, B"),
        ("  both: {ensemble: [A, all]}", "unknown name all"),
        ("  both: {ensemble: A}", "both.ensemble"),
        ("  both: {ensemble: [A, B], weights: [1]}", "each of the 2 runs"),
        ("  both: {ensemble: [A, B], seeds: some}", "choose one of all, each"),
        ("  both: {ensemble: [A, B], seed: 1}", "'seed'"),
    ],
)
def test_read_table_refuses_a_line_with_an_unknown_name(
    line: str, message: str, tmp_path: Path
) -> None:
    key = line.partition(":")[0]
    other_lines = [
        mixed_line for mixed_line in MIXED.splitlines() if not mixed_line.startswith(f"{key}:")
    ]
    path = write_table(tmp_path, "\n".join([*other_lines, line]))
    assert message in refused(lambda: read_table(path), ConfigError)


@pytest.mark.parametrize(
    ("folds", "split", "message"),
    [
        (
            "[1]",
            "test",
            "published.letor.A: expected a list with a number for each fold, got a mean over",
        ),
        ("all", "paper", "published.letor.A: unknown name paper; choose one of test, vali"),
    ],
)
def test_read_table_refuses_wrong_published_numbers_by_fold(
    folds: str, split: str, message: str, tmp_path: Path
) -> None:
    published = f"published: {{letor: {{source: x, values: {{A: {{{split}: {{ndcg@5: 0.5}}}}}}}}}}"
    text = MIXED.replace("folds: all", f"folds: {folds}\nby_fold: true")
    path = write_table(tmp_path, text.replace("published:", published))
    assert message in refused(lambda: read_table(path), ConfigError)


@pytest.mark.slow
def test_plan_chooses_ensemble_members_by_fold_and_seed(tmp_path) -> None:
    table = read_table(write_table(tmp_path))
    assert table.published == {}
    assert list(table.select_rows(["all"]).rows) == ["all", "A", "B"]
    runs = plan(table, ["dataset=mq2008"], [1, 2], tmp_path, absent_ok=True)
    assert [run.label for run in runs] == ["A"] * 10 + ["B"] * 10 + ["all"] * 5 + ["both"] * 10
    trained = {run.identity: f"{run.label}{run.fold}{run.seed}" for run in runs if not run.members}
    ensembles = [run for run in runs if run.members and run.fold == 2]
    assert [[trained[member.identity] for member in run.members] for run in ensembles] == [
        ["A21", "A22", "B21", "B22"], ["A21", "B21"], ["A22", "B22"],
    ]  # fmt: skip
    assert [run.weights for run in ensembles] == ["equal", (0.75, 0.25), (0.75, 0.25)]
    assert len({run.identity for run in runs}) == len({run.folder for run in runs}) == 35
    one_seed_runs = plan(table, ["dataset=mq2008"], [1], tmp_path, absent_ok=True)
    identities = [
        {run.identity for run in planned_runs if run.label == "all"}
        for planned_runs in (runs, one_seed_runs)
    ]
    assert identities[0].isdisjoint(identities[1])


def test_read_table_makes_a_row_of_every_combination_of_choices() -> None:
    folds = read_table("letor4_baselines")
    rows = [label for label, row in folds.rows.items() if row.choice_of == "AdaRank-MAP"]
    assert rows[0] == "AdaRank-MAP model.repeat=true model.sharpness=1"
    assert folds.rows[rows[0]].settings[-2:] == ["model.repeat=true", "model.sharpness=1"]
    assert list(folds.select_rows(["adarank-map"]).rows) == rows
    assert (len(rows), "RankBoost" in folds.rows) == (4, True)


def test_make_table_dry_run_needs_no_data(tmp_path, capsys) -> None:
    arguments = ["table=neuralndcg_table3", "rows=NeuralNDCG@5,ListNet", "dataset=web30k"]
    arguments += [f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out"]
    assert make_table(table_of([*arguments, "dry_run=true"]))
    output = capsys.readouterr()
    assert output.out.count("ltr train") == 2
    assert "loss=neuralndcg loss.k=5" in output.out
    assert "Bialobrzeski, 2021), Table 3; 2 of 17 rows: 2 runs, 2 to do" in output.err
    assert make_table(table_of([*arguments[:2], *SYNTHETIC, *arguments[3:], "dry_run=true"]))
    title = "Rows of neuralndcg_table3 on dataset=synthetic dataset.queries=9; 2 of 17 rows:"
    assert capsys.readouterr().err.startswith(title)
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"download MSLR-WEB30K.zip"):
        make_table(table_of(arguments))


@pytest.mark.slow
def test_make_table_makes_an_ensemble_again_only_if_it_is_damaged(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(runs_module, "execute", train_here)
    arguments = [
        f"table={write_table(tmp_path)}", "seeds=2", *write_data(tmp_path, queries=8),
        f"output_dir={tmp_path}/out", "threads=1", "workers=1",
    ]  # fmt: skip
    assert make_table(table_of(arguments))
    out = tmp_path / "out"
    frame = pd.read_csv(next(out.glob("tables/*/runs.csv")))
    assert frame.groupby("row").size().to_dict() == {"A": 2, "B": 2, "all": 1, "both": 2}
    (folder,) = out.glob("runs/all-*")
    original = (folder / "scores.csv").read_bytes()
    capsys.readouterr()
    (folder / "scores.csv").write_text("damaged")
    assert make_table(table_of(arguments))
    assert "7 runs, 1 to do" in capsys.readouterr().err
    assert (folder / "scores.csv").read_bytes() == original
    assert RunFolder(folder).damage() is None
