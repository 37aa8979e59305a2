"""Each trial is done once, and a dead process's by another."""

from typing import Any

import optuna
import pytest
from made_search import kill_all, small_search
from optuna.trial import TrialState
from orders import search_of

from ltr.errors import DataError, OutputError
from ltr.search import study as study_module
from ltr.search import trial as trial_module
from ltr.search import worker
from ltr.search.definition import Search
from ltr.search.search import begin
from ltr.search.study import (
    begin_beating,
    finished,
    first_number,
    kills,
    open_study,
    reason,
    retry_dead,
    study_lock,
)
from ltr.search.trial import Report, _overrides, do_trial
from ltr.search.worker import work

small = small_search


def begun(arguments: list[str]) -> tuple[Search, optuna.Study]:
    """A new search with its first trial queued."""
    search = search_of([*arguments, "epochs=1"])
    search.folder.mkdir(parents=True)
    study = open_study(search)
    begin(search, study, {})
    return search, study


def asked(study: optuna.Study) -> optuna.Trial:
    """A trial of another process, which has not beaten yet."""
    with pytest.warns(UserWarning, match="Heartbeat"):
        return study.ask()


def running(search: Search, study: optuna.Study) -> optuna.Trial:
    """The next trial, which another process trains."""
    trial = asked(study)
    begin_beating(study, trial)
    trial.set_user_attr("overrides", list(_overrides(search, trial)))
    return trial


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.get_trials()]


@pytest.mark.slow
def test_a_dead_process_s_trial_keeps_settings_and_folder_and_fails_after_three(
    small: list[str],
) -> None:
    search, study = begun([*small, "trials=3"])
    dead, drawn = running(search, study), running(search, study)
    for tries in (1, 2, 3):
        kill_all(search)
        retry_dead(study)
        again = study.get_trials()[-2:]
        assert [(first_number(trial), kills(trial)) for trial in again] == [(0, tries), (1, tries)]
        if tries < 3:
            first, second = running(search, study), running(search, study)
            assert (first.user_attrs["default"], first.user_attrs["overrides"]) == (True, [])
            assert first.params == dead.params
            assert second.user_attrs["overrides"] == drawn.user_attrs["overrides"]
    work(search, study)
    one, two, three = finished(study)
    assert reason(one) == reason(two) == "its process was killed 3 times: is there memory enough?"
    assert (three.state, three.number) == (TrialState.COMPLETE, 8)


@pytest.mark.slow
def test_the_trial_of_a_living_process_is_left_to_it_and_waited_for(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, study = begun([*small, "trials=2"])
    other = running(search, study)

    def end_other(seconds: float) -> None:
        assert states(study) == ["RUNNING", "COMPLETE"]
        study.tell(other, 0.5)

    monkeypatch.setattr(worker.time, "sleep", end_other)
    work(search, open_study(search))
    assert states(study) == ["COMPLETE"] * 2


def test_killed_before_its_first_heartbeat_a_trial_is_retried_after_a_while(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, study = begun(small)
    asked(study)
    retry_dead(study)
    assert states(study) == ["RUNNING"]
    monkeypatch.setattr(study_module, "GRACE_SECONDS", -1)
    retry_dead(study)
    assert states(study) == ["FAIL", "WAITING"]
    assert kills(study.get_trials()[1]) == 0


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


@pytest.mark.slow
def test_a_process_that_was_taken_for_dead_lets_go(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, study = begun([*small, "trials=1"])
    report, epochs = Report.__call__, []

    def slow(self: Report, epoch: int, metrics: Any) -> None:
        epochs.append(epoch)
        if len(epochs) == 2:  # another process meanwhile
            kill_all(search)
            retry_dead(open_study(search))
        report(self, epoch, metrics)

    monkeypatch.setattr(Report, "__call__", slow)
    with study_lock(search) as turn:
        do_trial(search, study, turn)
    assert states(study) == ["FAIL", "WAITING"]
    work(search, study)
    (done,) = finished(study)
    assert (done.number, first_number(done), list(done.intermediate_values)) == (1, 0, [1])
    assert not list(search.folder.rglob("*.pt"))
