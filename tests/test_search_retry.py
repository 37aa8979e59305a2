"""Each trial is done once, and a dead process's by another, whatever dies where."""

import fcntl
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from made_search import small_search
from optuna.storages import fail_stale_trials
from optuna.trial import TrialState
from orders import search_of

from ltr.errors import DataError, OutputError
from ltr.search import trial as trial_module
from ltr.search import worker
from ltr.search.definition import Search
from ltr.search.retry import BEGUN, begun_mark, first_number, kills, requeue, retry_dead
from ltr.search.search import begin
from ltr.search.study import experimental, finished, open_study, reason
from ltr.search.trial import Report, _overrides, do_trial
from ltr.search.worker import work
from ltr.training.interruption import Interrupted

small = small_search


def begun(arguments: list[str]) -> tuple[Search, optuna.Study]:
    """A new search with its first trial queued."""
    search = search_of([*arguments, "epochs=1"])
    search.folder.mkdir(parents=True)
    study = open_study(search)
    begin(search, study, {})
    return search, study


def killed(search: Search, study: optuna.Study) -> optuna.Trial:
    """The next trial, as a process that is killed while it trains leaves it."""
    trial = study.ask()
    trial.set_user_attr(BEGUN, trial.number)
    trial.set_user_attr("overrides", list(_overrides(search, trial)))
    begun_mark(search.folder, trial.number).touch()
    return trial


@contextmanager
def alive(folder: Path, number: int) -> Iterator[None]:
    """Another process that trains trial ``number``."""
    begun_mark(folder, number).touch()
    with (folder / "trials" / f".{number:04d}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.get_trials()]


@pytest.mark.slow
def test_a_dead_process_s_trial_keeps_settings_and_folder_and_fails_after_three(
    small: list[str],
) -> None:
    search, study = begun([*small, "trials=3"])
    dead = killed(search, study)
    drawn = killed(search, study)
    for tries in (1, 2, 3):
        retry_dead(search, study)
        if tries < 3:
            first, second = killed(search, study), killed(search, study)
            assert (first.user_attrs["default"], first.user_attrs["overrides"]) == (True, [])
            assert first.params == dead.params
            assert second.user_attrs["overrides"] == drawn.user_attrs["overrides"]
        again = study.get_trials()[-2:]
        assert [(first_number(trial), kills(trial)) for trial in again] == [(0, tries), (1, tries)]
    work(search, study)
    one, two, three = finished(study)
    assert reason(one) == reason(two) == "its process was killed 3 times: is there memory enough?"
    assert (three.state, three.number) == (TrialState.COMPLETE, 8)


@pytest.mark.slow
def test_the_trial_of_a_living_process_is_left_to_it_and_waited_for(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, study = begun([*small, "trials=2"])
    other = study.ask()

    def end_other(seconds: float) -> None:
        assert states(study) == ["RUNNING", "COMPLETE"]
        study.tell(other, 0.5)

    monkeypatch.setattr(worker.time, "sleep", end_other)
    monkeypatch.setattr("ltr.search.study._check_digests", lambda study: None)
    with alive(search.folder, 0):
        work(search, open_study(search))
    assert states(study) == ["COMPLETE"] * 2


def test_killed_before_it_trained_a_trial_costs_no_try(small: list[str]) -> None:
    search, study = begun(small)
    study.ask()  # and dead
    retry_dead(search, study)
    assert states(study) == ["FAIL", "WAITING"]
    assert kills(study.get_trials()[1]) == 0
    assert study.get_trials()[1].user_attrs["default"]


def test_killed_between_failing_and_queueing_a_trial_is_done_once(small: list[str]) -> None:
    search, study = begun(small)
    study.tell(killed(search, study), state=TrialState.FAIL)
    for _ in range(2):
        retry_dead(search, study)
        assert states(study) == ["FAIL", "WAITING"]
    assert kills(study.get_trials()[1]) == 1
    requeue(search, study, 0, killed=True)
    assert states(study) == ["FAIL", "WAITING"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OutputError("it could not be written: free some space"),
        DataError("the lists are gone: bring them back"),
        KeyboardInterrupt(),
    ],
)
def test_only_a_process_that_was_killed_costs_a_try(
    error: BaseException, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise error

    search, study = begun([*small, "trials=1"])
    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "fit", fail)
        with pytest.raises(type(error)):
            work(search, study)
    work(search, study)
    (done,) = finished(study)
    assert (done.state, done.number, kills(done)) == (TrialState.COMPLETE, 1, 0)
    assert not list((search.folder / "trials").glob(".*.begun"))


def test_where_the_storage_cannot_be_written_either_no_try_is_lost(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any) -> None:
        raise Interrupted(signal.SIGTERM)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    search, study = begun(small)
    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "fit", stop)
        patch.setattr(trial_module, "requeue", fail)
        with pytest.raises(Interrupted):
            work(search, study)
    assert states(study) == ["RUNNING"]
    retry_dead(search, study)
    assert kills(study.get_trials()[1]) == 0


