"""One training run from a composed config: the function behind ``train.py`` that tests can call."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.data.dataset import SPLITS
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import DataError
from ltr.experiment.build import Experiment, build
from ltr.experiment.results import (
    commit,
    describe_lists,
    metric_table,
    versions,
    write_queries,
    write_results,
    write_scores,
)
from ltr.training.checkpoint import load_checkpoint
from ltr.training.device import describe_device
from ltr.training.evaluation import evaluate, means, predict
from ltr.training.trainer import AfterEpoch, Progress, Trainer
from ltr.trees import BoostedTrees, TreeTrainer

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
    fitted = fit(cfg, experiment, lists, folder, choices)
    model, data, done = fitted.model, fitted.data, fitted.progress

    chosen = "best.pt" if settings.select == "best" else "last.pt"
    model.load_state_dict(load_checkpoint(folder / chosen, device)["model"])
    data["test"] = ItemTensors(lists["test"], fitted.transform, device)
    values = {
        split: evaluate(
            model,
            data[split],
            experiment.metrics,
            experiment.convention,
            items=settings.evaluation_items,
            precision=settings.precision,
        )
        for split in ("vali", "test")
    }
    table = {split: means(values[split], experiment.convention) for split in values}
    tested = done.best_epoch if settings.select == "best" else done.epoch
    scores = predict(
        model, data["test"], items=settings.evaluation_items, precision=settings.precision
    )
    write_queries(folder / "queries.csv", lists["test"], values["test"])
    write_scores(folder / "scores.csv", lists["test"], scores)
    write_results(
        folder / "results.json",
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
            "parameters": _parameters(model),
            "wall_seconds": done.wall_seconds,
            "device": describe_device(device),
            "versions": versions() | _library(model),
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


@dataclass(frozen=True)
class Fitted:
    """What training leaves: the model with its last weights, and ``data`` as the model reads it."""

    model: nn.Module
    transform: FeatureTransform
    data: dict[str, ItemTensors]
    progress: Progress


def fit(
    cfg: DictConfig,
    experiment: Experiment,
    lists: Mapping[str, Lists],
    folder: Path,
    choices: Mapping[str, str],
    after_epoch: AfterEpoch | None = None,
) -> Fitted:
    """Train on ``lists["train"]``, select on ``lists["vali"]``; other splits are not looked at.

    Args:
        cfg, folder, choices: As for ``run``.
        experiment: Built from ``cfg``.
        lists: The splits that the record of the run names.
        after_epoch: As for ``Trainer``.

    Raises:
        TrainingError, Interrupted: see ``Trainer.fit``.
    """
    settings, device = experiment.settings, experiment.device
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    transform = (
        experiment.fit_transform(lists["train"])
        if cfg.resume is None
        else FeatureTransform.from_state(load_checkpoint(folder / "last.pt")["transform"])
    )

    torch.manual_seed(settings.seed)
    model = experiment.model(experiment.dataset.width).to(device)
    kept = {
        "config": _placed(cfg),
        "choices": dict(choices),
        "transform": transform.state(),
        "width": experiment.dataset.width,
        "data": {split: part.digest for split, part in lists.items()},
    }
    trainer = _trainer(experiment, model, folder, kept, after_epoch)
    log.info("%s", _introduction(experiment, choices, lists, model))
    if cfg.resume is not None:
        _check_same_data(trainer, lists)
        trainer.resume(device)
        log.info("resumed at epoch %d, step %d", trainer.progress.epoch + 1, trainer.progress.step)
    data = {split: ItemTensors(lists[split], transform, device) for split in ("train", "vali")}
    return Fitted(model, transform, data, trainer.fit(data))


def _placed(cfg: DictConfig) -> dict[str, Any]:
    """The config as it is kept: where the data lies must hold from any working directory."""
    config: Any = OmegaConf.to_container(cfg)
    return config | {key: str(Path(config[key]).absolute()) for key in ("data_dir", "cache_dir")}


def read_splits(experiment: Experiment) -> dict[str, Lists]:
    """All splits, opened before training so that a bad test file is not found hours later."""
    return {split: experiment.dataset.split(split) for split in SPLITS}


def _trainer(
    experiment: Experiment,
    model: nn.Module,
    folder: Path,
    kept: Mapping[str, Any],
    after_epoch: AfterEpoch | None,
) -> Trainer | TreeTrainer:
    """What fits ``model``; everything before and after is the same for every model."""
    common: Any = {
        "metrics": experiment.metrics,
        "convention": experiment.convention,
        "folder": folder,
        "kept": kept,
        "after_epoch": after_epoch,
    }
    if isinstance(model, BoostedTrees):
        return TreeTrainer(model, experiment.loss, experiment.settings, **common)
    assert experiment.loss is not None
    optimizer = experiment.optimizer(model.parameters())
    return Trainer(
        model, experiment.loss, optimizer, experiment.schedule, experiment.settings, **common
    )


def _introduction(
    experiment: Experiment, choices: Mapping[str, str], lists: Mapping[str, Lists], model: nn.Module
) -> str:
    sizes = ", ".join(f"{split} {len(part):,}" for split, part in lists.items())
    fold = f" fold {experiment.dataset.fold}" if experiment.dataset.fold is not None else ""
    size, objective = f"{_parameters(model):,} parameters", choices.get("loss", "loss")
    if isinstance(model, BoostedTrees):
        size = f"boosted trees, {model.title} {model.version}"
        if experiment.loss is None:
            objective = f"its own objective {model.own_objective()}"
    return (
        f"{choices.get('model', 'model')} ({size}) with {objective} on "
        f"{experiment.dataset.name}{fold}: lists {sizes}; "
        f"{describe_device(experiment.device)}"
    )


def _parameters(model: nn.Module) -> int:
    """The numbers that were fitted: of trees, those in their leaves."""
    if isinstance(model, BoostedTrees):
        return model.leaves
    return sum(p.numel() for p in model.parameters())


def _library(model: nn.Module) -> dict[str, str]:
    return {model.library: model.version} if isinstance(model, BoostedTrees) else {}


def _check_same_data(trainer: Trainer | TreeTrainer, lists: Mapping[str, Lists]) -> None:
    kept = load_checkpoint(trainer.last)["data"]
    changed = [split for split, part in lists.items() if kept.get(split) != part.digest]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the run began: put the data back, or start anew"
        )


def _untrained(row: Mapping[str, float]) -> dict[str, float]:
    return {name[5:]: value for name, value in row.items() if name.startswith("vali_")}
