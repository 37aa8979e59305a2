"""Time losses forward and backward, ours and allRank's: python benchmarks/losses.py only=ndcg."""

from functools import partial
from typing import Any

import common
import numpy as np
import peers
import torch
from common import OURS, Case, Work
from torch import Tensor

from ltr.cli.compose import composed
from ltr.cli.configs import CONFIGS
from ltr.parts.components import bind_part

SIZES: dict[str, Any] = {
    "batch": (64, 4), "list_size": (240, 12),  # half of [batch, list_size] is padding
    "long_lists": (  # one full list of so many items
        "neuralndcg 240, neuralndcg 5000, neuralndcg 20000, approxndcg 240, approxndcg 20000, "
        "lapndcg 240, lapndcg 20000, lapndcg 1000000, neuralndcg_t 5000, lambdarank 10000, "
        "ranknet 10000", "neuralndcg 50",
    ),
}  # fmt: skip
# The gradients of NeuralNDCG differ, as allRank does 50 Sinkhorn iterations and ours 30.
TOLERANCE = {"value": 1e-4, "gradient": 1e-2}


def case(loss: str, shape: tuple[int, int], device: str, *, padded: bool = False) -> Case:
    """A loss on ``[batch, list]``; ``padded``: half of that is padding."""
    sides = (OURS, "allrank") if loss in peers.ALLRANK else (OURS,)
    make = partial(work, loss=loss, shape=shape, device=device, padded=padded)
    return Case(f"{loss} {list(shape)}", make, sides, TOLERANCE)


def work(side: str, *, loss: str, shape: tuple[int, int], device: str, padded: bool) -> Work:
    """Forward and backward of a loss for one side."""
    scores, labels, mask = _lists(loss, shape, device, padded)
    if side == OURS:
        function = bind_part(composed("train", f"loss={loss}").loss, "loss")
        scale = _scale(peers.ALLRANK.get(loss, ("mean",))[-1], labels, mask)
    else:
        theirs, marked = peers.allrank_loss(loss), labels.masked_fill(~mask, -1.0)

    def call() -> Any:
        scores.grad = None
        if side == OURS:
            value = function(scores, labels, mask).sum() * scale
        else:  # RMSE: its model ends in a sigmoid, our loss applies it
            value = theirs(scores.sigmoid() if loss == "rmse" else scores, marked)
        value.backward()
        return value.detach(), scores.grad

    def answer() -> dict[str, Any]:
        value, gradient = call()
        return {"value": float(value), "gradient": gradient[mask].cpu().numpy()}

    return Work(call, answer, amount=shape[0])


def _lists(loss: str, shape: tuple[int, int], device: str, padded: bool) -> tuple[Tensor, ...]:
    """Scores as a Tanh gives them, labels, mask; padded: lengths drawn evenly, one list full."""
    rng, (batch, items) = np.random.default_rng(shape), shape
    scores = np.tanh(rng.normal(size=shape))
    labels = rng.choice(5, size=shape, p=(0.514, 0.325, 0.134, 0.019, 0.008))
    if loss == "listmle":  # draws the order of equal labels
        labels = rng.random(shape).argsort(-1)
    lengths = np.full(batch, items)
    if padded:
        lengths[1:] = rng.integers(1, items + 1, batch - 1)
    mask = torch.as_tensor(np.arange(items) < lengths[:, None]).to(device)
    as_floats = partial(torch.as_tensor, dtype=torch.float32, device=device)
    return as_floats(scores).requires_grad_(), as_floats(labels), mask


def _scale(reduction: str, labels: Tensor, mask: Tensor) -> float:
    """The factor from the sum of our values to the number that allRank returns."""
    count = {"sum": 1, "mean": len(labels)}.get(reduction)
    if reduction == "mean_nonempty":
        count = int(((labels > 0) & mask).any(-1).sum())
    if reduction == "mean_pairs":
        count = sum(int((y[m][:, None] > y[m]).sum()) for y, m in zip(labels, mask, strict=True))
    return 1.0 / max(1, count or 0)


def cases(keys: Any) -> list[Case]:
    """Every loss of ``configs/loss`` on a padded batch, then long lists."""
    names, shape = sorted((CONFIGS / "loss").glob("*.yaml")), (keys.batch, keys.list_size)
    found = [case(path.stem, shape, keys.device, padded=True) for path in names]
    long = map(str.split, keys.long_lists.split(", "))
    return found + [case(name, (1, int(items)), keys.device) for name, items in long]


if __name__ == "__main__":
    common.main("Losses: forward and backward", cases, SIZES)