@pytest.mark.slow
def test_trials_are_taken_one_after_the_other_and_trained_at_once(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, study = begun([*small, "trials=2"])
    free = []

    def is_free() -> bool:
        with (search.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    ask, fit = optuna.Study.ask, trial_module.fit
    monkeypatch.setattr(
        optuna.Study, "ask", lambda self, *args: (free.append(is_free()), ask(self, *args))[1]
    )
    monkeypatch.setattr(trial_module, "fit", lambda *args: (free.append(is_free()), fit(*args))[1])
    work(search, study)
    assert free == [False, True, False, True]


@pytest.fixture
def shared(small: list[str], tmp_path: Path) -> list[str]:
    """A search in a storage that other machines share."""
    return [*small, f"storage=sqlite:///{tmp_path}/shared.db", "trials=1"]


def sql(tmp_path: Path, statement: str) -> None:
    with closing(sqlite3.connect(tmp_path / "shared.db")) as connection, connection:
        connection.execute(statement)


def asked(study: optuna.Study) -> optuna.Trial:
    """A trial of another machine, which has not beaten yet."""
    with pytest.warns(UserWarning, match="Heartbeat"):
        return study.ask()


STALE = "UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'"


@pytest.mark.slow
def test_another_machine_s_trial_is_retried_once_its_heartbeat_ended(
    shared: list[str], tmp_path: Path
) -> None:
    search, study = begun(shared)
    asked(study).set_user_attr(BEGUN, 0)
    sql(tmp_path, "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (1, '2000-01-01')")
    sql(tmp_path, "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP")
    retry_dead(search, study)
    assert states(study) == ["RUNNING"]
    sql(tmp_path, STALE)
    work(search, study)
    assert states(study) == ["FAIL", "COMPLETE"]
    assert first_number(study.get_trials()[1]) == 0


def test_killed_before_its_first_heartbeat_a_trial_is_retried_after_a_while(
    shared: list[str], tmp_path: Path
) -> None:
    search, study = begun(shared)
    asked(study)
    retry_dead(search, study)
    assert states(study) == ["RUNNING"]
    sql(tmp_path, "UPDATE trials SET datetime_start = '2000-01-01 00:00:00'")
    retry_dead(search, study)
    assert states(study) == ["FAIL", "WAITING"]


@pytest.mark.slow
def test_a_process_that_was_taken_for_dead_lets_go(
    shared: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, study = begun(shared)
    report, epochs = Report.__call__, []

    def slow(self: Report, epoch: int, metrics: Any) -> None:
        epochs.append(epoch)
        if len(epochs) == 2:  # another machine meanwhile
            sql(tmp_path, STALE)
            with experimental():
                fail_stale_trials(open_study(search))
        report(self, epoch, metrics)

    monkeypatch.setattr(Report, "__call__", slow)
    do_trial(search, study, worker.study_lock(search))
    assert states(study) == ["FAIL", "WAITING"]
    assert not list((search.folder / "trials").glob(".*.begun"))
    work(search, study)
    (done,) = finished(study)
    assert (done.number, first_number(done), list(done.intermediate_values)) == (1, 0, [1])
    assert not list(search.folder.rglob("*.pt"))
