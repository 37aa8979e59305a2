"""Run a search, as the command ``ltr search`` or as one job of a table.

Each trial has its own settings, drawn from the search space, and is trained for every fold and seed
of the search. The value of a trial is a metric on vali.
"""

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState

from ltr.atomic import atomic_write, write_frame
from ltr.cli.arguments import as_text, merged
from ltr.cli.compose import values_of
from ltr.cli.keys import Kind, keys, stated
from ltr.cli.options import parse_options
from ltr.cli.process import Finished, is_full, say
from ltr.errors import ConfigError, OutputError, TrainingError, as_started
from ltr.experiment.build import build
from ltr.experiment.leaks import warn_of_leaks
from ltr.experiment.run_folder import RunFolder
from ltr.lab.search.definition import Search, SearchOptions, define_search
from ltr.lab.search.study import (
    begin_study,
    describe_trial_error,
    end_reason,
    finished_trials,
    is_counted,
    open_study,
    read_training_lists,
    study_lock,
    train_trials,
    trial_overrides,
)
from ltr.training.interruption import handing_on, stoppable

# With at least this many vali lists, a trial's value is the metric of its best epoch. With 2,000
# lists, this is too high by .001 to .002 (results/selection.md), which is no more than the
# difference between seeds.
FEW_LISTS = 2000
SearchResult = dict[str, Any]  # see ``best_result``


def run_search(options: SearchOptions) -> str:
    """Search for good settings on vali, and write them into the folder of the search.

    If ``write`` is set, also write them to that file, as a config file for the group
    ``experiment``. If ``dry_run`` is set, only describe the search.

    Returns:
        The text to print.

    Raises:
        ConfigError, DataError: an option or a file is invalid; the message says what to correct.
        TrainingError: no trial was trained to the end.
        Interrupted, KeyboardInterrupt: the user stopped the search; the same command continues it.
    """
    search = define_search(options)
    path = None if options.write is None else Path(options.write)
    check_space(search)
    if options.dry_run:
        return _describe_search(search)
    search = read_all(search)
    if path is not None:
        check_free(path, search)
    result = _finish_search(search, verbose=True)
    write_best(path, search, result)
    return (
        f"{as_yaml(result)}kept in {search.folder} (best.yaml, trials.csv, search.db)\n"
        f"{_describe_next(path, search, result)}"
    )


def _describe_next(path: Path | None, search: Search, result: SearchResult) -> str:
    """Return the command that trains with the best settings, from ``path`` if it is given."""
    if path is not None:
        return f"written to {path}: {as_started('train')} experiment={path.stem}"
    overrides = merged(search.overrides, result["settings"])
    return f"next: {as_started('train')} {shlex.join(overrides)}"


@handing_on()
def search_job(cfg: DictConfig) -> float:
    """Finish the search of ``cfg``, write its result to a file, and return the best value.

    If the search fails, return NaN; the reason is in ``error.txt`` in the folder of the search.

    Raises:
        Interrupted: the user stopped the search; the same job continues it.
        OutputError: the disk is full.
    """
    search = define_search(parse_options(SearchOptions, cfg))
    folder = RunFolder(search.folder)
    try:
        with stoppable():
            value = float(_finish_search(read_all(search), verbose=False)["value"])
    except Exception as error:
        if is_full(error):
            raise OutputError(f"{error}; then repeat the command") from error
        folder.note_error(describe_trial_error(error))
        return float("nan")
    folder.note_error(None)  # of an earlier attempt
    return value


def _finish_search(search: Search, *, verbose: bool) -> SearchResult:
    """Train the missing trials and write the result; if ``verbose``, print one line per trial."""
    with open_study(search) as study:
        begin_study(search, study)
        finished_count = len(finished_trials(study))
        progress = Finished(search.trials, finished_count)

        def print_trial(trial: FrozenTrial) -> None:
            # another process may have finished some trials
            progress.done = len(finished_trials(study)) - 1
            progress.add(f"trial {trial.number}", describe_trial(trial, search))

        if verbose:
            say(f"search {search.name}: {finished_count} of {search.trials} trials finished")
        train_trials(search, study, print_trial if verbose else lambda trial: None)
        columns = ("number", "state", "value", "params", "user_attrs", "duration")
        write_frame(search.folder / "trials.csv", study.trials_dataframe(columns))
        result = best_result(search, study.get_trials(deepcopy=False))
        atomic_write(settings_path(search), as_yaml(result))
        return result


def best_result(search: Search, attempts: Sequence[FrozenTrial]) -> SearchResult:
    """Return the settings and the value of the best trial, and how the other trials ended.

    Args:
        search: the search, with its digests.
        attempts: all trials of the study, including stopped ones.

    Raises:
        TrainingError: no trial was trained to the end.
    """
    trials = [*filter(is_counted, attempts)][: search.trials]  # processes may finish too many
    states = Counter(trial.state for trial in trials)
    completed = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not completed:
        raise TrainingError(f"no trial was trained to the end: {end_reason(trials[0])}")
    best = max(completed, key=lambda trial: trial.value or 0)  # the first if tied
    default_values = [trial.value for trial in completed if trial.user_attrs.get("default")]
    return {
        "settings": list(trial_overrides(search, best)),
        "worth": search.value_name,
        "value": best.value,
        # the metric of the best epoch on vali, which is too high
        "best_epoch": best.user_attrs["best_epoch"],
        "own": default_values[0] if default_values else None,
        "trials": len(trials),
        "pruned": states[TrialState.PRUNED],
        "failed": states[TrialState.FAIL],
        "stopped": sum(
            trial.state.is_finished() and not is_counted(trial) for trial in attempts
        ),  # their state is FAIL too
        "search": search_identity(search),
    }


