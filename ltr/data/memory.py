"""``MemoryLists``: a data set whose lists a program holds in memory."""

from collections.abc import Mapping

from ltr.data.lists import SPLITS, Lists, check_split
from ltr.errors import DataError


class MemoryLists:
    """A data set whose lists are passed in as arrays by the calling program.

    The run's config cannot contain these lists.
    """

    def __init__(
        self,
        *,
        name: str,
        lists: Mapping[str, Lists] | None = None,
        fold: int | None = None,
        cut: float | None = None,
    ) -> None:
        """Store the lists of a data set.

        Args:
            name: the name of the data set in results.
            lists: the lists of ``train``, ``vali`` and, optionally, ``test``. None: only the config
                of the data set is available.
            fold: the number of the fold, >= 1; None: the data set has no folds.
            cut: the fraction of the training queries that became the validation lists. It is
                recorded in the config, and has no other effect.
        """
        self.name = name
        self.fold = fold
        self.cut = cut
        self._lists = dict(lists or {})

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits whose lists were passed."""
        return tuple(split for split in SPLITS if split in self._lists)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.split("train").width

    def check(self) -> None:
        """Raise ``DataError`` if the lists of ``train`` or ``vali`` were not passed."""
        for split in ("train", "vali"):
            self.split(split)

    def split(self, split: str) -> Lists:
        """Return the lists of ``train``, ``vali`` or ``test``.

        Raises ``DataError`` if there are none.
        """
        if check_split(split) not in self._lists:
            raise DataError(
                f"the {split} lists of this model were in the memory of a program and were not "
                "saved: choose dataset=NAME with lists that have the same features or, to continue "
                "training, fit Ranker(init_from=FOLDER)"
            )
        return self._lists[split]
