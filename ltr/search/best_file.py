"""The best configuration as a file that ``python train.py experiment=NAME`` trains."""

import datetime
import shlex
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from optuna.trial import FrozenTrial, TrialState

from ltr.atomic import atomic_write
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.keys import Kind, keys
from ltr.errors import ConfigError, DataError, as_started
from ltr.search.definition import Search
from ltr.search.results import own_values
from ltr.search.space import sets_what_is_searched
from ltr.search.study import finished

_COPY = "best.yaml"  # in the folder of the search: what it wrote last


def best_path(search: Search) -> Path:
    """Where the best configuration goes.

    Raises:
        ConfigError: train.py cannot find it there.
    """
    if search.write is None:
        return (own_configs() or CONFIGS) / "experiment" / f"{search.name}.yaml"
    path = Path(search.write)
    if path.suffix != ".yaml" or path.absolute().parent.name != "experiment":
        raise ConfigError(
            f"write={search.write}: give FOLDER/experiment/NAME.yaml; "
            f"{as_started('train')} --config-dir FOLDER experiment=NAME reads it"
        )
    return path


def check_free(path: Path, folder: Path) -> None:
    """Raise ``ConfigError`` where ``path`` holds what the search in ``folder`` did not write."""
    copy = folder / _COPY
    if path.exists() and not (copy.is_file() and copy.read_bytes() == path.read_bytes()):
        raise ConfigError(
            f"{path} is there and is not what this search wrote: give write=FOLDER/experiment/"
            "NAME.yaml, or move it away"
        )


def write_best(path: Path, search: Search, study: optuna.Study, best: FrozenTrial) -> None:
    """Write the configuration of ``best`` to ``path``, with a copy beside the study, atomically.

    Raises:
        ConfigError: ``path`` holds something else.
        DataError: the trial sets what was not searched.
    """
    _check_searched(search, best)
    text = best_text(command_of(path), search, study, best)
    with FileLock(search.folder / ".best.lock"):
        check_free(path, search.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (search.folder / _COPY, path):
            atomic_write(place, text)


def command_of(path: Path) -> str:
    """The command that trains what is in ``path``."""
    if path.absolute().parent.parent in (CONFIGS, Path("configs").absolute()):
        return f"{as_started('train')} experiment={path.stem}"
    where = shlex.quote(str(path.parent.parent))
    return f"{as_started('train')} --config-dir {where} experiment={path.stem}"


def best_text(command: str, search: Search, study: optuna.Study, best: FrozenTrial) -> str:
    """The file: what was searched in comments, then groups and values."""
    searched = best.user_attrs["overrides"]
    every = OverridesParser.create().parse_overrides([*search.overrides, *searched])
    given: dict[str, Any] = {one.key_or_group: one.value() for one in every}
    given = {key: value for key, value in given.items() if key not in keys(Kind.PLACE)}
    _, choices = search.trial(searched)
    base = given.pop("experiment", None)
    groups = ("dataset", "model", "loss", "optimizer", "schedule")
    named = {group: choices[group] for group in groups if group in choices}
    named |= {key: given.pop(key) for key in list(given) if key in choices}
    defaults: list[Any] = [] if base is None else [base]
    defaults += [{f"override /{group}": choice} for group, choice in named.items()]
    content = OmegaConf.create({"defaults": defaults})
    for key, value in given.items():
        OmegaConf.update(content, key, value)
    lines = ["# @package _global_", f"# {command}", *_comments(search, study, best)]
    return "\n".join(lines) + "\n" + OmegaConf.to_yaml(content)


def _check_searched(search: Search, best: FrozenTrial) -> None:
    """Raise ``DataError`` where a trial sets what was not searched: what is written is trained."""
    for override in best.user_attrs["overrides"]:
        if not sets_what_is_searched(search.space, str(override)):
            raise DataError(
                f"trial {best.number} of the search sets {override}, which its space does not "
                "have: its database is not what a search wrote; give name=NAME for a new "
                "search"
            )


def _comments(search: Search, study: optuna.Study, best: FrozenTrial) -> list[str]:
    trials = finished(study)
    pruned = sum(trial.state == TrialState.PRUNED for trial in trials)
    failed = sum(trial.state == TrialState.FAIL for trial in trials)
    own = own_values(trials)
    today = datetime.date.today().isoformat()
    kept = [
        argument
        for argument in search.arguments
        if argument.partition("=")[0] not in (*keys(Kind.PLACE), "workers", "dry_run", "storage")
    ]
    lines = [
        f"{search.value_name} {best.value:.4f} on vali of {data_of(search)}: "
        f"trial {best.number}, the best of {len(trials)}",
        f"({pruned} pruned, {failed} failed; select_value={search.select_value}) by {today}"
        + (f"; with the values it began from {own.value:.4f}" if own is not None else ""),
        f"{as_started('search')} {shlex.join(kept)}",
    ]
    return [f"# {line}" for line in lines]


def data_of(search: Search) -> str:
    """The data set, folds and seeds that a value is of."""
    parts = [str(search.config.dataset.name)]
    folds = list(dict.fromkeys(r.fold for r in search.repeats if r.fold is not None))
    if not folds and search.config.dataset.get("fold") is not None:
        folds = [int(search.config.dataset.fold)]
    seeds = list(dict.fromkeys(r.seed for r in search.repeats if r.seed is not None))
    for word, several in (("fold", folds), ("seed", seeds)):
        if several:
            many = "s" if len(several) > 1 else ""
            parts.append(f"{word}{many} {' '.join(map(str, several))}")
    return ", ".join(parts) + (" (mean)" if len(search.repeats) > 1 else "")
