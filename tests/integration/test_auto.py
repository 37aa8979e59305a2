"""``ltr auto``: which run it chooses, what it keeps, and what it leaves out."""

import errno
import logging
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
import torch

import ltr
from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import CheckpointError, ConfigError, DataError, OutputError
from ltr.experiment.run_folder import RunFolder
from ltr.inference.evaluate import evaluate_model
from ltr.inference.explain.command import explain_list
from ltr.inference.explain.importances import importances
from ltr.lab.auto.choice import choose_run
from ltr.lab.auto.command import _describe_left_out, run_auto
from ltr.lab.auto.frame import _table_file
from ltr.lab.tables import runs as table_runs
from ltr.ranker import Ranker
from tests.helpers.folders import finish, refused
from tests.helpers.made_table import train_here, write_data
from tests.helpers.orders import auto_options


def run_of(folder: Path, values: np.ndarray | None, *, members: int = 0) -> Any:
    folder.mkdir()
    finish(folder, {"crossfit_halves": None if values is None else values.tolist()})
    return SimpleNamespace(folder=folder, members=(None,) * members)


def test_choose_run_prefers_the_ensemble_unless_a_row_is_clearly_better(tmp_path) -> None:
    lists = np.random.default_rng(0).normal(0.5, 0.1, (20, 2))  # the noise that all rows share
    noise = np.random.default_rng(1).normal(0, 0.02, (20, 2))
    noise -= noise.mean()
    ensemble = run_of(tmp_path / "ensemble", lists, members=2)
    worse = run_of(tmp_path / "worse", lists - 0.01, members=2)
    near = run_of(tmp_path / "near", lists + 0.01 + noise)  # error: 0.014
    far = run_of(tmp_path / "far", lists + 0.04 + noise)
    empty = run_of(tmp_path / "empty", None)
    assert choose_run([worse, near, ensemble, empty]) is ensemble
    assert choose_run([worse, near, far, ensemble]) is far
    assert choose_run([near, far]) is far  # no ensemble
    wild = run_of(tmp_path / "wild", lists + 0.05 + 3 * noise)  # higher, but not clearly better
    assert choose_run([wild, ensemble]) is ensemble
    assert choose_run([wild, far, ensemble]) is far
    farther = run_of(tmp_path / "farther", lists + 0.045 + noise)
    assert choose_run([far, ensemble, farther, wild]) is farther
    exact = run_of(tmp_path / "exact", lists + 0.04 + 0.1 * noise)  # by more errors, but less
    assert choose_run([exact, ensemble, farther]) is farther
    assert choose_run([empty]) is empty


