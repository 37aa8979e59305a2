"""The command search, checked before its first trial; and a search as one job of a table."""

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate

from ltr.atomic import atomic_write, write_csv
from ltr.console.arguments import as_text
from ltr.console.compose import values_of
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.keys import Kind, keys, stated
from ltr.console.process import Finished, is_full, one_line, say
from ltr.errors import ConfigError, OutputError, TrainingError, as_started
from ltr.experiment.build import build
from ltr.experiment.run_folder import RunFolder
from ltr.search.definition import Search, define_search
from ltr.search.study import (
    begin,
    finished,
    open_lists,
    open_study,
    overrides_of,
    reason,
    state_of,
    study_lock,
    work,
)
from ltr.training.interruption import handing_on, stoppable

# Of vali, from which on a trial is worth its best epoch: at 2,000 that is too high by .001 to .002
# (docs/selection.md), no more than seeds differ by.
FEW_LISTS = 2000


def run_search(cfg: DictConfig) -> bool:
    """Search for good settings on vali, print and keep them; whether a trial came to its end.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything is trained.
        Interrupted, KeyboardInterrupt: the user asked to stop; the same command goes on.
    """
    search = define_search(cfg)
    path = Path(cfg.write or (own_configs() or CONFIGS) / "experiment" / f"{search.name}.yaml")
    check_space(search)
    if cfg.dry_run:
        print(_described(search))
        return True
    search, data = read_all(search)
    check_free(path, search)
    trials = _finish(search, data, said=True)
    best = best_of(trials)
    print(f"{_counts(trials)}\n{_summary(trials, search)}\n")
    if best is not None:
        write_best(path, search, trials)
        print(f"written to {path}: {as_started('train')} experiment={path.stem}")
    print(f"kept in {search.folder} (trials.csv, search.db)")
    return best is not None


@handing_on()
def search_job(cfg: DictConfig) -> float:
    """Do the search of ``cfg``, as far as it is not done, and leave ``settings_path``.

    Returns:
        Its value; nan where it fails, with the reason in ``error.txt`` in its folder.

    Raises:
        Interrupted: the user asked to stop; the same job goes on.
        OutputError: the disk is full.
    """
    search = define_search(cfg)
    search.folder.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(search.folder)
    try:
        with stoppable():
            value = _leave_settings(search)
    except Exception as error:
        if is_full(error):
            raise OutputError(f"{error}; then give the same command again") from error
        folder.note_error(f"{type(error).__name__}: {one_line(error) or error}")
        return float("nan")
    folder.note_error(None)  # of an earlier attempt
    return value


def _finish(search: Search, data: Mapping[str, str], *, said: bool) -> list[FrozenTrial]:
    """Train what is missing of ``search``; return its finished trials. ``said``: say each."""
    search.folder.mkdir(parents=True, exist_ok=True)
    with open_study(search) as study:
        same_code = begin(search, study, data)
        before = len(finished(study))
        progress = Finished(search.trials, before)

        def tell(trial: FrozenTrial) -> None:
            progress.done = len(finished(study)) - 1  # some may be another process's
            progress.add(f"trial {trial.number}", sentence(trial, search))

        if said and not same_code:
            say(f"note: the code changed since {search.folder} began; trials are of both versions")
        if said:
            say(f"search {search.name}: {before} of {search.trials} trials finished")
        work(search, study, tell if said else lambda trial: None)
        write_trials(search, study.trials)
        return finished(study)


def _leave_settings(search: Search) -> float:
    """Do the search of a job and write ``settings_path``; the value of the best."""
    search, data = read_all(search)
    trials = _finish(search, data, said=False)[: search.trials]  # of a longer search the first
    best, own, counts = best_of(trials), own_values(trials), Counter(map(state_of, trials))
    if best is None:
        raise TrainingError(f"no trial was trained to its end: {reason(trials[0])}")
    settings = {
        "settings": list(overrides_of(search, best)),
        "worth": search.value_name,
        "value": best.value,
        "best_epoch": worth(best),  # on vali, which is too high
        "own": None if own is None else own.value,  # of the config's own settings
        "trials": len(trials),
        "pruned": counts["pruned"],
        "failed": counts["failed"],
        "search": search_identity(search, data),
    }
    atomic_write(settings_path(search), yaml.safe_dump(settings, sort_keys=False))
    return float(best.value or 0)


