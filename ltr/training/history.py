"""What is recorded after every epoch: ``history.csv`` and the same as TensorBoard scalars."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ltr.data.dataset import SPLITS
from ltr.whole import write_csv

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Row = Mapping[str, float]


def write_history(path: Path, rows: Sequence[Row]) -> None:
    """Write all ``rows`` as CSV, atomically, so that the file is whole whenever it is read."""
    names = list(dict.fromkeys(name for row in reversed(rows) for name in row))
    write_csv(path, rows, names)


class Scalars:
    """TensorBoard scalars of a run, by epoch; ``tensorboard --logdir outputs`` shows them."""

    def __init__(self, folder: Path, *, after_epoch: int) -> None:
        """Write events to ``folder``; what a run that is resumed wrote beyond is purged."""
        self._folder, self._after = folder, after_epoch
        self._writer: SummaryWriter | None = None

    def add(self, row: Row) -> None:
        """Write one row of the history."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(str(self._folder), purge_step=self._after + 1)
        for name, value in row.items():
            if name != "epoch":
                split, _, metric = name.partition("_")
                tag = f"{split}/{metric}" if split in SPLITS else name
                self._writer.add_scalar(tag, value, int(row["epoch"]))
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
