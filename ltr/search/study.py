"""The study of a search, stored by Optuna: its trials, who trains which, and what came of each."""

import math
import shutil
import sqlite3
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch
from filelock import FileLock
from omegaconf import DictConfig
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from ltr.atomic import atomic_write
from ltr.console.ending import is_full
from ltr.console.keys import stated
from ltr.data.lists import Lists
from ltr.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    LTRError,
    OutputError,
    TrainingError,
)
from ltr.experiment.build import build
from ltr.experiment.fit import fit
from ltr.experiment.identity import training_code
from ltr.experiment.labels import resolve_labels
from ltr.scorers.parts import Experiment
from ltr.search.definition import Search
from ltr.search.space import Choice, as_text
from ltr.training.checkpoint import load_checkpoint
from ltr.training.hooks import Hook

SPLITS_READ = ("train", "vali")  # a search never opens test
GRACE_SECONDS = 120  # a process that does not beat for so long is dead
_HEARTBEAT_SECONDS, _POLL_SECONDS = 15, 0.3
_SQLITE_SECONDS = 100  # to wait for a transaction of another process
_TRIES = 3  # a trial whose process was killed so often counts as failed
_REPORTS = 100  # of a training to the pruner, at most
_STRIDE = 1_000_000  # between the steps of a trial's trainings, more than one has epochs
_IDENTITY = "search"  # attribute of the study
_STARTED = "started"  # attribute of a trial: its number, once its process beats
_OF_STORAGE: tuple[type[Exception], ...] = (StorageInternalError, SQLAlchemyError, sqlite3.Error)
# Errors that say nothing of the trial
_NO_FAULT_OF_IT: tuple[type[Exception], ...] = (
    DataError,
    CheckpointError,
    OutputError,
    *_OF_STORAGE,
)


class _Failed(Exception):
    """The trial counts as failed; its reason is noted."""


class _Lost(BaseException):
    """Another process took this one for dead. Not an Exception: Optuna must tell nothing."""


@contextmanager
def experimental() -> Iterator[None]:
    """Use what Optuna calls experimental: its heartbeats, how it retries a trial, its plots."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def database(search: Search) -> Path:
    """The database of a search whose ``storage`` is not set."""
    return search.folder / "search.db"


def study_lock(search: Search) -> FileLock:
    """Held while it is decided which process takes which trial; one may hold it twice.

    SQLite has no lock of a row: two processes that ask at once would be given one waiting trial.
    """
    return FileLock(search.folder / ".lock", is_singleton=True)


@contextmanager
def storage_errors(search: Search, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of the storage, and those of ``kinds``, into one line."""
    try:
        yield
    except (LTRError, OSError):
        raise
    except _OF_STORAGE + kinds as error:
        below = error.__cause__ or error
        reason = (str(getattr(below, "orig", below)) or type(below).__name__).splitlines()[0]
        if search.storage is None:
            raise OutputError(
                f"{database(search)}: {reason}: free some space or put a good copy in its place, "
                "or give name=NAME for a new search"
            ) from error
        with suppress(SQLAlchemyError):
            reason = f"{make_url(search.storage).render_as_string(hide_password=True)}: {reason}"
        raise ConfigError(
            f"storage={reason}: start the database, mend the URL or install its driver"
        ) from error


