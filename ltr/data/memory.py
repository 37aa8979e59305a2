"""``MemoryLists``: a data set whose lists are in the memory of a program."""

from collections.abc import Mapping

from ltr.data.lists import SPLITS, Lists, check_split
from ltr.errors import DataError


class MemoryLists:
    """A data set of lists that a program hands over; the config of the run cannot hold them."""

    def __init__(
        self,
        *,
        name: str,
        lists: Mapping[str, Lists] | None = None,
        fold: int | None = None,
        cut: float | None = None,
    ) -> None:
        """Hold the lists of a data set.

        Args:
            name: the name of the data set in results.
            lists: those of ``train`` and ``vali``, perhaps of ``test`` too; None: only the config
                of the data set is available.
            fold: the number of the fold, from 1; None: the data set has no folds.
            cut: the fraction of the training queries that became the validation lists, for the
                record.
        """
        self.name = name
        self.fold = fold
        self.cut = cut
        self._lists = dict(lists or {})

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were handed over."""
        return tuple(split for split in SPLITS if split in self._lists)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.split("train").width

    def check(self) -> None:
        """Raise ``DataError`` if ``train`` or ``vali`` was not handed over."""
        for split in ("train", "vali"):
            self.split(split)

    def split(self, split: str) -> Lists:
        """Return the lists of ``train``, ``vali`` or ``test``; ``DataError`` if there are none."""
        if check_split(split) not in self._lists:
            raise DataError(
                f"the {split} lists of this model were in a program's memory: give dataset=CHOICE "
                "with lists of the same features, or to go on fit Ranker(init_from=FOLDER)"
            )
        return self._lists[split]