@pytest.fixture
def command(tmp_path, monkeypatch) -> list[str]:
    """A command of three rows; the last one fails."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    (tmp_path / "rows.yaml").write_text(
        "title: rows\n"
        "settings: [epochs=3, batch_size=5]\n"
        "metrics: [ndcg@5]\n"
        "conventions: [paper]\n"
        "rows:\n"
        "  linear: [model=linear, loss=ranknet]\n"
        "  adarank: [model=adarank]\n"
        "  late: [model=linear, loss=listnet]\n"
        "  both: {ensemble: [linear, adarank, late], weights: vali}\n"
    )

    def train(runs, *args: object) -> dict[Path, str]:
        train_here([run for run in runs if run.label != "late"])
        return {run.folder: "no" for run in runs if run.label == "late"}

    monkeypatch.setattr(table_runs, "execute", train)
    return [
        f"table={tmp_path}/rows.yaml", *write_data(tmp_path), f"output_dir={tmp_path}/out",
        f"output={tmp_path}/best", "seeds=2",
    ]  # fmt: skip


@pytest.mark.slow
def test_auto_writes_a_run_folder_and_leaves_out_a_row_that_fails(command, tmp_path, capsys):
    output = run_auto(auto_options(command))
    best = RunFolder(tmp_path / "best")
    assert best.damage() is None
    assert best.results["choices"]["model"] == "ensemble"
    assert len(best.results["members"]) == 4  # two rows with two seeds, without the row that failed
    assert f"{best.results['crossfit']:.4f}" in output
    assert "the choice, by crossfit on vali: both" in output
    assert "is left out: no" in capsys.readouterr().err
    (page,) = (tmp_path / "out" / "tables").glob("*/table.html")
    assert str(page) in output
    table = call_command(
        evaluate_model, typed("evaluate", [str(best.folder), f"cache_dir={tmp_path}/cache"])
    )
    assert f"{best.results['test']['ndcg@5']:.4f}" in table
    changes = [
        f"output={tmp_path}/other", "select_on=map", "convention=letor4", "rows=linear,adarank",
    ]  # fmt: skip
    arguments = [argument for argument in command if not argument.startswith("output=")]
    output = run_auto(auto_options([*arguments, *changes]))
    assert "crossfit vali map" in output
    assert "both" in output  # the ensemble of these rows
    assert f"{RunFolder(tmp_path / 'other').results['test']['map']:.4f}" in output
    changes[0] = f"output={tmp_path}/third"
    changes[3] = "rows=both"
    assert "linear" in run_auto(auto_options([*arguments, *changes]))  # what the row needs
    message = refused(lambda: run_auto(auto_options(command)), ConfigError)
    assert message.endswith("choose the name of a new folder")


@pytest.mark.slow
def test_auto_finds_the_folds_of_a_users_folder(command, tmp_path) -> None:
    (folder,) = (
        argument.removeprefix("dataset.folder=") for argument in command if ".folder=" in argument
    )
    (data_dir,) = (
        Path(argument.removeprefix("data_dir="))
        for argument in command
        if argument[:8] == "data_dir"
    )
    for fold in ("Fold1", "Fold2"):
        shutil.copytree(data_dir / folder, data_dir / "mine_by_fold" / fold)
    by_fold = ["dataset.folder=mine_by_fold", "rows=linear", "seeds=1", "dataset.fold=2"]
    output = run_auto(auto_options([*command, *by_fold]))
    assert RunFolder(tmp_path / "best").results["fold"] == 2
    assert f"kept in {tmp_path}/best" in output
    with pytest.raises(DataError, match=r"dataset\.fold=1, or dataset\.folds=2"):
        run_auto(auto_options([*command, *by_fold[:-1], f"output={tmp_path}/other"]))


@pytest.mark.slow
def test_auto_writes_a_whole_folder_that_leads_to_the_data(command, tmp_path, monkeypatch) -> None:
    """The copy is stopped once; the data, and so the paths in a run, are relative."""
    monkeypatch.chdir(tmp_path)
    shared_arguments = [
        argument
        for argument in command
        if not argument.startswith(("data_dir=", "output=", "seeds="))
    ]
    arguments = [*shared_arguments, "data_dir=.", "output=a/b/best", "rows=linear,adarank"]
    copytree = shutil.copytree

    def stopped(*args: object, **kwargs: object) -> None:
        copytree(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_auto(auto_options(arguments))
    assert list(Path("a/b").iterdir()) == []
    monkeypatch.setattr(shutil, "copytree", fails(shutil.Error([("x", "y", "[Errno 28] full")])))
    assert "free some disk space" in refused(lambda: run_auto(auto_options(arguments)), OutputError)
    monkeypatch.setattr(shutil, "copytree", copytree)
    output = run_auto(auto_options(arguments))
    assert "ltr export a/b/best to=onnx" in output
    best = RunFolder(Path("a/b/best"))
    assert best.damage() is None
    table = call_command(
        evaluate_model, typed("evaluate", ["a/b/best", f"cache_dir={tmp_path}/cache"])
    )
    assert f"{best.results['test']['ndcg@5']:.4f}" in table
    ranker = Ranker.load("a/b/best")
    ranker.save("deep/er/than/before")
    ranked = call_command(
        evaluate_model, typed("evaluate", ["deep/er/than/before", "cache_dir=cache"])
    )
    assert ranked.partition("\n")[2] == table.partition("\n")[2]
    monkeypatch.setattr("ltr.ranker.atomic_write", fails(OutputError("full")))
    with pytest.raises(OutputError):
        ranker.save("half")
    assert not Path("half").exists()


def fails(error: Exception) -> Any:
    """A function that raises ``error``."""

    def function(*_: object, **__: object) -> None:
        raise error

    return function


@pytest.mark.slow
def test_explain_accepts_the_ensemble_of_auto_and_names_its_members(command, tmp_path) -> None:
    run_auto(auto_options(command))
    best = RunFolder(tmp_path / "best")
    qid = best.queries.sort_values("items")["qid"].iloc[-1]
    arguments = [str(best.folder), "split=test", f"qid={qid}", f"output={tmp_path}/explained"]
    explanation = call_command(
        explain_list, typed("explain", [*arguments, f"cache_dir={tmp_path}/cache"])
    )
    member = best.results["members"][0]["run"]
    assert "Leave-one-out effects" in explanation
    assert member in " ".join(explanation.split())
    message = refused(
        lambda: call_command(importances, typed("importances", [str(best.folder)])), CheckpointError
    )
    assert member in message


@pytest.mark.slow
def test_auto_ends_when_the_disk_is_full(command, tmp_path, monkeypatch):
    full = OutputError("no space")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(table_runs, "make_ensemble", fails(full))
    message = refused(lambda: run_auto(auto_options(command)), OutputError)
    assert message == "no space; then repeat the command"
    assert not (tmp_path / "best").exists()


def test_describe_left_out_names_rows_that_did_not_begin(tmp_path) -> None:
    late = SimpleNamespace(label="late", done=False, folder=tmp_path / "late")
    failed = SimpleNamespace(label="failed", done=False, folder=tmp_path / "failed")
    done = SimpleNamespace(label="done", done=True, folder=tmp_path / "done")
    failures = {failed.folder: "no"}
    reason = _describe_left_out([late, failed, done], failures, "0.1", is_late=True)
    assert reason.startswith(
        "left out, because they did not start within 0.1 minutes: late; repeat the command"
    )
    assert _describe_left_out([failed, done], failures, "0.1", is_late=True) == ""
    reason = _describe_left_out([late], {}, "0.1", is_late=False)
    assert reason == "left out, because they need a row that failed: late"


def test_auto_refuses_rows_that_cannot_be_compared(command, tmp_path) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(file.read_text().replace("loss=listnet]", "loss=listnet, select_on=map]"))
    message = refused(lambda: run_auto(auto_options(command)), ConfigError)
    assert message.startswith("the rows differ in select_on")
    message = refused(lambda: run_auto(auto_options([*command, "dataset.fold=²"])), ConfigError)
    assert message == "dataset.fold=²: expected a whole number, such as 1"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("minutes=soon", "minutes=soon: give a number"),
        ("minutes=0", "minutes=0: expected a number > 0"),
        ("minutes=1e-9", "no row was finished within 1e-09 minutes"),
        ("seed=3", "seed=3: a table sets the fold and seed of each run"),
        ("rows=none", "rows=none: no such row"),
        ("dataset.fold=all", "dataset.fold=all: expected a whole number"),
        ("dataset.fold=1", "this data set has no folds"),
        ("table=letor4_baselines", "this table reproduces published numbers"),
    ],
)
def test_auto_refuses_wrong_arguments(command, argument, message) -> None:
    key = argument.partition("=")[0]
    arguments = [default for default in command if not default.startswith(f"{key}=")]
    assert message in refused(lambda: run_auto(auto_options([*arguments, argument])), ConfigError)


@pytest.fixture
def items() -> pd.DataFrame:
    """Items of 60 queries, whose grade follows from two of their columns."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"query": np.arange(300) // 5, "clicks": random.poisson(20, 300)})
    frame["colour"] = pd.Categorical(random.choice(["blue", "red"], 300))
    worth = frame["clicks"] + 10 * (frame["colour"] == "red")
    frame["grade"] = pd.qcut(worth, 3, labels=False)
    frame.index = frame.index + 7  # no column of the table
    return frame