def open_study(search: Search) -> optuna.Study:
    """The study of ``search``, a new one where there is none; its folder exists."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = database(search)
    url = search.storage or URL.create("sqlite", database=str(path.absolute())).render_as_string()
    with storage_errors(search, Exception), study_lock(search), experimental():
        if search.storage is None and path.exists():
            with closing(sqlite3.connect(path)) as connection:
                if (damage := connection.execute("PRAGMA integrity_check").fetchone()) != ("ok",):
                    raise sqlite3.DatabaseError(damage[0])
        of_sqlite = make_url(url).get_backend_name() == "sqlite"
        storage = RDBStorage(
            url,
            {"connect_args": {"timeout": _SQLITE_SECONDS}}
            if of_sqlite
            else {"pool_pre_ping": True},
            heartbeat_interval=_HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )
        pruners = {"median": optuna.pruners.MedianPruner, "none": optuna.pruners.NopPruner}
        return optuna.create_study(
            storage=storage,
            pruner=pruners[search.pruner](),
            study_name="search" if search.storage is None else search.name,
            direction="maximize",
            load_if_exists=True,
        )


def begin(search: Search, study: optuna.Study, data: Mapping[str, str]) -> bool:
    """Note what a new study is of, and queue the config's own values as its first trial.

    Returns:
        Whether its trials so far were trained by the same code.

    Raises:
        ConfigError: it is of other settings, or another space; the message says which.
        DataError: its lists are others.
    """
    remedy = "put it back, or give name=NAME for a new search"
    with study_lock(search):
        now: dict[str, Any] = {
            "settings": search.settings(),
            "data": dict(data),
            "code": search.code(),
        }
        before = study.user_attrs.get(_IDENTITY)
        if before is None:
            study.set_user_attr(_IDENTITY, before := now)
        one, other = stated(before["settings"]), stated(now["settings"])
        for key in {**other, **one}:
            if (was := one.get(key, "null")) != (value := other.get(key, "null")):
                raise ConfigError(
                    f"{search.folder} is a search with {key}={was}, now it is {value}: {remedy}"
                )
        if changed := [key for key in data if before["data"].get(key) != data[key]]:
            raise DataError(
                f"{', '.join(changed)} changed since the search in {search.folder} began: {remedy}"
            )
        own = {"default": True}
        study.enqueue_trial(default_params(search), user_attrs=own, skip_if_exists=True)
        return bool(before["code"] == now["code"])


def default_params(search: Search) -> dict[str, Any]:
    """The config's own values, where the space holds them, as Optuna has them."""
    values = {key: search.default(key) for key in search.space if not key.startswith("+")}
    return {
        key: as_text(value) if isinstance(search.space[key], Choice) else value
        for key, value in values.items()
        if search.space[key].holds(value)
    }


def reason(trial: FrozenTrial) -> str | None:
    """Why a trial failed for good, None where it did not."""
    return trial.user_attrs.get("error") if trial.state == TrialState.FAIL else None


def is_finished(trial: FrozenTrial) -> bool:
    """Whether it counts: done, pruned or failed for a reason; not where it was cut off."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or reason(trial) is not None


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count, in order."""
    return list(filter(is_finished, study.get_trials(deepcopy=False)))


def overrides_of(search: Search, trial: FrozenTrial | optuna.Trial) -> tuple[str, ...]:
    """The settings of a trial as on a command line, four digits each; of the first none.

    Raises:
        DataError: they are not of the space, as a search writes none.
    """
    if trial.user_attrs.get("default"):
        return ()
    texts = {}
    for key, space in search.space.items():
        value = trial.params.get(key)
        right = value in space.options if isinstance(space, Choice) else space.holds(value)
        if not right:
            raise DataError(
                f"trial {trial.number} has {key}={value}, which is not of the space: its database "
                "is not what a search wrote; give name=NAME for a new search"
            )
        texts[key] = f"{value:.4g}" if isinstance(value, float) else str(value)
    return tuple(f"{key}={text}" for key, text in texts.items())


def first_number(trial: FrozenTrial) -> int:
    """The number of the first try of ``trial``; a retried trial goes on in its folder."""
    return int(trial.system_attrs.get("failed_trial", trial.number))


def kills(trial: FrozenTrial) -> int:
    """How often a process was killed that trained it."""
    return len(trial.system_attrs.get("retry_history", ()))


def retry_dead(study: optuna.Study) -> None:
    """Queue the trials again whose process beats no longer, or died before it beat."""
    with experimental():
        fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        age = (datetime.now() - (trial.datetime_start or datetime.now())).total_seconds()
        if trial.user_attrs.get(_STARTED) != trial.number and age > GRACE_SECONDS:
            requeue(study, trial.number)


