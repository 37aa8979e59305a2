"""Which process does which trial: each once, whatever dies where."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from made_search import searched, small_search, study_of
from optuna.trial import TrialState
from orders import search_of

from ltr.errors import DataError, OutputError
from ltr.search.claims import (
    Claim,
    Nothing,
    begin,
    claim,
    finished,
    is_finished,
    reason,
    release_dead,
)
from ltr.search.plan import Plan, make_plan
from ltr.search.study import open_study

small = small_search


def begun(arguments: list[str], folder: Path) -> tuple[Plan, optuna.Study, optuna.Study]:
    """A new search and its study, opened twice as by two processes."""
    order = search_of(arguments)
    plan = make_plan(order)
    folder.mkdir(parents=True)
    one, two = (open_study(folder, order) for _ in range(2))
    begin(plan, one, folder)
    begin(plan, two, folder)
    return plan, one, two


def claimed(plan: Plan, study: optuna.Study, folder: Path, trials: int) -> Claim:
    found = claim(plan, study, folder, trials)
    assert isinstance(found, Claim)
    return found


def killed(one: Claim) -> None:
    """Let go of it as the kernel does for a process that is killed."""
    one.lock.release()


def test_trials_are_claimed_once_and_a_dead_worker_s_is_taken_up(
    small: list[str], tmp_path: Path
) -> None:
    plan, one, two = begun(small, tmp_path / "kept")
    folder = tmp_path / "kept"
    first, second = claimed(plan, one, folder, 2), claimed(plan, two, folder, 2)
    assert (first.trial.number, second.trial.number) == (0, 1)
    assert (first.overrides, len(second.overrides)) == ((), 1)
    assert claim(plan, two, folder, 2) is Nothing.YET

    with second:
        killed(second)
        again = claimed(plan, one, folder, 2)
        assert again.trial.user_attrs["tries"] == 2
        killed(again)  # before it began
        again = claimed(plan, one, folder, 2)
        assert again.trial.user_attrs["tries"] == 2
        again.__enter__()
        killed(again)
        again = claimed(plan, one, folder, 2)
        assert (again.overrides, again.folder) == (second.overrides, second.folder)
        assert again.trial.user_attrs["tries"] == 3
        again.__enter__()
        killed(again)
    assert claim(plan, one, folder, 2) is Nothing.YET  # given up after the third
    (given_up,) = [trial for trial in one.get_trials() if is_finished(trial)]
    assert given_up.number == again.trial.number
    assert reason(given_up) == "its process was killed 3 times: is there memory enough?"
    one.tell(first.trial, 0.5)
    assert claim(plan, two, folder, 2) is Nothing.LEFT
    assert isinstance(claim(plan, two, folder, 3), Claim)


def test_killed_between_queue_and_telling_a_trial_is_not_done_twice(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    plan, one, two = begun(small, folder)
    dead = claimed(plan, one, folder, 3)
    killed(dead)

    def kill(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(one, "tell", kill)
        with pytest.raises(KeyboardInterrupt):
            release_dead(one, folder)
    again, other = claimed(plan, one, folder, 3), claimed(plan, two, folder, 3)
    assert again.folder == dead.folder
    assert Path(again.lock.lock_file) == Path(dead.lock.lock_file)
    assert other.folder != dead.folder
    states = [trial.state for trial in two.get_trials()]
    assert states == [TrialState.FAIL, TrialState.RUNNING, TrialState.RUNNING]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(28, "No space left on device"), OutputError,
         r"could not be written \(No space left on device\): free some space, then give the same"),
        (OSError(5, "Input/output error"), OSError, "Input/output error"),
        (DataError("the lists are gone: bring them back"), DataError, "the lists are gone"),
        (RuntimeError("a mistake of ours"), RuntimeError, "a mistake of ours"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)  # fmt: skip
def test_only_a_process_that_died_costs_a_try(
    error: BaseException,
    kind: type[BaseException],
    message: str,
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> None:
        raise error

    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr("ltr.search.work.do_trial", fail)
            with pytest.raises(kind, match=message):
                searched(*small, "trials=1")
    assert searched(*small, "trials=1")
    (done,) = finished(study_of(tmp_path, *small))
    assert (done.state, done.user_attrs["tries"]) == (TrialState.COMPLETE, 1)
