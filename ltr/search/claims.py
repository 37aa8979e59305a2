"""Which process does which trial: a lock for each, so that a dead worker is noticed at once."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.trial import FrozenTrial, TrialState

from ltr.search.plan import Plan
from ltr.search.space import Choice, as_text
from ltr.search.study import study_lock

REACHED = "reached"  # by a trial that was pruned; Optuna itself counts trainings to come as 0
_TRIES = 3  # a trial whose process died so often counts as failed
_FIRST = "first"  # number of the trial whose folder this one goes on in


class Nothing(Enum):
    """Why there is no trial to begin."""

    LEFT = "all trials are finished"
    YET = "the last ones are under way elsewhere"


@dataclass(frozen=True)
class Claim:
    """A trial that this process does; as a context it lets go of it.

    Attributes:
        trial: as Optuna has it.
        overrides: what it sets, for ``train.py``; none for the config's own values.
        folder: where it is trained; it holds a checkpoint where the trial was cut off.
        lock: of that folder.
        mark: a file that is there while the trial is done, so that what a dead process left is
            told from what an error or the user ended.
    """

    trial: optuna.Trial
    overrides: tuple[str, ...]
    folder: Path
    lock: FileLock
    mark: Path

    def __enter__(self) -> "Claim":
        """It is held since it was made; from here on the end of the process is a try."""
        self.mark.touch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let it go; no try is counted, which takes no space on a disk that may be full."""
        self.mark.unlink(missing_ok=True)
        self.lock.release()


def reason(trial: FrozenTrial) -> str | None:
    """Why a trial failed for good, None where it did not."""
    if trial.state != TrialState.FAIL:
        return None
    error = trial.user_attrs.get("error")
    return None if error is None else str(error)


def is_finished(trial: FrozenTrial) -> bool:
    """Whether it counts: done, pruned or failed for a reason; not one to be taken up again."""
    if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
        return True
    return reason(trial) is not None


def worth(trial: FrozenTrial) -> float | None:
    """Its metric on vali: of a trial that was pruned, the mean over the trainings it had begun."""
    return trial.user_attrs.get(REACHED, trial.value)


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count, in order."""
    return [trial for trial in study.get_trials(deepcopy=False) if is_finished(trial)]


def begin(plan: Plan, study: optuna.Study, folder: Path) -> None:
    """Where there is no trial yet, let the first be the config's own values."""
    with study_lock(folder):
        if not study.get_trials(deepcopy=False):
            params = _defaults(plan)
            study.enqueue_trial(params, user_attrs={"default": True, "params": params})


def claim(plan: Plan, study: optuna.Study, folder: Path, trials: int) -> Claim | Nothing:
    """The next trial for this process, one that a dead process left first."""
    with study_lock(folder):
        release_dead(study, folder)
        everything = study.get_trials(deepcopy=False)
        done = sum(is_finished(trial) for trial in everything)
        if done >= trials:
            return Nothing.LEFT
        if done + sum(trial.state == TrialState.RUNNING for trial in everything) >= trials:
            return Nothing.YET
        trial = study.ask()
        first = int(trial.user_attrs.get(_FIRST, trial.number))
        lock = _lock_of(folder, first)
        lock.acquire(timeout=0)
        overrides = _overrides(plan, trial)
        trial.set_user_attr("overrides", list(overrides))
        place = folder / "trials" / f"{first:04d}"
        return Claim(trial, overrides, place, lock, _mark_of(folder, trial.number))


def release_dead(study: optuna.Study, folder: Path) -> None:
    """Put trials whose process is gone back in the queue; call it under the study's lock."""
    everything = study.get_trials(deepcopy=False)
    last = {_first(trial): trial.number for trial in everything}
    for trial in everything:
        if trial.state != TrialState.RUNNING:
            continue
        if last[_first(trial)] > trial.number:
            # cut off below, between the queue and the telling; its successor may run by now
            study.tell(trial.number, state=TrialState.FAIL)
            continue
        lock = _lock_of(folder, _first(trial))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        try:
            _release(study, folder, trial)
        finally:
            lock.release()


def _release(study: optuna.Study, folder: Path, trial: FrozenTrial) -> None:
    """Queue ``trial`` again, or give it up where its process died too often."""
    mark = _mark_of(folder, trial.number)
    tries = int(trial.user_attrs.get("tries", 1))
    if mark.exists() and tries >= _TRIES:
        error = f"its process was killed {_TRIES} times: is there memory enough?"
        optuna.Trial(study, trial._trial_id).set_user_attr("error", error)
    else:
        # before it is told: cut off between the two it is not lost
        params = {**trial.user_attrs.get("params", {}), **trial.params}
        kept: dict[str, Any] = {
            "params": params,
            _FIRST: _first(trial),
            "tries": tries + mark.exists(),
        }
        if trial.user_attrs.get("default"):
            kept["default"] = True
        study.enqueue_trial(params, user_attrs=kept)
    study.tell(trial.number, state=TrialState.FAIL)
    mark.unlink(missing_ok=True)


def _first(trial: FrozenTrial) -> int:
    return int(trial.user_attrs.get(_FIRST, trial.number))


def _lock_of(folder: Path, first: int) -> FileLock:
    """Of a trial's folder: whatever the journal says, no two processes train in one."""
    place = folder / "trials"
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / f".{first:04d}.lock")


def _mark_of(folder: Path, number: int) -> Path:
    return folder / "trials" / f".{number:04d}.begun"


def _defaults(plan: Plan) -> dict[str, Any]:
    """The config's own values, where the space holds them, as Optuna has them."""
    found: dict[str, Any] = {}
    for key, distribution in plan.space.items():
        value = plan.default(key)
        if not key.startswith("+") and distribution.holds(value):
            found[key] = as_text(value) if isinstance(distribution, Choice) else value
    return found


def _overrides(plan: Plan, trial: optuna.Trial) -> tuple[str, ...]:
    """What a trial sets; the sampler learns also from the one that leaves all as it is."""
    if not trial.user_attrs.get("default"):
        return tuple(f"{key}={_suggested(plan, trial, key)}" for key in plan.space)
    for key in _defaults(plan):
        _suggested(plan, trial, key)
    return ()


def _suggested(plan: Plan, trial: optuna.Trial, key: str) -> str:
    """A value as on a command line; four digits, so that what is trained can be read and typed."""
    distribution = plan.space[key]
    if isinstance(distribution, Choice):
        return trial.suggest_categorical(key, distribution.options)
    low, high, log = distribution.low, distribution.high, distribution.log
    if distribution.whole:
        return str(trial.suggest_int(key, int(low), int(high), log=log))
    return f"{trial.suggest_float(key, low, high, log=log):.4g}"
