"""Another run whose model a run begins with (``init_from``) or learns from (``teacher``)."""

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
    """A trained run that a setting of this run names."""

    key: str  # the setting: init_from or teacher
    path: str  # a run folder or checkpoint
    load: Callable[[], Scorer]  # loads the selected weights; errors are as for ``load_model``
    dataset: Mapping[str, Any]  # the resolved ``dataset`` node of this run

    def __str__(self) -> str:
        """Return the setting as it is typed."""
        return f"{self.key}={self.path}"

    def check(self, scorer: Scorer, train: Lists) -> None:
        """Check that ``scorer``, its model, reads ``train`` and saw no lists of vali or test.

        Raises:
            DataError: ``train``, the training lists of this run, has other features.
            ConfigError: the other run was trained on another fold, or another division, of the
                same data set. If it was trained on other lists, a warning is logged.
        """
        if scorer.transform.width != train.width:
            raise DataError(
                f"{self} was trained on {scorer.transform.width} features, train has "
                f"{train.width}: give a run on lists with the same features"
            )
        check_columns(train, scorer.columns)
        if scorer.data.get("train") == train.digest:
            return
        trained_on = scorer.config["dataset"]
        division = ("fold", "seed", "fractions") if "fractions" in self.dataset else ("fold",)
        keys = (*_SOURCE, *division)
        differing = [key for key in keys if trained_on.get(key) != self.dataset.get(key)]
        if differing and not {*differing} & {*_SOURCE}:
            raise ConfigError(
                f"{self} may have seen lists of this vali or test: set dataset.{differing[0]} as "
                f"it was there, {trained_on.get(differing[0])}"
            )
        log.warning("%s was trained on other lists: vali and test must have none of them", self)
