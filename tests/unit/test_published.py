"""Published numbers stand beside the data, the split and the settings that they are of."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from ltr.cli.compose import run_config
from ltr.data.lists import SPLITS
from ltr.data.public_sets import PublicSet, PublishedCounts
from ltr.lab.tables import published
from ltr.lab.tables.published import why_left_out
from ltr.lab.tables.results import split_of_runs
from ltr.lab.tables.runs import Run, plan
from ltr.lab.tables.spec import Published, Row, Table, read_table
from ltr.lab.tables.table import make_table
from tests.helpers.made_lists import make_lists, real_data, write_letor
from tests.helpers.orders import table_of

LISTS = MappingProxyType({"train": 4, "vali": 2, "test": 3})
WHOLE = read_table("neuralndcg_table3")
TABLE = WHOLE.select_rows(["NeuralNDCG@max", "RMSE"])


@pytest.fixture
def web30k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Lists whose counts are declared to be those of Web30K; asks why numbers are left out."""
    for split, count in LISTS.items():
        path = tmp_path / f"MSLR-WEB30K/Fold1/{split}.txt"
        write_letor(path, make_lists([3] * count, width=136))
    records = tuple(
        PublishedCounts((split,), fold=1, lists=n, rows=3 * n) for split, n in LISTS.items()
    )
    sets = {
        "web30k": PublicSet("web30k", "page", "a.zip", counts=records),
        "istella": PublicSet(
            "istella",
            "page",
            "b.zip",
            counts=(
                PublishedCounts(("train", "vali"), lists=8),
                PublishedCounts(("test",), lists=9),
            ),
        ),
    }
    monkeypatch.setattr(published, "public_sets", lambda: sets)
    folders = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache"]

    def ask(
        *overrides: str, table: Table = TABLE, split: str = "test",
        searched: str | None = None, fold: int | None = 1,
    ) -> str | None:  # fmt: skip
        run_overrides = [*table.settings, *overrides, *folders]
        config = run_config(run_overrides)[0]
        run = Run("RMSE", fold, 1, run_overrides, config, "", tmp_path)
        return why_left_out(table, overrides, [run], split, searched)

    return ask


def test_why_left_out_is_none_for_the_published_data_and_settings(web30k, tmp_path) -> None:
    assert web30k() is None
    same = ["dataset=web30k", "epochs=100", "select=last", "metrics=[map]", "monitor=[train,vali]"]
    assert web30k(*same) is None
    (tmp_path / "MSLR-WEB30K").rename(tmp_path / "elsewhere")
    assert web30k("dataset.folder=elsewhere") is None
    assert web30k("epochs=1", table=replace(TABLE, published={})) is None


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["epochs=1"], "epochs=1 changes the settings"),
        (["metrics=[map]", "model.blocks=1"], "model.blocks=1 changes the settings"),
        (["model=mlp"], "model=mlp changes"),
        (["select=best"], "select=best changes"),
        (["convention=letor4"], "convention=letor4 changes"),
        (["transform=none"], "transform=none changes"),
        (["experiment=recommended"], "experiment=recommended changes"),
        (["dataset.width=140"], "dataset.width=140 changes"),
        (["suggested.fc_sizes=[8]"], "suggested.fc_sizes=[8] changes"),
        (
            ["dataset=synthetic", "dataset.queries=9"],
            "they were measured on web30k and istella, not on syn",
        ),
        (["dataset=synthetic", "dataset.name=web30k"], "they were measured on other data: Fold1"),
    ],
)
def test_why_left_out_names_a_changed_setting_or_other_data(web30k, overrides, reason) -> None:
    assert reason in str(web30k(*overrides))


def test_why_left_out_names_other_lists_and_another_split(web30k, tmp_path) -> None:
    assert (
        web30k(split="vali") == "they were measured on test, but these runs were measured on vali"
    )
    assert (
        web30k(fold=None)
        == "they were measured on other data: none of the folds of web30k was read"
    )
    path = tmp_path / "MSLR-WEB30K/Fold1/test.txt"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:-1]))
    assert web30k() == "they were measured on other data: Fold1 test, rows: expected 9, got 8"
    path.unlink()
    assert "they were measured on other data: Fold1 test, rows: expected 9, got 0" in str(
        web30k(split="vali")
    )


