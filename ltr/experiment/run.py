"""Train, select, test and record one run: the function behind ``train.py`` that tests can call."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.data.lists import Dataset, Lists, splits_of
from ltr.data.transforms import FeatureTransform
from ltr.errors import DataError
from ltr.experiment.beginning import begun_from, take_weights
from ltr.experiment.build import Experiment, build
from ltr.experiment.kept import check_size, config_to_keep, trusts_trees
from ltr.experiment.labels import settle
from ltr.experiment.parts import boosts, model_for
from ltr.experiment.provenance import commit, place_of, versions
from ltr.experiment.run_folder import write_queries, write_results, write_scores
from ltr.training.checkpoint import fitting, load_checkpoint, transform_of
from ltr.training.device import check_memory, describe_device
from ltr.training.evaluation import means, metrics_of_scores, predict
from ltr.training.record import AfterEpoch, Progress, Record
from ltr.training.trainer import Trainer
from ltr.trees import BoostedTrees, TreeTrainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """A model with its last weights, and ``data`` as it reads them."""

    model: nn.Module
    transform: FeatureTransform
    data: dict[str, ItemTensors]
    progress: Progress
    computed_on: tuple[str, ...]  # every place, in order; the last is this one


def fit(
    cfg: DictConfig,
    experiment: Experiment,
    lists: Mapping[str, Lists],
    folder: Path,
    choices: Mapping[str, str],
    after_epoch: AfterEpoch | None = None,
) -> Fitted:
    """Train on ``lists["train"]``, select on ``lists["vali"]``; other splits are not read.

    Args:
        cfg, folder, choices: as for ``run``.
        experiment: built from ``cfg``.
        lists: the splits that the record of the run names.
        after_epoch: as for ``Record``.

    Raises:
        TrainingError, Interrupted: see ``Trainer.fit``.
    """
    settings, device = experiment.settings, experiment.device
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    last = None if cfg.resume is None else load_checkpoint(folder / "last.pt", device)
    begun = None
    if last is None and cfg.init_from is not None:
        begun = begun_from(cfg, lists["train"], device)
        transform = begun.transform
    elif last is None:
        transform = experiment.fit_transform(lists["train"])
        if boosts(experiment.model):
            transform = transform.keeping_missing()
    else:
        _check_same_data(last["data"], lists)
        with fitting(folder / "last.pt"):
            transform = transform_of(last)
        check_size(experiment.model, transform, folder / "last.pt")
    here = place_of(device.type, torch.get_num_threads())
    places = [place for place in (last or {}).get("computed_on", ()) if place != here] + [here]

    torch.manual_seed(settings.seed)
    model = model_for(experiment.model, transform).to(device)
    if begun is not None:
        take_weights(model, begun.model, cfg.init_from)
    kept = {
        "config": config_to_keep(cfg, folder),
        "choices": dict(choices),
        "transform": transform.state(),
        "width": transform.width,
        "columns": None if (columns := lists["train"].columns) is None else columns.state(),
        "computed_on": places,
        "data": {split: part.digest for split, part in lists.items()},
    }
    if settings.epochs and device.type == "cpu":  # a GPU's attention keeps no matrix
        longest = min(int(lists["train"].lengths.max()), settings.list_size)
        check_memory(model, longest, device, training=True)
    record = Record(
        settings,
        metrics=experiment.metrics,
        convention=experiment.convention,
        folder=folder,
        kept=kept,
        after_epoch=after_epoch,
    )
    trainer: Trainer | TreeTrainer
    if isinstance(model, BoostedTrees):
        model.trusted = trusts_trees(cfg.trust)
        trainer = TreeTrainer(model, experiment.loss, record)
    else:
        assert experiment.loss is not None
        optimizer = experiment.optimizer(model.parameters())
        trainer = Trainer(model, experiment.loss, optimizer, experiment.schedule, record)
    log.info("%s", _introduction(experiment, choices, lists, model))
    if last is not None:
        trainer.resume(last)
        log.info("resumed at epoch %d, step %d", record.progress.epoch + 1, record.progress.step)
    data = {split: ItemTensors(lists[split], transform, device) for split in ("train", "vali")}
    return Fitted(model, transform, data, trainer.fit(data), tuple(places))


def run(
    cfg: DictConfig,
    folder: Path,
    choices: Mapping[str, str],
    dataset: Dataset | None = None,
    after_epoch: AfterEpoch | None = None,
) -> dict[str, float]:
    """Train, select, test and record the experiment ``cfg`` in ``folder``.

    Args:
        cfg: composed from ``configs/train.yaml``.
        folder: the run folder; where ``cfg.resume`` is set, the run in it goes on.
        choices: the choice of each group (``{"loss": "neuralndcg", ...}``), for the record.
        dataset: instead of that of ``cfg``; without a test split nothing is tested.
        after_epoch: as for ``Record``.

    Returns:
        ``{"vali_ndcg@5": ..., "test_ndcg@5": ..., ...}`` of the selected weights.

    Raises:
        ConfigError, DataError: before anything is trained.
        TrainingError, Interrupted: see ``Trainer.fit``.
    """
    started = time.perf_counter()
    experiment = build(cfg, dataset)
    experiment.dataset.check()
    settings, device = experiment.settings, experiment.device
    # all of them before training, so that a bad test file is not found hours later
    lists = {split: experiment.dataset.split(split) for split in splits_of(experiment.dataset)}
    cfg, experiment = settle(cfg, experiment, lists)
    fitted = fit(cfg, experiment, lists, folder, choices, after_epoch)
    model, data, done, convention = (
        fitted.model, fitted.data, fitted.progress, experiment.convention,
    )  # fmt: skip

    chosen = "best.pt" if settings.select == "best" else "last.pt"
    model.load_state_dict(load_checkpoint(folder / chosen, device)["model"])
    if "test" in lists:
        data["test"] = ItemTensors(lists["test"], fitted.transform, device)
    items = settings.evaluation_items
    scores = {
        split: predict(model, data[split], items=items, precision=settings.precision)
        for split in lists
        if split != "train"
    }
    values = {
        split: metrics_of_scores(
            data[split], scores[split], experiment.metrics, convention, items=items
        )
        for split in scores
    }
    table = {split: means(values[split], convention) for split in values}
    tested = done.best_epoch if settings.select == "best" else done.epoch
    if "test" in lists:
        write_queries(folder / "queries.csv", lists["test"], values["test"])
        write_scores(folder / "scores.csv", lists["test"], scores["test"].cpu().numpy())
    library = {model.library: model.version} if isinstance(model, BoostedTrees) else {}
    write_results(
        folder,
        {
            "choices": dict(choices),
            **{split: table[split] for split in ("test", "vali") if split in table},
            "untrained_vali": {
                name[5:]: value
                for name, value in done.history[0].items()
                if name.startswith("vali_")
            },
            "convention": {**asdict(convention), "text": convention.describe()},
            "select": settings.select,
            "select_on": settings.select_on,
            "selected_epoch": tested,
            "best_epoch": done.best_epoch,
            "epochs": done.epoch,
            "seed": settings.seed,
            "dataset": experiment.dataset.name,
            "fold": experiment.dataset.fold,
            "data": {split: _description(part) for split, part in lists.items()},
            "features": experiment.dataset.width,
            "parameters": parameters_of(model),
            "wall_seconds": done.wall_seconds,
            "device": describe_device(device),
            "device_type": device.type,
            "threads": torch.get_num_threads(),
            "computed_on": list(fitted.computed_on),
            "versions": versions() | library,
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "protocol": OmegaConf.to_container(cfg, resolve=True),
        },
    )
    log.info("\n%s", metric_table(table))
    log.info(
        "%s; weights of epoch %s (select=%s); %.0f s",
        convention.describe(),
        tested,
        settings.select,
        time.perf_counter() - started,
    )
    log.info("kept in %s", folder)
    return {f"{split}_{name}": value for split in table for name, value in table[split].items()}


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


def parameters_of(model: nn.Module) -> int:
    """The number of fitted values: of trees, those in their leaves."""
    if isinstance(model, BoostedTrees):
        return model.leaves
    return sum(p.numel() for p in model.parameters())


def _introduction(
    experiment: Experiment, choices: Mapping[str, str], lists: Mapping[str, Lists], model: nn.Module
) -> str:
    sizes = ", ".join(f"{split} {len(part):,}" for split, part in lists.items())
    fold = f" fold {experiment.dataset.fold}" if experiment.dataset.fold is not None else ""
    size, objective = f"{parameters_of(model):,} parameters", choices.get("loss", "loss")
    if isinstance(model, BoostedTrees):
        size = f"boosted trees, {model.title} {model.version}"
        if experiment.loss is None:
            objective = f"its own objective {model.own_objective()}"
    return (
        f"{choices.get('model', 'model')} ({size}) with {objective} on "
        f"{experiment.dataset.name}{fold}: lists {sizes}; "
        f"{describe_device(experiment.device)}"
    )


def _check_same_data(kept: Mapping[str, Any], lists: Mapping[str, Lists]) -> None:
    changed = [split for split, part in lists.items() if kept.get(split) != part.digest]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the run began: restore the data, or start anew"
        )
