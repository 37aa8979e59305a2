"""Where the rows of a table come from, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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


class MemoryTable:
    """A ``pa.Table`` as a source."""

    def __init__(self, table: Any) -> None:
        self.title, self.schema, self._table = "the table", table.schema, table

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Block]:
        first = 0
        for cells in self._table.select([*texts, *numbers]).to_batches(max_chunksize=rows):
            yield Block(self.title, first, cells)
            first += len(cells)
