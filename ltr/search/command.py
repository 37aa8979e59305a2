"""The command search, checked before its first trial; and a search as one job of a table."""

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
from ltr.console.arguments import as_text
from ltr.console.compose import values_of
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.keys import Kind, keys, stated
from ltr.console.process import Finished, is_full, say
from ltr.errors import ConfigError, OutputError, TrainingError, as_started
from ltr.experiment.build import build
from ltr.experiment.run_folder import RunFolder
from ltr.search.definition import Search, define_search
from ltr.search.study import (
    begin,
    finished,
    in_one_line,
    open_lists,
    open_study,
    overrides_of,
    reason,
    study_lock,
    work,
)
from ltr.training.interruption import handing_on, stoppable

# Of vali, from which on a trial is worth its best epoch: at 2,000 that is too high by .001 to .002
# (docs/selection.md), no more than seeds differ by.
FEW_LISTS = 2000
Found = dict[str, Any]  # what ``found_by`` returns


def run_search(cfg: DictConfig) -> str:
    """Search for good settings on vali and keep them; what is printed of them.

    Raises:
        ConfigError, DataError: one line that says what to mend, before anything is trained.
        TrainingError: no trial was trained to its end.
        Interrupted, KeyboardInterrupt: the user asked to stop; the same command goes on.
    """
    search = define_search(cfg)
    path = Path(cfg.write or (own_configs() or CONFIGS) / "experiment" / f"{search.name}.yaml")
    check_space(search)
    if cfg.dry_run:
        return _described(search)
    search = read_all(search)
    check_free(path, search)
    found = _finish(search, said=True)
    write_best(path, search, found)
    return (
        f"{as_yaml(found)}kept in {search.folder} (trials.csv, search.db)\n"
        f"written to {path}: {as_started('train')} experiment={path.stem}"
    )


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
    folder = RunFolder(search.folder)
    try:
        with stoppable():
            value = float(_finish(read_all(search), said=False)["value"])
    except Exception as error:
        if is_full(error):
            raise OutputError(f"{error}; then give the same command again") from error
        folder.note_error(in_one_line(error))
        return float("nan")
    folder.note_error(None)  # of an earlier attempt
    return value


def _finish(search: Search, *, said: bool) -> Found:
    """Train what is missing of ``search`` and leave ``settings_path``. ``said``: say each trial."""
    with open_study(search) as study:
        begin(search, study)
        before = len(finished(study))
        progress = Finished(search.trials, before)

        def tell(trial: FrozenTrial) -> None:
            progress.done = len(finished(study)) - 1  # some may be another process's
            progress.add(f"trial {trial.number}", sentence(trial, search))

        if said:
            say(f"search {search.name}: {before} of {search.trials} trials finished")
        work(search, study, tell if said else lambda trial: None)
        about = ("number", "state", "value", "params", "user_attrs", "duration")
        write_frame(search.folder / "trials.csv", study.trials_dataframe(about))
        found = found_by(search, finished(study)[: search.trials])  # of a longer search the first
        atomic_write(settings_path(search), as_yaml(found))
        return found


def found_by(search: Search, trials: Sequence[FrozenTrial]) -> Found:
    """The settings of the best of ``trials``, its value, and how many there were of each kind."""
    best, counts = best_of(trials), Counter(trial.state for trial in trials)
    own = best_of([trial for trial in trials if trial.user_attrs.get("default")])
    if best is None:
        raise TrainingError(f"no trial was trained to its end: {reason(trials[0])}")
    return {
        "settings": list(overrides_of(search, best)),
        "worth": search.value_name,
        "value": best.value,
        "best_epoch": best.user_attrs["best_epoch"],  # on vali, which is too high
        "own": None if own is None else own.value,  # of the config's own settings
        "trials": len(trials),
        "pruned": counts[TrialState.PRUNED],
        "failed": counts[TrialState.FAIL],
        "search": search_identity(search),
    }


def as_yaml(found: Found) -> str:
    """What was found, line by line."""
    return str(yaml.safe_dump(found, sort_keys=False, width=1000))


