"""Cut the lists of vali from those of train."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ltr.data.cut import cut, place
from ltr.data.lists import Lists
from ltr.errors import DataError


@dataclass(frozen=True)
class Cut:
    """``part`` of the queries, drawn by ``seed``, is vali; the others are train.

    ``dataset=table`` cuts the same with ``dataset.seed`` and ``dataset.fractions``.
    """

    part: float
    seed: int

    def train(self, qids: NDArray[np.str_]) -> NDArray[np.bool_]:
        """Which of the queries ``qids``, each once, are of train.

        Raises:
            DataError: there is one only, or ``part`` is not between 0 and 1.
        """
        remedy = "give more queries, or eval_set=[(X, y, qid)]"
        if not isinstance(self.part, (int, float)) or not 0 < self.part < 1:
            raise DataError(
                f"vali_fraction={self.part}: give a number between 0 and 1, such as 0.2"
            )
        places = [place(qid, self.seed) for qid in qids.tolist()]
        parts = [1 - self.part, self.part]
        train = cut(places, parts, self.seed, title="vali from train", remedy=remedy)[0]
        return np.array([one < train.end for one in places])


def cut_off(lists: Lists, cut: Cut) -> Mapping[str, Lists]:
    """The lists of train and of vali, both in order."""
    kept = cut.train(lists.qids)
    return {"train": _chosen(lists, kept), "vali": _chosen(lists, ~kept)}


def _chosen(lists: Lists, which: NDArray[np.bool_]) -> Lists:
    """The lists where ``which``, ``[lists]``, is True."""
    return digested(replace(lists.subset(np.flatnonzero(which)), rows=None))


def digested(lists: Lists) -> Lists:
    """``lists`` with the SHA-256 of their arrays."""
    digest = hashlib.sha256("\0".join(lists.qids).encode())
    for array in (lists.offsets, lists.labels, lists.features, lists.weights):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return replace(lists, digest=digest.hexdigest())
