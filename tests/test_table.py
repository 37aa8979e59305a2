"""Tables of runs: every file composes, a run is known by what it computes and done once."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import compose, make_lists
from made_table import made

from ltr.errors import ConfigError, LTRError
from ltr.experiment.cli import CONFIGS
from ltr.experiment.job import resumed
from ltr.experiment.results import write_scores
from ltr.experiment.run import run as train
from ltr.experiment.table.adopt import adopt
from ltr.experiment.table.make import make_table
from ltr.experiment.table.order import parse_order
from ltr.experiment.table.plan import composed_row, plan
from ltr.experiment.table.spec import StatisticsTable, Table, only, parse_table, read_table, tables
from ltr.training.checkpoint import load_checkpoint

SYNTHETIC = ["dataset=synthetic", "dataset.queries=9"]


def table(*arguments: str) -> list[str]:
    return [sys.executable, str(CONFIGS.parent / "scripts" / "table.py"), *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(table(*arguments), capture_output=True, text=True, timeout=120)


def runs_of(name: str) -> Table:
    spec = read_table(name)
    assert isinstance(spec, Table)
    return spec


@pytest.fixture
def small(tiny: list[str], tmp_path: Path) -> list[str]:
    """One row of a table on tiny lists, in seconds."""
    own = [item for item in tiny if not item.startswith(("suggested", "model."))]
    return [
        "table=ranknet_report", "rows=BCE", *own,
        "model.hidden_sizes=[4]", f"output_dir={tmp_path}/out", "workers=1", "threads=1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", tables())
def test_every_row_of_every_table_composes(name: str, tmp_path: Path) -> None:
    spec = read_table(name)
    if isinstance(spec, StatisticsTable):
        for overrides in spec.rows.values():
            assert composed_row([*spec.settings, *overrides]).dataset.name in spec.rows
        return
    given = [*SYNTHETIC, f"cache_dir={tmp_path}"]
    runs = plan(spec, given, [1, 2], tmp_path)
    assert [(r.label, r.seed) for r in runs] == [
        (row, seed) for row in spec.rows for seed in (1, 2)
    ]
    assert len({r.folder for r in runs}) == len(runs)  # no two rows are the same run
    assert {str(r.config.dataset.name) for r in runs} == {"synthetic"}


@pytest.mark.parametrize("name", ["letor4_mq2007", "letor4_mq2008"])
def test_letor4_tables_hold_every_loss(name: str) -> None:
    losses = {path.stem for path in (CONFIGS / "loss").glob("*.yaml")}
    rows = runs_of(name).rows.values()
    assert {key[5:] for row in rows for key in row if key.startswith("loss=")} == losses


def test_published_numbers_stand_under_metrics_of_the_table() -> None:
    for name in tables():
        spec = read_table(name)
        if isinstance(spec, StatisticsTable):
            continue
        for published in spec.published.values():
            for conventions in published.values.values():
                for convention, numbers in conventions.items():
                    assert convention in spec.conventions
                    assert set(numbers) <= set(spec.metrics)
                    assert all(0 < value < 1 for value in numbers.values())


def test_a_run_is_known_by_what_it_computes(tmp_path: Path) -> None:
    spec = only(runs_of("ranknet_report"), ["bce"])
    given = [*SYNTHETIC, f"cache_dir={tmp_path}"]

    def folder(*more: str) -> Path:
        return plan(spec, [*given, *more], [1], tmp_path)[0].folder

    assert folder() == folder("threads=1", "device=cpu", "output_dir=x", "evaluation_items=99")
    changed = [["epochs=2"], ["l1=0.5"], ["dataset.queries=12"], ["model.hidden_sizes=[3]"]]
    assert len({folder(), *(folder(*more) for more in changed)}) == 5


def test_the_code_of_trees_counts_in_runs_of_trees_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, given = runs_of("neuralndcg_table3"), [*SYNTHETIC, f"cache_dir={tmp_path}"]

    def folders(of_networks: str, of_trees: str) -> dict[str, Path]:
        code = {False: of_networks, True: of_trees}
        monkeypatch.setattr("ltr.experiment.identity.code_digest", lambda *, trees: code[trees])
        return {run.label: run.folder for run in plan(spec, given, [1], tmp_path)}

    before, after = folders("a", "b"), folders("a", "c")
    assert [row for row in before if before[row] != after[row]] == ["XGBoost"]
    both = folders("d", "c")
    assert [row for row in both if both[row] == after[row]] == ["XGBoost"]


def test_a_table_is_made_once_and_says_what_it_is(small: list[str], tmp_path: Path) -> None:
    first = run(*small)
    assert first.returncode == 0, first.stderr
    assert "1 runs, 1 to do" in first.stdout
    assert re.search(r"^data +letor, test$", first.stdout, re.MULTILINE)
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
    assert "1 runs, 0 to do; nothing to run" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.stdout.partition("\n\n")[2] == first.stdout.partition("\n\n")[2]


def test_a_killed_table_goes_on(small: list[str], tmp_path: Path) -> None:
    small = [*small, "epochs=60"]
    process = subprocess.Popen(table(*small), stdout=subprocess.DEVNULL, start_new_session=True)
    runs = tmp_path / "out/runs"
    waited = time.monotonic()
    while not list(runs.glob("bce*/last.pt")):
        assert time.monotonic() < waited + 60
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert not list(runs.glob("bce*/results.json"))
    assert run(*small).returncode == 0
    (folder,) = runs.glob("bce*")
    assert "resumed at epoch" in (folder / "train.log").read_text()
    alone = subprocess.run(
        [*table(*small), f"output_dir={tmp_path}/alone"], capture_output=True, text=True
    )
    assert alone.returncode == 0
    (other,) = (tmp_path / "alone/runs").glob("bce*")
    assert (other / "scores.csv").read_bytes() == (folder / "scores.csv").read_bytes()


def test_two_processes_share_the_runs(small: list[str], tmp_path: Path) -> None:
    both = [subprocess.Popen(table(*small), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all("1 of 1 runs" in text for text in printed)
    logs = list((tmp_path / "out/runs").glob("*/train.log"))
    assert len(logs) == 1
    assert all(log.read_text().count("kept in") == 1 for log in logs)


def test_a_failed_run_is_named_and_the_others_are_done(small: list[str], tmp_path: Path) -> None:
    done = run(*small, "rows=BCE,untrained", "optimizer=sgd", "optimizer.lr=1e30", "epochs=3")
    assert done.returncode == 1
    assert "bce-letor" in done.stdout
    assert "not finite" in done.stdout
    assert "1 of 2 runs" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give table=NAME; --help lists the tables"),
        (["table=letor4_mq2009"], "table=letor4_mq2009: no such table; table is one of"),
        (["letor4_mq2008"], "letor4_mq2008: write KEY=VALUE"),
        (["table=ranknet_report", "rows=SVM"], "rows=SVM: no such row; ranknet_report has untr"),
        (["table=ranknet_report", "seeds=0"], "seeds=0: give a whole number >= 1"),
        (["table=ranknet_report", "seed=2"], "seed=2: a table runs its folds and seeds itself"),
        (["table=ranknet_report", "dry_run=maybe"], "dry_run=maybe: write true or false"),
        (["table=ranknet_report", "los=bce"], "los: no such key; the keys are"),
        (["table=ranknet_report", "dataset=mq2007", "data_dir=/nowhere"], "download MQ2007.rar"),
    ],
)
def test_mistakes_end_with_the_remedy(arguments: list[str], message: str) -> None:
    with pytest.raises(LTRError) as caught:
        make_table(parse_order(arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_is_one_line_and_2() -> None:
    done = run("letor4_mq2008")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: letor4_mq2008: write KEY=VALUE")


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
    order = parse_order(["table=x", "rows=A, B", "seeds=3", "epochs=1", "dry_run=true"])
    assert (order.rows, order.seeds, order.overrides) == (("A", "B"), 3, ("epochs=1",))
    assert order.dry_run


@pytest.mark.parametrize(
    ("arguments", "workers", "left"),
    [
        (["hydra/launcher=joblib"], None, ()),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"], 3, ()),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1", "epochs=1"], None, ("epochs=1",)),
        (["hydra/launcher=basic"], 1, ()),
    ],
)
def test_a_launcher_is_so_many_runs_at_a_time(arguments, workers, left) -> None:
    order = parse_order(["table=x", *arguments])
    assert (order.workers, order.overrides) == (workers, left)


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


def test_the_last_epoch_of_a_finished_run_is_tested_without_training(tmp_path: Path) -> None:
    finished = made(tmp_path, "rows=BCE", "seeds=1")
    table = only(runs_of("ranknet_report"), ["BCE"])
    given = parse_order(finished.arguments).overrides
    (run,) = plan(table, [*given, "select=best"], [1], tmp_path / "out")
    assert not run.done
    assert adopt(run)
    assert not run.done  # it still has to be tested
    kept = load_checkpoint(run.folder / "last.pt")
    assert (kept["config"]["select"], kept["progress"]["epoch"]) == ("best", 3)
    cfg, _ = resumed(compose(f"resume='{run.folder}'"), [])
    cfg.resume = str(run.folder)
    train(cfg, run.folder, {})
    results = json.loads((run.folder / "results.json").read_text())
    assert results["select"] == "best"
    assert results["selected_epoch"] == results["best_epoch"]
    (stranger,) = plan(table, [*given, "l2=0.5"], [1], tmp_path / "out")
    assert not adopt(stranger)
