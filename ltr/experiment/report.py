"""Compute the results of a trained run, such as the metrics of its selected weights."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from tabulate import tabulate

from ltr.boosting import BoostedTrees
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.build import Experiment
from ltr.experiment.measure import SplitMeasurement
from ltr.experiment.run_folder import NO_TEST_SPLIT, commit, versions
from ltr.metrics import Convention
from ltr.metrics.crossfit import Crossfit
from ltr.parts.scorer import Scorer
from ltr.training.distributed import size
from ltr.training.monitor import Monitor, Progress

log = logging.getLogger(__name__)


@dataclass
class RunReport:
    """The results of a run, as a dict and as text."""

    results: dict[str, Any]  # the content of results.json
    measured: Mapping[str, SplitMeasurement]  # vali, and test if the data set has it
    text: str  # the whole report, to be printed

    @property
    def figures(self) -> dict[str, float]:
        """The metrics of the selected weights: ``{"vali_ndcg@5": ..., "test_ndcg@5": ...}``."""
        return {
            f"{split}_{metric}": value
            for split, measurement in self.measured.items()
            for metric, value in measurement.means.items()
        }

    @property
    def tracked(self) -> dict[str, float]:
        """The ``figures`` for an experiment tracker; those of vali are named ``selected_vali_...``.

        The prefix keeps them apart from the metrics of each epoch.
        """
        names = {name: f"selected_{name}" for name in self.figures if name.startswith("vali_")}
        return {names.get(name, name): value for name, value in self.figures.items()}


def report_run(
    experiment: Experiment,
    scorer: Scorer,
    monitor: Monitor,
    vali: ItemTensors,
    lists: Mapping[str, Lists],
    started: float,
) -> RunReport:
    """Measure the selected weights on the vali split and, if there is one, the test split.

    Processes that train together share the work.

    Args:
        experiment: the experiment that was trained.
        scorer: the model with the selected weights.
        monitor: the history of the training.
        vali: the validation lists, transformed for the scorer.
        lists: the lists of each split.
        started: the value of ``time.perf_counter()`` when the run began.

    Returns:
        The results of the run, as a dict and as text.
    """
    settings = experiment.settings
    progress = monitor.progress
    splits: dict[str, Lists | ItemTensors] = {"vali": vali}
    if "test" in lists:
        splits["test"] = lists["test"]
    measured = experiment.measure(scorer, splits)
    results = describe_model(scorer, lists, measured, experiment.convention) | {
        "choices": dict(experiment.record.choices),
        "untrained_vali": _untrained_vali(progress),
        "select": settings.select,
        "select_on": settings.select_on,
        "selected_epoch": monitor.selected_epoch,
        "best_epoch": progress.best_epoch,
        **crossfit_entries(monitor.crossfit),
        "epochs": progress.epoch,
        "seed": settings.seed,
        "dataset": experiment.dataset.name,
        "fold": experiment.dataset.fold,
        "wall_seconds": progress.wall_seconds,
        "processes": size(),
        "versions": versions() | _tree_library(scorer),
        "protocol": dict(experiment.record.config),
    }
    lines = [metric_table({split: measurement.means for split, measurement in measured.items()})]
    if monitor.crossfit is not None and monitor.chooses:
        lines.append(_describe_crossfit(monitor.crossfit, settings.select_on))
    if "test" not in measured:
        lines.append(NO_TEST_SPLIT)
    seconds = time.perf_counter() - started
    lines.append(
        f"{experiment.convention.describe()}; weights of epoch {monitor.selected_epoch} "
        f"(select={settings.select}); {seconds:.0f} s"
    )
    return RunReport(results, measured, "\n".join(lines))


def describe_model(
    scorer: Scorer,
    lists: Mapping[str, Lists],
    measured: Mapping[str, SplitMeasurement],
    convention: Convention,
) -> dict[str, Any]:
    """Return the entries of ``results.json`` about a trained model and its metrics.

    ``lists`` contains the lists of each split that the results describe.
    """
    return {
        **{split: dict(measurement.means) for split, measurement in measured.items()},
        "ties_averaged": {
            split: dict(measurement.means_with_ties_averaged)
            for split, measurement in measured.items()
        },
        "convention": {**asdict(convention), "text": convention.describe()},
        "data": {split: _describe_lists(split_lists) for split, split_lists in lists.items()},
        "features": scorer.transform.width,
        "parameters": scorer.parameters,
        "device": scorer.device_name,
        "threads": torch.get_num_threads(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _untrained_vali(progress: Progress) -> dict[str, float]:
    """Return the metrics on vali before training."""
    return {
        name.removeprefix("vali_"): value
        for name, value in progress.history[0].items()
        if name.startswith("vali_")
    }


def _tree_library(scorer: Scorer) -> dict[str, str]:
    """Return ``{library: version}`` for boosted trees; an empty dict for other models."""
    if isinstance(scorer.model, BoostedTrees):
        return {scorer.model.library: scorer.model.version}
    return {}


def _describe_crossfit(crossfit: Crossfit, select_on: str) -> str:
    return (
        f"crossfit vali {select_on} {crossfit.value:.4f} ± {crossfit.error:.4f} "
        "(standard error); the epoch is chosen on one half of the lists and measured on the other"
    )


def crossfit_entries(crossfit: Crossfit | None) -> dict[str, Any]:
    """Return the entries of ``results.json`` about the cross-fitted metric, which may be None."""
    if crossfit is None:
        return dict.fromkeys(("crossfit", "crossfit_error", "crossfit_halves"))
    return {
        "crossfit": crossfit.value,
        "crossfit_error": crossfit.error,
        "crossfit_halves": crossfit.measured,
    }


def _describe_lists(lists: Lists) -> dict[str, Any]:
    return {
        "digest": lists.digest,
        "lists": len(lists),
        "items": lists.items,
        "empty_lists": int(lists.empty.sum()),
        "missing_values": lists.missing,
    }


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return a text table with a row for each metric and a column for each of ``columns``.

    A column holds the metrics of one split or under one convention.
    """
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")
