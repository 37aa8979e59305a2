"""Whether an exported model scores real lists as the model does."""

from typing import Any

import numpy as np

from ltr.data.lists import Ints, Lists
from ltr.errors import ConfigError
from ltr.export.form import Scores

TOLERANCE = 1e-5  # of a score, or of the largest score of the list where that is above 1


def parity(lists: Lists, ours: Scores, theirs: Scores, what: str) -> dict[str, Any]:
    """Compare the scores of every item, ``[items]``; what was seen, for the parity file.

    Args:
        lists: the lists.
        ours: of the model.
        theirs: of the exported form.
        what: the exported form, for the message.

    Raises:
        ConfigError: a list differs, with the first one's qid, items and scores.
    """
    largest = np.maximum.reduceat(np.abs(ours), lists.offsets[:-1]).astype(np.float64)
    units = np.repeat(np.maximum(1.0, largest), lists.lengths)
    gaps = np.abs(theirs.astype(np.float64) - ours)
    near = 0
    for i in range(len(lists)):
        rows = slice(lists.offsets[i], lists.offsets[i + 1])
        unit = float(units[rows.start])
        least = TOLERANCE * unit
        far = ~(gaps[rows] <= least)  # NaN is far
        if far.any():
            shown: Ints = np.flatnonzero(far)[:2].astype(np.int64)
        else:
            shown = _swapped(ours[rows], theirs[rows], least)
            near += len(_swapped(ours[rows], theirs[rows], 0.0)) > 0
        if len(shown):
            raise _differs(what, lists, i, shown, ours[rows], theirs[rows])
    return {
        "lists": len(lists),
        "items": lists.items,
        "largest_difference": float(gaps.max()),
        "largest_difference_of_unit": float((gaps / units).max()),
        "unit": "max(1, largest |score| of the list)",
        "tolerance": TOLERANCE,
        "lists_that_change_order": 0,
        "lists_where_closer_items_change_order": near,
        "exported_scores": [float(theirs.min()), float(theirs.max())],
    }


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
