"""The results of a finished run: the metrics of its selected weights, and the files with them."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists, measured_split
from ltr.experiment.build import Experiment
from ltr.experiment.run_folder import (
    NO_TEST_SPLIT,
    QUERIES,
    SCORES,
    commit,
    versions,
    write_queries,
    write_results,
    write_scores,
)
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import Crossfit
from ltr.models.rounds import BoostedTrees
from ltr.scorers.scorer import Scorer
from ltr.training.caveats import warn_of_constant_scores, warn_of_ties
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.evaluation import means, metrics_of_scores, values_with_ties_averaged
from ltr.training.monitor import Monitor, Progress, value_that_chooses

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """The results of a run, for a program and as text."""

    figures: dict[str, float]  # {"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}
    text: str  # the whole report, to be printed

    @property
    def tracked(self) -> dict[str, float]:
        """``figures`` for a tracker, with those of vali named ``selected_vali_...``; without
        ``selected_`` they would have the names of the metrics of single epochs.
        """
        names = {name: f"selected_{name}" for name in self.figures if name.startswith("vali_")}
        return {names.get(name, name): value for name, value in self.figures.items()}


def report_run(
    experiment: Experiment,
    scorer: Scorer,
    monitor: Monitor,
    lists: Mapping[str, Lists],
    opened: Mapping[str, ItemTensors],
    started: float,
) -> Report:
    """Measure the selected weights on vali and, if there is one, test; write the results.

    Processes that train together share the work; only the first one writes files.

    Args:
        experiment: what was trained.
        scorer: the model with the selected weights.
        monitor: the history of the training.
        lists: the lists of each split.
        opened: the validation lists, and test lists if there are any, after ``scorer.open``.
        started: when the run began, by ``time.perf_counter()``.
    """
    settings = experiment.settings
    progress = monitor.progress
    selected_epoch = progress.best_epoch if settings.select == "best" else progress.epoch
    _warn_of_the_start(monitor, selected_epoch)
    results = write_run(
        monitor.folder,
        scorer,
        lists,
        opened,
        experiment.metrics,
        experiment.convention,
        settings.evaluation_items,
        choices=dict(experiment.record.choices),
        untrained_vali=_untrained_vali(progress),
        select=settings.select,
        select_on=settings.select_on,
        selected_epoch=selected_epoch,
        best_epoch=progress.best_epoch,
        **crossfit_entries(monitor.crossfit),
        epochs=progress.epoch,
        seed=settings.seed,
        dataset=experiment.dataset.name,
        fold=experiment.dataset.fold,
        wall_seconds=progress.wall_seconds,
        processes=size(),
        versions=versions() | _tree_library(scorer),
        protocol=dict(experiment.record.config),
    )
    table = {split: results[split] for split in opened}
    lines = [metric_table(table)]
    if monitor.crossfit is not None and monitor.chooses:
        lines.append(_describe_crossfit(monitor.crossfit, settings.select_on))
    if "test" not in opened:
        lines.append(NO_TEST_SPLIT)
    seconds = time.perf_counter() - started
    lines.append(
        f"{experiment.convention.describe()}; weights of epoch {selected_epoch} "
        f"(select={settings.select}); {seconds:.0f} s"
    )
    lines.append(f"kept in {monitor.folder}")
    figures = {
        f"{split}_{name}": value for split, part in table.items() for name, value in part.items()
    }
    return Report(figures, "\n".join(lines))


def _untrained_vali(progress: Progress) -> dict[str, float]:
    """Return the metrics of vali before training."""
    return {
        name.removeprefix("vali_"): value
        for name, value in progress.history[0].items()
        if name.startswith("vali_")
    }


def _tree_library(scorer: Scorer) -> dict[str, str]:
    """Return name and version of the library of boosted trees; empty for other models."""
    if isinstance(scorer.model, BoostedTrees):
        return {scorer.model.library: scorer.model.version}
    return {}


def _describe_crossfit(crossfit: Crossfit, select_on: str) -> str:
    return (
        f"crossfit vali {select_on} {crossfit.value:.4f} ± {crossfit.error:.4f} "
        "(standard error), the epoch chosen on one half of the lists and measured on the other"
    )


def _warn_of_the_start(monitor: Monitor, selected_epoch: int | None) -> None:
    """Log one line if no epoch of training is as good as epoch 0."""
    select_on = monitor.settings.select_on
    values = [value_that_chooses(row, select_on) for row in monitor.progress.history]
    untrained, *trained = values
    if trained and max(trained) < untrained and is_main():
        log.warning(
            "no epoch is as good as the model before training: vali %s is %.4f at epoch 0, and "
            "%.4f at best after it; the weights of epoch %d are kept: lower the learning rate, "
            "or look at the loss",
            select_on, untrained, max(trained), selected_epoch,
        )  # fmt: skip


def crossfit_entries(crossfit: Crossfit | None) -> dict[str, Any]:
    """Return the entries of ``results.json`` about ``crossfit``."""
    if crossfit is None:
        return dict.fromkeys(("crossfit", "crossfit_error", "crossfit_halves"))
    return {
        "crossfit": crossfit.value,
        "crossfit_error": crossfit.error,
        "crossfit_halves": crossfit.measured,
    }


def write_run(
    folder: Path,
    scorer: Scorer,
    lists: Mapping[str, Lists],
    opened: Mapping[str, ItemTensors],
    metrics: Sequence[Metric],
    convention: Convention,
    items: int,
    **more: Any,
) -> dict[str, Any]:
    """Measure ``scorer`` on the splits in ``opened``; write and return the content of
    ``results.json``.

    If several processes train together, only the first one writes files.

    Args:
        folder: gets ``results.json``, and metrics and scores of the test lists or, if there are
            none, of the validation lists.
        scorer: the trained model.
        lists: the lists of every split that ``results.json`` is to describe.
        opened: the validation lists, and test lists if there are any, after ``scorer.open``.
        metrics: the metrics to compute.
        convention: their convention.
        items: the largest number of padded items in a batch.
        more: further entries of ``results.json``.
    """
    scores = {split: scorer.scores(part, items=items) for split, part in opened.items()}
    values = {
        split: metrics_of_scores(part, scores[split], metrics, convention, items=items)
        for split, part in opened.items()
    }
    printed = {split: means(part, convention) for split, part in values.items()}
    averaged = {
        split: means(
            values_with_ties_averaged(part, scores[split], metrics, convention, items=items),
            convention,
        )
        for split, part in opened.items()
    }
    results: dict[str, Any] = {
        **printed,
        "ties_averaged": averaged,
        "convention": {**asdict(convention), "text": convention.describe()},
        "data": {split: _describe_lists(part) for split, part in lists.items()},
        "features": scorer.transform.width,
        "parameters": scorer.parameters,
        "device": describe_device(scorer.device),
        "threads": torch.get_num_threads(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }
    if is_main():
        warn_of_constant_scores({split: (opened[split], scores[split]) for split in opened})
        warn_of_ties(metrics, printed, averaged)
        split = measured_split(opened)
        other_split = "vali" if split == "test" else "test"
        for names in (QUERIES, SCORES):  # of an earlier run in this folder, on other lists
            (folder / names[other_split]).unlink(missing_ok=True)
        write_queries(folder / QUERIES[split], lists[split], values[split])
        write_scores(folder / SCORES[split], lists[split], scores[split].cpu().numpy())
        write_results(folder, results)
    return results


def _describe_lists(lists: Lists) -> dict[str, Any]:
    return {
        "digest": lists.digest,
        "lists": len(lists),
        "items": lists.items,
        "empty_lists": int(lists.empty.sum()),
        "missing_values": lists.missing,
    }


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return a text table with a row per metric, and a column per split or convention."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")
