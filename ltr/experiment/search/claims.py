"""Which process does which trial: a lock for each, so that a dead worker is noticed at once."""

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.trial import FrozenTrial, TrialState

from ltr.experiment.search.plan import Plan
from ltr.experiment.search.space import Choice, as_text
from ltr.experiment.search.study import study_lock
from ltr.training.interruption import Interrupted

REACHED = "reached"  # by a trial that was pruned; Optuna itself counts trainings to come as 0
_TRIES = 3  # a trial whose process died so often counts as failed


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
    """

    trial: optuna.Trial
    overrides: tuple[str, ...]
    folder: Path
    lock: FileLock

    def __enter__(self) -> "Claim":
        """It is held since it was made."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let it go; a user's wish to stop does not count as a try."""
        if isinstance(error, (Interrupted, KeyboardInterrupt)):
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                self.trial.set_user_attr("stopped", True)
        self.lock.release()


def reason(trial: FrozenTrial) -> str | None:
    """Why a trial failed for good, None where it did not."""
    if trial.state != TrialState.FAIL:
        return None
    if "error" in trial.user_attrs:
        return str(trial.user_attrs["error"])
    if _tries(trial) >= _TRIES and "stopped" not in trial.user_attrs:
        return f"its process was killed {_TRIES} times: is there memory enough?"
    return None


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
        lock = _lock_of(folder, trial.number)
        lock.acquire(timeout=0)
        overrides = _overrides(plan, trial)
        trial.set_user_attr("overrides", list(overrides))
        first = int(trial.user_attrs.get("first", trial.number))
        return Claim(trial, overrides, folder / "trials" / f"{first:04d}", lock)


def release_dead(study: optuna.Study, folder: Path) -> None:
    """Put trials whose process is gone back in the queue; call it under the study's lock."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        lock = _lock_of(folder, trial.number)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        stopped = "stopped" in trial.user_attrs
        if stopped or _tries(trial) < _TRIES:
            # before it is told: cut off between the two it is done twice, not lost
            params = {**trial.user_attrs.get("params", {}), **trial.params}
            kept: dict[str, Any] = {
                "params": params,
                "first": trial.user_attrs.get("first", trial.number),
                "tries": _tries(trial) + (not stopped),
            }
            if trial.user_attrs.get("default"):
                kept["default"] = True
            study.enqueue_trial(params, user_attrs=kept)
        study.tell(trial.number, state=TrialState.FAIL)
        lock.release()


def _tries(trial: FrozenTrial) -> int:
    return int(trial.user_attrs.get("tries", 1))


def _lock_of(folder: Path, number: int) -> FileLock:
    place = folder / "trials"
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / f".{number:04d}.lock")


def _defaults(plan: Plan) -> dict[str, Any]:
    """The config's own values, where the space holds them, as Optuna has them."""
    found: dict[str, Any] = {}
    for key, distribution in plan.space.items():
        value = plan.default(key)
        if distribution.holds(value):
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
