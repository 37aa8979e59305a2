"""The results of a finished run: the metrics of its selected weights, and the files with them."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from tabulate import tabulate

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists, measured_split
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
from ltr.experiment.start import Inputs, Training
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import Crossfit
from ltr.models.rounds import BoostedTrees
from ltr.scorers.scorer import Scorer
from ltr.training.caveats import warn_of_constant_scores, warn_of_ties
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.evaluation import means, metrics_of_scores, values_with_ties_averaged
from ltr.training.monitor import Monitor, value_that_chooses

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


def report_of(inputs: Inputs, training: Training, started: float) -> Report:
    """Measure the selected weights of ``training`` on vali and, if there is one, test; write the
    results of the run, which began at ``started`` (``time.perf_counter()``). Processes that train
    together share the work; only the first one writes files.
    """
    parts, lists, scorer = inputs.parts, inputs.lists, training.scorer
    settings, convention = parts.settings, parts.convention
    done, worth = training.monitor.progress, training.monitor.crossfit
    data = {"vali": training.data["vali"]}
    if "test" in lists:
        data["test"] = scorer.open(lists["test"])
    library = {}
    if isinstance(scorer.model, BoostedTrees):
        library = {scorer.model.library: scorer.model.version}
    tested = done.best_epoch if settings.select == "best" else done.epoch
    _warn_of_the_start(training.monitor, tested)
    results = write_run(
        inputs.folder, scorer, lists, data, parts.metrics, convention, settings.evaluation_items,
        choices=dict(inputs.choices),
        untrained_vali={k[5:]: v for k, v in done.history[0].items() if k.startswith("vali_")},
        select=settings.select,
        select_on=settings.select_on,
        selected_epoch=tested,
        best_epoch=done.best_epoch,
        **crossfit_entries(worth),
        epochs=done.epoch,
        seed=settings.seed,
        dataset=parts.dataset.name,
        fold=parts.dataset.fold,
        wall_seconds=done.wall_seconds,
        processes=size(),
        versions=versions() | library,
        protocol=OmegaConf.to_container(inputs.cfg, resolve=True),
    )  # fmt: skip
    table = {split: results[split] for split in data}
    text = metric_table(table)
    if worth is not None and training.monitor.chooses:
        text += (
            f"\ncrossfit vali {settings.select_on} {worth.value:.4f} ± {worth.error:.4f} "
            "(standard error), the epoch chosen on one half of the lists and measured on the other"
        )
    if "test" not in data:
        text += f"\n{NO_TEST_SPLIT}"
    text += (
        f"\n{convention.describe()}; weights of epoch {tested} (select={settings.select}); "
        f"{time.perf_counter() - started:.0f} s\nkept in {inputs.folder}"
    )
    return Report(
        {f"{split}_{k}": v for split, part in table.items() for k, v in part.items()}, text
    )


def _warn_of_the_start(monitor: Monitor, kept: int | None) -> None:
    """Log one line if no epoch of training is as good as epoch 0; the run keeps epoch ``kept``."""
    select_on, history = monitor.settings.select_on, monitor.progress.history
    start, *values = (value_that_chooses(row, select_on) for row in history)
    if values and max(values) < start and is_main():
        log.warning(
            "no epoch is as good as the model before training: vali %s is %.4f at epoch 0, and "
            "%.4f at best after it; the weights of epoch %d are kept: lower the learning rate, "
            "or look at the loss",
            select_on, start, max(values), kept,
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
        "data": {
            split: {
                "digest": part.digest,
                "lists": len(part),
                "items": part.items,
                "empty_lists": int(part.empty.sum()),
                "missing_values": part.missing,
            }
            for split, part in lists.items()
        },
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
        for names in (QUERIES, SCORES):  # of an earlier run in this folder, on other lists
            (folder / names["vali" if split == "test" else "test"]).unlink(missing_ok=True)
        write_queries(folder / QUERIES[split], lists[split], values[split])
        write_scores(folder / SCORES[split], lists[split], scores[split].cpu().numpy())
        write_results(folder, results)
    return results


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return a text table with a row per metric, and a column per split or convention."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")
