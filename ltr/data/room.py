"""Whether the dense arrays of a file have room, judged before they are made."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ltr.data.letor_rows import Block, Rules

CHEAP_BYTES = 64 << 20  # what a slip in an index may cost without a question
_ODD = 8  # times the width of other rows: an index beyond it is taken for a slip

Free = Callable[[], tuple[int, str]]  # bytes that the arrays may take, and of what


class Room:
    """What reading one file may take, block by block.

    Where the width is not given, it is the largest index of all rows, and one mistyped index makes
    every row as wide. So an index is refused that stands far beyond those of the other rows, 49 of
    50 in its block and all before it, and costs more than ``CHEAP_BYTES``. Data that are wide on
    purpose have many wide rows; they are refused only where they do not fit.
    """

    def __init__(self, rules: Rules, size: int, free: Free) -> None:
        """Begin a file of ``size`` bytes, 0 if not known."""
        self._given = rules.width is not None
        self._size, self._free = size, free
        self._width = self._rows = self._read = 0  # of the blocks so far

    def add(self, block: Block, length: int) -> None:
        """Count a block, made from ``length`` bytes of text."""
        self._width = max(self._width, block.features.shape[1])
        self._rows += len(block.labels)
        self._read += length

    def needs_a_look(self, width: int) -> bool:
        """Whether a block of this width may be refused at all."""
        return width > self._width

    def refusal(self, widths: NDArray[np.int64], width: int, length: int) -> tuple[int, str] | None:
        """Judge a block that is not yet made.

        Args:
            widths: ``[rows]``, the largest index of each row.
            width: that the block would have.
            length: the bytes of its text.

        Returns:
            The row (0-based in the block) that asks for too much, and why; None: there is room.
        """
        if not len(widths) or not self.needs_a_look(width):
            return None
        rows = self._rows + len(widths)
        rows = max(rows, rows * self._size // (self._read + length))
        cost, row = rows * width * 4, int(widths.argmax())
        slips = max(3, len(widths) // 50)  # so many rows may be wrong
        usual = max(int(np.sort(widths)[: -min(slips, len(widths))].max(initial=0)), self._width)
        about = f"about {rows:,} rows of {width:,} features take {_in_words(cost)}"
        odd = usual and width > _ODD * usual and rows * (width - usual) * 4 > CHEAP_BYTES
        if odd and not self._given:
            return row, (
                f"index {width}, but the other rows end at index {usual}, and {about}; mend the "
                f"line, or set dataset.width={width} if it is meant"
            )
        free, where = self._free()
        if cost > free:
            return row, (
                f"index {widths[row]}: {about}, and {where} has {_in_words(free)} free; mend the "
                "line, use fewer features, or make room there"
            )
        return None


def available_memory() -> tuple[int, str]:
    """Bytes that this machine can still give, and the word for it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: an array that does not fit is an error of NumPy
        return 1 << 62, "memory"
    return int(kilobytes) * 1024, "memory"


def widths_of(features: NDArray[np.float32]) -> NDArray[np.int64]:
    """The last column of each row that is not 0, 1-based; 0 where all are, ``[rows]``."""
    filled = features != 0
    last = features.shape[1] - filled[:, ::-1].argmax(1)
    return np.where(filled.any(1), last, 0)


def _in_words(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
