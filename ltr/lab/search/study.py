"""The trials of a search, in an Optuna database that several processes can use at once.

The database records which trials are waiting, finished, or running (with a heartbeat of the
process).
"""

import math
import shutil
import sqlite3
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.storages._heartbeat import get_heartbeat_thread
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from ltr.atomic import atomic_write
from ltr.cli.arguments import as_text
from ltr.cli.keys import stated
from ltr.cli.process import is_full
from ltr.data.lists import Lists
from ltr.errors import CheckpointError, ConfigError, DataError, LTRError, OutputError
from ltr.experiment.build import Experiment, build
from ltr.experiment.hooks import training_hooks
from ltr.experiment.identity import SHOWN, identity_without_data
from ltr.experiment.open_data import open_data
from ltr.experiment.run import train_model
from ltr.experiment.start import load_start
from ltr.lab.search.definition import Repeat, Search, repeat_name
from ltr.training.checkpoint import load_checkpoint
from ltr.training.hooks import Hook
from ltr.training.monitor import value_that_chooses

GRACE_SECONDS = 120  # a process without a heartbeat for this long is presumed dead
_HEARTBEAT_SECONDS = 15
_POLL_SECONDS = 0.3
_SQLITE_SECONDS = 100  # how long to wait for a transaction of another process
_TRIES = 3  # a trial is retried this many times after its process was killed
_STRIDE = 1_000_000  # Optuna steps per training of a trial, more than a training has epochs
_IDENTITY = "search"  # attribute of the study: its settings and digests
_FIRST = "first"  # attribute of a trial: the number of its first try, which names its folder
_STORAGE_ERRORS = (StorageInternalError, SQLAlchemyError, sqlite3.Error)
# Errors that are not caused by the settings of the trial.
_OUTSIDE_ERRORS = (
    DataError,
    CheckpointError,
    OutputError,
    UpdateFinishedTrialError,
    *_STORAGE_ERRORS,
)


def study_lock(search: Search) -> FileLock:
    """Return the lock to hold while a process picks its next trial.

    SQLite cannot lock a row: two processes that ask at the same time would get the same trial.
    """
    return FileLock(search.folder / ".lock")


@contextmanager
def open_study(search: Search) -> Iterator[optuna.Study]:
    """Open the study of ``search`` for a ``with`` block; if there is none, create it.

    In the block, two warnings of Optuna are turned off: that heartbeats are experimental, and that
    they are meant for ``Study.optimize``.

    Raises:
        OutputError: the database (in the search folder, or in ``storage``) cannot be used.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")
            with study_lock(search):
                study = _load_study(search)
            yield study
    except LTRError:
        raise
    except (*_STORAGE_ERRORS, ImportError, RuntimeError) as error:
        # A missing driver, or tables of another version of Optuna, also cause these errors.
        cause = error.__cause__ or error
        message = (str(getattr(cause, "orig", cause)) or type(cause).__name__).splitlines()[0]
        # The value of ``storage`` may have a password.
        name = database_path(search) if search.options.storage is None else "storage"
        raise OutputError(
            f"{name}: {message}: check that the database runs, that the disk is not full and "
            "that the driver is installed; if the database is damaged, restore a backup, or "
            "start a new search with name=NAME"
        ) from error


def database_path(search: Search) -> Path:
    """Return the path of the database of a search whose ``storage`` is not set."""
    return search.folder / "search.db"


def _load_study(search: Search) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = database_path(search).absolute()
    shared_url = search.options.storage
    if shared_url is None and path.exists():
        _check_integrity(path)
    url = str(shared_url or URL.create("sqlite", database=str(path)))
    sqlite_options = {"connect_args": {"timeout": _SQLITE_SECONDS}}
    storage = RDBStorage(
        url,
        sqlite_options if url.startswith("sqlite") else {"pool_pre_ping": True},
        heartbeat_interval=_HEARTBEAT_SECONDS,
        grace_period=GRACE_SECONDS,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=_TRIES),
    )
    median = optuna.pruners.MedianPruner(n_warmup_steps=max(1, int(search.config.epochs) // 5))
    return optuna.create_study(
        storage=storage,
        pruner=median if search.options.pruner == "median" else optuna.pruners.NopPruner(),
        study_name=search.name,
        direction="maximize",
        load_if_exists=True,
    )


def _check_integrity(path: Path) -> None:
    """Raise ``sqlite3.DatabaseError`` if the database is damaged."""
    with closing(sqlite3.connect(path, timeout=_SQLITE_SECONDS)) as connection:
        (message,) = connection.execute("PRAGMA integrity_check").fetchone()
    if message != "ok":
        raise sqlite3.DatabaseError(message)


def begin_study(search: Search, study: optuna.Study) -> None:
    """Record the settings in a new study, and queue the config's own values as its first trial.

    Raises:
        ConfigError: the study was begun with other settings or lists, or another space; the message
            names the difference.
    """
    current = {**stated(search.settings()), **search.digests}
    with study_lock(search):
        if _IDENTITY not in study.user_attrs:
            study.set_user_attr(_IDENTITY, current)
        stored = study.user_attrs[_IDENTITY]
        for key in {**current, **stored}:
            if stored.get(key) != current.get(key):
                raise ConfigError(
                    f"{search.folder} is a search with {key}={stored.get(key, 'null')}, but now "
                    f"{key}={current.get(key, 'null')}: set it back, or start a new search with "
                    "name=NAME"
                )
        study.enqueue_trial(
            default_params(search), user_attrs={"default": True}, skip_if_exists=True
        )


def default_params(search: Search) -> dict[str, Any]:
    """Return the config's own values that are in the space, as Optuna stores them."""
    params = {}
    for key, space in search.space.items():
        if key.startswith("+"):
            continue
        value = search.default(key)
        if space.kind == "choice":
            value = as_text(value)
        if space.holds(value):
            params[key] = value
    return params


