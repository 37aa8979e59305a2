"""What a finished run came to: the means of its tested weights, and the files that hold them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import OmegaConf
from tabulate import tabulate
from torch import Tensor

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.run_folder import commit, versions, write_queries, write_results, write_scores
from ltr.experiment.start import Inputs, Training
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import Crossfit
from ltr.models.rounds import BoostedTrees
from ltr.scorers.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.evaluation import PerQuery, means, metrics_of_scores
from ltr.training.monitor import Progress


@dataclass(frozen=True)
class Report:
    """The figures of a run."""

    table: dict[str, dict[str, float]]  # by split the mean of each metric
    progress: Progress  # of the training, with its history
    crossfit: Crossfit | None  # what the choice of the best epoch is worth; None: there was none
    text: str  # all of it, to be printed

    @property
    def figures(self) -> dict[str, float]:
        """``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}``."""
        return {f"{split}_{k}": v for split, part in self.table.items() for k, v in part.items()}

    @property
    def tracked(self) -> dict[str, float]:
        """``figures`` beside those of single epochs: those of vali are ``selected_vali_...``."""
        names = {name: f"selected_{name}" for name in self.figures if name.startswith("vali_")}
        return {names.get(name, name): value for name, value in self.figures.items()}


class Measured(NamedTuple):
    """By split the score of each item, each metric of each list, and its mean over the lists."""

    scores: dict[str, Tensor]
    values: Mapping[str, PerQuery]
    table: dict[str, dict[str, float]]


def report_of(inputs: Inputs, training: Training, started: float) -> Report:
    """Test the weights of ``training``, and finish the run, which began at ``started``.

    All processes that train together compute it, and the first alone writes.
    """
    parts, lists, folder, scorer = inputs.parts, inputs.lists, inputs.folder, training.scorer
    settings, convention = parts.settings, parts.convention
    done, worth = training.monitor.progress, training.monitor.crossfit
    data = {"vali": training.data["vali"]}
    if "test" in lists:
        data["test"] = scorer.open(lists["test"])
    found = measure(scorer, data, parts.metrics, convention, settings.evaluation_items)
    tested = done.best_epoch if settings.select == "best" else done.epoch
    text = metric_table(found.table)
    if worth is not None:
        text += (
            f"\ncrossfit vali {settings.select_on} {worth.value:.4f} ± {worth.error:.4f}: "
            "split-half estimate: selected on one half of the lists, measured on the other"
        )
    text += (
        f"\n{convention.describe()}; weights of epoch {tested} (select={settings.select}); "
        f"{time.perf_counter() - started:.0f} s\nkept in {folder}"
    )
    if is_main():
        library = {}
        if isinstance(scorer.model, BoostedTrees):
            library = {scorer.model.library: scorer.model.version}
        untrained = done.history[0].items()
        write_run(
            folder, scorer, lists, found, convention,
            choices=dict(inputs.choices),
            untrained_vali={k[5:]: v for k, v in untrained if k.startswith("vali_")},
            select=settings.select,
            select_on=settings.select_on,
            selected_epoch=tested,
            best_epoch=done.best_epoch,
            crossfit=None if worth is None else worth.value,
            crossfit_error=None if worth is None else worth.error,
            epochs=done.epoch,
            seed=settings.seed,
            dataset=parts.dataset.name,
            fold=parts.dataset.fold,
            wall_seconds=done.wall_seconds,
            processes=size(),
            versions=versions() | library,
            protocol=OmegaConf.to_container(inputs.cfg, resolve=True),
        )  # fmt: skip
    return Report(found.table, done, worth, text)


def measure(
    scorer: Scorer,
    data: Mapping[str, ItemTensors],
    metrics: Sequence[Metric],
    convention: Convention,
    items: int,
) -> Measured:
    """Measure ``metrics`` of ``scorer`` on ``data``, in batches of padded ``items``."""
    scores = {split: scorer.scores(part, items=items) for split, part in data.items()}
    values = {
        split: metrics_of_scores(part, scores[split], metrics, convention, items=items)
        for split, part in data.items()
    }
    table = {split: means(part, convention) for split, part in values.items()}
    return Measured(scores, values, table)


def write_run(
    folder: Path,
    scorer: Scorer,
    lists: Mapping[str, Lists],
    found: Measured,
    convention: Convention,
    **more: Any,
) -> dict[str, Any]:
    """Write metrics and scores of test, where there is one, then ``results.json``; return it.

    ``found`` is what ``measure`` found of ``scorer``; ``more`` are entries of its own.
    """
    if "test" in lists:
        write_queries(folder / "queries.csv", lists["test"], found.values["test"])
        write_scores(folder / "scores.csv", lists["test"], found.scores["test"].cpu().numpy())
    results: dict[str, Any] = {
        **{split: found.table[split] for split in ("test", "vali") if split in found.table},
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
        "device_type": scorer.device.type,
        "threads": torch.get_num_threads(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }
    write_results(folder, results)
    return results


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """A table with a row per metric and a column per split or convention."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")