@pytest.mark.slow
def test_auto_from_python_gives_the_ranker_its_table_and_its_folder(
    command, items, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "rows.yaml"
    mlp = "[model=mlp, 'model.hidden_sizes=[4]']"  # AdaRank takes no categories
    table.write_text(table.read_text().replace("[model=adarank]", mlp))
    loggers = [logging.getLogger(), logging.getLogger("ltr.printed")]
    handlers = [[*logger.handlers] for logger in loggers]
    torch.manual_seed(7)
    best = ltr.auto(items, "grade", "query", table=table, seeds=1, output="kept", select_on="map")
    assert torch.initial_seed() == 7
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(7)))
    assert [logger.handlers for logger in loggers] == handlers
    assert best.folder == Path("kept")
    assert best.row == "both"
    assert set(best.table.index) == {"linear", "adarank", "both"}
    assert [*best.table] == [
        "crossfit vali map",
        "vali map",
        "vali ndcg@5",
        "vali ndcg@10",
        "seconds",
    ]
    results = RunFolder(best.folder).results
    assert best.table.loc["both", "vali map"] == pytest.approx(results["vali"]["map"])
    assert results["data"]["vali"]["lists"] == 12  # a fifth
    assert [*best.ranker.feature_names_in_] == ["clicks", "colour"]
    ranks = best.ranker.rank(items, qid=items["query"])
    assert items["grade"][ranks == 1].mean() > items["grade"][ranks == 5].mean()

    def trained_again(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(table_runs, "_make_ensemble", trained_again)
    (file,) = Path("outputs/data").glob("*.parquet")
    for data in (items.copy(), file):
        again = ltr.auto(
            data, "grade", "query", table=table, rows=["both"], categories=["colour"],
            output=f"kept{type(data).__name__}", select_on="map",
        )  # fmt: skip
        assert again.row == "both"


def test_table_file_is_named_by_the_content_and_finds_categories(items, tmp_path) -> None:
    path, categories = _table_file(items, tmp_path)
    assert categories == ["colour"]
    assert _table_file(items.copy(), tmp_path)[0] == path
    assert _table_file(items.assign(clicks=0), tmp_path)[0] != path
    lazy = polars.from_pandas(items).lazy()
    path_of_polars, categories_of_polars = _table_file(lazy, tmp_path)
    assert categories_of_polars == ["colour"]
    for written in (path, path_of_polars):
        frame = pd.read_parquet(written)
        assert frame.astype(str).equals(items.reset_index(drop=True).astype(str))
    assert _table_file("a.csv", tmp_path) == (Path("a.csv"), [])


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (3, {}, "data: expected a table (pandas, polars, Arrow) or the path of one, got int"),
        (pd.DataFrame({"a": [1, "x"]}), {}, "data: expected one type in each column"),
        ("none.csv", {}, "none.csv"),
        ("none.csv", {"minutes": 0}, "minutes=0: expected a number > 0"),
        ("none.csv", {"seeds": 0}, "seeds=0: give a whole number >= 1"),
        ("none.csv", {"epoch": 3}, "epoch"),
        ("none.csv", {"table": "none"}, "table=none: no such table"),
    ],
)
def test_auto_from_python_refuses_wrong_arguments(
    data, changes, message, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        ltr.auto(data, "grade", "query", **changes)