def is_counted(trial: FrozenTrial) -> bool:
    """Return whether a trial was trained to the end, pruned or failed, but not stopped."""
    if trial.state == TrialState.FAIL:
        return "error" in trial.user_attrs
    return trial.state.is_finished()


def describe_trial_error(error: Exception) -> str:
    """Return the type and the message of ``error`` in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def end_reason(trial: FrozenTrial) -> str:
    """Return why a trial failed, or when it was pruned; empty if neither."""
    return str(trial.user_attrs.get("error", trial.user_attrs.get("pruned", "")))


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials for which ``is_counted`` is true, in order."""
    return [*filter(is_counted, study.get_trials(deepcopy=False))]


def trial_overrides(search: Search, trial: FrozenTrial | optuna.Trial) -> tuple[str, ...]:
    """Return a trial's settings as arguments, ``KEY=VALUE``; the first trial has none.

    Floats have four significant digits.

    Raises:
        DataError: a value is not in the space, so another search must have written the database.
    """
    if trial.user_attrs.get("default"):
        return ()
    overrides = []
    for key, space in search.space.items():
        value = trial.params.get(key)
        if not space.holds(value):
            raise DataError(
                f"trial {trial.number} has {key}={value}, which is not in the space: the database "
                "was not written by this search; start a new search with name=NAME"
            )
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        overrides.append(f"{key}={text}")
    return tuple(overrides)


def train_trials(
    search: Search, study: optuna.Study, on_finished: Callable[[FrozenTrial], None]
) -> None:
    """Train trials until this process and others together have finished ``search.trials``.

    Args:
        search: the search, from ``read_all``.
        study: the study, from ``open_study``.
        on_finished: called with each trial that this process has finished.

    Raises:
        Interrupted, DataError, CheckpointError: a trial was stopped, or a file cannot be read; the
            trial is queued again and keeps its checkpoint.
    """
    while True:
        with study_lock(search):
            fail_stale_trials(study)  # queues the trials of dead processes again
            # Running before finished: a trial that ends in between counts twice, not never.
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            finished_count = len(finished_trials(study))
            claimed_count = sum(_FIRST in trial.user_attrs for trial in running)
            if finished_count >= search.trials:
                return
            is_needed = finished_count + claimed_count < search.trials
            trial = claim_trial(study) if is_needed else None
        if trial is None:
            time.sleep(_POLL_SECONDS)  # other processes train the last ones, which may need a retry
            continue
        _do_trial(search, study, trial)
        frozen = study.get_trials(deepcopy=False)[trial.number]
        if is_counted(frozen):
            on_finished(frozen)


def claim_trial(study: optuna.Study) -> optuna.Trial:
    """Take the next trial, and mark it for other processes as being trained."""
    trial = study.ask()
    with requeue_on_error(study, trial):
        study._storage.record_heartbeat(trial._trial_id)  # type: ignore[attr-defined]
        trial.set_user_attr(_FIRST, trial.user_attrs.get(_FIRST, trial.number))
    return trial


@contextmanager
def requeue_on_error(study: optuna.Study, trial: optuna.Trial) -> Iterator[None]:
    """Queue ``trial`` again if the ``with`` block ends with an error or is stopped."""
    try:
        yield
    except UpdateFinishedTrialError:
        pass  # another process presumed this one dead and queued the trial
    except BaseException:
        with suppress(Exception):  # finished already, or disk full: later presumed dead
            study.tell(trial, state=TrialState.FAIL)
            study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)
        raise


