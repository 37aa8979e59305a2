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
from conftest import make_lists, write_letor
from orders import table_of

from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.tables.budget import RowSearch, add_settings, plan_searches, read_settings, spend_budget
from ltr.tables.spec import read_table
from ltr.tables.table import make_table

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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder with own configs and two folds of data; the arguments of its table."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs/tables").mkdir(parents=True)
    (tmp_path / "configs/tables/two.yaml").write_text(yaml.safe_dump(TABLE))
    counts = {"train": 12, "vali": 8, "test": 6}
    for seed, (fold, split) in enumerate((fold, split) for fold in (1, 2) for split in counts):
        path = tmp_path / f"MQ2008/Fold{fold}/{split}.txt"
        lists = make_lists([5] * counts[split], seed=seed)
        told = np.repeat(lists.labels[:, None], lists.features.shape[1], axis=1)
        write_letor(path, replace(lists, features=told.astype(np.float32)))  # easily learnt
    places = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/out"]
    return ["table=two", "budget=2", "workers=1", *places]


def planned(arguments: list[str]) -> dict[tuple[str, int | None], RowSearch]:
    options = table_of(arguments)
    return {
        search.cell: search
        for search in plan_searches(read_table("two"), options, Path("out").absolute())
    }


@pytest.mark.slow
def test_a_row_is_searched_but_not_in_what_makes_it_that_row(here: list[str]) -> None:
    found = planned(here)
    assert list(found) == [(row, fold) for row in ("RankSVM", "wide") for fold in (1, 2)]
    space = found["RankSVM", 1].search.space
    assert set(space) == {"optimizer.lr", "batch_size", "loss.squared", "optimizer.weight_decay"}
    assert found["RankSVM", 1].search.default("optimizer.lr") == 1e-12  # set, and searched
    named = found["wide", 1].search
    assert {"batch_size", "l2", "loss.pair_weight"} <= set(named.space)
    assert "optimizer.weight_decay" not in named.space
    assert named.default("batch_size") == 8  # its first trial
    given = planned([*here, "optimizer.lr=0.1", "space.l2=[float,0.1,1]"])["RankSVM", 1].search
    assert "optimizer.lr" not in given.space
    assert str(given.space["l2"]) == "[float,0.1,1.0]"
    assert len({one.identity for one in found.values()}) == 4


@pytest.mark.slow
def test_settings_of_another_search_are_not_taken(here: list[str]) -> None:
    one = planned(here)["RankSVM", 2]
    good = {**GOOD, "search": one.identity}
    path = Path("configs/found/x.yaml")
    add_settings(path, "python scripts/table.py", {one.cell: good, ("a: row", None): good})
    assert read_settings(path) == {one.cell: good, ("a: row", None): good}
    assert one.accepts(good)
    assert not one.accepts({**good, "trials": 3})
    other = planned([*here, "epochs=3"])["RankSVM", 2]
    assert not other.accepts(good)
    for text in ("- 1", "a: {x: {}}", "a: b", "{"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="move it away"):
            read_settings(path)


@pytest.mark.slow
def test_what_is_found_is_what_runs_and_is_searched_once(here, monkeypatch, capsys) -> None:
    here = [*here, "rows=RankSVM"]
    monkeypatch.setattr("ltr.tables.table.interval_plot", lambda *args: "")
    assert make_table(table_of(here))
    said = capsys.readouterr().out
    assert "configs/found/two_mq2008_budget-2.yaml" in said
    (path,) = Path("configs/found").glob("*.yaml")
    found = read_settings(path)
    assert set(found) == {("RankSVM", 1), ("RankSVM", 2)}
    mean = sum(one["value"] for one in found.values()) / 2
    assert re.search(rf"^RankSVM .* {mean:.4f} ± ", said, re.MULTILINE)  # crossfit beside test
    for (_, fold), one in found.items():
        (folder,) = Path("out/runs").glob(f"ranksvm-mq2008-fold{fold}-*")
        assert one["settings"]
        assert set(one["settings"]) <= set(RunFolder(folder).overrides)
        assert RunFolder(folder).results.get("crossfit") == pytest.approx(one["value"])
        assert one["trials"] == 2
        (database,) = Path("out/search").glob(f"two-ranksvm-mq2008-fold{fold}-*/search.db")
        study = optuna.load_study(study_name=database.parent.name, storage=f"sqlite:///{database}")
        read = {key for key in study.user_attrs["search"] if key.startswith("fold ")}
        assert read == {f"fold {fold} train", f"fold {fold} vali"}

    def searched(cfg: object) -> float:
        raise AssertionError("searched again")

    monkeypatch.setattr("ltr.tables.budget.search_job", searched)
    table = read_table("two").select_rows(["RankSVM"])
    options = table_of(here)
    path.unlink()  # killed before it was written: what the searches left is taken
    budget = spend_budget(table, options, Path("out").absolute())
    assert budget is not None
    assert budget.results == read_settings(path) == found
    shutil.rmtree("out")  # another machine, whose code has changed
    add_settings(path, "x", {place: {**one, "code": "other"} for place, one in found.items()})
    capsys.readouterr()
    budget = spend_budget(table, options, Path("out").absolute())
    assert budget is not None
    assert budget.settings == {place: one["settings"] for place, one in found.items()}
