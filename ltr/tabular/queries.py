"""The queries of the rows of a table, which need not be together."""

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from ltr.data.letor import LONGEST_QID, together
from ltr.data.lists import Doubles, Floats, Ints, Texts
from ltr.errors import DataError
from ltr.tabular.blocks import Block
from ltr.tabular.cells import distinct, kind, query_text


def query_texts(column: Any, at: Callable[[int], str]) -> tuple[list[str], Ints]:
    """The texts of the different query ids of a column, and the place there of each row's.

    Args:
        column: a ``pa.Array``, ``[rows]``.
        at: where a row stands, for messages.

    Raises:
        DataError: a row has no query id, or one that is too long; or they are lists.
    """
    if kind(column.type) == "other":
        raise DataError(f"{at(0)}: a query id is {column.type}; expected numbers or texts")
    values, places = distinct(column)
    texts = [query_text(value) for value in values]
    for number, text in enumerate(texts):
        if not text or len(text) > LONGEST_QID:
            row = int(np.flatnonzero(places == number)[0])
            found = f"a query id of {len(text):,} characters" if text else "no query id"
            raise DataError(
                f"{at(row)}: {found}; expected one of at most {LONGEST_QID:,} characters in every "
                "row"
            )
    return texts, places


def texts_of_block(block: Block, query: str) -> tuple[list[str], Ints]:
    """``query_texts`` of the column ``query``."""
    return query_texts(block.cells.column(query), lambda row: f"{block.at(row)}, column {query!r}")


def checked_weights(values: Doubles | Floats, at: Callable[[int], str]) -> Floats:
    """The weights ``values``, ``[rows]``, as float32.

    Args:
        values: NaN where a row has none.
        at: where a row stands, for messages.

    Raises:
        DataError: one is not a finite number > 0 in float32.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    if not (good := (single > 0) & np.isfinite(single)).all():
        row = int(np.flatnonzero(~good)[0])
        found = "no weight" if np.isnan(values[row]) else f"weight {values[row]:g}"
        raise DataError(
            f"{at(row)}: {found}; expected a finite number > 0 in float32, so leave out the "
            "queries of weight zero"
        )
    return single


class Queries:
    """Collects the queries of rows and their weights."""

    def __init__(self) -> None:
        self.lists: dict[str, int] = {}  # qid -> its list, in order of the first appearance
        self.runs: list[tuple[Ints, Ints]] = []  # lists and rows of neighbouring rows of a query
        self._weights = np.empty(0)  # of each list, with room for more; NaN: not known yet
        self._now = np.empty(0, np.int64)  # the list of each row of the last block

    def add(self, block: Block, query: str, keep: Container[str] | None) -> Ints:
        """Take a block; which of its rows are kept."""
        texts, places = texts_of_block(block, query)
        kept = [keep is None or text in keep for text in texts]
        known = [
            self.lists.setdefault(text, len(self.lists)) if take else -1
            for text, take in zip(texts, kept, strict=True)
        ]
        lists = np.array(known, np.int64)[places]
        rows = np.flatnonzero(lists >= 0)
        self._now = lists = lists[rows]
        if len(lists):
            starts = np.flatnonzero(np.diff(lists, prepend=-1))
            self.runs.append((lists[starts], np.diff(starts, append=len(lists))))
        return rows

    def weigh(self, block: Block, rows: Ints, values: Doubles | Floats) -> None:
        """Take the weights of the rows that ``add`` has kept."""
        checked_weights(values, lambda row: block.at(rows[row]))
        if len(self.lists) > len(self._weights):
            room = np.full(2 * len(self.lists), np.nan)
            room[: len(self._weights)] = self._weights
            self._weights = room
        fresh, first = np.unique(self._now, return_index=True)
        unknown = np.isnan(self._weights[fresh])
        self._weights[fresh[unknown]] = values[first[unknown]]
        if len(other := np.flatnonzero(self._weights[self._now] != values)):
            row = int(other[0])
            qid = list(self.lists)[self._now[row]]
            raise DataError(
                f"{block.at(rows[row])}: weight {values[row]:g}, but query {qid!r} had "
                f"{self._weights[self._now[row]]:g}; give one weight to all rows of a query"
            )

    @property
    def weights(self) -> Floats | None:
        """``[lists]``; None where no weight was taken."""
        known = self._weights[: len(self.lists)]
        return known.astype(np.float32) if len(known) else None

    def result(self) -> tuple[Ints, Texts, Ints | None]:
        """Offsets, query ids, and the order of the rows that puts every list together."""
        lists, rows = (np.concatenate(part) for part in zip(*self.runs, strict=True))
        offsets, order = together(lists, rows)
        return offsets, np.array(list(self.lists)), order
