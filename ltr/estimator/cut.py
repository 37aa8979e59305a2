"""Cut the lists of vali from those of train."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Lists
from ltr.data.split import split_queries
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
        parts, title = [1 - self.part, self.part], "vali from train"
        train = split_queries(qids, parts, self.seed, title=title, remedy=remedy)[0]
        return np.array([qid in train for qid in qids])


def cut_off(lists: Lists, cut: Cut) -> Mapping[str, Lists]:
    """The lists of train and of vali, both in order."""
    kept = cut.train(lists.qids)
    return {"train": _chosen(lists, kept), "vali": _chosen(lists, ~kept)}


def _chosen(lists: Lists, which: NDArray[np.bool_]) -> Lists:
    """The lists where ``which``, ``[lists]``, is True."""
    return replace(lists.subset(np.flatnonzero(which)), rows=None).with_digest()