def requeue(study: optuna.Study, number: int) -> None:
    """Queue trial ``number`` again, whose process was stopped: this counts as no kill."""
    study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
    trial = study.get_trials()[number]
    if trial.state == TrialState.FAIL and reason(trial) is None:
        history = {"failed_trial": number, "retry_history": [], **trial.system_attrs}
        study.add_trial(
            optuna.create_trial(
                state=TrialState.WAITING,
                params=trial.params,
                distributions=trial.distributions,
                user_attrs=trial.user_attrs,
                system_attrs=history,
            )
        )


def work(search: Search, study: optuna.Study, done: Callable[[FrozenTrial], None]) -> None:
    """Do trials until ``search.trials`` are finished, whoever does them.

    Args:
        search, study: what is searched.
        done: called with each trial that this process has finished.

    Raises:
        Interrupted, DataError, CheckpointError: the trial is queued again, its checkpoint kept.
    """
    while True:
        with study_lock(search) as turn:
            retry_dead(study)
            trials = study.get_trials(deepcopy=False)
            count = sum(map(is_finished, trials))
            running = sum(trial.state == TrialState.RUNNING for trial in trials)
            if count >= search.trials:
                return
            if count + running < search.trials:
                number = _do_trial(search, study, turn)
                if is_finished(trial := study.get_trials(deepcopy=False)[number]):
                    done(trial)
                continue
        time.sleep(_POLL_SECONDS)  # the last ones are running elsewhere, and may yet be retried


def _do_trial(search: Search, study: optuna.Study, turn: FileLock) -> int:
    """Train the next trial of ``study`` and tell its value; release ``turn`` once it is ours."""
    numbers: list[int] = []  # of the trial that this process has
    try:
        objective = partial(_objective, search, study, turn, numbers)
        study.optimize(objective, n_trials=1, catch=(_Failed,))
    except (_Lost, UpdateFinishedTrialError):
        pass  # it is queued again, and goes on from the checkpoint; or it was told already
    except BaseException:
        with suppress(Exception):  # such as a full disk: it is taken for dead later
            requeue(study, *numbers)
        raise
    return numbers[0]


def _objective(
    search: Search, study: optuna.Study, turn: FileLock, numbers: list[int], trial: optuna.Trial
) -> float:
    """The value of ``trial``, its mean over the repeats."""
    numbers.append(trial.number)
    study._storage.record_heartbeat(trial._trial_id)  # type: ignore[attr-defined]
    trial.set_user_attr(_STARTED, trial.number)  # one that is retried inherits another number
    # The draws depend on the seed and the number of the trial, so that a search that is continued,
    # or shared, does not draw again what was drawn.
    seed = (search.sampler_seed * 1_000_003 + trial.number) % 2**32
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=search.n_startup_trials, seed=seed)
    suggest(search, trial)
    turn.release()
    frozen = study.get_trials(deepcopy=False)[trial.number]
    folder = search.folder / "trials" / f"{first_number(frozen):04d}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock"):  # a process that was taken for dead may live
            if kills(frozen) >= _TRIES:
                raise TrainingError(f"its process was killed {_TRIES} times: is memory enough?")
            value = _train(search, trial, folder)
            for path in folder.rglob("*.pt"):  # the best configuration is trained anew
                path.unlink()
            return value
    except optuna.TrialPruned:
        raise
    except UpdateFinishedTrialError as error:
        raise _Lost from error
    except Exception as error:
        if isinstance(error, _NO_FAULT_OF_IT) or is_full(error):
            raise
        atomic_write(folder / "error.txt", traceback.format_exc())
        kind = "" if isinstance(error, LTRError) else f"{type(error).__name__}: "
        trial.set_user_attr("error", kind + " ".join(str(error).split()))
        raise _Failed from error


