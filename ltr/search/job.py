"""A search as one job of a sweep: it says nothing, and leaves what it has found in its folder."""

from contextlib import suppress

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from ltr.atomic import atomic_write
from ltr.console.ending import is_full, one_line
from ltr.errors import LTRError, OutputError, TrainingError
from ltr.search.definition import Search, define_search
from ltr.search.found import Found, found_path, search_identity
from ltr.search.results import best_of, own_values, worth, write_trials
from ltr.search.search import begin, read_all
from ltr.search.study import finished, open_study, reason, storage_errors
from ltr.search.worker import work
from ltr.training.interruption import handing_on, stoppable


@handing_on()
def search_job(cfg: DictConfig) -> float:
    """Do the search of ``cfg``, as far as it is not done; return its value (nan where it fails).

    Raises:
        Interrupted: the user asked to stop; the same job goes on.
        OutputError: the disk is full.
    """
    search = define_search(cfg)
    search.folder.mkdir(parents=True, exist_ok=True)
    try:
        with stoppable():
            found = _found(search)
    except Exception as error:
        line = one_line(error)
        if is_full(error):
            raise OutputError(f"{line}; then give the same command again") from error
        kind = "" if isinstance(error, LTRError) else f"{type(error).__name__}: "
        with suppress(OutputError):
            atomic_write(search.folder / "error.txt", f"{kind}{line or error}\n")
        return float("nan")
    with suppress(OSError):
        (search.folder / "error.txt").unlink(missing_ok=True)  # of an earlier attempt
    return found.value


def _found(search: Search) -> Found:
    """Search, and write what is found.

    Raises:
        TrainingError: no trial was trained to its end.
    """
    search, data = read_all(search)
    with storage_errors(search):
        study = open_study(search)
        begin(search, study, data)
        work(search, study)
        write_trials(search.folder / "trials.csv", study, search)
        trials = finished(study)[: search.trials]  # of a longer search the first
    best, first = best_of(trials), own_values(trials)
    if best is None or best.value is None:
        raise TrainingError(f"no trial was trained to its end: {reason(trials[0])}")
    found = Found(
        settings=tuple(map(str, best.user_attrs["overrides"])),
        worth=search.value_name,
        value=best.value,
        best_epoch=worth(best) or best.value,
        own=None if first is None else first.value,
        trials=len(trials),
        pruned=sum("pruned" in trial.user_attrs for trial in trials),
        failed=sum(reason(trial) is not None for trial in trials),
        search=search_identity(search, data),
        code=search.code(),
    )
    atomic_write(found_path(search), yaml.safe_dump(found.plain(), sort_keys=False))
    return found
