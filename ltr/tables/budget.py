"""A budget for every row of a table: the same number of trials, on train and vali alone.

In LETOR the vali queries of one fold are the test queries of another: settings chosen by a mean
over folds would have read test. So the budget is spent for each row in each fold, on the train and
vali of that fold; on data without folds, once for each row.

The first trial has the row as the table gives it. Searched are the spaces of its model and its loss
or those that ``space=`` names, without the keys that the row itself sets, which make it that row
(unless the row has a ``space=`` of its own), nor those that the user sets.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]
from filelock import FileLock
from omegaconf import OmegaConf

from ltr.atomic import atomic_write, make_folder, writing
from ltr.console.arguments import as_hydra, merged
from ltr.console.compose import run_config, typed
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.process import say
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.scorers.parts import make_dataset
from ltr.search.command import check_space, digests, search_identity, search_job, settings_path
from ltr.search.definition import Repeat, Search, define_search, value_for
from ltr.search.space import named_space, sets_what_is_searched
from ltr.tables.config import TableConfig
from ltr.tables.runs import folds_of, launch, local_launcher
from ltr.tables.spec import Table

Place = tuple[str, int | None]  # a row and a fold, None where the data have none
Best = dict[str, Any]  # what ``search_job`` leaves
_WHOLE = "all"  # in place of a fold
_KEYS = (
    "settings", "worth", "value", "best_epoch", "own", "trials", "pruned", "failed", "search",
    "code",
)  # fmt: skip
_HEAD = """\
# {command}
# The settings that the search of each row found, in each fold on its train and vali alone. The same
# command takes them from here and searches only where the row, its space or the data have changed.
# value: of the best trial; best_epoch: its best epoch on vali, which is too high; own: the value of
# the row as the table has it.
"""


@dataclass(frozen=True)
class RowSearch:
    """The search for the settings of a row in a fold.

    Attributes:
        place: the row and the fold.
        search: as its job defines it.
        arguments: of ``scripts/search.py``.
        known: its identity; empty where the data are not here.
    """

    place: Place
    search: Search
    arguments: tuple[str, ...]
    known: str

    @property
    def name(self) -> str:
        """Its row and fold in words."""
        label, fold = self.place
        return label if fold is None else f"{label}, fold {fold}"

    @property
    def folder(self) -> Path:
        """Of the search."""
        return self.search.folder

    def as_job(self, extra: Sequence[str]) -> list[str]:
        """Its arguments as Hydra takes them."""
        return as_hydra("search", [*self.arguments, *extra])

    def accepts(self, best: Best | None) -> bool:
        """Whether ``best``, which may be from elsewhere, is of this search."""
        return (
            best is not None
            and (best["search"], best["trials"]) == (self.known, self.search.trials)
            and all(sets_what_is_searched(self.search.space, str(one)) for one in best["settings"])
        )

    def left(self) -> Best | None:
        """What the search has left in its folder, None while it is not done."""
        try:
            best: Best = yaml.safe_load(settings_path(self.search).read_text())
            return best if self.accepts(best) else None
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            return None

    def outcome(self) -> tuple[str, None] | None:
        """Its value in words; None while it is not done."""
        best = self.left()
        return None if best is None else (f"{best['worth']} {best['value']:.4f} on vali", None)


@dataclass(frozen=True)
class Budget:
    """What the searches of a table have found.

    Attributes:
        path: the file of what was found.
        best: by row and fold.
        failed: why a row has no settings.
    """

    path: Path
    best: Mapping[Place, Best]
    failed: Mapping[str, str]

    @property
    def settings(self) -> dict[Place, list[str]]:
        """The overrides of each row and fold."""
        return {place: best["settings"] for place, best in self.best.items()}

    def facts(self, rows: Sequence[str]) -> list[tuple[str, str]]:
        """For the head of a table of ``rows``, of which some were not searched."""
        frame = self.frame()
        without = [row for row in rows if row not in {*self.failed, *frame.get("row", ())}]
        facts = []
        if len(frame):
            folds = " and fold" * bool(frame["fold"].notna().any())
            budget = (
                f"{frame.trials.max()} trials for each row{folds}, on its train and vali alone, "
                f"with seed 1; the best by {', '.join(frame.worth.unique())} on vali; "
                f"{frame.trials.sum()} trials in all, {frame.pruned.sum()} pruned, "
                f"{frame.failed.sum()} failed"
            )
            facts = [("budget", budget), ("found settings", "/".join(self.path.parts[-3:]))]
        return facts + [("without a budget", ", ".join(without))] * bool(without)

    def frame(self) -> pd.DataFrame:
        """A row for each row and fold of the table."""
        lines = [
            {
                "row": label, "fold": fold, **best,
                "settings": " ".join(best["settings"]) or "as the row has them",
            }
            for (label, fold), best in self.best.items()
        ]  # fmt: skip
        return pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")


def spend_budget(table: Table, order: TableConfig, output_dir: Path) -> Budget | None:
    """Find the settings of the rows, by the searches that are not done; None where none has any.

    Args:
        table: without the rows that cannot run here.
        order: has a budget; a ``dry_run`` searches nothing.
        output_dir: its folder ``search`` keeps the searches.

    Raises:
        ConfigError: an override or a space is wrong, or the file of settings holds something else.
        DataError: the data are not there.
        OutputError: the file cannot be written.
    """
    searches = plan_searches(table, order, output_dir)
    if not searches:
        return None
    config, trials = searches[0].search.config, int(order.budget or 0)
    name = order.name(str(config.dataset.name), order.of_search)
    path = (own_configs() or CONFIGS) / "found" / f"{name}.yaml"
    before = read_settings(path)
    of_file = {one.place: before.get(one.place) for one in searches}
    every = {one.place: of_file[one.place] if one.accepts(of_file[one.place]) else one.left()
             for one in searches}  # fmt: skip
    best = {place: found for place, found in every.items() if found is not None}
    todo = [one for one in searches if one.place not in best]
    say(f"{table.title}: {len(searches)} searches of {trials} trials each, {len(todo)} to do")
    codes = [(one.search.code(), best[one.place]["code"]) for one in searches if one.place in best]
    if changed := sum(now != then for now, then in codes):
        say(f"note: the code changed since {changed} settings in {path.name} were found")
    if order.dry_run:
        print(
            f"trials first, at most {trials * len(todo)} (the pruner ends some, what is begun goes "
            "on); then the runs, here with the table's own settings where none are found:\n"
            if todo
            else "no trial would run: the settings of all rows are found\n"
        )
        return Budget(path, best, {})
    reasons: dict[Path, str] = {}
    try:
        if todo:
            workers = order.workers_for(config)
            launcher = order.launcher or local_launcher(min(workers.count, len(todo)))
            folder = output_dir / "tables" / order.name(str(config.dataset.name), order.of_table)
            file = folder / "searches.yaml"
            reasons = launch("search", search_job, todo, file, launcher, workers.extra)
    finally:  # stopped, it keeps what is done
        best |= {one.place: left for one in todo if (left := one.left()) is not None}
        add_settings(path, order.command(order.of_search), best)
    folders = {one.search.folder: one.place[0] for one in todo}
    failed = {folders[folder]: reason for folder, reason in reasons.items()}
    for label, reason in failed.items():
        say(f"{label}: its search failed: {reason}")
    return Budget(path, best, failed)


def read_settings(path: Path) -> dict[Place, Best]:
    """The settings in a file of ``configs/found``; nothing where it is not there.

    Raises:
        ConfigError: it is not such a file.
    """
    if not path.exists():
        return {}
    try:
        raw: Any = yaml.safe_load(path.read_text())
        return {
            (str(label), None if fold == _WHOLE else int(fold)): {key: best[key] for key in _KEYS}
            for label, folds in raw.items()
            for fold, best in folds.items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} is not what a table with a budget writes: move it away, and it is written anew"
        ) from error


def add_settings(path: Path, command: str, best: Mapping[Place, Best]) -> None:
    """Add ``best`` to what ``read_settings`` reads, over what stands there of the same places.

    Commands for other rows share the file and may write at the same time.

    Raises:
        ConfigError: ``path`` holds something else.
        OutputError: the folder cannot be made or written.
    """
    before = read_settings(path)
    if all(before.get(place) == one for place, one in best.items()):
        return  # which needs no right to write
    make_folder("configs", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    with writing(path), FileLock(path.with_name(f".{path.name}.lock")):
        for (label, fold), one in {**read_settings(path), **best}.items():
            rows.setdefault(label, {})[_WHOLE if fold is None else fold] = dict(one)
        text = yaml.safe_dump(rows, sort_keys=False, width=1000)
        atomic_write(path, _HEAD.format(command=command) + text)


def plan_searches(table: Table, order: TableConfig, output_dir: Path) -> list[RowSearch]:
    """The searches of ``table``, row by row.

    None for a row that is not trained, or that learns from another row, whose teacher is not there.

    Raises:
        ConfigError: an override or a space is wrong.
        DataError: the data are not there, and it is no ``dry_run``.
    """
    searches = []
    for label, row in table.rows.items():
        overrides = merged(table.settings, order.overrides, row.settings)
        overrides = [one for one in overrides if _key(one) not in ("seed", "dataset.fold")]
        config, choices = run_config(overrides)
        if row.ensemble or config.epochs == 0 or label in table.teachers:
            continue
        try:
            space = _space(table, order, label, choices)
            arguments = [*overrides, *space, "seeds=1", f"trials={order.budget}"]
            search = define_search(typed("search", arguments))
            check_space(search)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        for fold in folds_of(table, config):
            repeat, known = Repeat(fold, 1), ""
            one = replace(search, repeats=(repeat,))
            dataset = OmegaConf.to_container(repeat.set(config).dataset, resolve=True)
            try:
                data, lists = _data(json.dumps(dataset, sort_keys=True), fold)
                one = replace(one, select_value=value_for(config, lists))
                known = search_identity(one, data)
            except DataError:
                if not order.dry_run:
                    raise
            words = [table.name, label, str(config.dataset.name), str(repeat), known[:SHOWN]]
            name = "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
            own = [f"folds={fold}"] * (fold is not None)
            own += [f"select_value={one.select_value}", f"name={name}", f"output_dir={output_dir}"]
            one = replace(one, name=name, folder=output_dir / "search" / name)
            searches.append(RowSearch((label, fold), one, (*arguments, *own), known))
    return searches


@functools.cache
def _data(node: str, fold: int | None) -> tuple[dict[str, str], int]:
    """What identifies train and vali of the data set ``node``; how many lists vali has."""
    dataset = make_dataset(OmegaConf.create(json.loads(node)))
    lists = {split: dataset.split(split) for split in ("train", "vali")}
    return digests(fold, lists), len(lists["vali"])


def _space(table: Table, order: TableConfig, label: str, choices: Mapping[str, str]) -> list[str]:
    """The arguments that say what is searched of a row, where its file sets values of that too."""
    row = table.rows[label]
    by_row, by_user = set(map(_key, row.settings)), set(map(_key, order.overrides))
    said = row.space
    if not any(_key(one) == "space" for one in row.space):
        of_table = [one for one in table.space if _searched(one) not in by_row | by_user]
        said = [*of_table, *(one for one in order.space if _searched(one) not in by_row), *said]
        by_user |= by_row
    last = {_key(one): one for one in said}
    names = [name for name in last.get("space", "").removeprefix("space=").split(",") if name]
    first = {_key(one) for one in (*table.settings, *row.settings)} - by_user  # of the first trial
    own = [one for key, one in last.items() if not (one.endswith("=null") and key[6:] in first)]
    space = named_space(choices, names)
    more = [key for key in space if key in first and f"space.{key}" not in last]
    return [*own, *(f"space.{key}={space[key]}" for key in more)]


def _searched(said: str) -> str:
    """The key of ``space.KEY=...``."""
    return _key(said).removeprefix("space.")


def _key(override: str) -> str:
    return override.lstrip("+").partition("=")[0]
