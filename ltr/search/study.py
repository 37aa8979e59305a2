"""The study of a search: kept in a journal that survives a kill, and known by what it is of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial

from ltr.errors import ConfigError, DataError
from ltr.search.journal import SealedJournal
from ltr.search.order import Order
from ltr.search.plan import Plan

_NAME = "search"  # of the study in its journal, which holds one
_JOURNAL = "journal.log"


def folder_of(order: Order, plan: Plan) -> Path:
    """Where a search is kept."""
    return Path(order.output_dir) / "search" / plan.name


def open_study(folder: Path, order: Order) -> optuna.Study:
    """The study kept in ``folder``, a new one where there is none.

    Args:
        folder: of the search; it exists.
        order: sampler and pruner are made as it says.

    Raises:
        DataError: its journal is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(SealedJournal(folder / _JOURNAL))
    with study_lock(folder):
        return optuna.create_study(
            storage=storage,
            sampler=_Sampler(order.sampler_seed, order.n_startup_trials),
            pruner=(
                optuna.pruners.MedianPruner()
                if order.pruner == "median"
                else optuna.pruners.NopPruner()
            ),
            study_name=_NAME,
            direction="maximize",
            load_if_exists=True,
        )


def study_lock(folder: Path) -> FileLock:
    """Held while it is decided which process does which trial."""
    return FileLock(folder / ".lock")


def is_there(folder: Path) -> bool:
    """Whether a search is kept in ``folder``."""
    return (folder / _JOURNAL).is_file()


def settle_identity(
    study: optuna.Study,
    folder: Path,
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    code: str,
) -> bool:
    """Note what a new study is of; refuse to go on with one that is of something else.

    Returns:
        Whether its trials so far were trained by the same code.

    Raises:
        ConfigError: a setting or the space differs, the message says which.
        DataError: the lists differ.
    """
    kept = study.user_attrs
    if "settings" not in kept:
        study.set_user_attr("code", code)
        study.set_user_attr("data", dict(data))
        study.set_user_attr("settings", dict(settings))
        return True
    before = kept["settings"]
    for key in [*settings, *before]:
        one, other = before.get(key, _ABSENT), settings.get(key, _ABSENT)
        if one != other:
            raise ConfigError(
                f"{folder} is a search with {key}={one}, now it is {other}: put it back, or give "
                "name=NAME for a new search"
            )
    changed = [key for key in data if kept["data"].get(key) != data[key]]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the search in {folder} began: put the data back, "
            "or give name=NAME for a new search"
        )
    return bool(kept["code"] == code)


_ABSENT = "not set"


class _Sampler(BaseSampler):
    """TPE whose draws depend on the seed and the number of the trial.

    So a search that is continued, or shared, does not draw again what was drawn.
    """

    def __init__(self, seed: int, n_startup_trials: int) -> None:
        self._seed, self._n_startup_trials = seed, n_startup_trials
        self._number: int | None = None
        self._tpe: TPESampler | None = None

    def _of(self, trial: FrozenTrial) -> TPESampler:
        if self._tpe is None or self._number != trial.number:
            self._number = trial.number
            self._tpe = TPESampler(
                n_startup_trials=self._n_startup_trials,
                seed=(self._seed * 1_000_003 + trial.number) % 2**32,
            )
        return self._tpe

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)
