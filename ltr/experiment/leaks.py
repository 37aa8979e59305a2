"""Warn of leaks, which make a result look better than it is, and of features without a value.

There is a leak if two splits share queries, or if a feature is the position at which an item was
shown.
"""

import logging
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ltr.data.lists import Lists

log = logging.getLogger(__name__)

_ROWS = 1 << 13  # rows that are hashed at once
_FIRST_LISTS = 64  # this many lists are enough to rule out most columns
_FEWEST_ITEMS = 20  # among fewer items, a column may hold the numbers from 1 to n by chance
_POSITION = re.compile(
    r"(shown|display|displayed|impression|serp|result|list|item|original|old|previous|initial)?"
    r"(position|pos|rank|slot)(shown|displayed|at)?|shownat|rownumber|rowid|rownr|index|level\d+"
)


def warn_of_leaks(lists: Mapping[str, Lists]) -> None:
    """Log warnings of shared queries, of features that look like positions, and of empty features.

    There is a warning for each pair of splits that share queries. Features are checked in the
    training lists only.
    """
    warn_of_shared_queries(lists)
    warn_of_positions(lists["train"])
    warn_of_empty_features(lists["train"])


def warn_of_shared_queries(lists: Mapping[str, Lists]) -> None:
    """Log how many queries of a split have the same items as a query of an earlier split."""
    hashes = {split: hash_lists(split_lists) for split, split_lists in lists.items()}
    for split, later_split in combinations(lists, 2):
        if len(lists[split]) == len(lists[later_split]) == 1:  # a single list, used for both splits
            continue
        shared = int(np.isin(hashes[later_split], hashes[split]).sum())
        if shared:
            log.warning(
                "%s of %s queries of %s have the same items as a query of %s (all features are "
                "equal); if they are the same queries, leave them out of one split, because they "
                "make the metrics of %s too high",
                f"{shared:,}", f"{len(lists[later_split]):,}", later_split, split, later_split,
            )  # fmt: skip


def hash_lists(lists: Lists) -> NDArray[np.uint64]:
    """Return a hash of the features of each list; the order of its items does not matter.

    A list whose items all have the same features is left out, because its items cannot be ranked.
    """
    factors = np.random.default_rng(0).integers(1, 2**63, lists.width, np.uint64) * 2 + 1
    items = np.empty(lists.items, np.uint64)
    for first in range(0, lists.items, _ROWS):
        block = np.ascontiguousarray(lists.features[first : first + _ROWS], np.float32) + 0  # no -0
        items[first : first + _ROWS] = np.einsum("ij,j->i", block.view(np.uint32), factors)
    items = (items ^ (items >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    items ^= items >> np.uint64(32)
    starts = lists.offsets[:-1]
    differ = np.minimum.reduceat(items, starts) < np.maximum.reduceat(items, starts)
    return np.add.reduceat(items, starts)[differ]


def warn_of_positions(train: Lists) -> None:
    """Log which columns look like the position at which items were shown."""
    names = () if train.columns is None else train.columns.names
    suspects = []
    counting = counting_columns(train)
    for column in range(train.width):
        name = names[column] if names else f"feature {column + 1}"
        if column in counting:
            suspects.append(f"{name} (it holds consecutive numbers)")
        elif names and _POSITION.fullmatch(re.sub(r"[\W_]", "", name.lower())):
            suspects.append(f"{name} (because of its name)")
    if suspects:
        log.warning(
            "features that look like the position at which items were shown, or like row numbers: "
            "%s; leave out columns that are not known before items are ranked (in a table, set "
            "dataset.id to their names)", ", ".join(suspects[:12]),
        )  # fmt: skip


def warn_of_empty_features(train: Lists) -> None:
    """Log which features have no value in any training row."""
    if train.missing < train.items:
        return
    empty = np.flatnonzero(np.isnan(train.features).all(0))
    if len(empty):
        names = () if train.columns is None else train.columns.names
        shown = [names[column] if names else f"feature {column + 1}" for column in empty[:12]]
        log.warning(
            "features without a value in any training row: %s; leave out these columns (a "
            "separator at the end of each row of a file makes such a column)", ", ".join(shown),
        )  # fmt: skip


def counting_columns(lists: Lists) -> list[int]:
    """Return the indices of the columns that hold consecutive numbers.

    Such numbers count the items of each list, or the rows of the source. The numbers of a list may
    be in any order and start at any number.
    """
    long = np.flatnonzero(lists.lengths > 1)
    if (lists.lengths[long] - 1).sum() < _FEWEST_ITEMS or lists.lengths.max() < 4:
        return []
    first = lists.subset(long[:_FIRST_LISTS])
    candidates = [column for column in range(lists.width) if _counts(first, column)]
    return [column for column in candidates if _counts(lists, column)]


def _counts(lists: Lists, column: int) -> bool:
    """Return whether the numbers in a column count the items of each list, or the rows."""
    values: Any = lists.features[:, column].astype(np.float64)
    if np.ptp(values - lists.source_rows) == 0:
        return True
    number = np.repeat(np.arange(len(lists)), lists.lengths)
    step = np.diff(values[np.lexsort((values, number))])
    return bool((step[np.diff(number) == 0] == 1).all())