def test_why_left_out_compares_all_counts_of_a_set_without_folds(web30k, tmp_path) -> None:
    for split, count in {"train": 8, "test": 9}.items():  # vali is cut from train
        path = tmp_path / f"istella-letor/{split}.txt"
        write_letor(path, make_lists([3] * count, width=220))
    assert web30k("dataset=istella", fold=None) is None
    assert web30k("dataset=istella", "dataset.seed=2", fold=None) == (
        "dataset.seed=2 changes the settings for which they were published"
    )
    path.unlink()
    assert "they were measured on other data" in str(
        web30k("dataset=istella", fold=None, split="vali")
    )


@real_data
def test_why_left_out_is_none_for_the_real_lists(tmp_path) -> None:
    table = read_table("letor4_mq2008").select_rows(["ListNet"])
    folders = [f"data_dir={os.environ['LTR_DATA_DIR']}", f"cache_dir={tmp_path}"]
    runs = plan(table, folders, [1], tmp_path)
    assert len(runs) == 5
    assert split_of_runs(runs) == "test"
    assert why_left_out(table, [], runs, "test", "budget=20") is None


def test_why_left_out_names_a_budget_unless_the_numbers_were_searched(web30k) -> None:
    assert (
        web30k(searched="budget=20")
        == "budget=20 changes the settings for which they were published"
    )
    searched = replace(TABLE.published["web30k"], searched=True)
    assert (
        web30k(searched="budget=20", table=replace(TABLE, published={"web30k": searched})) is None
    )
    for name in ("letor4_mq2007", "letor4_mq2008"):  # the authors tuned their rankers
        assert all(numbers.searched for numbers in read_table(name).published.values())


def test_why_left_out_compares_the_folder_of_a_users_data(web30k, tmp_path) -> None:
    for folder in ("mine", "other"):
        for split in SPLITS:
            write_letor(tmp_path / folder / f"{split}.txt", make_lists([3]))
    table = Table(
        title="Mine",
        rows={"A": Row(["model=mlp"])},
        settings=["dataset=letor", "dataset.folder=mine", "epochs=3"],
        published={"letor": Published("a paper", {"A": {"paper": {"ndcg@5": 0.5}}})},
    )
    assert web30k(table=table, fold=None) is None
    reason = web30k("dataset.folder=other", table=table, fold=None)
    assert reason == "dataset.folder=other changes the settings for which they were published"


@pytest.mark.slow
def test_make_table_says_why_published_numbers_are_left_out(tmp_path, monkeypatch, capsys) -> None:
    for split, count in LISTS.items():
        path = tmp_path / f"ANOTHER/Fold1/{split}.txt"
        write_letor(path, make_lists([6] * count, width=136))
    folders = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/out"]
    arguments = ["table=neuralndcg_table3", "dataset.folder=ANOTHER", "rows=RMSE", *folders]
    assert make_table(
        table_of([*arguments, "epochs=1", "model.blocks=1", "workers=1", "threads=1"])
    )
    output = capsys.readouterr()
    line = "left out: they were measured on other data: Fold1 train, rows: expected "
    assert line in output.err
    assert re.search(r"published +left out: they were measured on other data", output.out)
    assert "0.5051" not in output.out
    assert "covered" not in output.out
    assert "RMSE (published)" not in output.out


def test_make_table_by_fold_says_why_published_numbers_are_left_out(tmp_path, capsys) -> None:
    for fold in range(1, 6):
        for split in SPLITS:
            write_letor(tmp_path / f"MQ2008/Fold{fold}/{split}.txt", make_lists([3], width=46))
    folders = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}"]
    arguments = ["table=letor4_baselines", "rows=RankBoost", *folders, "dry_run=true"]
    assert make_table(table_of(arguments))
    line = "left out: they were measured on other data: Fold1 train, rows: expected 9630, got 3"
    assert line in capsys.readouterr().err
