"""One metric of every query and seed of a system, and several systems on the same queries."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ltr.errors import DataError

Query = tuple[Hashable, str]


@dataclass(frozen=True, eq=False)
class SystemValues:
    """A metric of one system.

    Attributes:
        values: ``[seeds, queries]``, a row per training run; NaN where the convention skips the
            list. With folds a row holds the runs of one seed in all folds.
        queries: ``(fold, query id)`` of each column; the fold is None where there are no folds.
        seeds: names of the rows, for words only; empty: 0, 1, ...

    Raises:
        DataError: the shapes do not fit, or a value is infinite.
    """

    values: NDArray[np.float64]
    queries: Sequence[Query]
    seeds: Sequence[Hashable] = ()

    def __post_init__(self) -> None:
        """Check the shapes."""
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 2 or not len(values) or values.shape[1] != len(self.queries):
            raise DataError(
                f"values of shape {values.shape} for {len(self.queries)} queries: give [seeds, "
                "queries], a row for each training run"
            )
        if np.isinf(values).any():
            raise DataError("values hold infinity: give finite values, NaN where a list is skipped")
        if self.seeds and len(self.seeds) != len(values):
            raise DataError(
                f"{len(self.seeds)} seeds for {len(values)} rows of values: name each row or none"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "seeds", tuple(self.seeds) or tuple(range(len(values))))


@dataclass(frozen=True, eq=False)
class Aligned:
    """Systems on the same queries, those that are skipped in any of them left out.

    The mean of a system is the mean over folds of the mean over a fold's queries, as LETOR's
    evaluation has it; ``weights`` make it a mean over queries: ``mean(weights * values)``.

    Attributes:
        names: of the systems.
        values: of each ``[seeds, queries]``, finite; the number of seeds may vary.
        folds: ``[queries]``, 0-based.
        dropped: how many queries were left out.
    """

    names: tuple[str, ...]
    values: tuple[NDArray[np.float64], ...]
    folds: NDArray[np.int64]
    dropped: int

    @property
    def queries(self) -> int:
        """Number of queries that count."""
        return len(self.folds)

    @cached_property
    def fold_sizes(self) -> NDArray[np.int64]:
        """Queries of each fold, ``[folds]``, each at least 1."""
        return np.bincount(self.folds)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """``[queries]``, n / (folds * queries of the fold); their mean is 1."""
        return self.queries / (len(self.fold_sizes) * self.fold_sizes[self.folds])

    @cached_property
    def by_query(self) -> NDArray[np.float64]:
        """Mean over seeds, ``[systems, queries]``."""
        # rounded: the order in which seeds are summed must make no difference
        return np.stack([values.mean(0) for values in self.values]).round(12)

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Mean of each system, ``[systems]``."""
        return (self.weights * self.by_query).mean(1)

    def over_folds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean over each fold's queries: ``[..., queries]`` to ``[..., folds]``."""
        member = np.zeros((self.queries, len(self.fold_sizes)))
        member[np.arange(self.queries), self.folds] = 1 / self.fold_sizes[self.folds]
        return values @ member

    def differences(self, first: int, second: int) -> NDArray[np.float64]:
        """``[queries]``: first less second, mean over seeds, weighted; its mean is the estimate."""
        return self.weights * (self.by_query[first] - self.by_query[second])


def align(systems: Mapping[str, SystemValues]) -> Aligned:
    """Put ``systems`` on the same queries in the same order.

    Raises:
        DataError: there is none, their queries differ, or no query is left.
    """
    if not systems:
        raise DataError("there is no system to compare: give at least one")
    (reference, first), *others = systems.items()
    queries = list(first.queries)
    columns = [first.values]
    for name, system in others:
        columns.append(system.values[:, _order(queries, system, reference, name)])
    scored = np.logical_and.reduce([np.isfinite(values).all(0) for values in columns])
    if not scored.any():
        raise DataError(
            f"no query has a value in each of {', '.join(systems)}: all are skipped; choose "
            "another metric, or a convention that scores lists without a relevant item"
        )
    kept = [query for query, ok in zip(queries, scored, strict=True) if ok]
    number = {fold: i for i, fold in enumerate(dict.fromkeys(fold for fold, _ in kept))}
    return Aligned(
        names=tuple(systems),
        values=tuple(values[:, scored] for values in columns),
        folds=np.array([number[fold] for fold, _ in kept], dtype=np.int64),
        dropped=int((~scored).sum()),
    )


def _order(
    queries: list[Query], system: SystemValues, reference: str, name: str
) -> NDArray[np.int64]:
    """The column of ``system`` for each of ``queries``."""
    own = list(system.queries)
    if own == queries:
        return np.arange(len(own))
    column = {query: i for i, query in enumerate(own)}
    missing = [query for query in queries if query not in column]
    if missing or len(own) != len(queries) or len(column) != len(own):
        extra = set(own) - set(queries)
        others = [*missing, *sorted(extra, key=str)]
        example = f"{others[0]} is in one only" if others else "one stands twice"
        raise DataError(
            f"{reference} and {name} are measured on different queries ({len(queries)} and "
            f"{len(own)}; {example}): compare runs on the same test lists"
        )
    return np.array([column[query] for query in queries])
