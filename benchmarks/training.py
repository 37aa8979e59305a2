"""Time an epoch of training of the paper's Web30K model: python benchmarks/training.py."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
import peers
import torch
from common import OURS, Case, Work
from torch import nn

from ltr.console.compose import composed
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.build import Experiment, build
from ltr.training.record import Record
from ltr.training.trainer import Trainer

LOSSES = ("neuralndcg", "lambdarank", "listnet")
VARIANTS = {"tf32": "precision=tf32", "bfloat16": "precision=bfloat16", "compiled": "compile=true"}
SIZES = {"lists": None, "batch_size": 64, "list_size": 240}  # lists: 512, on a GPU 6,400
SMALL = {"lists": 8, "batch_size": 4, "list_size": 20}


class Trained(NamedTuple):
    """A model of one side."""

    model: nn.Module
    train: Callable[[int], object]  # for so many epochs more
    experiment: Experiment
    transform: Any
    note: str


def case(loss: str, lists: int, keys: Any, *sides: str) -> Case:
    """One epoch over ``lists`` synthetic lists."""
    return Case(f"{loss}, {lists:,} lists", partial(work, loss=loss, lists=lists, keys=keys), sides)


def work(side: str, *, loss: str, lists: int, keys: Any) -> Work:
    """An epoch for one side; all have the same lists, sizes, optimiser and rate."""
    one = trained(side, loss, config(side, loss, lists, keys))
    answer = {"parameters": sum(weights.numel() for weights in one.model.parameters())}
    return Work(lambda: one.train(1), lambda: answer, one.note, lists)


def config(side: str, loss: str, lists: int, keys: Any, seed: int = 1) -> Any:
    """The config of ``train.py`` for the paper's model on ``lists`` synthetic lists."""
    sizes = (
        f"dataset.queries={lists}",
        f"batch_size={keys.batch_size}",
        f"list_size={keys.list_size}",
    )
    place = f"device={keys.device}", f"cache_dir='{keys.cache_dir}'", "epochs=100000"
    more = [VARIANTS[side]] if side in VARIANTS else []
    given = "dataset=synthetic", f"loss={loss}", "metrics=[ndcg@5]", f"seed={seed}"
    return composed("train", *given, *sizes, *place, *more)


def first(lists: Lists, count: int) -> Lists:
    """The first ``count`` lists."""
    end, name = lists.offsets[count], f"{lists.digest}-first-{count}"
    starts = lists.offsets[: count + 1]
    return Lists(lists.features[:end], lists.labels[:end], starts, lists.qids[:count], name)


def trained(side: str, loss: str, cfg: Any) -> Trained:
    """The untrained model of ours or of allRank, drawn by ``cfg.seed``, and how it trains."""
    parts = build(cfg)
    lists = parts.dataset.split("train")
    transform = parts.fit_transform(lists)
    torch.manual_seed(int(cfg.seed))
    np.random.seed(int(cfg.seed))  # noqa: NPY002 (allRank cuts long lists with it)
    make = partial(peers.allrank_model, cfg.model) if side == "allrank" else parts.model
    model = make(lists.width).to(parts.device)
    optimizer = parts.optimizer(model.parameters())
    if side == "allrank":
        batches = peers.allrank_loader(lists, transform, cfg.batch_size, cfg.list_size)
        train, note = (
            _allranks(model, parts, optimizer, batches, loss),
            "steps alone, no evaluation",
        )
    else:
        splits = {"train": lists, "vali": first(lists, min(4, len(lists)))}
        data = {name: ItemTensors(some, transform, parts.device) for name, some in splits.items()}
        train, note = _ours(model, parts, optimizer, data), "with its checkpoint and validation"
    return Trained(model, train, parts, transform, note)


def _ours(model: nn.Module, parts: Experiment, optimizer: Any, data: Any) -> Callable[[int], None]:
    folder = tempfile.TemporaryDirectory()
    about: Any = {"metrics": parts.metrics, "convention": parts.convention, "kept": {}}
    record = Record(parts.settings, folder=Path(folder.name), **about)
    assert parts.loss is not None
    trainer = Trainer(model, parts.loss, optimizer, parts.schedule, record)

    def train(epochs: int, _: Any = folder) -> None:
        record.settings = replace(record.settings, epochs=record.progress.epoch + epochs)
        trainer.fit(data)

    return train


def _allranks(
    model: nn.Module, parts: Experiment, optimizer: Any, batches: Any, name: str
) -> Callable[[int], None]:
    loss, step = peers.allrank_loss(name), peers.need("allrank.training.train_utils").loss_batch
    rate = optimizer.param_groups[0]["lr"]

    def train(epochs: int) -> None:
        model.train()
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = rate * parts.schedule(epoch, epochs)
            for batch in batches:
                features, labels, ranks = (tensor.to(parts.device) for tensor in batch)
                step(model, loss, features, labels, ranks, None, optimizer)

    return train


def cases(keys: Any) -> list[Case]:
    """An epoch with each of three losses; on a GPU in TF32, bfloat16 and compiled too."""
    lists = keys.lists or (6400 if keys.device == "cuda" else 512)
    more = VARIANTS if keys.device == "cuda" else ()
    return [case(loss, lists, keys, OURS, *more, "allrank") for loss in LOSSES]


if __name__ == "__main__":
    common.main("Training", cases, SIZES, SMALL)
