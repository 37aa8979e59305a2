"""Tables of runs: every file composes, a run is known by what it computes and done once."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import processes
import pytest
from conftest import make_lists
from orders import table_of

from ltr.console.compose import run_config
from ltr.console.configs import CONFIGS
from ltr.errors import ConfigError, LTRError
from ltr.experiment.build import build
from ltr.experiment.run_folder import write_scores
from ltr.tables.runs import plan
from ltr.tables.spec import FoldsTable, StatisticsTable, Table, parse_table, read_table, tables
from ltr.tables.table import make_table

SYNTHETIC = ["dataset=synthetic", "dataset.queries=9"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return processes.run("scripts/table.py", *arguments, warm=True)


def runs_of(name: str) -> Table:
    spec = read_table(name)
    assert isinstance(spec, Table)
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("name", tables())
def test_every_row_of_every_table_composes(name: str, tmp_path: Path) -> None:
    spec = read_table(name)
    if isinstance(spec, StatisticsTable):
        for overrides in spec.rows.values():
            assert run_config([*spec.settings, *overrides])[0].dataset.name in spec.rows
        return
    if isinstance(spec, FoldsTable):
        for row in spec.rows.values():
            firsts = [f"{key}={values[0]}".lower() for key, values in row.choices.items()]
            build(run_config([*spec.settings, *row.settings, *firsts])[0])
        assert spec.published.keys() == spec.rows.keys()
        return
    given = [*SYNTHETIC, f"cache_dir={tmp_path}"]
    seeds = [1, 2] if name == "ranknet_report" else [1]  # the code of seeds is one for all
    runs = plan(spec, given, seeds, tmp_path)
    trained = [row for row in spec.rows if row not in spec.ensembles]
    assert [(r.label, r.seed) for r in runs] == [(row, seed) for row in trained for seed in seeds]
    assert len({r.folder for r in runs}) == len(runs)  # no two rows are the same run
    assert {str(r.config.dataset.name) for r in runs} == {"synthetic"}


@pytest.mark.parametrize("name", ["letor4_mq2007", "letor4_mq2008"])
def test_letor4_tables_hold_every_loss(name: str) -> None:
    losses = {path.stem for path in (CONFIGS / "loss").glob("*.yaml")}
    rows = runs_of(name).rows.values()
    found = {key[5:] for row in rows for key in row if key.startswith("loss=")}
    assert found == losses - {"distil"}  # which has a table of its own


def test_published_numbers_stand_under_metrics_of_the_table() -> None:
    for name in tables():
        spec = read_table(name)
        if isinstance(spec, StatisticsTable):
            continue
        if isinstance(spec, FoldsTable):
            parts = [part for row in spec.published.values() for part in row.values()]
            assert all(set(part) == set(spec.metrics) for part in parts)
            assert {len(numbers) for part in parts for numbers in part.values()} == {5}
            continue
        for published in spec.published.values():
            for conventions in published.values.values():
                for convention, numbers in conventions.items():
                    assert convention in spec.conventions
                    assert set(numbers) <= set(spec.metrics)
                    assert all(0 < value < 1 for value in numbers.values())


@pytest.mark.slow
def test_a_table_is_made_once_and_says_what_it_is(small: list[str], tmp_path: Path) -> None:
    first = run(*small)
    assert first.returncode == 0, first.stderr
    assert "1 runs, 1 to do" in first.stderr
    said = r"^1 of 1  BCE, seed 1  ndcg@\d+ 0\.\d{4} on vali  took \d+ s$"
    assert re.search(said, first.stderr, re.MULTILINE)
    assert re.search(r"^data +letor, test$", first.stdout, re.MULTILINE)
    assert re.search(r"^lists +train \d+, vali \d+, test \d+$", first.stdout, re.MULTILINE)
    assert "paper: empty list = 1" in first.stdout
    assert "letor4: empty list = 0" in first.stdout
    assert "1 of 1 runs" in first.stdout
    (folder,) = (tmp_path / "out/tables").iterdir()
    assert folder.name.startswith("ranknet_report_letor_")  # with what was asked beyond the table
    assert "rows-BCE" in folder.name
    assert f"kept in {folder} " in first.stdout
    runs = pd.read_csv(folder / "runs.csv")
    assert runs["row"].tolist() == ["BCE"]
    for row in runs.to_dict("records"):
        results = json.loads((Path(row["run"]) / "results.json").read_text())
        assert row["paper ndcg@15"] == pytest.approx(results["test"]["ndcg@15"], abs=1e-12)
        assert f"{results['test']['ndcg@15']:.4f}" in first.stdout
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
        (["letor4_mq2008"], "letor4_mq2008: write KEY=VALUE"),
        (["table=ranknet_report", "rows=SVN"], "rows=SVN: no such row; ranknet_report has untr"),
        (["table=letor4_mq2008", "rows=ranksv"], "letor4_mq2008 has RankSVM, RankSVMndcg"),
        (["table=ranknet_report", "seeds=0"], "seeds=0: give a whole number >= 1"),
        (["table=ranknet_report", "seed=2"], "seed=2: a table runs its folds and seeds itself"),
        (["table=ranknet_report", "dry_run=maybe"], "dry_run=maybe: write true or false"),
        (["table=ranknet_report", "los=bce"], "los: no such key; the keys are"),
        (["table=ranknet_report", "dataset=mq2007", "data_dir=/nowhere"], "download MQ2007.rar"),
    ],
)
def test_mistakes_end_with_the_remedy(arguments: list[str], message: str) -> None:
    with pytest.raises(LTRError) as caught:
        make_table(table_of(arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_mistake_is_one_line_and_2() -> None:
    done = run("letor4_mq2008")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: letor4_mq2008: write KEY=VALUE")


@pytest.mark.slow
def test_dry_run_names_the_commands_and_runs_nothing(small: list[str], tmp_path: Path) -> None:
    done = run(*small, "dry_run=true")
    assert "python train.py dataset=letor model=mlp 'model.hidden_sizes=[4]'" in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_table_file_that_lacks_a_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("title: x\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: conventions is missing or unknown; write"):
        parse_table(tmp_path / "mine.yaml")


def test_kept_scores_lose_no_digit(tmp_path: Path) -> None:
    lists = make_lists([3, 1, 4])
    scores = np.random.default_rng(0).normal(size=8).astype(np.float32)
    scores[0] = np.float32(1e-38)
    write_scores(tmp_path / "scores.csv", lists, scores)
    read = pd.read_csv(tmp_path / "scores.csv")
    assert (read["score"].to_numpy().astype(np.float32) == scores).all()
    assert read["qid"].tolist() == ["q0"] * 3 + ["q1"] + ["q2"] * 4


def test_parsing_keeps_what_is_for_train() -> None:
    order = table_of(["table=x", "rows=A, B", "seeds=3", "epochs=1", "dry_run=true"])
    assert (order.rows, order.seeds, order.overrides) == (("A", "B"), 3, ("epochs=1",))
    assert order.dry_run


def test_a_launcher_is_passed_on() -> None:
    given = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=3", "+hydra.launcher.a.b=c"]
    order = table_of(["table=x", *given, "epochs=1"])
    assert (order.launcher, order.workers, order.overrides) == (tuple(given), 3, ("epochs=1",))
    with pytest.raises(ConfigError, match="workers=2: hydra/launcher=joblib says how many"):
        table_of(["table=x", *given, "workers=2"])


def test_table_3_is_the_reference_s_own() -> None:
    spec = runs_of("neuralndcg_table3")
    assert len(spec.rows) == 17
    assert set(spec.published) == {"web30k", "istella"}
    best = {"web30k": "NeuralNDCG@max", "istella": "NeuralNDCG-T@10"}
    for name, published in spec.published.items():
        assert list(published.values) == list(spec.rows)  # each beside its own number
        at_5 = {row: values["paper"]["ndcg@5"] for row, values in published.values.items()}
        assert max(at_5, key=lambda row: at_5[row]) == best[name]
        assert all(v["paper"]["ndcg@5"] < v["paper"]["ndcg@10"] for v in published.values.values())
