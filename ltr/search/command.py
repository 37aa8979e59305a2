"""Run a search, as the command ``ltr search`` or as one job of a table.

Each trial has its own settings, drawn from the space, and is trained for every fold and seed of the
search. Its value is a metric on vali.
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
from ltr.console.arguments import as_text
from ltr.console.compose import values_of
from ltr.console.configs import own_configs
from ltr.console.keys import Kind, keys, stated
from ltr.console.process import Finished, is_full, say
from ltr.errors import ConfigError, OutputError, TrainingError, as_started
from ltr.experiment.build import build
from ltr.experiment.leaks import warn_of_leaks
from ltr.experiment.run_folder import RunFolder
from ltr.search.definition import Search, define_search
from ltr.search.study import (
    begin,
    counts,
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

# With at least this many vali lists, a trial's value is the metric of its best epoch. At 2,000 that
# is too high by .001 to .002 (results/selection.md), no more than the difference between seeds.
FEW_LISTS = 2000
Found = dict[str, Any]  # the result of a search, see ``found_by``


def run_search(cfg: DictConfig) -> str:
    """Search for good settings on vali, and write them as a config of ``experiment``.

    Return the text to print. With ``dry_run``, only describe the search.

    Raises:
        ConfigError, DataError: before anything is trained, with one line that says what to correct.
        TrainingError: no trial was trained to its end.
        Interrupted, KeyboardInterrupt: the user stopped it; the same command continues the search.
    """
    search, home = define_search(cfg), own_configs() or Path("configs")
    path = Path(cfg.write or home / "experiment" / f"{search.name}.yaml")
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
    """Finish the search of ``cfg``, write its result to ``settings_path``; return the best value.

    If the search fails, this is NaN, and the reason is in ``error.txt`` in the search's folder.

    Raises:
        Interrupted: the user stopped it; the same job continues the search.
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
    """Train the missing trials and write the result; if ``said``, print a line for each trial."""
    with open_study(search) as study:
        begin(search, study)
        before = len(finished(study))
        progress = Finished(search.trials, before)

        def tell(trial: FrozenTrial) -> None:
            progress.done = len(finished(study)) - 1  # another process may have finished some
            progress.add(f"trial {trial.number}", sentence(trial, search))

        if said:
            say(f"search {search.name}: {before} of {search.trials} trials finished")
        work(search, study, tell if said else lambda trial: None)
        about = ("number", "state", "value", "params", "user_attrs", "duration")
        write_frame(search.folder / "trials.csv", study.trials_dataframe(about))
        found = found_by(search, study.get_trials(deepcopy=False))
        atomic_write(settings_path(search), as_yaml(found))
        return found


def found_by(search: Search, tries: Sequence[FrozenTrial]) -> Found:
    """Return settings and value of the best trial; raise ``TrainingError`` if none was trained."""
    trials = [*filter(counts, tries)][: search.trials]  # there may be more
    states = Counter(trial.state for trial in trials)
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not done:
        raise TrainingError(f"no trial was trained to its end: {reason(trials[0])}")
    best = max(done, key=lambda trial: trial.value or 0)  # the first if tied
    return {
        "settings": list(overrides_of(search, best)),
        "worth": search.value_name,
        "value": best.value,
        "best_epoch": best.user_attrs["best_epoch"],  # metric of the best epoch on vali: too high
        "own": next((one.value for one in done if one.user_attrs.get("default")), None),
        "trials": len(trials),
        "pruned": states[TrialState.PRUNED],
        "failed": states[TrialState.FAIL],
        "stopped": sum(one.state.is_finished() and not counts(one) for one in tries),  # also FAIL
        "search": search_identity(search),
    }


def as_yaml(found: Found) -> str:
    """Format the result of a search as YAML."""
    return str(yaml.safe_dump(found, sort_keys=False, width=1000))


def search_identity(search: Search) -> str:
    """Return a SHA-256 of a search (from ``read_all``) and its train and vali lists, not code."""
    parts = {
        "settings": stated(search.settings()),
        "data": search.digests,
        "pruner": search.cfg.pruner,
        "sampler": [0, search.startup],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def settings_path(search: Search) -> Path:
    """Return the path of the result; each number of trials has its own file."""
    return search.folder / f"found-{search.trials}.yaml"


def check_space(search: Search) -> None:
    """Try to build the trainings of the first trial, and one for every bound and option of a key.

    Raises:
        ConfigError: one of them is impossible; the message names the key. Combinations of keys are
            not tried: an impossible one makes its trial fail.
    """
    for repeat in search.repeats:
        build(search.trial(repeat)[0])
    for one in (f"{key}={text}" for key, space in search.space.items() for text in space.texts):
        try:
            build(search.trial([one])[0])
        except ConfigError as error:
            raise ConfigError(f"space: {one} cannot be built: {error}") from error


def read_all(search: Search) -> Search:
    """Read the lists; return ``search`` with their ``digests`` and its ``select_value``.

    Raises:
        DataError: a file is missing or malformed.
        ConfigError: the loss or a metric does not accept a label.
    """
    digests, fewest = dict[str, str](), math.inf
    folds = {"".join(one for one in repeat if "fold" in one): repeat for repeat in search.repeats}
    for fold, repeat in folds.items():
        _, lists = open_lists(*search.trial(repeat))
        warn_of_leaks(lists)
        place = fold.removeprefix("dataset.").replace("=", " ")
        digests |= {f"{place} {split}".strip(): part.digest for split, part in lists.items()}
        fewest = min(fewest, len(lists["vali"]))
    few = fewest < FEW_LISTS and search.config.select == "best"
    value = search.select_value or ("crossfit" if few else "best")
    return replace(search, select_value=value, digests=digests)


def sentence(trial: FrozenTrial, search: Search) -> str:
    """Say how a finished trial ended, and which settings it had."""
    settings = " ".join(overrides_of(search, trial)) or "the config's own values"
    if trial.state == TrialState.COMPLETE:
        return f"{search.value_name} {trial.value:.4f} on vali  {settings}"
    how = "pruned" if trial.state == TrialState.PRUNED else "failed:"
    return f"{how} {reason(trial)}  {settings}"


def _described(search: Search) -> str:
    """Describe the search for ``dry_run``: the space of each key, and the config's own value."""
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
    """Raise ``ConfigError`` if ``path`` is a file that ``search`` did not write."""
    copy = search.folder / "best.yaml"  # a copy of what it wrote last
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} is there and is not what this search wrote: move it away, or give write=FILE"
        )


def write_best(path: Path, search: Search, found: Found) -> None:
    """Write the result of a search to ``path``, as a config of ``experiment``."""
    text = best_text(search, found)
    with study_lock(search):
        check_free(path, search)
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (search.folder / "best.yaml", path):
            atomic_write(place, text)


def best_text(search: Search, found: Found) -> str:
    """Return the config file with the best settings: a comment, the chosen groups, the values."""
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