def as_yaml(result: SearchResult) -> str:
    """Format the result of a search as YAML."""
    return str(yaml.safe_dump(result, sort_keys=False, width=1000))


def search_identity(search: Search) -> str:
    """Return the SHA-256 of the settings and the lists of a search (from ``read_all``).

    The hash does not depend on the code.
    """
    content = {
        "settings": stated(search.settings()),
        "data": search.digests,
        "pruner": search.options.pruner,
        "sampler": [0, search.startup],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def settings_path(search: Search) -> Path:
    """Return the path of the result file, which has the number of trials in its name."""
    return search.folder / f"found-{search.trials}.yaml"


def check_space(search: Search) -> None:
    """Try to build the first trial, and one trial for each bound or option of every searched key.

    Raises:
        ConfigError: one of them is impossible; the message names the key. Combinations of values
            are not tried; an impossible combination makes its trial fail.
    """
    for repeat in search.repeats:
        build(search.trial(repeat)[0])
    for key, space in search.space.items():
        for text in space.texts:
            override = f"{key}={text}"
            try:
                build(search.trial([override])[0])
            except ConfigError as error:
                raise ConfigError(f"space: {override} cannot be built: {error}") from error


def read_all(search: Search) -> Search:
    """Read the lists; return ``search`` with their ``digests`` and its ``select_value``.

    Raises:
        DataError: a file is missing or malformed.
        ConfigError: the loss or a metric does not accept a label.
    """
    digests: dict[str, str] = {}
    fewest = math.inf
    folds = {
        "".join(override for override in repeat if "fold" in override): repeat
        for repeat in search.repeats
    }
    for fold, repeat in folds.items():
        _, lists = read_training_lists(build(*search.trial(repeat)))
        warn_of_leaks(lists)
        fold_name = fold.removeprefix("dataset.").replace("=", " ")
        for split, split_lists in lists.items():
            digests[f"{fold_name} {split}".strip()] = split_lists.digest
        fewest = min(fewest, len(lists["vali"]))
    has_few_lists = fewest < FEW_LISTS and search.config.select == "best"
    select_value = search.select_value or ("crossfit" if has_few_lists else "best")
    return replace(search, select_value=select_value, digests=digests)


def describe_trial(trial: FrozenTrial, search: Search) -> str:
    """Describe how a finished trial ended, and which settings it had."""
    settings = " ".join(trial_overrides(search, trial)) or "the config's own values"
    if trial.state == TrialState.COMPLETE:
        return f"{search.value_name} {trial.value:.4f} on vali  {settings}"
    ending = "pruned" if trial.state == TrialState.PRUNED else "failed:"
    return f"{ending} {end_reason(trial)}  {settings}"


def _describe_search(search: Search) -> str:
    """Describe the search for ``dry_run``: each key's space, and its value in the config."""
    rows = [
        f"{key}  {space}  {as_text(search.default(key))}" for key, space in search.space.items()
    ]
    lines = [
        f"search {search.name} by {search.value_name} on vali of {search.data}",
        f"{search.trials} trials, training runs per trial: {len(search.repeats)}, folder: "
        f"{search.folder}",
        "",
        "key  space  first trial",
        *rows,
        "",
        f"first trial: {as_started('train')} {shlex.join(search.overrides)}",
    ]
    return "\n".join(lines)


def check_free(path: Path, search: Search) -> None:
    """Raise ``ConfigError`` if ``path`` is a file that ``search`` did not write."""
    copy = search.folder / "best.yaml"  # a copy of what it wrote last
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} already exists and was not written by this search: move it, or set write=FILE"
        )


def write_best(path: Path | None, search: Search, result: SearchResult) -> None:
    """Write the result of a search to its folder, and to ``path`` if it is given, as a config file
    for the group ``experiment``.
    """
    text = best_config(search, result)
    with study_lock(search):
        if path is not None:
            check_free(path, search)
            path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(search.folder / "best.yaml", text)
        if path is not None:
            atomic_write(path, text)


def best_config(search: Search, result: SearchResult) -> str:
    """Return the config file with the best settings: a comment, the chosen groups, the values."""
    runtime_keys = keys(Kind.PLACE)
    overridden = values_of([*search.overrides, *result["settings"]])
    values = {
        key.lstrip("+"): value for key, value in overridden.items() if key not in runtime_keys
    }
    defaults: list[Any] = [values.pop("experiment")] if "experiment" in values else []
    for group in sorted(values.keys() & search.choices.keys()):
        defaults.append({f"override /{group}": values.pop(group)})
    content = OmegaConf.create({"defaults": defaults})
    for key, value in values.items():
        OmegaConf.update(content, key, value)
    return (
        f"# @package _global_\n# {result['worth']} {result['value']:.4f} on vali of {search.data}: "
        f"the best of {result['trials']} trials of search {search.name}\n"
        f"{OmegaConf.to_yaml(content)}"
    )