def search_identity(search: Search, data: Mapping[str, str]) -> str:
    """SHA-256 of what is searched, and of the lists of train and vali; code does not count.

    Args:
        search: with its ``select_value``.
        data: as ``read_all`` has it.
    """
    parts = {
        "settings": stated(search.settings()),
        "data": dict(data),
        "pruner": search.cfg.pruner,
        "sampler": [0, search.startup],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def settings_path(search: Search) -> Path:
    """Where its job leaves the best settings: more trials, another file."""
    return search.folder / f"found-{search.trials}.yaml"


def check_space(search: Search) -> None:
    """Build what every trial has, and try the ends and options of each key of the space.

    Raises:
        ConfigError: naming the key; a combination of keys that fails is left to its trial.
    """
    build(search.config)
    for one in (f"{key}={text}" for key, space in search.space.items() for text in space.texts):
        try:
            build(search.trial([one])[0])
        except ConfigError as error:
            raise ConfigError(f"space: {one} cannot be built: {error}") from error


def read_all(search: Search) -> tuple[Search, dict[str, str]]:
    """``search`` with its ``select_value``; what identifies its lists, ``{"fold 1 train": ...}``.

    Raises:
        DataError: a file is not there or malformed.
        ConfigError: the loss or a metric does not take a label.
    """
    data: dict[str, str] = {}
    fewest = math.inf
    for fold, repeat in {repeat.fold: repeat for repeat in search.repeats}.items():
        *_, lists = open_lists(search.config, repeat)
        place = "" if fold is None else f"fold {fold} "
        data |= {f"{place}{split}": part.digest for split, part in lists.items()}
        fewest = min(fewest, len(lists["vali"]))
    few = fewest < FEW_LISTS and search.config.select == "best"
    value = search.select_value or ("crossfit" if few else "best")
    return replace(search, select_value=value), data


def best_of(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The best trial that was trained to its end; the first of equal ones."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: trial.value or 0, default=None)


def own_values(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The trial of the config's own values, where it was trained to its end."""
    return best_of([trial for trial in trials if trial.user_attrs.get("default")])


def worth(trial: FrozenTrial) -> float | None:
    """Its best epoch on vali: of a pruned trial, the mean over the trainings it had begun."""
    return trial.user_attrs.get("best_epoch", trial.value)


def sentence(trial: FrozenTrial, search: Search) -> str:
    """How a finished trial ended, and its settings."""
    state, why = state_of(trial), reason(trial)
    settings = " ".join(overrides_of(search, trial)) or "the config's own values"
    if state == "failed":
        return f"failed: {why}  {settings}"
    if state == "pruned":
        return f"{search.metric} {worth(trial):.4f} on vali, pruned {why}  {settings}"
    return f"{search.value_name} {trial.value:.4f} on vali  {settings}"


def write_trials(search: Search, trials: Iterable[FrozenTrial]) -> None:
    """Write ``trials.csv``, a row per trial, those cut off too."""
    rows = []
    for trial in trials:
        state, took = state_of(trial), trial.duration
        row = {"trial": trial.number, "state": state, f"vali {search.metric}": worth(trial)}
        if search.select_value == "crossfit":
            row[search.value_name] = trial.value if state == "done" else None
        row |= {key: trial.params.get(key) for key in search.space}
        seconds = round(took.total_seconds(), 1) if took and state != "cut off" else None
        rows.append(row | {"seconds": seconds, "reason": reason(trial)})
    write_csv(search.folder / "trials.csv", rows)


def _summary(trials: Sequence[FrozenTrial], search: Search) -> str:
    """The best trial beside the first."""
    best, own = best_of(trials), own_values(trials)
    if best is None:
        return f"no trial was trained to its end\n{reason(trials[0])}"
    line = f"best: {search.value_name} on vali {best.value:.4f}, trial {best.number}"
    if own is not None and own.number != best.number:
        line += f"\nthe config's own values: {own.value:.4f}"
    chosen = dict(one.split("=", 1) for one in overrides_of(search, best))
    rows = [[key, chosen.get(key, was), was, space] for key, space, was in _rows(search)]
    table = tabulate(rows, ["key", "best", "was", "space"], disable_numparse=True)
    return f"{line}\n\n{table}"


def _counts(trials: Sequence[FrozenTrial]) -> str:
    counts = Counter(map(state_of, trials))
    words = (f"{counts[state]} {state}" for state in ("done", "pruned", "failed"))
    return f"{len(trials)} trials: {', '.join(words)}"


def _rows(search: Search) -> list[list[str]]:
    """Of each key its space, and the config's own value."""
    return [[key, str(space), as_text(search.default(key))] for key, space in search.space.items()]


def _described(search: Search) -> str:
    """What is searched, for ``dry_run``."""
    table = tabulate(_rows(search), ["key", "space", "first trial"], disable_numparse=True)
    return (
        f"search {search.name} by {search.value_name} on vali of {search.data}\n"
        f"{search.trials} trials of {len(search.repeats)} trainings each, in {search.folder}\n\n"
        f"{table}\n\nfirst trial: {as_started('train')} {shlex.join(search.overrides)}"
    )


def check_free(path: Path, search: Search) -> None:
    """Raise ``ConfigError`` where ``path`` holds what ``search`` did not write."""
    copy = search.folder / "best.yaml"  # what it wrote last
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} is there and is not what this search wrote: move it away, or give write=FILE"
        )


def write_best(path: Path, search: Search, trials: Sequence[FrozenTrial]) -> None:
    """Write the settings of the best of ``trials`` to ``path``, a config of ``experiment``."""
    text = best_text(search, trials)
    with study_lock(search):
        check_free(path, search)
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (search.folder / "best.yaml", path):
            atomic_write(place, text)


def best_text(search: Search, trials: Sequence[FrozenTrial]) -> str:
    """The file: what was searched in a comment, then groups and values."""
    best, places = best_of(trials), keys(Kind.PLACE)
    assert best is not None
    searched = overrides_of(search, best)
    _, choices = search.trial(searched)
    given = values_of([*search.overrides, *searched])
    given = {key.lstrip("+"): value for key, value in given.items() if key not in places}
    base = [given.pop("experiment")] if "experiment" in given else []
    groups = {"dataset", "model", "loss", "optimizer", "schedule", *given}
    named = [
        {f"override /{group}": given.pop(group, choice)}
        for group, choice in choices.items()
        if group in groups
    ]
    content = OmegaConf.create({"defaults": [*base, *named]})
    for key, value in given.items():
        OmegaConf.update(content, key, value)
    return (
        f"# @package _global_\n# {search.value_name} {best.value:.4f} on vali of {search.data}: "
        f"trial {best.number} of search {search.name}, {_counts(trials)}\n"
        f"{OmegaConf.to_yaml(content)}"
    )
