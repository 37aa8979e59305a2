"""A search as one job of a sweep: it leaves the best settings in its folder, and says nothing."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from ltr.atomic import atomic_write
from ltr.console.ending import is_full, one_line
from ltr.console.keys import stated
from ltr.errors import LTRError, OutputError, TrainingError
from ltr.search.definition import Search, define_search
from ltr.search.results import best_of, own_values, worth, write_results
from ltr.search.search import read_all
from ltr.search.study import (
    begin,
    finished,
    open_study,
    overrides_of,
    reason,
    storage_errors,
    work,
)
from ltr.training.interruption import handing_on, stoppable


def search_identity(search: Search, data: Mapping[str, str]) -> str:
    """SHA-256 of what is searched, and of the lists of train and vali; code does not count.

    Args:
        search: with its ``select_value``.
        data: as ``read_all`` has it.
    """
    parts = {
        "settings": stated(search.settings()),
        "data": dict(data),
        "pruner": search.pruner,
        "sampler": [search.sampler_seed, search.n_startup_trials],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def settings_path(search: Search) -> Path:
    """Where its job leaves the best settings: more trials, another file."""
    return search.folder / f"found-{search.trials}.yaml"


@handing_on()
def search_job(cfg: DictConfig) -> float:
    """Do the search of ``cfg``, as far as it is not done; return its value (nan where it fails).

    Raises:
        Interrupted: the user asked to stop; the same job goes on.
        OutputError: the disk is full.
    """
    search = define_search(cfg)
    search.folder.mkdir(parents=True, exist_ok=True)
    error_file = search.folder / "error.txt"
    try:
        with stoppable():
            value = _search(search)
    except Exception as error:
        line = one_line(error)
        if is_full(error):
            raise OutputError(f"{line}; then give the same command again") from error
        kind = "" if isinstance(error, LTRError) else f"{type(error).__name__}: "
        with suppress(OutputError):
            atomic_write(error_file, f"{kind}{line or error}\n")
        return float("nan")
    error_file.unlink(missing_ok=True)  # of an earlier attempt
    return value


def _search(search: Search) -> float:
    """Search, and write the best settings; ``TrainingError`` where no trial came to its end."""
    search, data = read_all(search)
    with storage_errors(search):
        study = open_study(search)
        begin(search, study, data)
        work(search, study, lambda trial: None)
        write_results(study, search)
        trials = finished(study)[: search.trials]  # of a longer search the first
    best, own = best_of(trials), own_values(trials)
    if best is None or best.value is None:
        raise TrainingError(f"no trial was trained to its end: {reason(trials[0])}")
    settings = {
        "settings": list(overrides_of(search, best)),
        "worth": search.value_name,
        "value": best.value,
        "best_epoch": worth(best) or best.value,  # on vali, which is too high
        "own": None if own is None else own.value,  # of the config's own settings
        "trials": len(trials),
        "pruned": sum("pruned" in trial.user_attrs for trial in trials),
        "failed": sum(reason(trial) is not None for trial in trials),
        "search": search_identity(search, data),
        "code": search.code(),
    }
    atomic_write(settings_path(search), yaml.safe_dump(settings, sort_keys=False))
    return best.value
