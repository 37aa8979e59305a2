"""One trial: train for every fold and seed, tell the study how good it is on vali."""

import os
import shutil
import signal
import traceback
from collections.abc import Mapping
from pathlib import Path

import optuna
import torch
from omegaconf import DictConfig
from optuna.trial import TrialState

from ltr.console.ending import is_full
from ltr.errors import CheckpointError, DataError, LTRError, OutputError
from ltr.experiment.build import build
from ltr.experiment.identity import code_digest
from ltr.experiment.labels import settle
from ltr.experiment.run import fit
from ltr.search.check import read_lists
from ltr.search.claims import REACHED, Claim
from ltr.search.plan import Plan, Repeat
from ltr.training.checkpoint import load_checkpoint
from ltr.training.interruption import Interrupted
from ltr.whole import write_whole

_CODE = "code.txt"  # in the folder of a training: the code its checkpoint is of
_REPORTS = 100  # of a training to the pruner, at most


def do_trial(plan: Plan, study: optuna.Study, claim: Claim, parent: int | None = None) -> None:
    """Train what ``claim`` is and tell ``study``; a failure is told with its reason.

    Args:
        plan, study: of the search.
        claim: held by this process.
        parent: the process without which this one has nothing to go on for.

    Raises:
        Interrupted: the user, or the parent's end, asked to stop; a checkpoint is kept.
        DataError, CheckpointError: the lists are gone, or the disk is full.
    """
    report = Report(plan, claim.trial, parent)
    try:
        config, choices = plan.trial(claim.overrides)
        for repeat in plan.repeats:
            report.begin(config, repeat)
            _train(repeat.set(config), choices, claim.folder / str(repeat), report)
    except optuna.TrialPruned as pruned:
        claim.trial.set_user_attr("pruned", str(pruned))
        study.tell(claim.trial, state=TrialState.PRUNED)
    except Exception as error:
        if isinstance(error, (DataError, CheckpointError, OutputError)) or is_full(error):
            raise  # no fault of the trial
        claim.folder.mkdir(parents=True, exist_ok=True)
        write_whole(claim.folder / "error.txt", traceback.format_exc())
        kind = "" if isinstance(error, LTRError) else f"{type(error).__name__}: "
        claim.trial.set_user_attr("error", kind + " ".join(str(error).split()))
        study.tell(claim.trial, state=TrialState.FAIL)
    else:
        study.tell(claim.trial, report.mean)
    for path in claim.folder.rglob("*.pt"):  # the best configuration is trained anew
        path.unlink()


class Report:
    """Called after every epoch: tells Optuna the value so far, and ends trials not worth more.

    With several folds or seeds the value so far is a mean in which those to come count 0: with a
    metric that is never below 0, it grows from one to the next, as the pruner expects.
    """

    def __init__(self, plan: Plan, trial: optuna.Trial, parent: int | None) -> None:
        """Nothing is trained yet; ``parent`` as for ``do_trial``."""
        self._trial, self._parent = trial, parent
        self._repeats, self._stride = len(plan.repeats), plan.epochs + 1
        self._place, self._key, self._epochs, self._best = "", "", 0, True  # of the present repeat
        self._every = max(1, plan.epochs // _REPORTS)
        self._prune_after = plan.prune_after
        self._spared = bool(trial.user_attrs.get("default"))  # the others are measured against it
        self._values: list[float] = []

    @property
    def mean(self) -> float:
        """The value of the trial: the mean over its repeats, those to come count 0."""
        return sum(self._values) / self._repeats

    def begin(self, config: DictConfig, repeat: Repeat) -> None:
        """``repeat`` begins, to be trained with ``config``."""
        self._place = str(repeat)
        self._key, self._epochs = f"vali_{config.select_on}", int(config.epochs)
        self._best = config.select == "best"
        self._values.append(0.0)

    def __call__(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Take in a row of the history.

        Raises:
            TrialPruned: the pruner thinks little of it.
            Interrupted: the parent is gone.
        """
        if self._parent is not None and os.getppid() != self._parent:
            raise Interrupted(signal.SIGTERM)
        if epoch == 0 < self._epochs:
            return  # as for the trainer, the untrained model does not count
        value = metrics[self._key]
        self._values[-1] = max(self._values[-1], value) if self._best else value
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


def _train(config: DictConfig, choices: Mapping[str, str], folder: Path, report: Report) -> None:
    """Train on train, select on vali; where it was cut off, from there."""
    experiment = build(config)
    lists = read_lists(experiment)
    config, experiment = settle(config, experiment, lists)
    trees = str(config.model._target_).startswith("ltr.trees.")
    code = f"{code_digest(trees=trees)} torch {torch.__version__}\n"
    if _can_go_on(folder, code):
        config.resume = str(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _CODE, code)
    fit(config, experiment, lists, folder, choices, report)


def _can_go_on(folder: Path, code: str) -> bool:
    """Whether a checkpoint of ``code`` is there.

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
