"""The command search: checked before the first trial, begun or gone on with, written at its end."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from omegaconf import OmegaConf
from optuna.trial import FrozenTrial
from tabulate import tabulate

from ltr.console.progress import Finished, say
from ltr.data.lists import Lists
from ltr.errors import ConfigError, as_started
from ltr.experiment.build import build
from ltr.experiment.labels import resolve_labels
from ltr.search.definition import Search, value_for
from ltr.search.results import (
    best_of,
    best_path,
    check_free,
    data_of,
    sentence,
    summary,
    write_best,
    write_results,
)
from ltr.search.space import as_text
from ltr.search.study import begin, finished, open_study, read_lists, storage_errors, work


def run_search(search: Search) -> bool:
    """Search, print what was found and keep it; return whether all trials were finished.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything is trained.
        Interrupted, KeyboardInterrupt: the user asked to stop; the same command goes on.
    """
    path = best_path(search)
    check_space(search)
    if search.dry_run:
        print(_described(search))
        return True
    search, data = read_all(search)
    check_free(path, search.folder)
    search.folder.mkdir(parents=True, exist_ok=True)
    with storage_errors(search):
        study = open_study(search)
        if not begin(search, study, data):
            say(f"note: the code changed since {search.folder} began; trials are of both versions")
        before = len(finished(study))
        say(f"search {search.name}: {before} of {search.trials} trials finished")
        progress = Finished(search.trials, before)

        def tell(trial: FrozenTrial) -> None:
            progress.done = len(finished(study)) - 1  # some may be another process's
            took = trial.duration.total_seconds() if trial.duration else None
            progress.add(f"trial {trial.number}", sentence(trial, search), took)

        work(search, study, tell)
        write_results(study, search)
        print(f"{summary(study, search)}\n")
        found = best_of(finished(study)) is not None
        if found:
            print(f"written to {path}: {write_best(path, search, study)}")
        print(f"kept in {search.folder} (trials.csv, history.png, history.svg)")
        return found


def check_space(search: Search) -> None:
    """Build what every trial has, and try the ends and options of each key of the space.

    Raises:
        ConfigError: naming the key; a combination of keys that fails is left to its trial.
    """
    build(search.config)
    tried = {key: distribution.tried for key, distribution in search.space.items()}
    for turn in range(max(map(len, tried.values()))):
        overrides = [f"{key}={values[turn % len(values)]}" for key, values in tried.items()]
        with suppress(ConfigError):
            build(search.trial(overrides)[0])
            continue
        for override in overrides:  # which of them
            try:
                build(search.trial([override])[0])
            except ConfigError as error:
                raise ConfigError(f"space: {override} cannot be built: {error}") from error


def read_all(search: Search) -> tuple[Search, dict[str, str]]:
    """``search`` with its ``select_value``; what identifies its lists, ``{"fold 1 train": ...}``.

    Raises:
        DataError: a file is not there or malformed.
        ConfigError: the loss or a metric does not take a label.
    """
    data: dict[str, str] = {}
    counts = []
    for fold, repeat in {repeat.fold: repeat for repeat in search.repeats}.items():
        config = repeat.set(search.config)
        experiment = build(config)
        lists = read_lists(experiment)
        resolve_labels(config, experiment, lists)
        data |= digests(fold, lists)
        counts.append(len(lists["vali"]))
    value = search.select_value or value_for(search.config, min(counts))
    return replace(search, select_value=value), data


def digests(fold: int | None, lists: Mapping[str, Lists]) -> dict[str, str]:
    """What identifies the ``lists`` of a fold."""
    place = "" if fold is None else f"fold {fold} "
    return {f"{place}{split}": part.digest for split, part in lists.items()}


def _described(search: Search) -> str:
    """What is searched, for ``dry_run``."""
    rows = [[key, str(space), as_text(search.default(key))] for key, space in search.space.items()]
    return "\n".join(
        [
            f"search {search.name} by {search.value_name} on vali of {data_of(search)} "
            f"(select_value={as_text(search.select_value)})",
            f"{search.trials} trials of {len(search.repeats)} trainings each, in {search.folder}",
            "",
            tabulate(rows, ["key", "space", "first trial"], disable_numparse=True),
            "",
            f"first trial: {as_started('train')} {shlex.join(search.overrides)}",
            "",
            OmegaConf.to_yaml(search.config),
        ]
    )
