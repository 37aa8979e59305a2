"""Train, select, test and record one run: the functions behind ``train.py``, without Hydra.

Read ``run`` first; the functions below it are in the order in which it calls them.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import ConfigError
from ltr.experiment.build import Experiment
from ltr.experiment.hooks import run_hooks
from ltr.experiment.open_data import open_data
from ltr.experiment.report import Report, report_run
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.start import Start, check_reads, check_unchanged, data_digests, load_start
from ltr.experiment.train_lists import bag, with_teacher_scores
from ltr.models.embeddings import fit_embedding
from ltr.models.rounds import RoundLearner, RoundModel
from ltr.scorers.parts import boosts, model_for
from ltr.scorers.scorer import Scorer, check_columns, check_size
from ltr.scorers.trust import seen_from
from ltr.training.checkpoint import RUN, features_of, fitting, load_checkpoint
from ltr.training.device import deterministic, on_threads
from ltr.training.distributed import barrier, is_main
from ltr.training.hooks import Hook
from ltr.training.monitor import Monitor
from ltr.training.network import NetworkLearner

# ``_log_file``, for what is also printed, has only a file (configs/hydra/job_logging/ltr.yaml).
log = logging.getLogger(__name__)
_log_file = logging.getLogger("ltr.printed")


def run(
    experiment: Experiment, folder: Path, hooks: Sequence[Hook] = (), *, printed: bool = False
) -> Report:
    """Train, select, test and record one run.

    Args:
        experiment: what ``build`` returned; if its data set has no test split, nothing is tested.
        folder: the run folder; a resumed run continues from the checkpoint in it.
        hooks: hooks that follow the run, in addition to those of every run.
        printed: print the results to standard output; if False, log them, as in a sweep.

    Raises:
        ConfigError, DataError: a setting or the data are wrong; nothing was trained.
        TrainingError: a loss, a gradient or a score is not finite, or all validation lists are
            skipped.
        Interrupted: SIGINT or SIGTERM came; if training had begun, it can be resumed.
    """
    started = time.perf_counter()
    all_hooks = run_hooks(experiment, folder, hooks)
    needs_exact_gpu = experiment.settings.deterministic and experiment.device.type != "cpu"
    with _following(all_hooks), deterministic(needs_exact_gpu), on_threads():
        start = load_start(experiment, folder)
        experiment, lists = open_data(experiment, start.columns)
        training = train(experiment, start, lists, folder, all_hooks)
        scorer = training.scorer
        opened = {"vali": training.data["vali"]}
        if "test" in lists:
            opened["test"] = scorer.open(lists["test"])
        report = report_run(experiment, scorer, training.monitor, lists, opened, started)
    _show(report, printed=printed)
    for hook in all_hooks:
        hook.end("finished", report)
    return report


def train(
    experiment: Experiment,
    start: Start,
    lists: Mapping[str, Lists],
    folder: Path,
    hooks: Sequence[Hook],
) -> "Training":
    """Train on the training lists, and select on the validation lists; no test list is used.

    The result has the selected weights.
    """
    settings = experiment.settings
    train_lists = change_train_lists(experiment, lists["train"])
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    scorer = make_scorer(experiment, start, lists, folder)
    data = {"train": scorer.open(train_lists), "vali": scorer.open(lists["vali"])}
    monitor = Monitor(
        settings,
        metrics=experiment.metrics,
        convention=experiment.convention,
        folder=folder,
        state=checkpoint_state(experiment, start, scorer, folder),
        hooks=hooks,
    )
    learner = make_learner(experiment, start, scorer, data["train"], monitor)
    training = Training(scorer, data, learner, monitor)
    for hook in hooks:
        hook.start(experiment, lists, scorer)
    if not monitor.done and is_main():
        RunFolder(folder).forget(everything=not experiment.is_resumed)
    learner.fit(data)
    barrier()  # waits until the first process has written the weights
    training.load_selected()
    return training


@dataclass(frozen=True)
class Training:
    """The training of a run: the model, the data, and what trains and records it."""

    scorer: Scorer
    data: Mapping[str, ItemTensors]  # train and vali, transformed for the scorer
    learner: NetworkLearner | RoundLearner
    monitor: Monitor

    def load_selected(self) -> None:
        """Load the weights that the setting ``select`` asks for: of the best or the last epoch."""
        is_best = self.monitor.settings.select == "best"
        file = self.monitor.best if is_best else self.monitor.last
        self.scorer.model.load_state_dict(load_checkpoint(file, self.scorer.device)["model"])


def change_train_lists(experiment: Experiment, train_lists: Lists) -> Lists:
    """Return the training lists with the teacher's scores, and those that ``bagging`` draws."""
    config = experiment.record.config
    settings = experiment.settings
    if experiment.load_teacher is not None:
        teacher = experiment.load_teacher()
        check_reads(teacher, train_lists, config, "teacher")
        items = settings.evaluation_items
        train_lists = with_teacher_scores(train_lists, teacher, config["teacher"], items)
    if experiment.bagging is not None:
        train_lists = bag(train_lists, experiment.bagging, settings.seed)
    return train_lists


