"""A search goes on: by the same command only, from where it was, each trial done once."""

import errno
import logging
import re
import signal
import sqlite3
import time
from contextlib import closing
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.storages import fail_stale_trials
from optuna.trial import TrialState

from ltr.lab.search import study as study_module
from ltr.lab.search.command import check_free
from ltr.lab.search.definition import Search
from ltr.lab.search.study import (
    _SQLITE_SECONDS,
    TrialReporter,
    begin_study,
    claim_trial,
    database_path,
    finished_trials,
    open_study,
    suggest,
    train_trials,
)
from ltr.training.checkpoint import load_checkpoint
from ltr.training.interruption import Interrupted
from tests.helpers import processes
from tests.helpers.orders import search_of
from tests.helpers.searches import print_search, read_trials, refuse_search

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Heartbeat of storage"),
]


def study_of(*arguments: str) -> optuna.Study:
    with open_study(search_of(arguments)) as study:
        return study


def kill_all(search: Search) -> None:
    """No process of the search beats any longer."""
    with closing(sqlite3.connect(database_path(search))) as connection, connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")


def test_begin_study_refuses_another_search(small_search, letor_folder, tmp_path) -> None:
    assert print_search(*small_search, "trials=1", "epochs=1")
    for change, message in (
        ("epochs=2", f"{tmp_path / 'out/search/mine'} is a search with epochs=1, but now epochs=2"),
        (
            "space.optimizer.lr=[float,1e-3,0.2,log]",
            "but now space.optimizer.lr=[float,0.001,0.2,log]",
        ),
        ("seeds=1,2", "with repeats=[''], but now repeats=['seed1', 'seed2']"),
    ):
        assert message in refuse_search(*small_search, "epochs=1", change)
    assert print_search(*small_search, "epochs=1", "trials=2", "device=cpu", "evaluation_items=99")
    vali = letor_folder / "mine" / "vali.txt"
    vali.write_text("".join(vali.read_text().splitlines(True)[:-1]))
    assert "is a search with vali=" in refuse_search(*small_search, "epochs=1")


def test_check_free_refuses_a_file_that_the_search_did_not_write(small_search, tmp_path) -> None:
    path = tmp_path / "experiment/found.yaml"
    path.parent.mkdir()
    path.write_text("mine: 1\n")
    message = refuse_search(*small_search)
    assert f"{path} already exists and was not written by this search: move" in message
    assert not (tmp_path / "out").exists()
    path.unlink()
    assert print_search(*small_search, "trials=1", "epochs=1")
    check_free(path, search_of(small_search))
    assert print_search(*small_search, "trials=2", "epochs=1")  # its own it replaces
    path.write_text(path.read_text() + "# my note\n")
    assert "was not written by this search" in refuse_search(*small_search, "trials=2", "epochs=1")


def stopped_at_epoch_2(small: list[str]) -> None:
    """As if the user stopped the search there."""
    original = TrialReporter.epoch

    def stop(self: TrialReporter, row: Any) -> None:
        original(self, row)
        if row["epoch"] == 2:
            raise Interrupted(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialReporter, "epoch", stop)
        with pytest.raises(Interrupted):
            print_search(*small, "trials=1")


def test_run_search_does_not_resume_damaged_checkpoints_or_those_of_another_version(
    small_search, tmp_path, monkeypatch, caplog
) -> None:
    caplog.set_level(logging.INFO, "ltr.experiment.run")
    stopped_at_epoch_2(small_search)
    stopped_at_epoch_2(small_search)
    assert "resumed at epoch 3, " in caplog.text
    (last,) = (tmp_path / "out/search/mine/trials/0000").rglob("last.pt")
    last.write_bytes(last.read_bytes()[:100])
    caplog.clear()
    stopped_at_epoch_2(small_search)
    assert "resumed at epoch" not in caplog.text
    monkeypatch.setattr("ltr.experiment.identity.RESULTS_VERSION", -1)
    assert print_search(*small_search, "trials=1")
    assert "resumed at epoch" not in caplog.text
    (done,) = finished_trials(study_of(*small_search))
    assert list(done.intermediate_values) == [1, 2, 3]
    assert done.user_attrs["first"] == 0


