"""Train one model on the lists of a run, anew or where it was cut off."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.errors import DataError
from ltr.experiment.beginning import begun_from, take_weights
from ltr.experiment.build import Experiment
from ltr.experiment.engines import check_engine
from ltr.experiment.identity import sorter_digest, teacher_digest
from ltr.experiment.keeping import config_to_keep
from ltr.experiment.kept import check_columns, check_size
from ltr.experiment.list_steps import with_steps
from ltr.experiment.parts import boosts, model_for
from ltr.experiment.provenance import place_of
from ltr.metrics.crossfit import Crossfit
from ltr.models.embeddings import fit_embedding
from ltr.rounds import RoundModel, RoundTrainer
from ltr.training.checkpoint import columns_of, fitting, load_checkpoint, transform_of
from ltr.training.device import check_memory, describe_device
from ltr.training.processes import size
from ltr.training.record import AfterEpoch, Progress, Record
from ltr.training.slices import check_slices
from ltr.training.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """A model with its last weights, and ``data`` as it reads them."""

    model: nn.Module
    transform: FeatureTransform
    data: dict[str, ItemTensors]
    progress: Progress
    crossfit: Crossfit | None  # what the choice of the best epoch is worth; None: nothing is chosen
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
    begun, columns = None, lists["train"].columns
    if last is None and cfg.init_from is not None:
        begun = begun_from(cfg, lists["train"], device)
        transform = begun.transform
    elif last is None:
        transform = experiment.fit_transform(lists["train"])
        if boosts(experiment.model):
            transform = transform.keeping_missing()
    else:
        _check_same_data(last["data"], lists)
        if last.get("sorter") != sorter_digest(cfg.get("loss")):
            raise DataError("loss.sorter changed since the run began: restore it, or start anew")
        with fitting(folder / "last.pt"):
            transform, columns = transform_of(last), columns_of(last)
        check_size(experiment.model, transform, folder / "last.pt")
        if last.get("teacher") != teacher_digest(cfg.teacher):
            raise DataError("the teacher changed since the run began: restore it, or start anew")
    for part in lists.values():
        check_columns(part, columns)
    train = with_steps(cfg, lists["train"], device)
    steady = settings.deterministic
    here = place_of(device.type, torch.get_num_threads(), deterministic=steady)
    places = [place for place in (last or {}).get("computed_on", ()) if place != here] + [here]

    torch.manual_seed(settings.seed)
    model = model_for(experiment.model, transform).to(device)
    missing = sum(part.missing for part in lists.values())
    check_engine(cfg.for_engine, model, transform, missing)
    if begun is not None:
        take_weights(model, begun.model, cfg.init_from)
    kept = {
        "config": config_to_keep(cfg, folder),
        "choices": dict(choices),
        "transform": transform.state(),
        "width": transform.width,
        "columns": None if columns is None else columns.state(),
        "computed_on": places,
        "data": {split: part.digest for split, part in lists.items()},
        "sorter": sorter_digest(cfg.get("loss")),
        "teacher": teacher_digest(cfg.teacher),
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
    data = {
        "train": ItemTensors(train, transform, device),
        "vali": ItemTensors(lists["vali"], transform, device),
    }
    if last is None and begun is None:
        fit_embedding(model, lambda: data["train"].features)
    trainer: Trainer | RoundTrainer
    if isinstance(model, RoundModel):
        trainer = RoundTrainer(model, experiment.loss, record)
    else:
        assert experiment.loss is not None
        check_slices(model, settings.shards)
        optimizer = experiment.optimizer(model.parameters())
        trainer = Trainer(model, experiment.loss, optimizer, experiment.schedule, record)
    log.info("%s", _introduction(experiment, choices, lists, model))
    if last is not None:
        trainer.resume(last)
        log.info("resumed at epoch %d, step %d", record.progress.epoch + 1, record.progress.step)
    done = trainer.fit(data)
    return Fitted(model, transform, data, done, record.crossfit, tuple(places))


def parameters_of(model: nn.Module) -> int:
    """The number of fitted values: of trees, those in their leaves."""
    if isinstance(model, RoundModel):
        return model.fitted
    return sum(p.numel() for p in model.parameters())


def _introduction(
    experiment: Experiment, choices: Mapping[str, str], lists: Mapping[str, Lists], model: nn.Module
) -> str:
    sizes = ", ".join(f"{split} {len(part):,}" for split, part in lists.items())
    fold = f" fold {experiment.dataset.fold}" if experiment.dataset.fold is not None else ""
    size, objective = f"{parameters_of(model):,} parameters", choices.get("loss", "loss")
    if isinstance(model, RoundModel):
        size = model.description
        if experiment.loss is None:
            objective = f"its own objective {model.own_objective()}"
    return (
        f"{choices.get('model', 'model')} ({size}) with {objective} on "
        f"{experiment.dataset.name}{fold}: lists {sizes}; "
        f"{describe_device(experiment.device)}{_shared(experiment.settings.shards)}"
    )


def _shared(shards: int | None) -> str:
    if shards is None:
        return ""
    return (
        f"; {shards} slice{'s' * (shards > 1)} of a batch on {size()} process{'es' * (size() > 1)}"
    )


def _check_same_data(kept: Mapping[str, Any], lists: Mapping[str, Lists]) -> None:
    changed = [split for split, part in lists.items() if kept.get(split) != part.digest]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the run began: restore the data, or start anew"
        )
