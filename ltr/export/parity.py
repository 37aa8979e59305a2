"""Whether an exported model scores real lists as the model does."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ltr.data.lists import Ints, Lists
from ltr.errors import ConfigError
from ltr.export.form import Scores

TOLERANCE = 1e-5  # of a score, or of the largest score of the list where that is above 1


@dataclass(frozen=True)
class Parity:
    """The comparison of all items of some lists.

    Attributes:
        lists, items: how many were compared.
        difference: the largest of two scores of an item.
        relative: the largest difference over ``max(1, largest |score| of the list)``.
        near_ties: lists with two items closer than the tolerance that change order.
        scores: the smallest and the largest of the exported form.
    """

    lists: int
    items: int
    difference: float
    relative: float
    near_ties: int
    scores: tuple[float, float]

    def state(self) -> dict[str, Any]:
        """Plain values, for the parity file."""
        return {
            "lists": self.lists,
            "items": self.items,
            "largest_difference": self.difference,
            "largest_difference_of_unit": self.relative,
            "unit": "max(1, largest |score| of the list)",
            "tolerance": TOLERANCE,
            "lists_that_change_order": 0,
            "lists_where_closer_items_change_order": self.near_ties,
            "exported_scores": list(self.scores),
        }


def parity(lists: Lists, ours: Scores, raw: Scores, restored: Scores, what: str) -> Parity:
    """Compare the scores of every item, ``[items]``.

    Args:
        lists: the lists.
        ours: of the model.
        raw: of the exported form, by which the engine ranks.
        restored: ``raw`` as scores of the model.
        what: the exported form, for the message.

    Raises:
        ConfigError: a list differs, with the first one's qid, items and scores.
    """
    largest = np.maximum.reduceat(np.abs(ours), lists.offsets[:-1]).astype(np.float64)
    units = np.repeat(np.maximum(1.0, largest), lists.lengths)
    gaps = np.abs(restored.astype(np.float64) - ours)
    near = np.zeros(len(lists), bool)
    for i in range(len(lists)):
        rows = slice(lists.offsets[i], lists.offsets[i + 1])
        unit = float(units[rows.start])
        least = TOLERANCE * unit
        far = ~(gaps[rows] <= least)  # NaN is far
        if far.any():
            shown: Ints = np.flatnonzero(far)[:2].astype(np.int64)
        else:
            shown = _swapped(ours[rows], raw[rows], least)
            near[i] = bool(len(_swapped(ours[rows], raw[rows], 0.0)))
        if len(shown):
            raise _differs(what, lists, i, shown, ours[rows], restored[rows])
    return Parity(
        lists=len(lists),
        items=lists.items,
        difference=float(gaps.max()),
        relative=float((gaps / units).max()),
        near_ties=int(near.sum()),
        scores=(float(raw.min()), float(raw.max())),
    )


def _swapped(ours: Scores, theirs: Scores, least: float) -> Ints:
    """Two items, ``[2]``, whose order changes or is lost though ours differ by over ``least``.

    Empty: there are none. With ``least`` 0 an order that is lost does not count.
    """
    order = np.argsort(ours, kind="stable")
    scores, others = ours[order].astype(np.float64), theirs[order]
    below = np.searchsorted(scores, scores - least, side="left")  # how many are clearly smaller
    best = np.maximum.accumulate(others)
    place = np.maximum(below - 1, 0)
    wrong = (best[place] >= others) if least else (best[place] > others)
    found = np.flatnonzero(wrong & (below > 0))
    if not len(found):
        return np.zeros(0, np.int64)
    one = found[0]
    other = int(np.argmax(others[: below[one]]))
    chosen: Ints = order[[other, one]].astype(np.int64)
    return chosen


def _differs(
    what: str, lists: Lists, i: int, items: Ints, ours: Scores, theirs: Scores
) -> ConfigError:
    told = " and ".join(f"item {n + 1} is {ours[n]:.9g} here, {theirs[n]:.9g} there" for n in items)
    return ConfigError(
        f"{what} does not score as the model does: of list qid {lists.qids[i]} {told}; nothing is "
        "written: choose another form, such as to=onnx, or report the model's config"
    )
