"""The search itself: checked before the first trial, begun or gone on with, written at its end."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import optuna
import torch
from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from ltr.console.progress import say
from ltr.data.lists import Lists
from ltr.errors import ConfigError, as_started
from ltr.experiment.build import build
from ltr.experiment.labels import resolve_labels
from ltr.search.best_file import best_path, check_free, command_of, data_of, write_best
from ltr.search.definition import Search, value_for
from ltr.search.results import Watch, best_of, draw_history, summary, write_trials
from ltr.search.space import as_text
from ltr.search.study import (
    finished,
    open_study,
    settle_identity,
    storage_errors,
    study_lock,
)
from ltr.search.trial import default_params, read_lists
from ltr.search.worker import others, work
from ltr.training.device import pick_device
from ltr.training.interruption import Interrupted


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
        begin(search, study, data)
        _work(search, study)
        return _finish(search, study, path)


def begin(search: Search, study: optuna.Study, data: dict[str, str]) -> None:
    """Note what a new study is of, and queue the config's own values as its first trial.

    Raises:
        ConfigError, DataError: as ``settle_identity``.
    """
    with study_lock(search):
        if not settle_identity(study, search.folder, search.settings(), data, search.code()):
            say(f"note: the code changed since {search.folder} began; trials are of both versions")
        study.enqueue_trial(
            default_params(search), user_attrs={"default": True}, skip_if_exists=True
        )


def check_space(search: Search) -> None:
    """Build what every trial has, and try the ends and options of each key of the space.

    Raises:
        ConfigError: naming the key; a combination of keys that fails is left to its trial.
    """
    build(search.config)
    tried = {key: distribution.tried() for key, distribution in search.space.items()}
    for turn in range(max(len(values) for values in tried.values())):
        overrides = [f"{key}={values[turn % len(values)]}" for key, values in tried.items()]
        try:
            build(search.trial(overrides)[0])
        except ConfigError:
            for override in overrides:  # which of them
                try:
                    build(search.trial([override])[0])
                except ConfigError as error:
                    raise ConfigError(
                        f"space: {override} cannot be built: {error}{_added(search, override)}"
                    ) from error


def _added(search: Search, override: str) -> str:
    """How a key is searched that the config has no value for, such as another of a library's."""
    key = override.partition("=")[0]
    parent, _, last = key.rpartition(".")
    above = OmegaConf.select(search.config, parent) if parent else None
    if not isinstance(above, DictConfig) or last in above:
        return ""
    return f"; to search a key that the config does not have, write space.+{key}"


def read_all(search: Search) -> tuple[Search, dict[str, str]]:
    """``search`` with its ``select_value``; what identifies its lists, ``{"fold 1 train": ...}``.

    Raises:
        DataError: a file is not there or malformed.
        ConfigError: the loss or a metric does not take a label.
    """
    found: dict[str, str] = {}
    counts = []
    for fold, repeat in {repeat.fold: repeat for repeat in search.repeats}.items():
        config = repeat.set(search.config)
        experiment = build(config)
        lists = read_lists(experiment)
        resolve_labels(config, experiment, lists)
        found |= digests(fold, lists)
        counts.append(len(lists["vali"]))
    value = search.select_value or value_for(search.config, min(counts))
    return replace(search, select_value=value), found


def digests(fold: int | None, lists: Mapping[str, Lists]) -> dict[str, str]:
    """What identifies the ``lists`` of a fold."""
    place = "" if fold is None else f"fold {fold} "
    return {f"{place}{split}": part.digest for split, part in lists.items()}


def _work(search: Search, study: optuna.Study) -> None:
    """Do the trials."""
    say(f"search {search.name}: {_so_far(search, study)}; {search.workers} at a time")
    watch = Watch(study, search.trials, search.value_name)
    try:
        arguments = _of_worker(search) if search.workers > 1 else []
        with others(arguments, search.workers - 1, search.folder):
            work(search, study, look=watch.look)
    except (KeyboardInterrupt, Interrupted):
        watch.close()
        say(f"search {search.name}: {_so_far(search, study)}")
        raise
    finally:
        watch.close()


def _of_worker(search: Search) -> Sequence[str]:
    """The arguments of one of several processes, which share the cores with this one."""
    arguments = [*search.arguments, "workers=1", f"select_value={search.select_value}"]
    if pick_device(search.config.device).type == "cpu" and search.config.threads is None:
        threads = max(1, (os.cpu_count() or 1) // search.workers)
        torch.set_num_threads(threads)
        arguments.append(f"threads={threads}")
    return arguments


def _so_far(search: Search, study: optuna.Study) -> str:
    trials = finished(study)
    best = best_of(trials)
    text = f"{len(trials)} of {search.trials} trials finished"
    if best is None:
        return text
    return f"{text}, best {search.value_name} {best.value:.4f} on vali (trial {best.number})"


def _finish(search: Search, study: optuna.Study, path: Path) -> bool:
    """Write what was found and say so."""
    complete = len(finished(study)) >= search.trials
    write_trials(search.folder / "trials.csv", study, search)
    draw_history(study, search.folder, f"{search.name}: {data_of(search)}", search.value_name)
    print(f"{summary(study, search)}\n")
    best = best_of(finished(study))
    if best is not None:
        write_best(path, search, study, best)
        print(f"written to {path}: {command_of(path)}")
    print(f"kept in {search.folder} (trials.csv, history.png, history.svg)")
    return complete and best is not None


def _described(search: Search) -> str:
    """What is searched, for ``dry_run``."""
    rows = [[key, str(space), as_text(search.default(key))] for key, space in search.space.items()]
    count = "one training" if len(search.repeats) == 1 else f"{len(search.repeats)} trainings"
    return "\n".join(
        [
            f"search {search.name} by {search.value_name} on vali of {data_of(search)} "
            f"(select_value={as_text(search.select_value)})",
            f"{search.trials} trials of {count} each, {search.workers} at a time, "
            f"{'would go on' if search.folder.exists() else 'would begin'} in {search.folder}",
            "",
            tabulate(rows, ["key", "space", "first trial"], disable_numparse=True),
            "",
            f"first trial: {as_started('train')} {shlex.join(search.overrides)}",
            "",
            OmegaConf.to_yaml(search.config),
        ]
    )
