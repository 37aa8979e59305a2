"""A search of a second, and what is left of it, for the tests of searches."""

import csv
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from orders import search_of

from ltr.console.configs import CONFIGS
from ltr.errors import LTRError
from ltr.search.definition import Search
from ltr.search.search import run_search
from ltr.search.study import database, open_study

ROOT = CONFIGS.parent
LR = "space.optimizer.lr=[float,1e-3,1e-1,log]"


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "search.py"), *arguments]


@pytest.fixture
def small_search(letor_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A search of a second, on a folder without a test file; its history is not drawn."""
    monkeypatch.setattr("ltr.search.search.draw_history", lambda *args: [])
    (letor_folder / "mine" / "test.txt").rename(letor_folder / "test.txt")
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache", f"output_dir={tmp_path}/out", "threads=1",
        f"write={tmp_path}/experiment/found.yaml", "name=mine", "epochs=3", "batch_size=8",
        "model=linear", "loss=listnet", "l2=0", LR,
    ]  # fmt: skip


def searched(*arguments: str) -> bool:
    return run_search(search_of(arguments))


def study_of(*arguments: str) -> optuna.Study:
    return open_study(search_of(arguments))


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "out/search/mine/trials.csv").open() as file:
        return list(csv.DictReader(file))


def refused(*arguments: str) -> str:
    with pytest.raises(LTRError) as caught:
        searched(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kill_all(search: Search) -> None:
    """No process of the search beats any longer."""
    with closing(sqlite3.connect(database(search))) as connection, connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")
