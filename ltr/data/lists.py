"""``Lists``, the ragged arrays that every data set provides, and the interface ``Dataset``."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from ltr.arrays import Flags, Floats, Ints, Texts
from ltr.errors import DataError
from ltr.knobs import check_choice

SPLITS = ("train", "vali", "test")


@dataclass(frozen=True)
class Columns:
    """The names of the features, and the values of the category columns.

    A category column of ``Lists.features`` holds codes: 1, 2, ... for the values in ``categories``,
    0 for any other value, and NaN for a missing value.
    """

    names: tuple[str, ...]  # of all features, in order
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the values by name

    @property
    def codes(self) -> Ints:
        """The number of codes of each column, ``[width]``.

        Code 0 is included; a numeric column has 0 codes.
        """
        values = [self.categories.get(name) for name in self.names]
        counts = [0 if texts is None else 1 + len(texts) for texts in values]
        return np.array(counts, np.int64)

    def state(self) -> dict[str, Any]:
        """Return the columns as plain lists and strings, for a checkpoint or a cache."""
        categories = {name: list(values) for name, values in self.categories.items()}
        return {"names": list(self.names), "categories": categories}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Columns":
        """Return the columns whose ``state()`` is ``state``.

        Raises ``ValueError`` if ``state`` is malformed.
        """
        names = tuple(state["names"])
        categories = {name: tuple(values) for name, values in state["categories"].items()}
        all_text = all(
            isinstance(text, str) for texts in (names, *categories.values()) for text in texts
        )
        is_unique = len(set(names)) == len(names)
        if not all_text or not is_unique or not categories.keys() <= set(names):
            raise ValueError(
                "columns: expected unique column names, and only strings as the values of each "
                "category column"
            )
        return cls(names, categories)


@dataclass(frozen=True)
class Lists:
    """The items of many queries, stored list after list, without padding.

    ``features`` are often memory-mapped and read-only. NaN marks a missing value (``nan``, an empty
    cell, or a number that does not fit float32). No value is infinite.
    """

    features: Floats  # [items, width]
    labels: Floats  # [items], graded relevance, 0 = not relevant
    offsets: Ints  # [lists + 1]; list i is items offsets[i]:offsets[i + 1], at least one
    qids: Texts  # [lists], the query id as it is written in the file
    digest: str = ""  # SHA-256 of the source of the arrays (file content, or synthetic recipe)
    missing: int = 0  # number of NaNs in ``features``
    columns: Columns | None = None  # None: numbers without names, as in LETOR text
    weights: Floats | None = None  # [lists], > 0, weight of each list in training; None: all equal
    rows: Ints | None = None  # [items], 0-based row of each item in the source; None: 0, 1, 2, ...
    teacher: Floats | None = None  # [items], the scores of a teacher model (distillation)
    remarks: Mapping[str, str] = field(default_factory=dict)  # subject -> a warning for the user

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[str, Floats, Floats]]:
        """Yield ``(qid, features [n, width], labels [n])`` for each list."""
        for qid, (start, end) in zip(self.qids, pairwise(self.offsets), strict=True):
            yield str(qid), self.features[start:end], self.labels[start:end]

    @property
    def items(self) -> int:
        """Number of items in all lists."""
        return len(self.labels)

    @property
    def width(self) -> int:
        """Number of features of an item."""
        return self.features.shape[1]

    @property
    def source_rows(self) -> Ints:
        """The 0-based row of each item in the source, ``[items]``."""
        return np.arange(self.items) if self.rows is None else self.rows

    @cached_property
    def lengths(self) -> Ints:
        """Number of items of each list, ``[lists]``."""
        return np.diff(self.offsets)

    @cached_property
    def empty(self) -> Flags:
        """True where a list has no relevant item, ``[lists]``."""
        return np.maximum.reduceat(self.labels, self.offsets[:-1]) <= 0

    def subset(self, numbers: Ints) -> "Lists":
        """Return copies of the lists with the indices ``numbers``, in this order, in memory.

        An index may occur several times.
        """
        lengths = self.lengths[numbers]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        items = np.repeat(self.offsets[numbers] - offsets[:-1], lengths) + np.arange(offsets[-1])
        features = self.features[items]
        return replace(
            self,
            features=features,
            labels=self.labels[items],
            offsets=offsets,
            qids=self.qids[numbers],
            missing=int(np.isnan(features).sum()) if self.missing else 0,
            weights=None if self.weights is None else self.weights[numbers],
            rows=self.source_rows[items],
            teacher=None if self.teacher is None else self.teacher[items],
        )

    def with_digest(self) -> "Lists":
        """Return the same lists, with the SHA-256 of their arrays as the digest."""
        sha256 = hashlib.sha256("\0".join(self.qids).encode())
        for array in (self.offsets, self.labels, self.features, self.weights):
            if array is not None:
                sha256.update(np.ascontiguousarray(array).data if array.size else b"")
        return replace(self, digest=sha256.hexdigest())


def check_split(split: str) -> str:
    """Return ``split``; raise ``ConfigError`` unless it is ``train``, ``vali`` or ``test``."""
    check_choice("split", split, SPLITS)
    return split


class Dataset(Protocol):
    """The interface of a data set, which has the lists of each split.

    Each file ``configs/dataset/*.yaml`` describes a data set. ``name`` is the name of the data set
    in results. ``fold`` is the number of its fold, >= 1, or None if there are no folds. ``width``
    is the number of features, which is the same in every split. Two more members are optional:

    - ``splits``: the names of the splits, for a data set without a test split. A data set without
      this member has ``train``, ``vali`` and ``test``.
    - ``with_columns(columns)``: for a data set that takes the names or categories of its columns
      from ``train``. The method returns the data set with the columns of a trained model instead.
    """

    @property
    def name(self) -> str: ...

    @property
    def fold(self) -> int | None: ...

    @property
    def width(self) -> int: ...

    def check(self) -> None:
        """Raise ``DataError``, which says what to do, if a split is missing; no data are read."""

    def split(self, split: str) -> Lists:
        """Return the lists of ``train``, ``vali`` or ``test``; they are read or made only once."""


def splits_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the splits of ``dataset``: train and vali, and test if it has one."""
    return tuple(getattr(dataset, "splits", SPLITS))


def measured_split(splits: Iterable[str]) -> str:
    """Return the split on which a run is measured: test, or vali if there is no test split."""
    return "test" if "test" in splits else "vali"


def split_queries(
    qids: Iterable[str], fractions: Sequence[float], seed: int, *, title: str, remedy: str
) -> list[set[str]]:
    """Divide the queries at random; return the set of query ids of each part.

    The number of queries of each part is its fraction of all queries, rounded.

    Args:
        qids: the query ids; each may occur any number of times.
        fractions: the fraction of the queries in each part, > 0, with a sum of 1.
        seed: the seed of the division.
        title: the name of the data for the error message.
        remedy: what the error message tells the user to do.

    Raises:
        DataError: a part would have no query.
    """
    ranked = sorted(
        {str(qid) for qid in qids},
        key=lambda qid: hashlib.blake2b(f"{seed} {qid}".encode(), digest_size=16).digest(),
    )
    ends = [round(len(ranked) * sum(fractions[:i])) for i in range(len(fractions))]
    parts = [set(ranked[start:end]) for start, end in pairwise([*ends, len(ranked)])]
    if not all(parts):
        raise DataError(
            f"{title}: {len(ranked)} queries are too few to divide into the fractions "
            f"{list(fractions)}; {remedy}"
        )
    return parts
