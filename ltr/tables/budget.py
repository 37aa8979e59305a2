"""A budget for every row of a table: the same number of trials, on train and vali alone.

In LETOR the vali queries of one fold are the test queries of another, so each row is searched in
each fold alone. The first trial is the row as the table has it; keys that make it that row, and
those that the user sets, are not searched (unless the row has a ``space=`` of its own).
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]

from ltr.atomic import atomic_write, make_folder, writing
from ltr.console.arguments import as_hydra, merged
from ltr.console.compose import run_config, typed
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.process import say
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.search.command import check_space, read_all, search_identity, search_job, settings_path
from ltr.search.definition import Repeat, Search, define_search
from ltr.search.space import named_space
from ltr.tables.config import TableConfig
from ltr.tables.runs import folds_of, launch, local_launcher
from ltr.tables.spec import Table

Place = tuple[str, int | None]  # a row and a fold, None where the data have none
Best = dict[str, Any]  # what ``search_job`` leaves
_WHOLE = "all"  # in place of a fold
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
        wanted = self.known, self.search.trials
        return best is not None and (best["search"], best["trials"]) == wanted

    def left(self) -> Best | None:
        """What the search has left in its folder, None while it is not done."""
        with suppress(OSError):
            best: Best = yaml.safe_load(settings_path(self.search).read_text())
            return best if self.accepts(best) else None
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

    @property
    def settings(self) -> dict[Place, list[str]]:
        """The overrides of each row and fold."""
        return {place: best["settings"] for place, best in self.best.items()}

    def facts(self) -> list[tuple[str, str]]:
        """For the head of a table."""
        frame = self.frame()
        budget = (
            f"{frame.trials.max()} trials for each row and fold that is trained, on its train and "
            f"vali alone, with seed 1; the best by {', '.join(frame.worth.unique())} on vali; "
            f"{frame.trials.sum()} trials in all, {frame.pruned.sum()} pruned, "
            f"{frame.failed.sum()} failed"
        )
        return [("budget", budget), ("found settings", "/".join(self.path.parts[-3:]))]

    def frame(self) -> pd.DataFrame:
        """A row for each row and fold of the table."""
        lines = []
        for (label, fold), best in self.best.items():
            settings = " ".join(best["settings"]) or "as the row has them"
            lines.append({"row": label, "fold": fold, **best, "settings": settings})
        return pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")


def spend_budget(table: Table, order: TableConfig, output_dir: Path) -> Budget | None:
    """Find the settings of the rows, by the searches that are not done; None where none has any.

    A ``dry_run`` searches nothing; the folder ``search`` of ``output_dir`` keeps the searches.

    Raises:
        ConfigError, DataError: see ``plan_searches``; or a search failed, for the reason named.
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
    if order.dry_run:
        return Budget(path, best)
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
    for one in (one for one in todo if one.folder in reasons):
        raise ConfigError(f"{one.name}: its search failed: {reasons[one.folder]}")
    return Budget(path, best)


def read_settings(path: Path) -> dict[Place, Best]:
    """The settings in a file of ``configs/found``; ``ConfigError`` where it holds others."""
    try:
        raw: Any = yaml.safe_load(path.read_text()) if path.exists() else {}
        return {
            (label, None if fold == _WHOLE else int(fold)): {"search": None, "trials": 0, **best}
            for label, folds in raw.items()
            for fold, best in folds.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} is not what a table with a budget writes: move it away, and it is written anew"
        ) from error


def add_settings(path: Path, command: str, best: Mapping[Place, Best]) -> None:
    """Add ``best`` to what ``read_settings`` reads, over what stands there of the same places."""
    before = read_settings(path)
    if all(before.get(place) == one for place, one in best.items()):
        return  # which needs no right to write
    make_folder("configs", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    for (label, fold), one in {**before, **best}.items():
        rows.setdefault(label, {})[_WHOLE if fold is None else fold] = dict(one)
    with writing(path):
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
        arguments = [*overrides, *_space(table, order, label, choices)]
        arguments += ["seeds=1", f"trials={order.budget}"]
        try:
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
            words = [table.name, label, config.dataset.name, str(one.repeats[0]), known[:SHOWN]]
            name = "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
            own = [*arguments, *[f"folds={fold}"] * (fold is not None)]
            own += [f"name={name}", f"output_dir={output_dir}"]
            one = replace(one, name=name, folder=output_dir / "search" / name)
            searches.append(RowSearch((label, fold), one, tuple(own), known))
    return searches


def _space(table: Table, order: TableConfig, label: str, choices: Mapping[str, str]) -> list[str]:
    """What is searched of a row: its own ``space=``, or all that the table and the user name.

    Of the table's and the user's a key that the row sets is left out. A row with its own ``space=``
    searches those of its keys as well, from the values that it sets.
    """
    row, by_user = table.rows[label], set(map(_key, order.overrides))
    own = {_key(one): one for one in row.space}
    if "space" not in own:
        fixed = by_user | set(map(_key, row.settings))
        said = {_key(one): one for one in (*table.space, *order.space)}
        said = {key: one for key, one in said.items() if key.removeprefix("space.") not in fixed}
        return [*(said | own).values()]
    space = named_space(choices, own["space"].removeprefix("space=").split(","))
    first = {_key(one) for one in (*table.settings, *row.settings)} - by_user
    return [*own.values(), *(f"space.{key}={space[key]}" for key in space if key in first)]


def _key(override: str) -> str:
    return override.lstrip("+").partition("=")[0]