KILLED = """
import os, signal
from ltr.lab.search.study import TrialReporter
from ltr.__main__ import main

original = TrialReporter.epoch

def kill(self, row):
    original(self, row)
    if row["epoch"] == 3 and self.trial.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

TrialReporter.epoch = kill
main("search")
"""


def test_run_search_continues_after_a_kill(small_search, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO, "ltr.experiment.run")
    small_search = [*small_search, "epochs=5", "trials=3", "pruner=none", "select_value=best"]
    killed = processes.run(KILLED, *small_search)
    assert killed.returncode == -signal.SIGKILL
    began = study_of(*small_search).get_trials()[1].params
    (last,) = (tmp_path / "out/search/mine/trials/0001").rglob("last.pt")
    reached = load_checkpoint(last)["progress"]["epoch"]
    kill_all(search_of(small_search))
    assert "failed: 0\nstopped: 1\n" in print_search(*small_search)
    assert f"resumed at epoch {reached + 1}, step 0" in caplog.text
    assert [*read_trials(tmp_path).state] == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    continued = study_of(*small_search).get_trials()[2]
    assert continued.params == began
    assert len(continued.intermediate_values) == 5  # those before the kill too
    history = pd.read_csv(last.with_name("history.csv"))
    assert history.epoch.tolist() == list(range(6))
    assert continued.value == history["vali_ndcg@5"].iloc[1:].max()


def test_run_search_shares_the_trials_of_two_commands(small_search, tmp_path, monkeypatch) -> None:
    small_search = [*small_search, "trials=4", "pruner=none"]
    other_command = processes.start(processes.LTR, "search", *small_search)
    begin_training = TrialReporter.begin_training

    def begin_with_the_other(self: TrialReporter, *args: Any) -> None:
        begin_training(self, *args)
        study = study_of(*small_search)
        while len(study.trials) < 2:
            assert other_command.poll() is None, other_command.communicate()
            time.sleep(0.05)

    monkeypatch.setattr(TrialReporter, "begin_training", begin_with_the_other)
    assert print_search(*small_search)
    out, err = other_command.communicate()
    assert other_command.returncode == 0, (out, err)
    assert [*read_trials(tmp_path).state] == ["COMPLETE"] * 4
    folders = (tmp_path / "out/search/mine/trials").glob("[0-9]*")
    assert sorted(int(path.name) for path in folders) == [*range(4)]
    assert (tmp_path / "experiment/found.yaml").is_file()


def begun(arguments: list[str]) -> tuple[Search, optuna.Study]:
    """A new search with its first trial queued."""
    search = search_of([*arguments, "epochs=1"])
    study = study_of(*arguments, "epochs=1")
    begin_study(search, study)
    return search, study


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.get_trials()]


def test_claim_trial_retries_a_dead_process_s_trial_three_times(
    small_search,
) -> None:
    search, study = begun([*small_search, "trials=1"])
    dead = claim_trial(study)
    suggest(search, study, dead)
    for _ in range(4):
        kill_all(search)
        fail_stale_trials(study)
        if study.get_trials()[-1].state == TrialState.WAITING:
            continued = claim_trial(study)
            suggest(search, study, continued)
            assert (continued.params, continued.user_attrs["first"]) == (dead.params, 0)
    assert states(study) == ["FAIL"] * 4
    train_trials(search, study, print)
    (done,) = finished_trials(study)
    assert (done.number, done.user_attrs["first"]) == (4, 4)


