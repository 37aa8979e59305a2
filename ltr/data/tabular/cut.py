"""Cut a table into parts by query, the same whatever the order of its rows and shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from ltr.data.tabular.blocks import Source
from ltr.data.tabular.cells import distinct, query_text
from ltr.errors import ConfigError, DataError

_ROWS = 1 << 16


@dataclass(frozen=True)
class Part:
    """The queries whose place, a number drawn for each query id, is in ``[start, end)``."""

    seed: int
    start: int
    end: int

    def __contains__(self, qid: object) -> bool:
        """Whether the query is one of them."""
        return self.start <= _place(str(qid), self.seed) < self.end


def parts(source: Source, query: str, fractions: Sequence[float], seed: int) -> list[Part]:
    """Parts with these fractions of the queries of a table, to the nearest whole number.

    Args:
        source: the table.
        query: its column of query ids.
        fractions: each > 0, 1 in sum.
        seed: another one draws other parts.

    Raises:
        DataError: a part would have no query.
    """
    places: set[int] = set()
    for block in source.blocks([query], [], _ROWS):
        values, _ = distinct(block.cells.column(query))
        places.update(_place(query_text(value), seed) for value in values)
    ranked = sorted(places)
    ends = [round(len(ranked) * sum(fractions[: i + 1])) for i in range(len(fractions))]
    starts = [0, *ends[:-1]]
    if any(start >= end for start, end in zip(starts, ends, strict=True)):
        raise DataError(
            f"{source.title}: {len(ranked)} queries cannot be cut into parts of {list(fractions)}; "
            "set dataset.fractions to larger parts, or give a file for each split"
        )
    bounds = [0, *(ranked[end] for end in ends[:-1]), 1 << 128]
    return [Part(seed, start, end) for start, end in pairwise(bounds)]


def check_fractions(fractions: Sequence[float], names: Sequence[str]) -> tuple[float, ...]:
    """The fractions as numbers.

    Raises:
        ConfigError: not one for each of ``names``, each > 0, 1 in sum.
    """
    numbers = all(isinstance(one, int | float) for one in fractions)
    if len(fractions) != len(names) or not numbers or min(fractions) <= 0:
        good = False
    else:
        good = abs(sum(fractions) - 1) < 1e-6
    if not good:
        raise ConfigError(
            f"dataset.fractions={list(fractions)}: give the parts of {', '.join(names)}, each > 0, "
            "1 in sum"
        )
    return tuple(map(float, fractions))


def _place(qid: str, seed: int) -> int:
    """A number below 2**128 that is drawn for a query."""
    return int.from_bytes(blake2b(f"{seed} {qid}".encode(), digest_size=16).digest())
