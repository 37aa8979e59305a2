"""A search of a second, and what is left of it, for the tests of searches."""

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pandas as pd
import pytest
from folders import refused as refused_with
from orders import search_of

from ltr.console.compose import typed
from ltr.errors import LTRError
from ltr.search.command import run_search
from ltr.search.definition import Search
from ltr.search.study import database, open_study

LR = "space.optimizer.lr=[float,1e-3,1e-1,log]"


@pytest.fixture
def small_search(letor_folder: Path, tmp_path: Path) -> list[str]:
    """A search of a second, on a folder without a test file."""
    (letor_folder / "mine" / "test.txt").rename(letor_folder / "test.txt")
    return [
        "dataset=letor", "dataset.folder=mine", f"data_dir={letor_folder}",
        f"cache_dir={letor_folder}/cache", f"output_dir={tmp_path}/out", "threads=1",
        f"write={tmp_path}/experiment/found.yaml", "name=mine", "epochs=3", "batch_size=8",
        "model=linear", "loss=listnet", "l2=0", LR,
    ]  # fmt: skip


def searched(*arguments: str) -> str:
    """What the command prints."""
    return run_search(typed("search", arguments))


def study_of(*arguments: str) -> optuna.Study:
    with open_study(search_of(arguments)) as study:
        return study


def trials(tmp_path: Path) -> pd.DataFrame:
    return pd.read_csv(tmp_path / "out/search/mine/trials.csv", keep_default_na=False)


def refused(*arguments: str) -> str:
    return refused_with(lambda: searched(*arguments), LTRError)


def kill_all(search: Search) -> None:
    """No process of the search beats any longer."""
    with closing(sqlite3.connect(database(search))) as connection, connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")
