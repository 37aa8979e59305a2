"""Epochs of training with the paper's Web30K model, ours and allRank's; LightGBM for context."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch.utils.flop_counter import FlopCounterMode

from ltr.benchmark import allrank_side, peers
from ltr.benchmark.work import OURS, Answer, Case, Work
from ltr.console.compose import composed
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.experiment.build import Experiment, build
from ltr.training.record import Record
from ltr.training.trainer import Trainer

LIGHTGBM = "lightgbm"
VALI = 4  # lists that ours evaluates after every epoch: the loop has no way to leave it out


def cases(sizes: DictConfig) -> list[Case]:
    """One epoch with each of three losses, batches of 64 lists of at most 240 items."""
    return [case(loss, sizes, int(sizes.train_lists)) for loss in allrank_side.LOSSES]


def case(loss: str, sizes: DictConfig, lists: int) -> Case:
    """One epoch over ``lists`` synthetic lists; LambdaRank also has LightGBM's."""
    settings = {
        "loss": loss,
        "queries": lists,
        "batch_size": int(sizes.train_batch),
        "list_size": int(sizes.train_list_size),
    }
    sides = (OURS, "allrank", *([LIGHTGBM] if loss == "lambdarank" else []))
    return Case(f"{loss}, {lists:,} lists", settings, sides)


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """An epoch for one side; the same lists, sizes, optimiser and learning rate."""
    cfg = config_of(settings, device, cache_dir)
    experiment = build(cfg)
    lists = experiment.dataset.split("train")
    transform = experiment.fit_transform(lists)
    torch.manual_seed(0)
    folder, flops = Path(tempfile.mkdtemp()), None
    if side == OURS:
        flops = len(lists) * flops_of_a_list(experiment, lists, transform)
        call, answer, note = _ours(experiment, lists, transform, folder)
    elif side == LIGHTGBM:
        call, answer, note = _lightgbm(lists)
    else:
        call, answer, note = _allranks(cfg, experiment, lists, transform, str(settings["loss"]))
    close = partial(shutil.rmtree, folder, ignore_errors=True)
    return Work(call, lambda: answer, len(lists), "lists", note, flops=flops, close=close)


def config_of(settings: Mapping[str, Any], device: str, cache_dir: str) -> DictConfig:
    """The config of ``train.py`` for these settings: the paper's model on synthetic lists."""
    return composed(
        "train",
        "dataset=synthetic",
        f"dataset.queries={settings['queries']}",
        f"loss={settings['loss']}",
        f"batch_size={settings['batch_size']}",
        f"list_size={settings['list_size']}",
        f"device={device}",
        f"cache_dir='{cache_dir}'",
        "metrics=[ndcg@5]",
        "epochs=100000",  # the benchmark asks for one after the other
    )


def flops_of_a_list(experiment: Experiment, lists: Lists, transform: FeatureTransform) -> float:
    """Operations of the model's matrix products, forward and backward: mean of the first batch."""
    settings = experiment.settings
    some = first_lists(lists, min(len(lists), settings.batch_size))
    data = ItemTensors(some, transform, experiment.device)
    batch = next(
        train_batches(data, batch_size=len(some), list_size=settings.list_size, seed=0, epoch=0)
    )
    model = experiment.model(lists.width).to(experiment.device)
    with FlopCounterMode(display=False) as counter:
        model(batch.features, batch.mask, batch.ranks).sum().backward()
    return counter.get_total_flops() / len(some)


def first_lists(lists: Lists, count: int) -> Lists:
    """The first ``count`` lists."""
    end = lists.offsets[count]
    return Lists(
        lists.features[:end],
        lists.labels[:end],
        lists.offsets[: count + 1],
        lists.qids[:count],
        f"{lists.digest}-first-{count}",
    )


def _ours(experiment: Experiment, lists: Lists, transform: FeatureTransform, folder: Path) -> Any:
    device = experiment.device
    assert experiment.loss is not None  # the settings timed choose one
    model = experiment.model(lists.width).to(device)
    record = Record(
        experiment.settings,
        metrics=experiment.metrics,
        convention=experiment.convention,
        folder=folder,
        kept={},
    )
    optimizer = experiment.optimizer(model.parameters())
    trainer = Trainer(model, experiment.loss, optimizer, experiment.schedule, record)
    vali = first_lists(lists, min(VALI, len(lists)))
    data = {
        "train": ItemTensors(lists, transform, device),
        "vali": ItemTensors(vali, transform, device),
    }

    def epoch() -> None:
        """The next epoch of one run."""
        record.settings = replace(record.settings, epochs=record.progress.epoch + 1)
        trainer.fit(data)

    note = f"with its checkpoint, history and {len(vali)} validation lists"
    return epoch, {**_parameters(model), "items": lists.items}, note


def _allranks(
    cfg: DictConfig,
    experiment: Experiment,
    lists: Lists,
    transform: FeatureTransform,
    loss_name: str,
) -> Any:
    device = str(experiment.device)
    model = allrank_side.model_of(cfg, lists.width).to(device)
    function, knobs = allrank_side.LOSSES[loss_name]
    loss = partial(getattr(peers.need("allrank.models.losses"), function), **knobs)
    batches = allrank_side.loader(
        lists, transform, batch_size=int(cfg.batch_size), list_size=int(cfg.list_size)
    )
    optimizer = experiment.optimizer(model.parameters())
    call = partial(allrank_side.train_epoch, model, loss, optimizer, batches, device)
    return call, _parameters(model), "steps alone, no evaluation"


def _lightgbm(lists: Lists) -> Any:
    lightgbm = peers.need("lightgbm")
    params = {
        "objective": "lambdarank",
        "num_threads": torch.get_num_threads(),
        "verbose": -1,
    }
    data = lightgbm.Dataset(
        np.asarray(lists.features), np.asarray(lists.labels), group=lists.lengths, params=params
    )
    booster = lightgbm.Booster(params, data)
    # Another model: that the lists are all there is what can be compared.
    answer: Answer = {"items": data.num_data()}
    return booster.update, answer, "one tree of 31 leaves over all items: another model"


def _parameters(model: torch.nn.Module) -> Answer:
    return {"parameters": sum(p.numel() for p in model.parameters())}
