"""What a finished run came to: the means of its tested weights, and the files that hold them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate
from torch import Tensor

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.fit import Fitted
from ltr.experiment.provenance import commit, versions
from ltr.experiment.run_folder import write_queries, write_results, write_scores
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import Crossfit
from ltr.models.rounds import BoostedTrees
from ltr.scorers.parts import Experiment
from ltr.scorers.scorer import Scorer
from ltr.training.device import describe_device
from ltr.training.distributed import is_main, size
from ltr.training.evaluation import PerQuery, means, metrics_of_scores
from ltr.training.monitor import Progress


@dataclass(frozen=True)
class Report:
    """The figures of a run.

    Attributes:
        table: the mean of each metric by split: vali, and test where there is one.
        progress: of the training, with its history.
        crossfit: what the choice of the best epoch is worth; None: nothing was chosen.
        text: all of it, to be printed.
    """

    table: dict[str, dict[str, float]]
    progress: Progress
    crossfit: Crossfit | None
    text: str

    @property
    def figures(self) -> dict[str, float]:
        """``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}``."""
        return {f"{split}_{k}": v for split, part in self.table.items() for k, v in part.items()}

    @property
    def tracked(self) -> dict[str, float]:
        """``figures`` beside those of single epochs: those of vali are ``selected_vali_...``."""
        return {
            f"selected_{name}" if name.startswith("vali_") else name: value
            for name, value in self.figures.items()
        }


def report_of(
    cfg: DictConfig,
    parts: Experiment,
    lists: Mapping[str, Lists],
    fitted: Fitted,
    folder: Path,
    choices: Mapping[str, str],
    started: float,
) -> Report:
    """Test the weights of ``fitted``, and finish the run in ``folder``.

    All processes that train together compute it, and the first alone writes.
    """
    settings, monitor = parts.settings, fitted.monitor
    done, worth = monitor.progress, monitor.crossfit
    data = {"vali": fitted.data["vali"]}
    if "test" in lists:
        data["test"] = fitted.scorer.open(lists["test"])
    scores, values, table = measure(
        fitted.scorer, data, parts.metrics, parts.convention, settings.evaluation_items
    )
    tested = done.best_epoch if settings.select == "best" else done.epoch
    text = metric_table(table)
    if worth is not None:
        text += (
            f"\ncrossfit vali {settings.select_on} {worth.value:.4f} ± {worth.error:.4f}: "
            "split-half estimate: selected on one half of the lists, measured on the other"
        )
    text += (
        f"\n{parts.convention.describe()}; weights of epoch {tested} (select={settings.select}); "
        f"{time.perf_counter() - started:.0f} s\nkept in {folder}"
    )
    if is_main():
        write_tested(folder, lists, values, scores)
        model = fitted.scorer.model
        library = {model.library: model.version} if isinstance(model, BoostedTrees) else {}
        untrained = done.history[0].items()
        results: dict[str, Any] = {
            "choices": dict(choices),
            **{split: table[split] for split in ("test", "vali") if split in table},
            "untrained_vali": {k[5:]: v for k, v in untrained if k.startswith("vali_")},
            "convention": {**asdict(parts.convention), "text": parts.convention.describe()},
            "select": settings.select,
            "select_on": settings.select_on,
            "selected_epoch": tested,
            "best_epoch": done.best_epoch,
            "crossfit": None if worth is None else worth.value,
            "crossfit_error": None if worth is None else worth.error,
            "epochs": done.epoch,
            "seed": settings.seed,
            "dataset": parts.dataset.name,
            "fold": parts.dataset.fold,
            "data": {split: _description(part) for split, part in lists.items()},
            "features": parts.dataset.width,
            "parameters": fitted.scorer.parameters,
            "wall_seconds": done.wall_seconds,
            "processes": size(),
            **computed_on(parts.device, fitted.computed_on),
            "versions": versions() | library,
            "protocol": OmegaConf.to_container(cfg, resolve=True),
        }
        write_results(folder, results)
    return Report(table, done, worth, text)


def computed_on(device: torch.device, places: Sequence[str]) -> dict[str, Any]:
    """Where and when something was computed, as ``results.json`` has it."""
    return {
        "device": describe_device(device),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "computed_on": list(places),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measure(
    scorer: Scorer,
    data: Mapping[str, ItemTensors],
    metrics: Sequence[Metric],
    convention: Convention,
    items: int,
) -> tuple[dict[str, Tensor], Mapping[str, PerQuery], dict[str, dict[str, float]]]:
    """By split the score of each item, each metric of each list, and its mean over the lists."""
    scores = {split: scorer.scores(part, items=items) for split, part in data.items()}
    values = {
        split: metrics_of_scores(data[split], scores[split], metrics, convention, items=items)
        for split in data
    }
    return scores, values, {split: means(part, convention) for split, part in values.items()}


def write_tested(
    folder: Path,
    lists: Mapping[str, Lists],
    values: Mapping[str, PerQuery],
    scores: Mapping[str, Tensor],
) -> None:
    """Write metrics and scores of test, where there is one."""
    if "test" in lists:
        write_queries(folder / "queries.csv", lists["test"], values["test"])
        write_scores(folder / "scores.csv", lists["test"], scores["test"].cpu().numpy())


def metric_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """A table with a row per metric and a column per split or convention."""
    metrics = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(column.get(name) for column in columns.values())] for name in metrics]
    return tabulate(rows, ["metric", *columns], floatfmt=".4f", tablefmt="simple")


def _description(lists: Lists) -> dict[str, Any]:
    return {
        "digest": lists.digest,
        "lists": len(lists),
        "items": lists.items,
        "empty_lists": int(lists.empty.sum()),
        "missing_values": lists.missing,
    }
