"""What a table says, before it is written in any format: its head, its blocks, its notes."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One entry of a block.

    Attributes:
        text: as it is printed.
        tone: what it says, for colour: the word of a verdict, ``good``, ``bad``, ``missing``, or
            nothing.
    """

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Block:
    """A part of a table with its own columns.

    Attributes:
        title: what it shows.
        note: under which convention, in words.
        head: of the columns, the first is that of the labels.
        rows: as many cells each as ``head``.
    """

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Report:
    """A whole table.

    Attributes:
        name: of its files.
        title: what it shows.
        command: what makes it again.
        facts: its head: what the numbers are of, ``(("data", "web30k"), ...)``.
        blocks: the numbers.
    """

    name: str
    title: str
    command: str
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]


def plain(cells: Sequence[str]) -> tuple[Cell, ...]:
    """Cells without a tone."""
    return tuple(Cell(text) for text in cells)
