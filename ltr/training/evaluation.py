"""Metrics of a model on full lists, one value per list."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from ltr.data.batches import Batch, ItemTensors, full_batches
from ltr.errors import TrainingError
from ltr.metrics import Convention, Metric, mean_over_lists
from ltr.metrics.ordering import sorted_once
from ltr.training.device import check_memory
from ltr.typing import Scores


def score(model: Callable[..., Tensor], batch: Batch, precision: str = "float32") -> Scores:
    """Scores ``[batch, list]`` in float32, the model run in ``precision``."""
    with torch.autocast(
        batch.features.device.type, torch.bfloat16, enabled=precision == "bfloat16"
    ):
        scores = model(batch.features, batch.mask, batch.ranks)
    return scores.float()


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    data: ItemTensors,
    metrics: Sequence[Metric],
    convention: Convention,
    *,
    items: int = 32768,
    precision: str = "float32",
) -> dict[str, NDArray[np.float64]]:
    """Every metric of every list, in the order of ``data``: ``{"ndcg@5": [lists], ...}``.

    Lists are never cut; dropout is off. ``items`` bounds the padded items of a batch and changes
    memory, not values. A list that the convention skips is NaN.

    Raises:
        TrainingError: the score of an item is not finite.
        DataError: the longest list takes the model more memory than is free.
    """
    check_memory(model, int(data.lengths.max()), data.device, training=False)
    out = {str(metric): np.full(len(data), np.nan) for metric in metrics}
    model.eval()
    with tqdm(total=len(data), desc="evaluate", unit="list", leave=False, disable=None) as bar:
        for batch in full_batches(data, items=items):
            scores = score(model, batch, precision).double()
            _check_finite(scores, batch, data)
            labels = batch.labels.double()
            with sorted_once():
                values = [metric(scores, labels, batch.mask, convention) for metric in metrics]
            for metric, row in zip(metrics, torch.stack(values).cpu().numpy(), strict=True):
                out[str(metric)][batch.lists] = row
            bar.update(len(batch))
    return out


def _check_finite(scores: Scores, batch: Batch, data: ItemTensors) -> None:
    """A list that the model breaks down on must not look like one that the convention skips."""
    broken = (~scores.isfinite() & batch.mask).any(-1).cpu().numpy()
    if broken.any():
        qids = ", ".join(data.qids[batch.lists[broken]])
        raise TrainingError(
            f"the model's scores are not finite on lists with query id {qids}: train with a lower "
            "optimizer.lr or clip=1, or look at the features of these lists"
        )


@torch.inference_mode()
def predict(
    model: nn.Module, data: ItemTensors, *, items: int = 32768, precision: str = "float32"
) -> NDArray[np.float32]:
    """The score of every item, ``[items]``, in the order of ``data``.

    Raises:
        DataError: the longest list takes the model more memory than is free.
    """
    check_memory(model, int(data.lengths.max()), data.device, training=False)
    out = np.full(int(data.offsets[-1]), np.nan, np.float32)
    model.eval()
    with tqdm(total=len(data), desc="predict", unit="list", leave=False, disable=None) as bar:
        for batch in full_batches(data, items=items):
            rows = data.offsets[batch.lists][:, None] + batch.ranks.cpu().numpy() - 1
            mask = batch.mask.cpu().numpy()
            out[rows[mask]] = score(model, batch, precision).cpu().numpy()[mask]
            bar.update(len(batch))
    return out


def means(values: dict[str, NDArray[np.float64]], convention: Convention) -> dict[str, float]:
    """The mean over lists of each metric; lists that the convention skips are left out."""
    return {
        name: mean_over_lists(torch.from_numpy(per_list), empty=convention.empty)
        for name, per_list in values.items()
    }