def make_scorer(
    experiment: Experiment, start: Start, lists: Mapping[str, Lists], folder: Path
) -> Scorer:
    """Return the scorer that is trained, with random weights or those of ``init_from``.

    For a run that continues, the learner loads the weights later.
    """
    config = experiment.record.config
    digests = data_digests(experiment, lists)
    file = folder / "last.pt"
    if start.checkpoint is not None:
        with fitting(file):
            transform, columns = features_of(start.checkpoint)
        check_unchanged(start.checkpoint, digests, file)
        check_size(experiment.make_model, transform, file)
    elif start.initial is not None:
        check_reads(start.initial, lists["train"], config, "init_from")
        transform = start.initial.transform
        columns = start.initial.columns
    else:
        transform = fit_transform(experiment, lists["train"])
        columns = lists["train"].columns
    for part in lists.values():
        check_columns(part, columns)
    torch.manual_seed(experiment.settings.seed)
    model = model_for(experiment.make_model, transform).to(experiment.device)
    if start.initial is not None:
        _copy_weights(start.initial, model, config)
    return Scorer(model, transform, columns, dict(config), digests, experiment.device)


def fit_transform(experiment: Experiment, train_lists: Lists) -> FeatureTransform:
    """Return the transform of the features, fitted to the training lists."""
    transform = experiment.fit_transform(train_lists)
    if not isinstance(transform, FeatureTransform):
        target = experiment.record.config["transform"]["_target_"]
        raise ConfigError(
            f"transform ({target}) returns {type(transform).__name__}: return what fit_transform "
            "or no_transform of ltr.data.transforms returns, a FeatureTransform"
        )
    return transform.keeping_missing() if boosts(experiment.make_model) else transform


def _copy_weights(initial: Scorer, model: torch.nn.Module, config: Mapping[str, Any]) -> None:
    """Copy the weights of ``initial`` to ``model``; ``ConfigError`` if it is another model."""
    try:
        if initial.config["transform"] != config["transform"]:
            raise RuntimeError("it has another transform")
        model.load_state_dict(initial.model.state_dict())
    except RuntimeError as error:
        text = " ".join(str(error).split()[:60])
        raise ConfigError(
            f"init_from={config['init_from']}: {text}: give the model and transform settings of "
            "that run"
        ) from None


def checkpoint_state(
    experiment: Experiment, start: Start, scorer: Scorer, folder: Path
) -> dict[str, Any]:
    """Return what every checkpoint of the run holds, besides weights and progress."""
    token = secrets.token_hex(16) if start.checkpoint is None else start.checkpoint.get(RUN)
    return scorer.state() | {
        "config": seen_from(experiment.record.kept_config, folder),
        "choices": dict(experiment.record.choices),
        RUN: token,
    }


def make_learner(
    experiment: Experiment,
    start: Start,
    scorer: Scorer,
    train_data: ItemTensors,
    monitor: Monitor,
) -> NetworkLearner | RoundLearner:
    """Return what trains the model of ``scorer``: the training loop of networks, or of rounds."""
    model = scorer.model
    if start.initial is None and start.checkpoint is None:
        fit_embedding(model, lambda: train_data.features)
    learner: NetworkLearner | RoundLearner
    if isinstance(model, RoundModel):
        learner = RoundLearner(model, experiment.loss, monitor)
    else:
        assert experiment.loss is not None  # ``build`` has checked this
        optimizer = experiment.make_optimizer(model.parameters())
        learner = NetworkLearner(model, experiment.loss, optimizer, experiment.schedule, monitor)
    if start.checkpoint is not None:
        learner.resume(start.checkpoint)
        progress = monitor.progress
        log.info("resumed at epoch %d, step %d", progress.epoch + 1, progress.step)
    return learner


@contextmanager
def _following(hooks: Sequence[Hook]) -> Iterator[None]:
    """Context of a run; if it fails or is stopped, the hooks are told."""
    try:
        yield
    except BaseException as error:  # Interrupted is no Exception
        ending = "failed" if isinstance(error, Exception) else "killed"
        for hook in hooks:
            hook.end(ending, None)
        raise


def _show(report: Report, *, printed: bool) -> None:
    """Log the results; if ``printed``, print them too, and log them to the file alone."""
    logger = _log_file if printed else log
    logger.info("\n%s", report.text)
    if printed and is_main():
        print(report.text)
