"""``MemoryLists``: a data set whose lists are in memory."""

from collections.abc import Mapping

from ltr.data.lists import SPLITS, Lists, check_split
from ltr.errors import DataError


class MemoryLists:
    """Lists that a program hands over; a config names such a set, but cannot hold its lists."""

    def __init__(
        self, *, name: str, lists: Mapping[str, Lists] | None = None, fold: int | None = None,
        cut: float | None = None,
    ) -> None:  # fmt: skip
        """Hold ``lists`` for a run.

        Args:
            name, fold: as for any data set.
            lists: of ``train``, ``vali`` and, where there is one, ``test``; None where only a
                config is at hand.
            cut: the part of the queries that was cut from train as vali, for the record.
        """
        self.name, self.fold, self._lists, self.cut = name, fold, dict(lists or {}), cut

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were handed over."""
        return tuple(split for split in SPLITS if split in self._lists)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.split("train").width

    def check(self) -> None:
        """Raise ``DataError`` where train or vali was not handed over."""
        for split in ("train", "vali"):
            self.split(split)

    def split(self, split: str) -> Lists:
        """The lists of ``train``, ``vali`` or ``test``; ``DataError`` where they are missing."""
        if check_split(split) not in self._lists:
            raise DataError(
                f"the {split} lists of this model were in a program's memory: give dataset=CHOICE "
                "with lists of the same features, or to go on fit Ranker(init_from=FOLDER)"
            )
        return self._lists[split]
