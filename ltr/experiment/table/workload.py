"""How much work a run is: its lists, counted or as published, and noise of their shape."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import SPLITS, Lists
from ltr.data.published.archives import SETS, Known
from ltr.errors import DataError
from ltr.experiment.build import make_dataset
from ltr.experiment.table.plan import Run

_SPREAD = 0.75  # standard deviation of the log of a list's length, about Web30K's
_RELEVANT = 0.3  # share of the items that are relevant, by chance one of the grades


@dataclass(frozen=True)
class Shape:
    """What of a data set decides how long a run takes.

    Attributes:
        lists: by split.
        length: mean number of items of a list.
        lengths: items of each list of train, or None where the data are not here.
    """

    lists: dict[str, int]
    length: float
    lengths: NDArray[np.int64] | None = None

    @property
    def known(self) -> bool:
        """Whether it was counted in the data themselves."""
        return self.lengths is not None


def shape_of(run: Run) -> Shape:
    """How many lists of which length the run has; as published where its data are not here.

    Raises:
        DataError: the data are not here, and nobody published how many lists they hold.
    """
    if run.absent is None:
        dataset = make_dataset(run.config.dataset)
        splits = {split: dataset.split(split) for split in SPLITS}
        items = sum(lists.items for lists in splits.values())
        count = {split: len(lists) for split, lists in splits.items()}
        return Shape(count, items / sum(count.values()), splits["train"].lengths)
    name = str(run.config.dataset.name)
    if name not in SETS:
        raise DataError(run.absent)
    known = [record for record in SETS[name].known if record.fold == run.fold]
    both = [(r.rows / r.lists, len(r.splits)) for r in known if r.rows and r.lists]
    length = max(both, key=lambda pair: pair[1])[0]
    return Shape(_lists_by_split(known, SETS[name].vali_share), length)


def _lists_by_split(known: Sequence[Known], vali_share: float) -> dict[str, int]:
    """Lists of each split; what is only known together is split as the data set is."""
    of = {record.splits: record.lists for record in known if record.lists}
    lists = {split: of[(split,)] for split in SPLITS if (split,) in of}
    if "train" not in lists and ("train", "vali") in of:
        vali = round(of["train", "vali"] * vali_share)
        lists |= {"train": of["train", "vali"] - vali, "vali": vali}
    whole = of.get(tuple(SPLITS), 0)
    usual = {"train": 0.6, "vali": 0.2, "test": 0.2}
    return {split: lists.get(split, round(usual[split] * whole)) for split in SPLITS}


def drawn_lists(shape: Shape, count: int, width: int) -> Lists:
    """``count`` lists of noise, as long as lists of train are, the same each time.

    Where the data are not here lengths are lognormal with the mean of ``shape``, about as search
    results are; a third of the items is relevant.
    """
    rng = np.random.default_rng(0)
    if shape.lengths is None:
        drawn = rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, count) * shape.length
        lengths = np.clip(np.rint(drawn), 1, round(10 * shape.length)).astype(np.int64)
    else:
        lengths = rng.choice(shape.lengths, count)
    items = int(lengths.sum())
    labels = np.where(rng.random(items) < _RELEVANT, rng.integers(1, 3, items), 0)
    return Lists(
        features=rng.standard_normal((items, width), dtype=np.float32),
        labels=labels.astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        qids=np.arange(count).astype(str),
    )