def search_identity(search: Search) -> str:
    """SHA-256 of what is searched, and of the lists of train and vali; code does not count.

    Args:
        search: as ``read_all`` returns it.
    """
    parts = {
        "settings": stated(search.settings()),
        "data": search.digests,
        "pruner": search.cfg.pruner,
        "sampler": [0, search.startup],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def settings_path(search: Search) -> Path:
    """Where it leaves what it found: more trials, another file."""
    return search.folder / f"found-{search.trials}.yaml"


def check_space(search: Search) -> None:
    """Build what every trial has, and try the ends and options of each key of the space.

    Raises:
        ConfigError: naming the key; a combination of keys that fails is left to its trial.
    """
    for repeat in search.repeats:
        build(search.trial(repeat)[0])
    for one in (f"{key}={text}" for key, space in search.space.items() for text in space.texts):
        try:
            build(search.trial([one])[0])
        except ConfigError as error:
            raise ConfigError(f"space: {one} cannot be built: {error}") from error


def read_all(search: Search) -> Search:
    """``search`` with the ``digests`` of its lists and its ``select_value``.

    Raises:
        DataError: a file is not there or malformed.
        ConfigError: the loss or a metric does not take a label.
    """
    digests, fewest = dict[str, str](), math.inf
    folds = {"".join(one for one in repeat if "fold" in one): repeat for repeat in search.repeats}
    for fold, repeat in folds.items():
        *_, lists = open_lists(search.trial(repeat)[0])
        place = fold.removeprefix("dataset.").replace("=", " ")
        digests |= {f"{place} {split}".strip(): part.digest for split, part in lists.items()}
        fewest = min(fewest, len(lists["vali"]))
    few = fewest < FEW_LISTS and search.config.select == "best"
    value = search.select_value or ("crossfit" if few else "best")
    return replace(search, select_value=value, digests=digests)


def best_of(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The best trial that was trained to its end; the first of equal ones."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: trial.value or 0, default=None)


def sentence(trial: FrozenTrial, search: Search) -> str:
    """How a finished trial ended, and its settings."""
    settings = " ".join(overrides_of(search, trial)) or "the config's own values"
    if trial.state == TrialState.COMPLETE:
        return f"{search.value_name} {trial.value:.4f} on vali  {settings}"
    how = "pruned" if trial.state == TrialState.PRUNED else "failed:"
    return f"{how} {reason(trial)}  {settings}"


def _described(search: Search) -> str:
    """What is searched, for ``dry_run``: of each key its space, and the config's own value."""
    rows = [
        f"{key}  {space}  {as_text(search.default(key))}" for key, space in search.space.items()
    ]
    return "\n".join([
        f"search {search.name} by {search.value_name} on vali of {search.data}",
        f"{search.trials} trials of {len(search.repeats)} trainings each, in {search.folder}",
        *("", "key  space  first trial", *rows, ""),
        f"first trial: {as_started('train')} {shlex.join(search.overrides)}",
    ])  # fmt: skip


def check_free(path: Path, search: Search) -> None:
    """Raise ``ConfigError`` where ``path`` holds what ``search`` did not write."""
    copy = search.folder / "best.yaml"  # what it wrote last
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} is there and is not what this search wrote: move it away, or give write=FILE"
        )


def write_best(path: Path, search: Search, found: Found) -> None:
    """Write what was found to ``path``, a config of ``experiment``."""
    text = best_text(search, found)
    with study_lock(search):
        check_free(path, search)
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (search.folder / "best.yaml", path):
            atomic_write(place, text)


def best_text(search: Search, found: Found) -> str:
    """The file: what was searched in a comment, then groups and values."""
    places = keys(Kind.PLACE)
    given = values_of([*search.overrides, *found["settings"]])
    given = {key.lstrip("+"): value for key, value in given.items() if key not in places}
    base = [given.pop("experiment")] if "experiment" in given else []
    groups = sorted(given.keys() & search.choices.keys())
    named = [{f"override /{group}": given.pop(group)} for group in groups]
    content = OmegaConf.create({"defaults": [*base, *named]})
    for key, value in given.items():
        OmegaConf.update(content, key, value)
    return (
        f"# @package _global_\n# {found['worth']} {found['value']:.4f} on vali of {search.data}: "
        f"the best of {found['trials']} trials of search {search.name}\n"
        f"{OmegaConf.to_yaml(content)}"
    )