def test_train_trials_waits_for_the_trial_of_a_living_process(small_search, monkeypatch) -> None:
    search, study = begun([*small_search, "trials=2"])
    other_trial = claim_trial(study)

    def end_other(seconds: float) -> None:
        assert states(study) == ["RUNNING", "COMPLETE"]
        study.tell(other_trial, 0.5)

    monkeypatch.setattr(study_module.time, "sleep", end_other)
    train_trials(search, study_of(*small_search, "trials=2", "epochs=1"), print)
    assert states(study) == ["COMPLETE"] * 2


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_train_trials_queues_a_stopped_trial_again(error, small_search, monkeypatch) -> None:
    def fail(*args: Any) -> None:
        raise error

    search, study = begun([*small_search, "trials=1"])
    with monkeypatch.context() as patch:
        patch.setattr(study_module, "train_model", fail)
        with pytest.raises(type(error)):
            train_trials(search, study, print)
    train_trials(search, study, print)
    (done,) = finished_trials(study)
    assert (done.state, done.number) == (TrialState.COMPLETE, 1)
    assert done.user_attrs["first"] == 0


def test_train_trials_gives_up_a_trial_that_another_process_took(small_search, monkeypatch) -> None:
    search, study = begun([*small_search, "trials=1"])
    report = TrialReporter.epoch
    rows = []

    def slow(self: TrialReporter, row: Any) -> None:
        rows.append(row)
        if len(rows) == 2:  # another process meanwhile
            kill_all(search)
            fail_stale_trials(study_of(*small_search, "trials=1", "epochs=1"))
            assert states(study) == ["FAIL", "WAITING"]
        report(self, row)

    monkeypatch.setattr(TrialReporter, "epoch", slow)
    train_trials(search, study, print)
    (done,) = finished_trials(study)
    assert (done.number, list(done.intermediate_values)) == (1, [1])
    assert not list(search.folder.rglob("*.pt"))


def test_open_study_refuses_a_damaged_or_unreachable_database(small_search) -> None:
    assert print_search(*small_search, "trials=1", "epochs=1")
    path = search_of(small_search).folder / "search.db"
    content = path.read_bytes()
    for spoilt in (content[:100], content[:-5000], b"no database" * 99):
        path.write_bytes(spoilt)
        assert re.search(r"search\.db: .*restore a backup.*name=NAME", refuse_search(*small_search))
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
    assert "no longer compatible" in refuse_search(*small_search)
    for storage, message in (
        ("postgresql+psycopg2://me:secret@127.0.0.1:1/none", "storage: "),
        ("nonsense", "Could not parse SQLAlchemy URL"),
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
    ):
        error = refuse_search(*small_search, f"storage={storage}")
        assert message in error
        assert "secret" not in error
        assert "check that the database runs" in error


def test_open_study_waits_for_transactions_of_other_processes(small_search, monkeypatch) -> None:
    study_of(*small_search)
    waits = []
    connect = sqlite3.connect

    def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        waits.append(kwargs.get("timeout"))
        return connect(*args, **kwargs)

    for module in (sqlite3, sqlite3.dbapi2):
        monkeypatch.setattr(module, "connect", noted)
    study_of(*small_search)
    assert len(waits) > 1
    assert set(waits) == {_SQLITE_SECONDS}


def test_run_search_continues_after_a_full_disk(small_search, tmp_path, monkeypatch) -> None:
    connect = sqlite3.connect

    def full(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.execute("PRAGMA max_page_count = 1")  # at least those that are there
        return connection

    small_search = [*small_search, "epochs=1", "space.l2=[float,1e-9,1e-8]"]
    assert print_search(*small_search, "trials=1")
    with closing(connect(tmp_path / "out/search/mine/search.db")) as connection:
        connection.execute("PRAGMA page_size = 512")  # small_search pages are full after few trials
        connection.execute("VACUUM")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", full)
        message = refuse_search(*small_search, "trials=999")
    assert re.search(r"search\.db: .* full: .*the disk is not full", message)
    done = sum(trial.state.is_finished() for trial in study_of(*small_search).get_trials())
    assert print_search(*small_search, f"trials={done + 1}")
