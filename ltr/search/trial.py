"""One trial: trained for every fold and seed, and told to the study by its metric on vali."""

import math
import shutil
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch
from filelock import FileLock
from omegaconf import DictConfig
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import TPESampler
from sqlalchemy.exc import SQLAlchemyError

from ltr.atomic import atomic_write
from ltr.console.ending import is_full
from ltr.data.lists import Lists
from ltr.errors import CheckpointError, DataError, LTRError, OutputError, TrainingError
from ltr.experiment.build import Experiment, build
from ltr.experiment.fit import fit
from ltr.experiment.identity import training_code
from ltr.experiment.labels import resolve_labels
from ltr.metrics.crossfit import Crossfit
from ltr.search.definition import Repeat, Search
from ltr.search.space import Choice, as_text
from ltr.search.study import BEST_EPOCH, REACHED, begin_beating, first_number, kills, retry_stopped
from ltr.training.checkpoint import load_checkpoint
from ltr.training.hooks import OnEpoch

SPLITS_READ = ("train", "vali")  # a search never opens test
_TRIES = 3  # a trial whose process was killed so often counts as failed
_CODE = "code.txt"  # in the folder of a training: the code and settings of its checkpoint
# Errors that say nothing of the trial: data, checkpoint, place or storage, or that it is told.
_NO_FAULT_OF_IT = (
    DataError, CheckpointError, OutputError, StorageInternalError, SQLAlchemyError,
)  # fmt: skip
_REPORTS = 100  # of a training to the pruner, at most


class _Failed(Exception):
    """The trial counts as failed; its reason is noted."""


class _Lost(BaseException):
    """Another process took this one for dead. Not an Exception: Optuna must tell nothing."""


def do_trial(search: Search, study: optuna.Study, turn: FileLock) -> None:
    """Take the next trial of ``study``, train it and tell its value, or the reason of its failure.

    Args:
        search, study: what is searched.
        turn: the lock of the study, held; released once the trial belongs to this process.

    Raises:
        Interrupted: the user asked to stop; a checkpoint is kept.
        DataError, CheckpointError: the lists are gone, or the disk is full.
    """
    taken: list[int] = []
    try:
        objective = partial(_objective, search, study, turn, taken)
        study.optimize(objective, n_trials=1, catch=(_Failed,))
    except (_Lost, UpdateFinishedTrialError):
        pass  # it is queued again, and goes on from the checkpoint; or it was told already
    except BaseException:
        if taken:
            with suppress(Exception):  # such as a full disk: it is taken for dead later
                retry_stopped(study, taken[0])
        raise


def _objective(
    search: Search, study: optuna.Study, turn: FileLock, taken: list[int], trial: optuna.Trial
) -> float:
    """The value of ``trial``."""
    taken.append(trial.number)
    begin_beating(study, trial)
    frozen = study.get_trials(deepcopy=False)[trial.number]
    first = first_number(frozen)
    study.sampler = _sampler(search, trial.number)
    overrides = _overrides(search, trial)
    trial.set_user_attr("overrides", list(overrides))
    turn.release()
    folder = search.folder / "trials" / f"{first:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(search, trial)
    try:
        with FileLock(folder / ".lock"):  # a process that was taken for dead may live
            if kills(frozen) >= _TRIES:
                raise TrainingError(
                    f"its process was killed {_TRIES} times: is there memory enough?"
                )
            _train_all(search, overrides, folder, report)
            for path in folder.rglob("*.pt"):  # the best configuration is trained anew
                path.unlink()
    except optuna.TrialPruned as pruned:
        trial.set_user_attr("pruned", str(pruned))
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
    if search.select_value == "crossfit":
        trial.set_user_attr(BEST_EPOCH, report.mean)
    return report.worth


def _sampler(search: Search, number: int) -> TPESampler:
    """TPE whose draws depend on the seed and the number of the trial.

    So a search that is continued, or shared, does not draw again what was drawn.
    """
    seed = (search.sampler_seed * 1_000_003 + number) % 2**32
    return TPESampler(n_startup_trials=search.n_startup_trials, seed=seed)


def _overrides(search: Search, trial: optuna.Trial) -> tuple[str, ...]:
    """The settings of ``trial``; the sampler learns also from the one that leaves all as it is."""
    if not trial.user_attrs.get("default"):
        return tuple(f"{key}={_suggested(search, trial, key)}" for key in search.space)
    for key in default_params(search):
        _suggested(search, trial, key)
    return ()


def default_params(search: Search) -> dict[str, Any]:
    """The config's own values, where the space holds them, as Optuna has them."""
    found: dict[str, Any] = {}
    for key, distribution in search.space.items():
        value = search.default(key)
        if not key.startswith("+") and distribution.holds(value):
            found[key] = as_text(value) if isinstance(distribution, Choice) else value
    return found


