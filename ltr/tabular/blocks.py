"""Where the rows of a table come from, block by block, and where they go."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ltr.data.lists import Columns, Floats, Ints, Texts


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of one file: its name, the 0-based row of the first, their cells."""

    file: str
    first: int
    cells: Any  # pa.RecordBatch

    def at(self, row: int) -> str:
        """The place of the ``row``-th row of the block, for messages."""
        return f"{self.file}, row {self.first + row + 1}"


class Source(Protocol):
    """A table, in files or in memory, that can be read again and again."""

    @property
    def title(self) -> str:
        """Its name, for messages."""

    @property
    def schema(self) -> Any:
        """Names and types of its columns, a ``pa.Schema``."""

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Block]:
        """The rows in order, at most ``rows`` at once, with these columns alone.

        ``texts`` are columns whose text counts as the file has it; ``numbers`` are to be numbers.
        """


class TableSink(Protocol):
    """Takes rows in the table's order, block by block: ``ListsWriter`` or ``MemorySink``."""

    def append(self, features: Floats, labels: Floats) -> None:
        """Take ``[rows, width]`` and ``[rows]``."""

    def finish(
        self,
        offsets: Ints,
        qids: Texts,
        *,
        digest: str,
        missing: int,
        order: Ints | None,
        rows: Ints | None,
        columns: Columns | None,
        weights: Floats | None,
    ) -> None:
        """Take the rest of ``Lists``; ``order``: the final order of the rows, None as appended.

        ``rows``: the row of the table of each appended row; None: 0, 1, 2, ...
        """

    def free(self) -> tuple[int, str]:
        """How many bytes the features may take in all, and where."""


class MemoryTable:
    """A ``pa.Table`` as a source."""

    def __init__(self, table: Any) -> None:
        self.title, self.schema, self._table = "the table", table.schema, table

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Block]:
        first = 0
        for cells in self._table.select([*texts, *numbers]).to_batches(max_chunksize=rows):
            yield Block(self.title, first, cells)
            first += len(cells)
