"""Score lists with a model, and compute metrics of the scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles, Ints, Reals
from ltr.data.batches import Batch, ItemTensors, batches_by_length
from ltr.data.lists import Lists
from ltr.errors import ConfigError, TrainingError
from ltr.metrics import Convention, Metric, mean_over_lists
from ltr.metrics.ordering import sorted_once
from ltr.metrics.per_list import describe_value
from ltr.metrics.ties import TiesAveraged
from ltr.training.device import matrix_products
from ltr.training.distributed import all_reduce, rank_share
from ltr.training.hooks import progress_bar
from ltr.typing import Labels, Mask, Scores

PerQuery = Mapping[str, Doubles]  # for each metric [lists], NaN for skipped lists

_NAMED = 10  # the most query ids in an error message


def score(model: Callable[..., Tensor], batch: Batch, precision: str = "float32") -> Scores:
    """Return the float32 scores that ``model`` gives the items of ``batch``: ``[batch, list]``.

    The model runs in ``precision``. If the model returns the scores of several members, the result
    is ``[members, batch, list]``. If ``precision`` is ``"tf32"``, the caller must enter the context
    ``matrix_products`` for the forward and the backward pass.

    Raises:
        ConfigError: the model, which may be the user's own, did not return one score per item.
    """
    device = batch.features.device.type
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
        scores = model(batch.features, batch.mask, batch.ranks)
    if not isinstance(scores, Tensor) or scores.shape[-2:] != batch.mask.shape:
        raise ConfigError(
            f"expected one score per item from the model, a tensor of shape "
            f"{list(batch.mask.shape)} for these {len(batch)} lists, got {describe_value(scores)}"
        )
    return scores.float()


@torch.inference_mode()
def predict(
    model: nn.Module, data: ItemTensors, *, items: int = 32768, precision: str = "float32"
) -> Tensor:
    """Return the float32 scores of all items, ``[items]``, in the order of ``data``.

    The scores are on the device of ``data``. Lists are never cut, and dropout is off. ``items`` is
    the maximum number of items in a batch, padding included. Processes that train together share
    the work, and each returns all scores. Raises ``TrainingError`` if the score of an item is not
    finite.
    """
    count = len(data.labels)
    out = torch.zeros(count + 1, device=data.device)  # padding is written to the last place
    model.eval()
    with (
        matrix_products(precision),
        progress_bar(total=len(data), desc="predict", unit="list") as bar,
    ):
        for lists in rank_share(batches_by_length(data.lengths, items=items)):
            batch = data.batch(lists)
            out[batch.rows.masked_fill(~batch.mask, count)] = score(model, batch, precision)
            bar.update(len(batch))
    remedy = "train with a lower optimizer.lr or clip=1, or check the features of these lists"
    scores = all_reduce(out[:-1])
    check_finite(scores, data, whose="model's", remedy=remedy)
    return scores


def ranks_of(scores: Reals, offsets: Ints) -> Ints:
    """Return the ranks, ``[items]``, of the items in their lists; 1 is the best.

    Items with equal scores keep their order; NaN comes last. ``offsets`` are those of ``Lists``.

    >>> ranks_of(np.array([0.5, np.nan, 0.5, 2.0, 1.0]), np.array([0, 4, 5])).tolist()
    [2, 4, 3, 1, 1]
    """
    first = np.repeat(offsets[:-1], np.diff(offsets))
    ranks = np.empty(len(scores), np.int64)
    ranks[np.lexsort((-scores, first))] = np.arange(1, len(scores) + 1) - first
    return ranks


def check_finite(scores: Tensor, lists: Lists | ItemTensors, *, whose: str, remedy: str) -> None:
    """Raise ``TrainingError`` unless all ``scores``, ``[items]``, are finite.

    If a score were NaN, the metric of its list would be NaN too. But NaN also marks a list that a
    mean leaves out (``empty="skip"``), so the fault would go unnoticed. ``whose`` (such as
    ``"model's"``) and ``remedy`` are for the error message.
    """
    items = np.flatnonzero(~scores.isfinite().cpu().numpy())
    if len(items):
        broken = np.unique(np.searchsorted(lists.offsets, items, side="right") - 1)
        qids = ", ".join(lists.qids[broken[:_NAMED]]) + ", ..." * (len(broken) > _NAMED)
        raise TrainingError(
            f"the {whose} scores are not finite on {len(broken):,} of the lists (query ids {qids})"
            f": {remedy}"
        )


class Padded(NamedTuple):
    """A padded batch of lists without features, on the device of the labels."""

    rows: Tensor  # [batch, list], index of each item among all items, 0 where padded
    labels: Labels  # [batch, list] float64, 0 where padded
    mask: Mask  # [batch, list], True where an item exists
    lists: Ints  # [batch], the indices of the lists


def padded_batches(
    lists: Lists | ItemTensors, *, items: int, pairs: int | None = None
) -> Iterator[Padded]:
    """Yield batches that together contain every list once, uncut.

    A batch has at most ``items`` items, padding included, and ``pairs`` pairs of items (None: no
    limit). A list that exceeds a limit has a batch of its own.
    """
    labels = _double(lists.labels)
    for indices in batches_by_length(lists.lengths, items=items, pairs=pairs):
        starts, lengths = (
            torch.from_numpy(numbers[indices])[:, None].to(labels.device)
            for numbers in (lists.offsets, lists.lengths)
        )
        positions = torch.arange(int(lists.lengths[indices[0]]), device=labels.device)
        mask = positions < lengths
        rows = (starts + positions).masked_fill_(~mask, 0)
        yield Padded(rows, labels[rows].masked_fill_(~mask, 0.0), mask, indices)


@torch.inference_mode()
def metrics_of_scores(
    lists: Lists | ItemTensors,
    scores: Tensor | Reals,
    metrics: Sequence[Metric | TiesAveraged],
    convention: Convention,
    *,
    items: int = 32768,
) -> dict[str, Doubles]:
    """Return each metric of each list, in the order of ``lists``: ``{"ndcg@5": [lists], ...}``.

    The metrics are computed in float64 on the device of the labels; lists are never cut. Processes
    that train together share the work, and each returns all values.

    Args:
        lists: the lists with their labels.
        scores: ``[items]``, in the order of ``lists``.
        metrics: the metrics.
        convention: the convention of the metrics; the value of a list that it skips is NaN.
        items: the maximum number of items in a batch, padding included. This limits the memory; the
            values do not depend on it.
    """
    flat = _double(scores).to(lists.labels.device)
    values = []
    order = []
    for batch in rank_share(padded_batches(lists, items=items)):
        padded = flat[batch.rows], batch.labels, batch.mask
        with sorted_once():
            values.append(torch.stack([metric(*padded, convention) for metric in metrics]))
        order.append(batch.lists)
    out = np.zeros((len(metrics), len(lists)))
    if order:
        out[:, np.concatenate(order)] = (
            torch.cat(values, dim=-1).cpu().numpy()
        )  # waits for a GPU only once
    all_reduce(torch.from_numpy(out))
    return dict(zip(map(str, metrics), out, strict=True))


def means(values: PerQuery, convention: Convention) -> dict[str, float]:
    """Return the mean of each metric over the lists that the convention does not skip."""
    empty = convention.empty
    return {
        name: mean_over_lists(torch.from_numpy(metric_values), empty=empty)
        for name, metric_values in values.items()
    }


def values_with_ties_averaged(
    lists: Lists | ItemTensors,
    scores: Tensor | Reals,
    metrics: Sequence[Metric],
    convention: Convention,
    *,
    items: int = 32768,
) -> dict[str, Doubles]:
    """Return what ``metrics_of_scores`` returns, but with ties averaged as in ``TiesAveraged``."""
    averaged = [TiesAveraged(metric) for metric in metrics]
    values = metrics_of_scores(lists, scores, averaged, convention, items=items)
    return dict(zip(map(str, metrics), values.values(), strict=True))


def _double(values: Tensor | Reals) -> Tensor:
    """Return ``values`` as a float64 tensor; an array is copied, because it may be read-only."""
    if isinstance(values, Tensor):
        return values.double()
    return torch.from_numpy(values.astype(np.float64))
