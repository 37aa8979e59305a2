"""A budget for every row of a table: the same number of trials, on train and vali alone.

In LETOR the vali queries of one fold are the test queries of another, so each row is searched in
each fold alone. The first trial is the row as the table has it; keys that make it that row, and
those that the user sets, are not searched (unless the row has a ``space=`` of its own).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]
from filelock import FileLock

from ltr.atomic import atomic_write, make_folder, writing
from ltr.console.arguments import as_hydra, merged
from ltr.console.compose import run_config, typed
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.process import say
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.search.command import check_space, read_all, search_identity, search_job, settings_path
from ltr.search.definition import Repeat, Search, define_search
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
    """The search for the settings of a row in a fold: its job, and what tells it from others."""

    place: Place
    search: Search
    arguments: tuple[str, ...]  # of ``scripts/search.py``
    known: str  # its identity; empty where the data are not here

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
    """What the searches of a table have found."""

    path: Path  # the file of it
    best: Mapping[Place, Best]  # by row and fold
    failed: Mapping[str, str]  # why a row has no settings

    @property
    def settings(self) -> dict[Place, list[str]]:
        """The overrides of each row and fold."""
        return {place: best["settings"] for place, best in self.best.items()}

    def facts(self, rows: Sequence[str]) -> list[tuple[str, str]]:
        """For the head of a table of ``rows``, of which some were not searched."""
        frame, facts = self.frame(), []
        without = [row for row in rows if row not in {*self.failed, *frame.get("row", ())}]
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
        lines = []
        for (label, fold), best in self.best.items():
            settings = " ".join(best["settings"]) or "as the row has them"
            lines.append({"row": label, "fold": fold, **best, "settings": settings})
        return pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")


def spend_budget(table: Table, order: TableConfig, output_dir: Path) -> Budget | None:
    """Find the settings of the rows, by the searches that are not done; None where none has any.

    ``table`` is without the rows that cannot run here; a ``dry_run`` searches nothing; the folder
    ``search`` of ``output_dir`` keeps the searches.
    """
    searches = plan_searches(table, order, output_dir)
    if not searches:
        return None
    config = searches[0].search.config
    data = str(config.dataset.name)
    path = (own_configs() or CONFIGS) / "found" / f"{order.name(data, order.of_search)}.yaml"
    before, best = read_settings(path), dict[Place, Best]()
    for one in searches:
        of_file = before.get(one.place)
        if found := of_file if one.accepts(of_file) else one.left():
            best[one.place] = found
    todo = [one for one in searches if one.place not in best]
    counts = f"{len(searches)} searches of {order.budget} trials each, {len(todo)} to do"
    say(f"{table.title}: {counts}")
    done = [(one.search.code(), best[one.place]["code"]) for one in searches if one.place in best]
    if changed := sum(now != then for now, then in done):
        say(f"note: the code changed since {changed} settings in {path.name} were found")
    if order.dry_run:
        return Budget(path, best, {})
    reasons: dict[Path, str] = {}
    try:
        if todo:
            workers = order.workers_for(config)
            launcher = order.launcher or local_launcher(min(workers.count, len(todo)))
            file = output_dir / "tables" / order.name(data, order.of_table) / "searches.yaml"
            reasons = launch("search", search_job, todo, file, launcher, workers.extra)
    finally:  # stopped, it keeps what is done
        best |= {one.place: left for one in todo if (left := one.left()) is not None}
        add_settings(path, order.command(order.of_search), best)
    failed = {one.place[0]: reasons[one.folder] for one in todo if one.folder in reasons}
    for label, reason in failed.items():
        say(f"{label}: its search failed: {reason}")
    return Budget(path, best, failed)


def read_settings(path: Path) -> dict[Place, Best]:
    """The settings in a file of ``configs/found``; ``ConfigError`` where it holds others."""
    try:
        raw: Any = yaml.safe_load(path.read_text()) if path.exists() else {}
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
    """The searches of ``table``, row by row; none for a row that is not trained, or has a teacher.

    Raises:
        ConfigError, DataError: an override or a space is wrong; the data are not there.
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
            one, known = replace(search, repeats=(Repeat(fold, 1),)), ""
            try:
                known = search_identity(*read_all(one))
            except DataError:
                if not order.dry_run:
                    raise
            data = str(config.dataset.name)
            words = [table.name, label, data, str(one.repeats[0]), known[:SHOWN]]
            name = "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
            own = [*arguments, *[f"folds={fold}"] * (fold is not None)]
            own += [f"name={name}", f"output_dir={output_dir}"]
            one = replace(one, name=name, folder=output_dir / "search" / name)
            searches.append(RowSearch((label, fold), one, tuple(own), known))
    return searches


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
