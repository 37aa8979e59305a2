"""Train, select, test and record one run: the function behind ``train.py`` that tests can call."""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from ltr.data.lists import Dataset
from ltr.experiment.build import build
from ltr.experiment.fit import fit
from ltr.experiment.hooks import Advice
from ltr.experiment.report import Report, report_of
from ltr.experiment.start import open_lists
from ltr.scorers.parts import make_tracking
from ltr.training.device import deterministic, on_threads
from ltr.training.distributed import is_main
from ltr.training.hooks import Hook

log = logging.getLogger(__name__)
# What is printed too goes to the file of the log alone (configs/hydra/job_logging/ltr.yaml).
_log_file = logging.getLogger("ltr.printed")


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
        cfg: composed from ``configs/train.yaml``.
        folder: the run folder; where ``cfg.resume`` is set, the run in it goes on.
        choices: the choice of each group (``{"loss": "neuralndcg", ...}``), for the record.
        dataset: instead of that of ``cfg``; without a test split nothing is tested.
        hooks: follow the run, beside its advice and its tracker.
        printed: the result goes to standard output; in a sweep it is progress, a line of the log.

    Returns:
        ``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}`` of the selected weights.

    Raises:
        ConfigError, DataError: before anything is trained.
        TrainingError, Interrupted: see ``NetworkLearner.fit``.
    """
    hooks = [Advice(fresh=cfg.resume is None), *make_tracking(cfg, folder, choices), *hooks]
    hooks = hooks if is_main() else ()
    steady = cfg.deterministic is True and cfg.device != "cpu"
    try:
        with deterministic(steady), on_threads():
            report = _run(cfg, folder, choices, dataset, hooks)
    except BaseException as error:  # a stop by a signal is no Exception
        for hook in hooks:
            hook.end("failed" if isinstance(error, Exception) else "killed", None)
        raise
    (_log_file if printed else log).info("\n%s", report.text)
    if printed and is_main():
        print(report.text)
    for hook in hooks:
        hook.end("finished", report)
    return report.figures


def _run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str],
    dataset: Dataset | None,
    hooks: Sequence[Hook],
) -> Report:
    started = time.perf_counter()
    parts = build(cfg, dataset)
    cfg, parts, lists = open_lists(cfg, parts, folder)
    fitted = fit(cfg, parts, lists, folder, choices, hooks)
    return report_of(cfg, parts, lists, fitted, folder, choices, started)
