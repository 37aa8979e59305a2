"""A budget for every row: spent in each fold on its own train and vali, found once, read safely."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml

from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.lab.tables.budget import RowSearch, plan_searches, spend_budget
from ltr.lab.tables.found import add_settings, load_found, read_settings
from ltr.lab.tables.spec import read_table
from ltr.lab.tables.table import make_table
from tests.helpers.folders import refused
from tests.helpers.made_lists import make_lists, write_letor
from tests.helpers.orders import table_of
from tests.helpers.paths import ROOT

TABLE: dict[str, Any] = {
    "title": "Two rows",
    "settings": [
        "dataset=mq2008", "model=linear", "loss=ranksvm", "optimizer.lr=1e-12", "epochs=4",
        "threads=1", "space.l2=null", "space.optimizer.weight_decay=[float,0.1,1,log]",
        "space.optimizer.lr=[float,0.5,1]",
    ],
    "folds": [1, 2],
    "metrics": ["ndcg@5"],
    "conventions": ["paper"],
    "rows": {
        "untrained": ["epochs=0"],
        "RankSVM": ["loss.pair_weight=null"],
        "wide": ["batch_size=8", "space=linear,loss/ranksvm"],
    },
}  # fmt: skip


GOOD = {
    "settings": ["optimizer.lr=0.01", "batch_size=32"], "worth": "crossfit ndcg@5", "value": 0.5,
    "best_epoch": 0.6, "own": None, "trials": 2, "pruned": 0, "failed": 0, "code": "code",
}  # fmt: skip


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder with own configs and two folds of data; the arguments of its table."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs/tables").mkdir(parents=True)
    (tmp_path / "configs/tables/two.yaml").write_text(yaml.safe_dump(TABLE))
    counts = {"train": 12, "vali": 8, "test": 6}
    for seed, (fold, split) in enumerate((fold, split) for fold in (1, 2) for split in counts):
        path = tmp_path / f"MQ2008/Fold{fold}/{split}.txt"
        lists = make_lists([5] * counts[split], seed=seed)
        features = np.repeat(lists.labels[:, None], lists.features.shape[1], axis=1)
        write_letor(path, replace(lists, features=features.astype(np.float32)))  # easily learnt
    settings = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/out"]
    return ["table=two", "budget=2", "workers=1", *settings]


def plan_by_cell(arguments: list[str]) -> dict[tuple[str, int | None], RowSearch]:
    options = table_of(arguments)
    return {
        search.cell: search
        for search in plan_searches(read_table("two"), options, Path("out").absolute())
    }


@pytest.mark.slow
def test_plan_searches_leaves_out_keys_that_define_the_row(arguments: list[str]) -> None:
    searches = plan_by_cell(arguments)
    assert list(searches) == [(row, fold) for row in ("RankSVM", "wide") for fold in (1, 2)]
    space = searches["RankSVM", 1].search.space
    assert set(space) == {"optimizer.lr", "batch_size", "loss.squared", "optimizer.weight_decay"}
    assert searches["RankSVM", 1].search.default("optimizer.lr") == 1e-12  # set, and searched
    wide = searches["wide", 1].search
    assert {"batch_size", "l2", "loss.pair_weight"} <= set(wide.space)
    assert "optimizer.weight_decay" not in wide.space
    assert wide.default("batch_size") == 8  # its first trial
    changed = plan_by_cell([*arguments, "optimizer.lr=0.1", "space.l2=[float,0.1,1]"])[
        "RankSVM", 1
    ].search
    assert "optimizer.lr" not in changed.space
    assert str(changed.space["l2"]) == "[float,0.1,1.0]"
    assert len({search.identity for search in searches.values()}) == 4


@pytest.mark.slow
def test_row_search_accepts_only_its_own_results(arguments: list[str]) -> None:
    search = plan_by_cell(arguments)["RankSVM", 2]
    good = {**GOOD, "search": search.identity}
    path = Path("out/found/x.yaml")
    add_settings(path, "ltr table", {search.cell: good, ("a: row", None): good})
    assert read_settings(path) == {search.cell: good, ("a: row", None): good}
    assert search.accepts(good)
    assert not search.accepts({**good, "trials": 3})
    longer = plan_by_cell([*arguments, "epochs=3"])["RankSVM", 2]
    assert not longer.accepts(good)
    for text in ("- 1", "a: {x: {}}", "a: b", "{"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="move or restore this file"):
            read_settings(path)


@pytest.mark.slow
def test_make_table_trains_the_found_settings_and_searches_once(
    arguments, monkeypatch, capsys
) -> None:
    arguments = [*arguments, "rows=RankSVM"]
    monkeypatch.setattr("ltr.lab.tables.table.interval_plot", lambda *args: "")
    assert make_table(table_of(arguments))
    output = capsys.readouterr().out
    assert "out/found/two_mq2008_budget-2.yaml" in output
    (path,) = Path("out/found").glob("*.yaml")
    assert not Path("configs/found").exists()
    results = read_settings(path)
    assert set(results) == {("RankSVM", 1), ("RankSVM", 2)}
    mean = sum(result["value"] for result in results.values()) / 2
    assert re.search(rf"^RankSVM .* {mean:.4f} ± ", output, re.MULTILINE)  # crossfit beside test
    for (_, fold), result in results.items():
        (folder,) = Path("out/runs").glob(f"ranksvm-mq2008-fold{fold}-*")
        assert result["settings"]
        assert set(result["settings"]) <= set(RunFolder(folder).overrides)
        assert RunFolder(folder).results.get("crossfit") == pytest.approx(result["value"])
        assert result["trials"] == 2
        (database,) = Path("out/search").glob(f"two-ranksvm-mq2008-fold{fold}-*/search.db")
        study = optuna.load_study(study_name=database.parent.name, storage=f"sqlite:///{database}")
        read = {key for key in study.user_attrs["search"] if key.startswith("fold ")}
        assert read == {f"fold {fold} train", f"fold {fold} vali"}

    def searched(cfg: object) -> float:
        raise AssertionError("searched again")

    monkeypatch.setattr("ltr.lab.tables.budget.search_job", searched)
    without_budget = [argument for argument in arguments if argument != "budget=2"]
    assert f"found_settings={path.absolute()}" in output
    assert make_table(table_of([*without_budget, f"found_settings={path}"]))
    again = capsys.readouterr()
    assert "2 runs, 0 to do" in again.err  # of the same settings
    assert re.search(rf"^RankSVM .* {mean:.4f} ± ", again.out, re.MULTILINE)
    assert f"found settings {path}" in " ".join(again.out.split())
    table = read_table("two").select_rows(["RankSVM"])
    options = table_of(arguments)
    path.unlink()  # killed before it was written: what the searches left is taken
    budget = spend_budget(table, options, Path("out").absolute())
    assert budget is not None
    assert budget.results == read_settings(path) == results
    shutil.rmtree("out")  # another machine, whose code has changed
    add_settings(path, "x", {cell: {**result, "code": "other"} for cell, result in results.items()})
    capsys.readouterr()
    budget = spend_budget(table, options, Path("out").absolute())
    assert budget is not None
    assert budget.settings == {cell: result["settings"] for cell, result in results.items()}


def test_make_table_refuses_a_file_without_its_settings(arguments: list[str]) -> None:
    without_budget = [argument for argument in arguments if argument != "budget=2"]
    message = refused(
        lambda: make_table(table_of([*without_budget, "found_settings=no.yaml"])), ConfigError
    )
    assert message.startswith("found_settings=no.yaml: no such file")
    Path("other.yaml").write_text(yaml.safe_dump({"other row": {1: GOOD}}))
    arguments_of_other = [*without_budget, "found_settings=other.yaml"]
    message = refused(lambda: make_table(table_of(arguments_of_other)), ConfigError)
    assert message.startswith(
        "found_settings=other.yaml: the file has no settings for any of the rows RankSVM"
    )
    message = refused(lambda: table_of([*arguments, "found_settings=other.yaml"]), ConfigError)
    assert message.startswith(
        "budget=2 found_settings=other.yaml: expected one of these keys, got both"
    )


def test_load_found_leaves_out_what_the_user_sets(tmp_path: Path) -> None:
    path = tmp_path / "found.yaml"
    add_settings(path, "ltr table", {("NeuralNDCG", 1): GOOD, ("other row", 1): GOOD})
    table = read_table("letor4_mq2008")
    found = load_found(path, table, ["batch_size=64"])
    assert found.settings == {("NeuralNDCG", 1): ["optimizer.lr=0.01"]}


@pytest.mark.parametrize("path", sorted((ROOT / "results/searches").glob("*.yaml")))
def test_results_of_searches_are_of_rows_that_the_tables_have(path: Path) -> None:
    name = re.match(r"# ltr table table=(\w+)", path.read_text())[1]
    table = read_table(name)
    found = load_found(path, table, [])
    assert found.results.keys() == read_settings(path).keys()  # all rows are there
