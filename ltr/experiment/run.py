"""Train, select, test and record one run: the functions behind ``train.py``, without Hydra."""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from ltr.data.lists import Dataset
from ltr.experiment.build import build
from ltr.experiment.hooks import run_hooks
from ltr.experiment.list_steps import with_steps
from ltr.experiment.report import report_of
from ltr.experiment.run_folder import RunFolder
from ltr.experiment.start import Inputs, Training, begin, open_lists
from ltr.training.device import deterministic, on_threads
from ltr.training.distributed import barrier, is_main
from ltr.training.hooks import Hook

# ``_log_file``, for what is also printed, has only a file (configs/hydra/job_logging/ltr.yaml).
log, _log_file = logging.getLogger(__name__), logging.getLogger("ltr.printed")


def run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str],
    dataset: Dataset | None = None,
    hooks: Sequence[Hook] = (),
    *,
    printed: bool = False,
) -> dict[str, float]:
    """Train, select, test and record the experiment ``cfg`` in ``folder``.

    Args:
        cfg: a config composed from ``configs/train.yaml``.
        folder: the run folder; if ``cfg.resume`` is set, the run in it is resumed.
        choices: the choice of each config group (``{"loss": "neuralndcg", ...}``), for the record.
        dataset: replaces that of ``cfg``; if it has no test split, nothing is tested.
        hooks: hooks that follow the run, in addition to those of every run.
        printed: print the results to standard output; if False, log them, as in a sweep.

    Returns:
        The metrics of the selected weights, ``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}``.

    Raises:
        ConfigError, DataError: a setting or the data are wrong; nothing was trained.
        TrainingError: a loss, a gradient or a score is not finite, or all validation lists are
            skipped.
        Interrupted: SIGINT or SIGTERM came; if training had begun, it can be resumed.
    """
    started = time.perf_counter()
    hooks = run_hooks(cfg, folder, choices, hooks)
    try:
        with deterministic(cfg.deterministic is True and cfg.device != "cpu"), on_threads():
            parts = build(cfg, dataset)
            inputs = open_lists(cfg, parts, folder, choices)
            report = report_of(inputs, fit(inputs, hooks), started)
    except BaseException as error:  # Interrupted is no Exception
        for hook in hooks:
            hook.end("failed" if isinstance(error, Exception) else "killed", None)
        raise
    (_log_file if printed else log).info("\n%s", report.text)
    if printed and is_main():
        print(report.text)
    for hook in hooks:
        hook.end("finished", report)
    return report.figures


def fit(inputs: Inputs, hooks: Sequence[Hook]) -> Training:
    """Train on the training lists, select on the validation lists, and call ``hooks``. No test list
    is used. The result has the selected weights.
    """
    train = with_steps(inputs.cfg, inputs.lists["train"], inputs.parts.device)
    training = begin(inputs, train, hooks)
    for hook in hooks:
        hook.start(inputs.cfg, inputs.parts, inputs.lists, training.scorer)
    if not training.monitor.done and is_main():
        RunFolder(inputs.folder).forget(everything=inputs.cfg.resume is None)
    training.learner.fit(training.data)
    barrier()  # waits until the first process has written the weights
    training.select()
    return training
