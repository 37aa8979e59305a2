"""Split queries into parts, the same whatever their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from ltr.errors import DataError


@dataclass(frozen=True)
class Part:
    """The queries whose place, a number drawn for each query id, is in ``[start, end)``."""

    seed: int
    start: int
    end: int

    def __contains__(self, qid: object) -> bool:
        """Whether the query is one of them."""
        return self.start <= _place(str(qid), self.seed) < self.end


def _place(qid: str, seed: int) -> int:
    """A number below 2**128 that is drawn for a query."""
    return int.from_bytes(blake2b(f"{seed} {qid}".encode(), digest_size=16).digest())


def split_queries(
    qids: Iterable[str], fractions: Sequence[float], seed: int, *, title: str, remedy: str
) -> list[Part]:
    """Parts with these fractions of the queries, to the nearest whole number.

    Args:
        qids: of all queries, any number of times.
        fractions: each > 0, 1 in sum.
        seed: another one draws other parts.
        title, remedy: for the message.

    Raises:
        DataError: a part would have no query.
    """
    ranked = sorted({_place(qid, seed) for qid in qids})
    ends = [round(len(ranked) * sum(fractions[: i + 1])) for i in range(len(fractions))]
    if any(start >= end for start, end in pairwise([0, *ends])):
        raise DataError(
            f"{title}: {len(ranked)} queries cannot be cut into parts of {list(fractions)}; "
            f"{remedy}"
        )
    bounds = [0, *(ranked[end] for end in ends[:-1]), 1 << 128]
    return [Part(seed, start, end) for start, end in pairwise(bounds)]
