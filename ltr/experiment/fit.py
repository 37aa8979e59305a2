"""Train one model on the lists of a run, anew or where it was cut off."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.hooks import ExportTarget, Introduction
from ltr.experiment.list_steps import with_steps
from ltr.experiment.provenance import place_of
from ltr.experiment.start import start
from ltr.models.embeddings import fit_embedding
from ltr.models.rounds import RoundLearner, RoundModel
from ltr.scorers.parts import Experiment
from ltr.scorers.scorer import Scorer
from ltr.scorers.trust import config_to_keep
from ltr.training.checkpoint import load_checkpoint
from ltr.training.distributed import barrier
from ltr.training.hooks import Hook, TensorBoard
from ltr.training.monitor import Monitor
from ltr.training.network import NetworkLearner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """A scorer with its selected weights.

    Attributes:
        scorer: the model, and what it reads items by.
        data: train and vali as it reads them.
        monitor: its progress and history.
        computed_on: every place, in order; the last is this one.
    """

    scorer: Scorer
    data: dict[str, ItemTensors]
    monitor: Monitor
    computed_on: tuple[str, ...]


def fit(
    cfg: DictConfig,
    parts: Experiment,
    lists: Mapping[str, Lists],
    folder: Path,
    choices: Mapping[str, str],
    hooks: Sequence[Hook] = (),
) -> Fitted:
    """Train on ``lists["train"]``, select on ``lists["vali"]``; other splits are not read.

    Args:
        cfg, folder, choices: as for ``run``.
        parts: built from ``cfg``.
        lists: the splits that the record of the run names.
        hooks: follow each epoch, as TensorBoard does.
    """
    settings, device, file = parts.settings, parts.device, folder / "last.pt"
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    last = None if cfg.resume is None else load_checkpoint(file, device)
    train = with_steps(cfg, lists["train"], device)
    scorer = start(cfg, parts, lists, file, last)
    hooks = [Introduction(choices), ExportTarget(), TensorBoard(folder), *hooks]
    for hook in hooks:
        hook.start(cfg, parts, lists, scorer)
    here = place_of(device.type, torch.get_num_threads(), deterministic=settings.deterministic)
    places = [place for place in (last or {}).get("computed_on", ()) if place != here] + [here]
    monitor = Monitor(
        settings,
        metrics=parts.metrics,
        convention=parts.convention,
        folder=folder,
        state=scorer.state()
        | {"config": config_to_keep(cfg, folder), "choices": dict(choices), "computed_on": places},
        hooks=hooks,
    )
    data = {"train": scorer.open(train), "vali": scorer.open(lists["vali"])}
    if last is None and cfg.init_from is None:
        fit_embedding(scorer.model, lambda: data["train"].features)
    learner: NetworkLearner | RoundLearner
    if isinstance(scorer.model, RoundModel):
        learner = RoundLearner(scorer.model, parts.loss, monitor)
    else:
        assert parts.loss is not None
        optimizer = parts.optimizer(scorer.model.parameters())
        learner = NetworkLearner(scorer.model, parts.loss, optimizer, parts.schedule, monitor)
    if last is not None:
        learner.resume(last)
        done = monitor.progress
        log.info("resumed at epoch %d, step %d", done.epoch + 1, done.step)
    learner.fit(data)
    barrier()  # until the first process has written the weights
    selected = load_checkpoint(monitor.best if settings.select == "best" else file, device)
    scorer.model.load_state_dict(selected["model"])
    return Fitted(scorer, data, monitor, tuple(places))
