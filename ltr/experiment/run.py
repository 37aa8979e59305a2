"""Train, select, test and record one run: the functions behind ``ltr train``, without Hydra.

Read ``run`` first; the functions below it are in the order in which it calls them.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ltr.boosting import RoundLearner, RoundModel
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.build import Experiment
from ltr.experiment.hooks import training_hooks
from ltr.experiment.open_data import open_data
from ltr.experiment.report import RunReport, report_run
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.start import Start, load_start, make_scorer
from ltr.models.embeddings import fit_embedding
from ltr.parts.scorer import Scorer
from ltr.training.checkpoint import RUN, load_checkpoint
from ltr.training.device import on_threads
from ltr.training.distributed import barrier, is_main
from ltr.training.hooks import Ending, Hook
from ltr.training.monitor import Monitor
from ltr.training.trainer import Trainer

# ``_log_file`` writes to the log file only. It is for text that is also printed; see
# configs/hydra/job_logging/ltr.yaml.
log = logging.getLogger(__name__)
_log_file = logging.getLogger("ltr.printed")


def run(
    experiment: Experiment, folder: Path, hooks: Sequence[Hook] = (), *, printed: bool = False
) -> RunReport:
    """Train, select, test and record one run.

    Args:
        experiment: the experiment that ``build`` returned; if its data set has no test split, the
            run is measured on vali only.
        folder: the run folder; a resumed run continues from the checkpoint in it.
        hooks: hooks to call during the run, in addition to those that every run has.
        printed: whether the results are printed to standard output; if False, as in a sweep, they
            are logged.

    Returns:
        The results of the run, as a dict and as text.

    Raises:
        ConfigError, DataError: the settings or the data are invalid; nothing was trained.
        TrainingError: a loss, a gradient or a score is not finite, or all validation lists are
            skipped.
        Interrupted: the process received SIGINT or SIGTERM; if training had begun, the run can be
            resumed.
    """
    started = time.perf_counter()
    all_hooks = [*training_hooks(folder), *hooks]
    if experiment.make_tracking is not None and is_main():
        all_hooks.append(experiment.make_tracking(folder))
    with _following(all_hooks), experiment.deterministic(), on_threads():
        start = load_start(experiment, folder)
        experiment, lists = open_data(experiment, start.columns)
        training = train_model(experiment, start, lists, folder, all_hooks)
        report = report_run(
            experiment, training.scorer, training.monitor, training.vali, lists, started
        )
    if is_main():
        RunFolder(folder).write(report.results, lists, report.measured)
    report.text += f"\nkept in {folder}"
    # text that is printed is logged to the file only
    logger = _log_file if printed else log
    logger.info("\n%s", report.text)
    if printed and is_main():
        print(report.text)
    for hook in all_hooks:
        hook.end("finished", report)
    return report


def train_model(
    experiment: Experiment,
    start: Start,
    lists: Mapping[str, Lists],
    folder: Path,
    hooks: Sequence[Hook],
) -> "Training":
    """Train on the training lists, and select an epoch on the validation lists.

    The returned model has the selected weights. No test list is used.
    """
    settings = experiment.settings
    train_lists = lists["train"]
    for transform_lists in experiment.list_transforms:
        train_lists = transform_lists(train_lists)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    scorer = make_scorer(experiment, start, lists, folder)
    data = {"train": scorer.open(train_lists), "vali": scorer.open(lists["vali"])}
    if start.is_random:
        fit_embedding(scorer.model, lambda: data["train"].features)
    monitor = Monitor(
        settings,
        metrics=experiment.metrics,
        convention=experiment.convention,
        folder=folder,
        state=scorer.state() | experiment.record_for(folder) | {RUN: start.token},
        hooks=hooks,
    )
    learner = make_learner(experiment, scorer, monitor)
    if start.checkpoint is not None:
        learner.resume(start.checkpoint)
        progress = monitor.progress
        log.info("resumed at epoch %d, step %d", progress.epoch + 1, progress.step)
    for hook in hooks:
        hook.start(experiment, lists, scorer)
    if not monitor.done and is_main():
        RunFolder(folder).remove_results(everything=not experiment.is_resumed)
    learner.fit(data)
    barrier()  # waits until the first process has written the weights
    monitor.warn_of_no_progress()
    training = Training(scorer, monitor, data["vali"])
    training.load_selected()
    return training


def make_learner(
    experiment: Experiment, scorer: Scorer, monitor: Monitor
) -> Trainer | RoundLearner:
    """Return the learner for the model of ``scorer``; it loops over epochs or over rounds."""
    model = scorer.model
    if isinstance(model, RoundModel):
        return RoundLearner(model, experiment.loss, monitor)
    assert experiment.loss is not None  # ``build`` has checked this
    optimizer = experiment.make_optimizer(model.parameters())
    return Trainer(model, experiment.loss, optimizer, experiment.schedule, monitor)


@dataclass(frozen=True)
class Training:
    """A trained model, and what ``report_run`` needs to measure it."""

    scorer: Scorer
    monitor: Monitor
    vali: ItemTensors  # the validation lists, transformed for the scorer

    def load_selected(self) -> None:
        """Load the weights of the best or the last epoch, as the setting ``select`` says."""
        is_best = self.monitor.settings.select == "best"
        file = self.monitor.best if is_best else self.monitor.last
        self.scorer.model.load_state_dict(load_checkpoint(file, self.scorer.device)["model"])


@contextmanager
def _following(hooks: Sequence[Hook]) -> Iterator[None]:
    """Tell ``hooks`` if the run in the ``with`` block fails or is stopped."""
    try:
        yield
    except BaseException as error:  # Interrupted is not an Exception
        ending: Ending = "failed" if isinstance(error, Exception) else "killed"
        for hook in hooks:
            hook.end(ending, None)
        raise