def suggest(search: Search, study: optuna.Study, trial: optuna.Trial) -> None:
    """Draw the settings of ``trial``; the first trial uses the config's values if possible.

    The sampler learns from the first trial too. The seed of the draws is the number of the trial,
    so a search that is continued or shared does not repeat earlier draws.
    """
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=search.startup, seed=trial.number)
    for key in default_params(search) if trial.user_attrs.get("default") else search.space:
        space = search.space[key]
        if space.kind == "choice":
            trial.suggest_categorical(key, space.values)
        else:
            getattr(trial, f"suggest_{space.kind}")(key, *space.values, log=space.log)


def _do_trial(search: Search, study: optuna.Study, trial: optuna.Trial) -> None:
    """Train ``trial``; store its value, unless another process presumed this process dead."""
    state = TrialState.COMPLETE
    value = None
    folder = search.folder / "trials" / f"{trial.user_attrs[_FIRST]:04d}"
    with requeue_on_error(study, trial), get_heartbeat_thread(trial._trial_id, study._storage):
        suggest(search, study, trial)
        try:
            with FileLock(folder / ".lock"):  # a process that was presumed dead may be alive
                value = _train(search, trial, folder)
                for path in folder.rglob("*.pt"):  # not needed: users train the best settings again
                    path.unlink()
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except _OUTSIDE_ERRORS:
            raise
        except Exception as error:
            if is_full(error):
                raise
            state = TrialState.FAIL
            atomic_write(folder / "error.txt", traceback.format_exc())
            trial.set_user_attr("error", describe_trial_error(error))
        study.tell(trial, value, state, skip_if_finished=True)


def read_training_lists(experiment: Experiment) -> tuple[Experiment, dict[str, Lists]]:
    """Open the train and vali lists; the test lists are not read.

    Return the experiment with the settings that depend on the training lists filled in, and the
    lists of each split.
    """
    return open_data(experiment, splits=("train", "vali"))


def _train(search: Search, trial: optuna.Trial, folder: Path) -> float:
    """Train or resume ``trial`` for every fold and seed; return the mean of their values."""
    reporter = TrialReporter(search, trial)
    values = []
    for repeat in search.repeats:
        config, choices = search.trial((*trial_overrides(search, trial), *repeat))
        experiment, lists = read_training_lists(build(config, choices))
        record = experiment.record
        run_identity = identity_without_data(record.config, record.choices)
        run_folder = folder / repeat_name(repeat) / run_identity[:SHOWN]
        try:  # continue from a checkpoint with this code and these settings
            load_checkpoint(run_folder / "last.pt")
            experiment = replace(experiment, is_resumed=True)
        except (FileNotFoundError, CheckpointError):
            shutil.rmtree(run_folder, ignore_errors=True)
            run_folder.mkdir(parents=True)
        reporter.begin_training(repeat, config.epochs)
        hooks = [*training_hooks(run_folder), reporter]
        start = load_start(experiment, run_folder)
        crossfit = train_model(experiment, start, lists, run_folder, hooks).monitor.crossfit
        if search.select_value == "crossfit" and crossfit:
            values.append(crossfit.value)
        else:
            values.append(reporter.values[-1])
    trial.set_user_attr("best_epoch", reporter.mean)
    return sum(values) / len(values)


@dataclass
class TrialReporter(Hook):
    """A hook that reports the value so far to Optuna after every epoch, and ends hopeless trials.

    Training runs that have not begun count as 0 in the mean over folds and seeds. If the metric is
    never below 0, this mean grows from one run to the next, as the pruner expects. Even if the
    value of a trial is cross-fitted, the pruner sees the metric of the best epoch so far.
    """

    search: Search
    trial: optuna.Trial
    values: list[float] = field(default_factory=list)  # metric of each training that has begun

    @property
    def mean(self) -> float:
        """The value for the pruner: the mean over all repeats, with 0 for those not yet begun."""
        return sum(self.values) / len(self.search.repeats)

    def begin_training(self, repeat: Repeat, epochs: int) -> None:
        """Record the start of the training run ``repeat``, which has ``epochs`` epochs."""
        self.repeat = repeat_name(repeat)
        self.epochs = epochs
        self.values.append(-math.inf)

    def epoch(self, row: Mapping[str, float]) -> None:
        """Report a row of the history; raise ``TrialPruned`` if the pruner stops this trial."""
        epoch = int(row["epoch"])
        trial = self.trial
        value = value_that_chooses(row, self.search.metric)
        best = self.search.config.select == "best"
        self.values[-1] = max(value, self.values[-1]) if best else value
        if epoch == 0 < self.epochs:
            return  # the untrained model says nothing about the settings
        trial.report(self.mean, (len(self.values) - 1) * _STRIDE + epoch)
        is_last = epoch == self.epochs and len(self.values) == len(self.search.repeats)
        if not (is_last or trial.user_attrs.get("default")) and trial.should_prune():
            moment = f"after epoch {epoch}"
            if self.repeat:
                moment += f" of {self.repeat}"
            trial.set_user_attr("pruned", moment)
            raise optuna.TrialPruned(moment)