def _suggested(search: Search, trial: optuna.Trial, key: str) -> str:
    """A value as on a command line; four digits, so that what is trained can be read and typed."""
    distribution = search.space[key]
    if isinstance(distribution, Choice):
        return trial.suggest_categorical(key, distribution.options)
    low, high, log = distribution.low, distribution.high, distribution.log
    if distribution.whole:
        return str(trial.suggest_int(key, int(low), int(high), log=log))
    return f"{trial.suggest_float(key, low, high, log=log):.4g}"


class Report:
    """Called after every epoch: tells Optuna the value so far, and ends trials not worth more.

    With several folds or seeds the value so far is a mean in which those to come count 0: with a
    metric that is never below 0, it grows from one to the next, as the pruner expects. Where trials
    are worth their crossfit values, the pruner still sees those of the best epochs so far.
    """

    def __init__(self, search: Search, trial: optuna.Trial) -> None:
        """Nothing is trained yet."""
        self._trial = trial
        self._repeats, self._stride = len(search.repeats), search.epochs + 1
        self._place, self._key, self._epochs, self._best = "", "", 0, True  # of the present repeat
        self._highest = -math.inf
        self._by_crossfit = search.select_value == "crossfit"
        self._every = max(1, search.epochs // _REPORTS)
        self._prune_after = search.prune_after
        self._spared = bool(trial.user_attrs.get("default"))  # the others are measured against it
        self._values: list[float] = []
        self._worth: list[float] = []  # of the repeats that ended

    @property
    def mean(self) -> float:
        """What the pruner is told: the mean over the repeats, those to come count 0."""
        return sum(self._values) / self._repeats

    @property
    def worth(self) -> float:
        """The value of the trial, once all its repeats have ended."""
        return sum(self._worth) / self._repeats

    def begin(self, config: DictConfig, repeat: Repeat) -> None:
        """``repeat`` begins, to be trained with ``config``."""
        self._place = str(repeat)
        self._key, self._epochs = f"vali_{config.select_on}", int(config.epochs)
        self._best = config.select == "best"
        self._highest = -math.inf
        self._values.append(0.0)

    def end(self, crossfit: Crossfit | None) -> None:
        """The present repeat has ended; ``crossfit`` is None where it chose no epoch."""
        measured = crossfit if self._by_crossfit else None
        self._worth.append(self._values[-1] if measured is None else measured.value)

    def __call__(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Take in a row of the history.

        Raises:
            TrialPruned: the pruner stops this trial.
        """
        if epoch == 0 < self._epochs:
            return  # as for the trainer, the untrained model does not count
        value = metrics[self._key]
        if value > self._highest or not self._best:
            self._highest = self._values[-1] = value
        end = epoch == self._epochs
        if epoch % self._every and not end:
            return
        self._trial.report(self.mean, (len(self._values) - 1) * self._stride + epoch)
        over = end and len(self._values) == self._repeats
        early = epoch < self._prune_after and not end  # where the slow and the fast differ most
        if not (over or early or self._spared) and self._trial.should_prune():
            place = f"after epoch {epoch}" + (f" of {self._place}" if self._place else "")
            self._trial.set_user_attr(REACHED, sum(self._values) / len(self._values))
            raise optuna.TrialPruned(place)


def _train_all(search: Search, overrides: Sequence[str], folder: Path, report: Report) -> None:
    """Train for every fold and seed on train, select on vali; where it was cut off, from there."""
    config, choices = search.trial(overrides)
    for repeat in search.repeats:
        report.begin(config, repeat)
        report.end(_train(repeat.set(config), choices, folder / str(repeat), overrides, report))


def _train(
    config: DictConfig,
    choices: Mapping[str, str],
    folder: Path,
    overrides: Sequence[str],
    report: Report,
) -> Crossfit | None:
    experiment = build(config)
    lists = read_lists(experiment)
    config, experiment = resolve_labels(config, experiment, lists)
    code = f"{training_code(config)} torch {torch.__version__} {' '.join(overrides)}\n"
    if _can_go_on(folder, code):
        config.resume = str(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / _CODE, code)
    return fit(config, experiment, lists, folder, choices, [OnEpoch(report)]).crossfit


def read_lists(experiment: Experiment) -> dict[str, Lists]:
    """The splits that a search reads."""
    return {split: experiment.dataset.split(split) for split in SPLITS_READ}


def _can_go_on(folder: Path, code: str) -> bool:
    """Whether a checkpoint of ``code``, and of its settings, is there.

    Asked before ``fit``, whose own ``CheckpointError`` may be a full disk's: nothing is thrown away
    for that.
    """
    note, last = folder / _CODE, folder / "last.pt"
    if not (note.is_file() and note.read_text() == code and last.is_file()):
        return False
    try:
        load_checkpoint(last)
    except CheckpointError:  # damaged
        return False
    return True
