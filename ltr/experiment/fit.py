"""Train one model on the lists of a run, anew or where it was cut off."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.errors import DataError
from ltr.experiment.build import Experiment
from ltr.experiment.engines import check_engine
from ltr.experiment.identity import sorter_digest, teacher_digest
from ltr.experiment.list_steps import with_steps
from ltr.experiment.parts import boosts, model_for
from ltr.experiment.provenance import place_of
from ltr.experiment.scorer import Scorer, check_columns, check_size
from ltr.experiment.trust import config_to_keep
from ltr.experiment.warm_start import take_weights, warm_start
from ltr.metrics.crossfit import Crossfit
from ltr.models.embeddings import fit_embedding
from ltr.rounds import RoundLearner, RoundModel
from ltr.training.checkpoint import columns_of, fitting, load_checkpoint, transform_of
from ltr.training.device import check_memory, describe_device
from ltr.training.distributed import check_shards, size
from ltr.training.hooks import Hook, Hooks, TensorBoard
from ltr.training.monitor import Monitor, Progress
from ltr.training.network import NetworkLearner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """A scorer with its last weights, and ``data`` as it reads them."""

    scorer: Scorer
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
    hooks: Sequence[Hook] = (),
) -> Fitted:
    """Train on ``lists["train"]``, select on ``lists["vali"]``; other splits are not read.

    Args:
        cfg, folder, choices: as for ``run``.
        experiment: built from ``cfg``.
        lists: the splits that the record of the run names.
        hooks: follow each epoch, as TensorBoard does.

    Raises:
        TrainingError, Interrupted: see ``NetworkLearner.fit``.
    """
    settings, device = experiment.settings, experiment.device
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    file = folder / "last.pt"
    last = None if cfg.resume is None else load_checkpoint(file, device)
    origins = _origins(cfg, lists)
    begun, columns = None, lists["train"].columns
    if last is not None:
        with fitting(file):
            before, transform, columns = last["data"], transform_of(last), columns_of(last)
            changed = [name for name, digest in origins.items() if before.get(name) != digest]
        if changed:
            raise DataError(
                f"{', '.join(changed)} changed since the run began: restore it, or start anew"
            )
        check_size(experiment.model, transform, file)
    elif cfg.init_from is not None:
        begun = warm_start(cfg, lists["train"], device)
        transform = begun.transform
    else:
        transform = experiment.fit_transform(lists["train"])
        if boosts(experiment.model):
            transform = transform.keeping_missing()
    for part in lists.values():
        check_columns(part, columns)
    train = with_steps(cfg, lists["train"], device)

    torch.manual_seed(settings.seed)
    model = model_for(experiment.model, transform).to(device)
    check_engine(cfg.for_engine, model, transform, sum(part.missing for part in lists.values()))
    if begun is not None:
        take_weights(model, begun.model, cfg.init_from)
    if settings.epochs and device.type == "cpu":  # a GPU's attention keeps no matrix
        longest = min(int(lists["train"].lengths.max()), settings.list_size)
        check_memory(model, longest, device, training=True)
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    scorer = Scorer(model, transform, columns, config, origins, device)
    here = place_of(device.type, torch.get_num_threads(), deterministic=settings.deterministic)
    places = [place for place in (last or {}).get("computed_on", ()) if place != here] + [here]
    monitor = Monitor(
        settings,
        metrics=experiment.metrics,
        convention=experiment.convention,
        folder=folder,
        state=scorer.state()
        | {"config": config_to_keep(cfg, folder), "choices": dict(choices), "computed_on": places},
        hook=Hooks(TensorBoard(folder), *hooks),
    )
    data = {"train": scorer.open(train), "vali": scorer.open(lists["vali"])}
    if last is None and begun is None:
        fit_embedding(model, lambda: data["train"].features)
    learner: NetworkLearner | RoundLearner
    if isinstance(model, RoundModel):
        learner = RoundLearner(model, experiment.loss, monitor)
    else:
        assert experiment.loss is not None
        check_shards(model, settings.shards)
        optimizer = experiment.optimizer(model.parameters())
        learner = NetworkLearner(model, experiment.loss, optimizer, experiment.schedule, monitor)
    log.info("%s", _introduction(experiment, choices, lists, model))
    if last is not None:
        learner.resume(last)
        done = monitor.progress
        log.info("resumed at epoch %d, step %d", done.epoch + 1, done.step)
    learner.fit(data)
    return Fitted(scorer, data, monitor.progress, monitor.crossfit, tuple(places))


def _origins(cfg: DictConfig, lists: Mapping[str, Lists]) -> dict[str, str | None]:
    """The digests of all that a run is trained with; a run that is resumed must have the same."""
    return {split: part.digest for split, part in lists.items()} | {
        "loss.sorter": sorter_digest(cfg.get("loss")),
        "teacher": teacher_digest(cfg.teacher),
    }


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
