"""Time an epoch of training of the paper's Web30K model: python benchmarks/training.py."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import peers
import torch
from common import OURS, Case, Work

from ltr.cli.compose import composed
from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.experiment.build import build
from ltr.training.monitor import Monitor
from ltr.training.trainer import Trainer

NOTES = {OURS: "with its checkpoint and validation", "allrank": "steps alone, no evaluation"}
LOSSES = ("neuralndcg", "lambdarank", "listnet")
VARIANTS = ("precision=tf32", "precision=bfloat16", "compile=true")  # ours, as sides
SIZES = {"lists": (None, 8), "batch_size": (64, 4), "list_size": (240, 20)}


def case(loss: str, lists: int, keys: Any, *sides: str) -> Case:
    """One epoch over ``lists`` synthetic lists."""
    return Case(f"{loss}, {lists:,} lists", partial(work, loss=loss, lists=lists, keys=keys), sides)


def work(side: str, *, loss: str, lists: int, keys: Any) -> Work:
    """An epoch for one side; all have the same lists, sizes, optimiser and rate."""
    model, train, *_ = trained(side, loss, config(side, loss, lists, keys))
    answer = {"parameters": sum(weights.numel() for weights in model.parameters())}
    return Work(lambda: train(1), lambda: answer, NOTES.get(side, ""), lists)


def config(side: str, loss: str, lists: int, keys: Any, seed: int = 1) -> Any:
    """The config of ``train.py`` for the paper's model; a side of ours may be an override."""
    return composed(
        "train", "dataset=synthetic", f"dataset.queries={lists}", f"batch_size={keys.batch_size}",
        f"list_size={keys.list_size}", f"device={keys.device}", f"cache_dir='{keys.cache_dir}'",
        "epochs=100000", f"loss={loss}", "metrics=[ndcg@5]", f"seed={seed}",
        *([side] if "=" in side else []),
    )  # fmt: skip


def first(lists: Lists, count: int) -> Lists:
    """The first ``count`` lists."""
    end, name = lists.offsets[count], f"{lists.digest}-first-{count}"
    starts = lists.offsets[: count + 1]
    return Lists(lists.features[:end], lists.labels[:end], starts, lists.qids[:count], name)


def trained(side: str, loss: str, cfg: Any) -> Any:
    """The untrained model of ours or of allRank, what trains it for some epochs, its parts."""
    parts, theirs = build(cfg), side == "allrank"
    lists = parts.dataset.split("train")
    transform = parts.fit_transform(lists)
    torch.manual_seed(int(cfg.seed))
    np.random.seed(int(cfg.seed))  # noqa: NPY002 (allRank cuts long lists with it)
    make = partial(peers.allrank_model, cfg.model) if theirs else parts.make_model
    model = make(lists.width).to(parts.device)
    optimizer = parts.make_optimizer(model.parameters())
    if theirs:
        batches = peers.allrank_loader(lists, transform, cfg.batch_size, cfg.list_size)
        step = peers.need("allrank.training.train_utils").loss_batch
        value, rate = peers.allrank_loss(loss), optimizer.param_groups[0]["lr"]
    else:
        splits = {"train": lists, "vali": first(lists, min(4, len(lists)))}
        data = {name: ItemTensors(some, transform, parts.device) for name, some in splits.items()}
        about: Any = {"metrics": parts.metrics, "convention": parts.convention, "state": {}}
        folder = tempfile.TemporaryDirectory()
        monitor = Monitor(parts.settings, folder=Path(folder.name), **about)
        learner = Trainer(model, parts.loss, optimizer, parts.schedule, monitor)  # type: ignore[arg-type]

    def ours(epochs: int) -> None:
        assert Path(folder.name).is_dir()  # lives as long as this function
        done = monitor.progress.epoch
        monitor.settings = replace(monitor.settings, epochs=done + epochs)
        learner.fit(data)

    def allranks(epochs: int) -> None:
        model.train()
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = rate * parts.schedule(epoch, epochs)
            for batch in batches:
                features, labels, ranks = (tensor.to(parts.device) for tensor in batch)
                step(model, value, features, labels, ranks, None, optimizer)

    return model, allranks if theirs else ours, parts, transform


def cases(keys: Any) -> list[Case]:
    """An epoch with each of three losses; on a GPU in TF32, bfloat16 and compiled too."""
    lists = keys.lists or (6400 if keys.device == "cuda" else 512)
    more = VARIANTS if keys.device == "cuda" else ()
    return [case(loss, lists, keys, OURS, *more, "allrank") for loss in LOSSES]


if __name__ == "__main__":
    common.main("Training", cases, SIZES)
