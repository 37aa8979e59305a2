"""Time training of the paper's Web30K model, an epoch at a time: ours and the peers'."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ltr.benchmark import peers
from ltr.benchmark.worker import OURS, Answer, Case, Work
from ltr.console.compose import composed
from ltr.data.batches import ItemTensors, train_batches
from ltr.data.lists import Lists
from ltr.data.transforms import FeatureTransform
from ltr.experiment.build import Experiment, build
from ltr.experiment.fit import parameters_of
from ltr.training.record import Record
from ltr.training.trainer import Trainer

LOSSES = ("neuralndcg", "lambdarank", "listnet")
LIGHTGBM = "lightgbm"
VARIANTS = {  # ours, as sides
    "tf32": ["precision=tf32"],
    "bfloat16": ["precision=bfloat16"],
    "compiled": ["compile=true"],
}
VALI = 4  # lists that ours evaluates after every epoch, as the loop always does


def cases(sizes: DictConfig, device: str) -> list[Case]:
    """One epoch with each of three losses, batches of 64 lists of at most 240 items.

    On a GPU it has more lists, and sides in TF32, bfloat16 and compiled.
    """
    if device == "cpu":
        return [case(loss, sizes, int(sizes.train_lists)) for loss in LOSSES]
    found = [case(loss, sizes, int(sizes.train_lists_cuda)) for loss in LOSSES]
    return [replace(each, sides=(OURS, *VARIANTS, *each.sides[1:])) for each in found]


def case(loss: str, sizes: DictConfig, lists: int) -> Case:
    """One epoch over ``lists`` synthetic lists; LambdaRank also has LightGBM's."""
    size = {"batch_size": int(sizes.train_batch), "list_size": int(sizes.train_list_size)}
    settings = {"loss": loss, "queries": lists, **size}
    sides = (OURS, "allrank", *([LIGHTGBM] if loss == "lambdarank" else []))
    return Case(f"{loss}, {lists:,} lists", settings, sides)


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """An epoch for one side; all have the same lists, sizes, optimiser and rate."""
    cfg = config_of(settings, device, cache_dir, side)
    experiment = build(cfg)
    lists = experiment.dataset.split("train")
    transform = experiment.fit_transform(lists)
    torch.manual_seed(0)
    if side == LIGHTGBM:
        return _lightgbm(lists)
    trained, flops = trainee(side, settings, cfg, experiment, lists, transform), None
    answer: Answer = {"parameters": parameters_of(trained.model)}
    if side == OURS or side in VARIANTS:
        flops = len(lists) * flops_of_a_list(experiment, lists, transform)
        answer = {**answer, "items": lists.items}
    more: dict[str, Any] = {"note": trained.note, "flops": flops, "close": trained.close}
    return Work(lambda: trained.train(1), lambda: answer, len(lists), "lists", **more)


@dataclass(frozen=True)
class Trainee:
    """A model of one side."""

    model: nn.Module
    train: Callable[[int], object]  # for so many epochs more
    note: str
    close: Callable[[], object] = lambda: None  # called when it is no longer needed


def trainee(
    side: str,
    settings: Mapping[str, Any],
    cfg: DictConfig,
    experiment: Experiment,
    lists: Lists,
    transform: FeatureTransform,
) -> Trainee:
    """The untrained model of ours or of allRank; torch's generator draws its weights."""
    if side != "allrank":
        return _ours(experiment, lists, transform)
    return _allranks(cfg, experiment, lists, transform, str(settings["loss"]))


def config_of(
    settings: Mapping[str, Any], device: str, cache_dir: str, side: str = OURS
) -> DictConfig:
    """The config of ``train.py`` for these settings: the paper's model on synthetic lists."""
    return composed(
        "train",
        *on_synthetic(settings, device, cache_dir),
        *VARIANTS.get(side, ()),
        f"loss={settings['loss']}",
        f"batch_size={settings['batch_size']}",
        f"list_size={settings['list_size']}",
        f"seed={settings.get('seed', 1)}",
        "metrics=[ndcg@5]",
        "epochs=100000",  # the benchmark does one at a time
    )


