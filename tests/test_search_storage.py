"""The storage of a search: damage is one line, a full disk too, and other databases do."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_search import refused, searched, small_search, study_of
from orders import search_of

from ltr.errors import DataError, OutputError
from ltr.search.definition import Search
from ltr.search.search import run_search
from ltr.search.study import open_study

small = small_search


@pytest.fixture
def kept(small: list[str]) -> Search:
    """A search that is done."""
    search = search_of([*small, "trials=3", "epochs=1"])
    assert run_search(search)
    return search


@pytest.mark.slow
def test_what_is_no_database_or_of_another_version_is_one_line(kept: Search) -> None:
    path = kept.folder / "search.db"
    whole = path.read_bytes()
    for spoilt in (whole[:100], whole[:-5000], whole[: len(whole) // 2], b"no database" * 99):
        path.write_bytes(spoilt)
        with pytest.raises(DataError, match=r"search\.db is damaged \(.*\): put .*name=NAME"):
            open_study(kept)
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
    with pytest.raises(DataError, match="no longer compatible"):
        open_study(kept)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_search_goes_on(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def full(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.execute("PRAGMA max_page_count = 1")  # at least those that are there
        return connection

    small = [*small, "epochs=1", "space.l2=[float,1e-9,1e-8]"]
    assert searched(*small, "trials=1")
    with closing(connect(tmp_path / "out/search/mine/search.db")) as connection:
        connection.execute("PRAGMA page_size = 512")  # small pages are full after few trials
        connection.execute("VACUUM")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", full)
        with pytest.raises(OutputError, match=r"search\.db could not be written .*free some space"):
            searched(*small, "trials=999")
    done = sum(trial.state.is_finished() for trial in study_of(*small).get_trials())
    assert searched(*small, f"trials={done + 1}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (
            "postgresql+psycopg2://me:secret@127.0.0.1:1/none",
            "storage=postgresql+psycopg2://me:***",
        ),
        ("nonsense", "storage: Could not parse SQLAlchemy URL"),
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_one_line(
    storage: str, message: str, small: list[str]
) -> None:
    said = refused(*small, f"storage={storage}")
    assert message in said
    assert "secret" not in said
    assert said.endswith((": start the database or mend the URL", "pip install psycopg2-binary"))


@pytest.mark.skipif("LTR_POSTGRES" not in os.environ, reason="LTR_POSTGRES=URL names no database")
def test_postgresql_keeps_a_search(small: list[str], tmp_path: Path) -> None:
    small = [*small, f"storage={os.environ['LTR_POSTGRES']}", f"name=mine-{os.getpid()}"]
    assert searched(*small, "trials=3", "workers=2")
    assert searched(*small, "trials=4")
    states = [trial.state.name for trial in study_of(*small).get_trials()]
    assert states == ["COMPLETE"] * 4
    assert "secret" not in (tmp_path / "experiment/found.yaml").read_text()
    assert "epochs=3, now it is 2" in refused(*small, "epochs=2")
