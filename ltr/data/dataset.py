"""What the rest of the project asks of a data set, whether read from files or made."""

from typing import Protocol

from ltr.data.lists import Lists

SPLITS = ("train", "vali", "test")


class Dataset(Protocol):
    """A named set of lists in three splits; ``configs/dataset/*.yaml`` builds one."""

    @property
    def name(self) -> str:
        """The name of its config file, such as ``web30k``."""
        ...

    @property
    def fold(self) -> int | None:
        """The fold, 1-based; None for a set without folds."""
        ...

    @property
    def width(self) -> int:
        """Number of features of an item, the same in every split."""
        ...

    def check(self) -> None:
        """Raise ``DataError`` with the remedy if a split is not there; reads no data."""
        ...

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``; parsed or made once, then mapped."""
        ...
