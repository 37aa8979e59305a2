"""Another run from whose model a run starts (``init_from``) or learns (``teacher``)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ltr.data.lists import Lists
from ltr.errors import ConfigError, DataError
from ltr.parts.scorer import Scorer, check_columns

log = logging.getLogger(__name__)

_SOURCE = ("_target_", "name", "folder", "path", "split")  # keys that identify a data set


@dataclass(frozen=True)
class OtherRun:
    """The trained run that the setting ``init_from`` or ``teacher`` of this run names."""

    key: str  # the setting: init_from or teacher
    path: str  # a run folder or checkpoint
    load: Callable[[], Scorer]  # loads the selected weights; raises the errors of ``load_model``
    dataset: Mapping[str, Any]  # the resolved ``dataset`` node of this run

    def __str__(self) -> str:
        """Return the setting as it is typed, such as ``teacher=FOLDER``."""
        return f"{self.key}={self.path}"

    def check(self, scorer: Scorer, train: Lists) -> None:
        """Check that the other run fits ``train``, and was not trained on vali or test lists.

        If the other run was trained on another data set, its training lists cannot be checked, and
        a warning is logged.

        Args:
            scorer: the model of the other run.
            train: the training lists of this run.

        Raises:
            DataError: the features of ``train`` are not those of the other run.
            ConfigError: the other run was trained on another fold, or another random split, of the
                same data set.
        """
        if scorer.transform.width != train.width:
            raise DataError(
                f"{self} was trained on {scorer.transform.width} features, but the training lists "
                f"have {train.width}: name a run that was trained on the same features"
            )
        check_columns(train, scorer.columns)
        if scorer.data.get("train") == train.digest:
            return
        trained_on = scorer.config["dataset"]
        division = ("fold", "seed", "fractions") if "fractions" in self.dataset else ("fold",)
        keys = (*_SOURCE, *division)
        differing = [key for key in keys if trained_on.get(key) != self.dataset.get(key)]
        if differing and not {*differing} & {*_SOURCE}:
            value = trained_on.get(differing[0])
            raise ConfigError(
                f"{self} may have been trained on vali or test lists of this run: set "
                f"dataset.{differing[0]}={'null' if value is None else value}, as in the other run"
            )
        log.warning(
            "%s was trained on other lists: make sure that vali and test do not contain them", self
        )
