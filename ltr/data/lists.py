"""``Lists``, the ragged arrays that every data set becomes, and the protocol of a data set."""

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
    """Names of the features, and the categories among them.

    A category column of ``Lists.features`` holds codes: 1, 2, ... for the values listed here, 0 for
    any other value, NaN for a missing one.
    """

    names: tuple[str, ...]  # of the features, in order
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name

    @property
    def codes(self) -> Ints:
        """How many codes each feature has, 0 included, ``[width]``; 0 for a number."""
        values = [self.categories.get(name) for name in self.names]
        return np.array([0 if one is None else 1 + len(one) for one in values], np.int64)

    def state(self) -> dict[str, Any]:
        """Plain lists and numbers, for a checkpoint or a cache."""
        listed = {name: list(values) for name, values in self.categories.items()}
        return {"names": list(self.names), "categories": listed}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Columns":
        """The columns with this ``state()``; ``ValueError`` where it is not one."""
        listed = {name: tuple(values) for name, values in state["categories"].items()}
        names = tuple(state["names"])
        sound = all(isinstance(one, str) for part in (names, *listed.values()) for one in part)
        if not sound or not listed.keys() <= {*names} or len({*names}) != len(names):
            raise ValueError("names and values of categories are texts, each name stands once")
        return cls(names, listed)


@dataclass(frozen=True)
class Lists:
    """The items of many queries, one list after the other, without padding.

    ``features`` are often memory-mapped and read-only. NaN marks a missing value (``nan``, an empty
    cell, or a number that does not fit float32); none is inf.
    """

    features: Floats  # [items, width]
    labels: Floats  # [items], graded relevance, 0 = not relevant
    offsets: Ints  # [lists + 1]; list i is items offsets[i]:offsets[i + 1], at least one
    qids: Texts  # [lists], the query id as the file writes it
    digest: str = ""  # SHA-256 of the source of the arrays (file content, or synthetic recipe)
    missing: int = 0  # how many values of ``features`` are NaN
    columns: Columns | None = None  # None: numbers without names, as LETOR text has them
    weights: Floats | None = None  # [lists], > 0, how much each counts in training; None: the same
    rows: Ints | None = None  # [items], the 0-based row of the source; None: 0, 1, 2, ...
    teacher: Floats | None = None  # [items], scores of the model that a run learns from

    def __len__(self) -> int:
        """Number of lists."""
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[str, Floats, Floats]]:
        """Yield ``(qid, features [n, width], labels [n])`` list by list."""
        for qid, (start, end) in zip(self.qids, pairwise(self.offsets), strict=True):
            yield str(qid), self.features[start:end], self.labels[start:end]

    @property
    def items(self) -> int:
        """Number of items of all lists."""
        return len(self.labels)

    @property
    def width(self) -> int:
        """Number of features of an item."""
        return self.features.shape[1]

    @property
    def source_rows(self) -> Ints:
        """The 0-based row of the source of each item, ``[items]``."""
        return np.arange(self.items) if self.rows is None else self.rows

    @cached_property
    def lengths(self) -> Ints:
        """Items of each list, ``[lists]``."""
        return np.diff(self.offsets)

    @cached_property
    def empty(self) -> Flags:
        """True where a list has no relevant item, ``[lists]``."""
        return np.maximum.reduceat(self.labels, self.offsets[:-1]) <= 0

    def subset(self, which: Ints) -> "Lists":
        """The lists of the numbers ``which``, in that order, in memory; one may come again."""
        lengths = self.lengths[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        items = np.repeat(self.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
        features = self.features[items]
        return replace(
            self,
            features=features,
            labels=self.labels[items],
            offsets=offsets,
            qids=self.qids[which],
            missing=int(np.isnan(features).sum()) if self.missing else 0,
            weights=None if self.weights is None else self.weights[which],
            rows=self.source_rows[items],
            teacher=None if self.teacher is None else self.teacher[items],
        )

    def with_digest(self) -> "Lists":
        """The same with the SHA-256 of the arrays as the digest."""
        sha256 = hashlib.sha256("\0".join(self.qids).encode())
        for array in (self.offsets, self.labels, self.features, self.weights):
            if array is not None:
                sha256.update(np.ascontiguousarray(array).data if array.size else b"")
        return replace(self, digest=sha256.hexdigest())


def check_split(split: str) -> str:
    """``split``, or ``ConfigError`` where it is none of the three."""
    check_choice("split", split, SPLITS)
    return split


class Dataset(Protocol):
    """A named set of lists in three splits; ``configs/dataset/*.yaml`` builds one.

    ``name`` is that of its config file, ``fold`` 1-based (None for a set without folds), ``width``
    the number of features of an item, the same in every split. One that has not all three splits
    says which by ``splits``; one whose ``train`` defines names or categories of the features gives
    the same set ``with_columns`` that a model was trained on.
    """

    @property
    def name(self) -> str: ...

    @property
    def fold(self) -> int | None: ...

    @property
    def width(self) -> int: ...

    def check(self) -> None:
        """Raise ``DataError`` with the remedy if a split is missing; read no data."""

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``; parsed or made once, then mapped."""


def split_queries(
    qids: Iterable[str], fractions: Sequence[float], seed: int, *, title: str, remedy: str
) -> list[set[str]]:
    """Parts with these fractions of the queries, to the nearest whole number.

    ``qids`` come any number of times in any order; ``fractions`` are > 0 and 1 in sum; another
    ``seed`` draws other parts. ``DataError`` with ``title`` and ``remedy``: a part has no query.
    """
    ranked = sorted(
        {str(qid) for qid in qids},
        key=lambda qid: hashlib.blake2b(f"{seed} {qid}".encode(), digest_size=16).digest(),
    )
    ends = [round(len(ranked) * sum(fractions[:i])) for i in range(len(fractions))]
    parts = [set(ranked[start:end]) for start, end in pairwise([*ends, len(ranked)])]
    if not all(parts):
        what = f"{len(ranked)} queries cannot be cut into parts of {list(fractions)}"
        raise DataError(f"{title}: {what}; {remedy}")
    return parts
