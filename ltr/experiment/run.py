"""One training run from a composed config: the function behind ``train.py`` that tests can call."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS, Lists
from ltr.experiment.build import Experiment, build
from ltr.experiment.fit import fit, library_of, parameters_of
from ltr.experiment.labels import settle
from ltr.experiment.results import (
    commit,
    describe_lists,
    metric_table,
    versions,
    write_queries,
    write_scores,
)
from ltr.experiment.run_folder import write_results
from ltr.training.checkpoint import load_checkpoint
from ltr.training.device import describe_device
from ltr.training.evaluation import means, metrics_of_scores, predict

log = logging.getLogger(__name__)


def run(cfg: DictConfig, folder: Path, choices: Mapping[str, str]) -> dict[str, float]:
    """Train, select, test and record the experiment ``cfg`` in ``folder``.

    Args:
        cfg: A config composed from ``configs/train.yaml``.
        folder: The run folder; where ``cfg.resume`` is set, the run in it goes on.
        choices: What was chosen for each group (``{"loss": "neuralndcg", ...}``), for the record.

    Returns:
        ``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}`` of the selected weights.

    Raises:
        ConfigError, DataError: before anything is trained.
        TrainingError, Interrupted: see ``Trainer.fit``.
    """
    started = time.perf_counter()
    experiment = build(cfg)
    experiment.dataset.check()
    settings, device = experiment.settings, experiment.device
    lists = read_splits(experiment)
    cfg, experiment = settle(cfg, experiment, lists)
    fitted = fit(cfg, experiment, lists, folder, choices)
    model, data, done = fitted.model, fitted.data, fitted.progress

    chosen = "best.pt" if settings.select == "best" else "last.pt"
    model.load_state_dict(load_checkpoint(folder / chosen, device)["model"])
    data["test"] = ItemTensors(lists["test"], fitted.transform, device)
    scores = {
        split: predict(
            model, data[split], items=settings.evaluation_items, precision=settings.precision
        )
        for split in ("vali", "test")
    }
    values = {
        split: metrics_of_scores(
            data[split],
            scores[split],
            experiment.metrics,
            experiment.convention,
            items=settings.evaluation_items,
        )
        for split in scores
    }
    table = {split: means(values[split], experiment.convention) for split in values}
    tested = done.best_epoch if settings.select == "best" else done.epoch
    write_queries(folder / "queries.csv", lists["test"], values["test"])
    write_scores(folder / "scores.csv", lists["test"], scores["test"].cpu().numpy())
    write_results(
        folder,
        {
            "choices": dict(choices),
            "test": table["test"],
            "vali": table["vali"],
            "untrained_vali": _untrained(done.history[0]),
            "convention": {
                **asdict(experiment.convention),
                "text": experiment.convention.describe(),
            },
            "select": settings.select,
            "select_on": settings.select_on,
            "selected_epoch": tested,
            "best_epoch": done.best_epoch,
            "epochs": done.epoch,
            "seed": settings.seed,
            "dataset": experiment.dataset.name,
            "fold": experiment.dataset.fold,
            "data": {split: describe_lists(lists[split]) for split in SPLITS},
            "features": experiment.dataset.width,
            "parameters": parameters_of(model),
            "wall_seconds": done.wall_seconds,
            "device": describe_device(device),
            "device_type": device.type,
            "threads": torch.get_num_threads(),
            "computed_on": list(fitted.computed_on),
            "versions": versions() | library_of(model),
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "protocol": OmegaConf.to_container(cfg, resolve=True),
        },
    )
    log.info("\n%s", metric_table(table))
    log.info(
        "%s; weights of epoch %s (select=%s); %.0f s",
        experiment.convention.describe(),
        tested,
        settings.select,
        time.perf_counter() - started,
    )
    log.info("kept in %s", folder)
    return {f"{split}_{name}": value for split in table for name, value in table[split].items()}


def read_splits(experiment: Experiment) -> dict[str, Lists]:
    """All splits, opened before training so that a bad test file is not found hours later."""
    return {split: experiment.dataset.split(split) for split in SPLITS}


def _untrained(row: Mapping[str, float]) -> dict[str, float]:
    return {name[5:]: value for name, value in row.items() if name.startswith("vali_")}