def suggest(search: Search, trial: optuna.Trial) -> None:
    """Draw the settings of ``trial``; the sampler learns also from the one that is the config's."""
    for key in default_params(search) if trial.user_attrs.get("default") else search.space:
        space = search.space[key]
        if isinstance(space, Choice):
            trial.suggest_categorical(key, space.options)
        elif space.whole:
            trial.suggest_int(key, int(space.low), int(space.high), log=space.log)
        else:
            trial.suggest_float(key, space.low, space.high, log=space.log)


def read_lists(experiment: Experiment) -> dict[str, Lists]:
    """The splits that a search reads."""
    return {split: experiment.dataset.split(split) for split in SPLITS_READ}


def _train(search: Search, trial: optuna.Trial, folder: Path) -> float:
    """Train for every fold and seed on train, select on vali; where it was cut off, from there."""
    overrides = overrides_of(search, trial)
    config, choices = search.trial(overrides)
    report, worth = Report(search, trial), []
    for repeat in search.repeats:
        own, place = repeat.set(config), folder / str(repeat)
        experiment = build(own)
        lists = read_lists(experiment)
        own, experiment = resolve_labels(own, experiment, lists)
        code = f"{training_code(own)} torch {torch.__version__} {' '.join(overrides)}\n"
        try:  # a checkpoint of this code and these settings is gone on from
            if (place / "code.txt").read_text() != code:
                raise CheckpointError("of other code")
            load_checkpoint(place / "last.pt")
            own.resume = str(place)
        except (FileNotFoundError, CheckpointError):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True, exist_ok=True)
            atomic_write(place / "code.txt", code)
        report.begin(own, str(repeat))
        crossfit = fit(own, experiment, lists, place, choices, [report]).monitor.crossfit
        by_crossfit = search.select_value == "crossfit" and crossfit is not None
        worth.append(crossfit.value if crossfit and by_crossfit else report.values[-1])
    trial.set_user_attr("best_epoch", report.mean)
    return sum(worth) / len(worth)


class Report(Hook):
    """Tells Optuna the value so far after every epoch, and ends trials not worth more.

    With several folds or seeds the value so far is a mean in which those to come count 0: with a
    metric that is never below 0, it grows from one to the next, as the pruner expects. Where trials
    are worth their crossfit values, the pruner still sees those of the best epochs so far.
    """

    def __init__(self, search: Search, trial: optuna.Trial) -> None:
        self.values: list[float] = []  # of each training begun
        self._search, self._trial = search, trial

    @property
    def mean(self) -> float:
        """What the pruner is told: the mean over the repeats, those to come count 0."""
        return sum(self.values) / len(self._search.repeats)

    def begin(self, config: DictConfig, place: str) -> None:
        """A training with ``config`` begins; ``place`` names its fold and seed."""
        self._config, self._place = config, place
        self.values.append(-math.inf)

    def epoch(self, row: Mapping[str, float]) -> None:
        """Take in a row of the history; raise ``TrialPruned`` where the pruner stops this trial."""
        config, trial, epochs = self._config, self._trial, int(self._config.epochs)
        epoch = int(row["epoch"])
        if epoch == 0 < epochs:
            return  # as for the trainer, the untrained model does not count
        value = row[f"vali_{config.select_on}"]
        self.values[-1] = max(value, self.values[-1]) if config.select == "best" else value
        end = epoch == epochs
        if epoch % max(1, epochs // _REPORTS) and not end:
            return
        trial.report(self.mean, (len(self.values) - 1) * _STRIDE + epoch)
        after = self._search.prune_after
        early = epoch < (max(1, epochs // 5) if after is None else after)
        over = end and len(self.values) == len(self._search.repeats)
        spared = over or (early and not end) or trial.user_attrs.get("default")
        if not spared and trial.should_prune():
            place = f"after epoch {epoch}" + (f" of {self._place}" if self._place else "")
            trial.set_user_attr("pruned", place)
            trial.set_user_attr("best_epoch", sum(self.values) / len(self.values))
            raise optuna.TrialPruned(place)
