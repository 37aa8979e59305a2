"""Train the same run in two processes, and compare the weights bit for bit: ``what=bits``.

On a GPU with ``deterministic=true``.
"""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from omegaconf import DictConfig

from ltr.benchmark.training import LOSSES, config_of, trainee
from ltr.benchmark.worker import OURS, Answer, Case, Work
from ltr.experiment.build import build
from ltr.training.checkpoint import add_tensors
from ltr.training.device import deterministic

AGAIN = "again"


def cases(sizes: DictConfig) -> list[Case]:
    """A few epochs with each of three losses."""
    lists, epochs = int(sizes.bits_lists), int(sizes.bits_epochs)
    common = {
        "queries": lists, "epochs": epochs,
        "batch_size": int(sizes.train_batch), "list_size": int(sizes.train_list_size),
    }  # fmt: skip
    told = f"{lists:,} lists, {epochs} epochs"
    return [Case(f"{loss}, {told}", {"loss": loss, **common}, (OURS, AGAIN)) for loss in LOSSES]


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """The training; ``answer`` is a hash of the weights that a first one leaves."""
    left = ExitStack()
    left.enter_context(deterministic(device == "cuda"))  # before anything uses the GPU
    cfg = config_of(settings, device, cache_dir)
    experiment = build(cfg)
    lists = experiment.dataset.split("train")
    transform = experiment.fit_transform(lists)
    seed, epochs = int(cfg.seed), int(settings["epochs"])
    torch.manual_seed(seed)
    trained = trainee(OURS, settings, cfg, experiment, lists, transform)
    left.callback(trained.close)

    def answer() -> Answer:
        torch.manual_seed(seed)  # of dropout
        trained.train(epochs)
        digest = hashlib.sha256()
        state = trained.model.state_dict()
        add_tensors(digest, {name: weights.cpu() for name, weights in state.items()})
        return {"weights": digest.hexdigest()[:12]}

    note = "" if side == OURS else "another process, timed where it trains the same bits"
    more: Any = {"note": note, "close": left.close}
    return Work(lambda: trained.train(epochs), answer, len(lists) * epochs, "lists", **more)
