"""Tables of runs: every file composes, a run is known by what it computes and done once."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import processes
import pytest
from orders import table_of

from ltr.console.configs import CONFIGS, files_of
from ltr.errors import ConfigError, DataError, LTRError
from ltr.experiment.run_folder import RunFolder
from ltr.tables.runs import plan
from ltr.tables.spec import read_table
from ltr.tables.table import make_table

SYNTHETIC = ["dataset=synthetic", "dataset.queries=9"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return processes.run("scripts/table.py", *arguments)


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


@pytest.mark.slow
def test_a_table_is_made_once_and_says_what_it_is(small: list[str], tmp_path: Path) -> None:
    dry = run(*small, "dry_run=true")
    assert "python train.py dataset=letor model=mlp 'model.hidden_sizes=[4]'" in dry.stdout
    assert not (tmp_path / "out").exists()
    first = run(*small)
    assert first.returncode == 0, first.stderr
    assert "1 runs, 1 to do" in first.stderr
    said = r"^1 of 1  BCE, seed 1  ndcg@\d+ 0\.\d{4} on vali$"
    assert re.search(said, first.stderr, re.MULTILINE)
    assert re.search(r"^lists +train \d+, vali \d+, test \d+$", first.stdout, re.MULTILINE)
    for part in ("paper: empty list = 1", "letor4: empty list = 0", "1 of 1 runs"):
        assert part in first.stdout
    (folder,) = (tmp_path / "out/tables").iterdir()
    assert re.match("ranknet_report_letor_.*rows-BCE", folder.name)  # what was asked beyond it
    assert f"kept in {folder} " in first.stdout
    runs = pd.read_csv(folder / "runs.csv")
    assert runs["row"].tolist() == ["BCE"]
    test = RunFolder(Path(runs["run"][0])).results["test"]["ndcg@15"]
    assert runs["paper ndcg@15"][0] == pytest.approx(test, abs=1e-12)
    assert f"{test:.4f}" in first.stdout
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.pt")}
    again = run(*small)
    assert "1 runs, 0 to do\n" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.stdout == first.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give table=...; see --help"),
        (["table=letor4_mq2009"], "table=letor4_mq2009: no such table; table is one of"),
        (["table=ranknet_report", "rows=SVN"], "rows=SVN: no such row; ranknet_report has untr"),
        (["table=letor4_mq2008", "rows=ranksv"], "letor4_mq2008 has RankSVM, RankSVMndcg"),
        (["table=ranknet_report", "seeds=0"], "seeds=0: give a whole number >= 1"),
        (["table=ranknet_report", "seed=2"], "seed=2: a table runs its folds and seeds itself"),
        (["table=ranknet_report", "dry_run=maybe"], "dry_run=maybe: write true or false"),
        (["table=ranknet_report", "los=bce"], "los: no such key"),
        (["table=ranknet_report", "dataset=mq2007", "data_dir=/nowhere"], "download MQ2007.rar"),
        (["table=ranknet_report", "budget=0"], "budget=0: give a whole number"),
        (["table=ranknet_report", "space.l2=[float,0.1,1]"], "give budget=N"),
        (["table=x", "hydra/launcher=joblib", "workers=2"], "workers=2: hydra/launcher=joblib"),
    ],
)
def test_mistakes_end_with_the_remedy(arguments: list[str], message: str) -> None:
    with pytest.raises(LTRError) as caught:
        make_table(table_of(arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dry_run_of_table_3_needs_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["table=neuralndcg_table3", "rows=NeuralNDCG@5,ListNet", "dataset=web30k"]
    given += [f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out"]
    assert make_table(table_of([*given, "dry_run=true"]))
    said = capsys.readouterr()
    assert said.out.count("ltr train") == 2
    assert "loss=neuralndcg loss.k=5" in said.out
    assert "2 runs, 2 to do" in said.err
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"download MSLR-WEB30K.zip"):
        make_table(table_of(given))


def test_a_table_file_that_lacks_a_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("title: x\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: rows, metrics and conventions"):
        read_table(f"{tmp_path}/mine.yaml")
