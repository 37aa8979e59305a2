"""The storage of a search: damage is one line, a full disk too, and other databases do."""

import json
import os
import sqlite3
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from made_search import refused, searched, small_search, study_of
from orders import search_of
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from ltr.errors import ConfigError, DataError, OutputError
from ltr.search import study as study_module
from ltr.search.definition import Search
from ltr.search.search import run_search
from ltr.search.server import ServerStorage
from ltr.search.study import open_study
from ltr.search.trial import Report

small = small_search


@pytest.fixture
def kept(small: list[str]) -> Search:
    """A search that is done."""
    search = search_of([*small, "trials=3", "epochs=1"])
    assert run_search(search)
    return search


def content(search: Search) -> list[Any]:
    """All that the search goes on with."""
    study = open_study(search)
    trials = [
        (t.number, t.state, t.values, t.params, t.user_attrs, t.intermediate_values)
        for t in study.get_trials()
    ]
    return [trials, study.user_attrs]


def flips(path: Path, search: Search) -> Iterator[int]:
    """Bits all over the database, and of each kind of what a trial is kept as."""
    whole = path.read_bytes()
    random = Random(0)
    yield from (random.randrange(8 * len(whole)) for _ in range(25))
    trial = open_study(search).get_trials()[1]
    assert trial.value is not None
    (report,) = trial.intermediate_values.values()
    (lr,) = trial.params.values()
    cells = [struct.pack(">d", number) for number in (trial.value, report, lr)]
    cells += [json.dumps(trial.user_attrs[key]).encode() for key in ("overrides", "sha256")]
    cells += [b"COMPLETE", b'"settings"', b"MAXIMIZE", b"optimizer.lr"]
    for cell in cells:
        place = whole.find(cell)
        assert place >= 0, cell
        while place >= 0:
            yield 8 * place + random.randrange(8 * len(cell))
            place = whole.find(cell, place + 1)


@pytest.mark.slow
def test_no_flipped_bit_gives_another_trial(kept: Search) -> None:
    path = kept.folder / "search.db"
    whole, before, said = path.read_bytes(), content(kept), []
    for bit in flips(path, kept):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert content(kept) == before
        except DataError as error:
            said.append(str(error))
        path.with_name("search.db-journal").unlink(missing_ok=True)
    assert len(said) > 10
    for line in said:
        assert line.startswith(f"{path} is damaged (")
        assert "name=NAME" in line
        assert "\n" not in line


@pytest.mark.slow
def test_what_is_no_database_or_of_another_version_is_one_line(kept: Search) -> None:
    path = kept.folder / "search.db"
    whole = path.read_bytes()
    for spoilt in (b"", whole[:100], whole[:-5000], whole[: len(whole) // 2], b"no database" * 99):
        path.write_bytes(spoilt)
        with pytest.raises(DataError, match=r"search\.db is damaged \(.*\): put .*name=NAME"):
            open_study(kept)
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
    with pytest.raises(DataError, match="no longer compatible"):
        open_study(kept)
    (kept.folder / "journal.log").touch()
    with pytest.raises(ConfigError, match="of an earlier version: give name=NAME"):
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
        patch.setattr(study_module.sqlite3, "connect", full)
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


class Lost:
    """A server whose connection is lost at one statement in ten, wherever that is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.slept = 0, list[float]()
        self._random, execute = Random(0), Session.execute

        def lose(session: Session, *args: Any, **kwargs: Any) -> Any:
            if self._random.random() < 0.1:
                self.count += 1
                raise OperationalError("statement", {}, Exception("the connection is lost"))
            return execute(session, *args, **kwargs)

        monkeypatch.setattr(Session, "execute", lose)
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=self.slept.append)
        monkeypatch.setattr("ltr.search.server.time", clock)
        # a trial that was made twice, its number lost, is given up after that
        monkeypatch.setattr("ltr.search.retry.GRACE_SECONDS", 0.0)


@pytest.mark.slow
def test_a_lost_connection_loses_no_trial(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "RDBStorage", ServerStorage)
    search = search_of([*small, f"storage=sqlite:///{tmp_path}/shared.db", "trials=1", "epochs=1"])
    search.folder.mkdir(parents=True)
    study = open_study(search)
    with monkeypatch.context() as patch:
        lost = Lost(patch)
        assert run_search(search)
    assert lost.count >= len(lost.slept) > 2
    states = Counter(trial.state.name for trial in study.get_trials())
    assert states["COMPLETE"] == 1
    assert not states["RUNNING"] + states["WAITING"]


@pytest.mark.slow
def test_a_server_that_does_not_come_back_is_one_line_and_no_trial_failed(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [*small, f"storage=sqlite:///{tmp_path}/shared.db", "trials=1", "epochs=1"]
    report = Report.__call__

    def gone(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("ltr.search.server.OUTAGE_SECONDS", 0.0)
            patch.setattr(Session, "execute", _lost)
            report(*args)

    with monkeypatch.context() as patch:
        patch.setattr(study_module, "RDBStorage", ServerStorage)
        patch.setattr(Report, "__call__", gone)
        assert "the connection is lost: start the database" in refused(*small)
    assert searched(*small)
    (done,) = (t for t in study_of(*small).get_trials() if t.state.name == "COMPLETE")
    assert "error" not in done.user_attrs


def _lost(*args: Any, **kwargs: Any) -> Any:
    raise OperationalError("statement", {}, Exception("the connection is lost"))


@pytest.mark.skipif("LTR_POSTGRES" not in os.environ, reason="LTR_POSTGRES=URL names no database")
def test_postgresql_keeps_a_search(small: list[str], tmp_path: Path) -> None:
    small = [*small, f"storage={os.environ['LTR_POSTGRES']}", f"name=mine-{os.getpid()}"]
    assert searched(*small, "trials=3", "workers=2")
    assert searched(*small, "trials=4")
    states = [trial.state.name for trial in study_of(*small).get_trials()]
    assert states == ["COMPLETE"] * 4
    assert "secret" not in (tmp_path / "experiment/found.yaml").read_text()
    assert "epochs=3, now it is 2" in refused(*small, "epochs=2")