def on_synthetic(settings: Mapping[str, Any], device: str, cache_dir: str) -> list[str]:
    """The overrides of ``train.py`` for ``settings["queries"]`` synthetic train lists."""
    queries = f"dataset.queries={settings['queries']}"
    return ["dataset=synthetic", queries, f"device={device}", f"cache_dir='{cache_dir}'"]


def first_lists(lists: Lists, count: int) -> Lists:
    """The first ``count`` lists."""
    end = lists.offsets[count]
    parts = lists.features[:end], lists.labels[:end], lists.offsets[: count + 1], lists.qids[:count]
    return Lists(*parts, f"{lists.digest}-first-{count}")


def flops_of_a_list(experiment: Experiment, lists: Lists, transform: FeatureTransform) -> float:
    """Operations of the matrix products, forward and backward: the mean of the first batch."""
    settings = experiment.settings
    some = first_lists(lists, min(len(lists), settings.batch_size))
    data = ItemTensors(some, transform, experiment.device)
    size, list_size = len(some), settings.list_size
    batch = next(train_batches(data, batch_size=size, list_size=list_size, seed=0, epoch=0))
    model = experiment.model(lists.width).to(experiment.device)
    with FlopCounterMode(display=False) as counter:
        model(batch.features, batch.mask, batch.ranks).sum().backward()
    return counter.get_total_flops() / len(some)


def _ours(experiment: Experiment, lists: Lists, transform: FeatureTransform) -> Trainee:
    device, folder = experiment.device, Path(tempfile.mkdtemp())
    assert experiment.loss is not None  # the settings timed choose one
    model = experiment.model(lists.width).to(device)
    metrics, convention = experiment.metrics, experiment.convention
    record = Record(
        experiment.settings, metrics=metrics, convention=convention, folder=folder, kept={}
    )
    optimizer = experiment.optimizer(model.parameters())
    trainer = Trainer(model, experiment.loss, optimizer, experiment.schedule, record)
    splits = {"train": lists, "vali": first_lists(lists, min(VALI, len(lists)))}
    data = {split: ItemTensors(some, transform, device) for split, some in splits.items()}

    def train(epochs: int) -> None:
        record.settings = replace(record.settings, epochs=record.progress.epoch + epochs)
        trainer.fit(data)

    note = f"with its checkpoint, history and {len(splits['vali'])} validation lists"
    return Trainee(model, train, note, partial(shutil.rmtree, folder, ignore_errors=True))


def _allranks(
    cfg: DictConfig, experiment: Experiment, lists: Lists, transform: FeatureTransform, name: str
) -> Trainee:
    device, loss = experiment.device, peers.allrank_loss(name)
    model = peers.allrank_model(cfg, lists.width).to(device)
    sizes = {"batch_size": int(cfg.batch_size), "list_size": int(cfg.list_size)}
    batches = peers.allrank_loader(lists, transform, **sizes)
    optimizer = experiment.optimizer(model.parameters())
    step = peers.need("allrank.training.train_utils").loss_batch
    rate = optimizer.param_groups[0]["lr"]

    def train(epochs: int) -> None:
        model.train()
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = rate * experiment.schedule(epoch, epochs)
            for batch in batches:
                features, labels, ranks = (tensor.to(device) for tensor in batch)
                step(model, loss, features, labels, ranks, None, optimizer)

    return Trainee(model, train, "steps alone, no evaluation")


def _lightgbm(lists: Lists) -> Work:
    lightgbm = peers.need("lightgbm")
    threads = torch.get_num_threads()
    params = {"objective": "lambdarank", "num_threads": threads, "verbose": -1}
    data = lightgbm.Dataset(
        np.asarray(lists.features), np.asarray(lists.labels), group=lists.lengths, params=params
    )
    booster = lightgbm.Booster(params, data)
    answer: Answer = {"items": data.num_data()}  # another model: no more can be compared
    note = "one tree of 31 leaves over all items: another model"
    return Work(booster.update, lambda: answer, len(lists), "lists", note)
