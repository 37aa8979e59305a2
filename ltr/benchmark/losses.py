"""Time losses forward and backward, ours and allRank's, on the same scores and labels."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from ltr.benchmark import peers
from ltr.benchmark.worker import OURS, Answer, Case, Work
from ltr.console.compose import composed
from ltr.console.configs import CONFIGS
from ltr.experiment.parts import bind

GRADES = 5  # labels are 0 to 4
PADDED = -1.0  # how allRank marks padding, in the labels
# The gradients of NeuralNDCG differ, as allRank does 50 Sinkhorn iterations and ours 30.
TOLERANCE = {"value": 1e-4, "gradient": 1e-2}


def cases(sizes: DictConfig) -> list[Case]:
    """Every loss of ``configs/loss`` on a padded batch, then long lists."""
    batch, items = int(sizes.batch), int(sizes.list_size)
    names = sorted(path.stem for path in (CONFIGS / "loss").glob("*.yaml"))
    found = [case(name, batch, items, half_padded=True) for name in names]
    for name, lengths in sizes.long_lists.items():
        found += [case(str(name), 1, int(n), half_padded=False) for n in lengths]
    return found


def case(loss: str, batch: int, items: int, *, half_padded: bool) -> Case:
    """A loss on ``batch`` lists of ``items`` items; ``half_padded``: half of them are padding."""
    settings = {"loss": loss, "batch": batch, "items": items, "half_padded": half_padded}
    sides = (OURS, "allrank") if loss in peers.ALLRANK else (OURS,)
    return Case(f"{loss} [{batch}, {items}]", settings, sides, TOLERANCE)


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """Forward and backward of a loss for one side."""
    scores, labels, mask = _batch(settings, device)
    name = str(settings["loss"])
    if side == OURS:
        cfg = composed("train", f"loss={name}", *settings.get("overrides", ()))
        loss = bind(cfg.loss, "loss")
        *_, reduction = peers.ALLRANK.get(name, ("mean",))
        scale = _scale(reduction, labels, mask)

        def objective() -> Tensor:
            return loss(scores, labels, mask).sum() * scale
    else:
        theirs, padded = peers.allrank_loss(name), labels.masked_fill(~mask, PADDED)

        def objective() -> Tensor:  # RMSE: its model ends in a sigmoid, our loss applies it
            return theirs(scores.sigmoid() if name == "rmse" else scores, padded)

    def call() -> Tensor:
        """Forward and backward."""
        scores.grad = None
        value = objective()
        value.backward()
        return value.detach()

    def answer() -> Answer:
        value = float(call())
        assert scores.grad is not None
        return {"value": value, "gradient": scores.grad[mask].tolist()}

    return Work(call, answer, int(settings["batch"]), "lists")


def _batch(settings: Mapping[str, Any], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Scores in (-1, 1), as a Tanh on the output gives them, labels and mask; seeded by size.

    Half padded means lengths drawn evenly from 1 to all, one list being full. For ListMLE, which
    draws the order of equal labels, no two labels of a list are equal.
    """
    batch, items = int(settings["batch"]), int(settings["items"])
    rng = np.random.default_rng([batch, items])
    scores = np.tanh(rng.normal(size=(batch, items)))
    labels = rng.choice(GRADES, size=(batch, items), p=(0.514, 0.325, 0.134, 0.019, 0.008))
    if settings["loss"] == "listmle":
        labels = rng.random((batch, items)).argsort(-1)
    lengths = np.full(batch, items)
    if settings["half_padded"]:
        lengths[1:] = rng.integers(1, items + 1, batch - 1)
    mask = np.arange(items) < lengths[:, None]
    as_floats = partial(torch.as_tensor, dtype=torch.float32, device=device)
    return as_floats(scores).requires_grad_(), as_floats(labels), torch.as_tensor(mask).to(device)


def _scale(reduction: str, labels: Tensor, mask: Tensor) -> float:
    """The factor from the sum of our values to the number that the peer returns."""
    if reduction == "sum":
        return 1.0
    if reduction == "mean_nonempty":
        return 1.0 / max(1, int(((labels > 0) & mask).any(-1).sum()))
    if reduction == "mean_pairs":
        return 1.0 / max(1, sum(_pairs(y[m]) for y, m in zip(labels, mask, strict=True)))
    return 1.0 / len(labels)


def _pairs(labels: Tensor) -> int:
    """Pairs of items of one list whose labels differ."""
    counts = torch.unique(labels, return_counts=True)[1].tolist()
    return (sum(counts) ** 2 - sum(c * c for c in counts)) // 2
