"""The searches of a table with a budget: for each row and fold one, known by what it searches."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from ltr.console.arguments import merged
from ltr.console.compose import run_config, typed
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.experiment.parts import make_dataset
from ltr.search.definition import (
    Repeat,
    Search,
    define_search,
    need_optuna,
    split_changes,
    value_for,
)
from ltr.search.found import Found, digests, found_path, parse_found, search_identity
from ltr.search.space import chosen_space, named_space, sets_what_is_searched
from ltr.tables.config import TableConfig
from ltr.tables.found import Place
from ltr.tables.runs import folds_of
from ltr.tables.spec import Table


@dataclass(frozen=True)
class RowSearch:
    """The search for the settings of a row in a fold.

    Attributes:
        label, fold: which.
        search: as its job defines it.
        arguments: of ``scripts/search.py``.
        known: its identity; empty where the data are not here.
    """

    label: str
    fold: int | None
    search: Search
    arguments: tuple[str, ...]
    known: str

    @property
    def place(self) -> Place:
        """Its row and fold."""
        return self.label, self.fold

    @property
    def name(self) -> str:
        """Its row and fold in words."""
        return self.label if self.fold is None else f"{self.label}, fold {self.fold}"

    def accepts(self, found: Found) -> bool:
        """Whether ``found``, which may be from elsewhere, is of this search."""
        return (
            (found.search, found.trials) == (self.known, self.search.trials)
            and all(sets_what_is_searched(self.search.space, one) for one in found.settings)
        )  # fmt: skip

    def left(self) -> Found | None:
        """What the search has left in its folder, None while it is not done."""
        path = found_path(self.search)
        try:
            found = parse_found(str(path), yaml.safe_load(path.read_text()))
        except (OSError, ValueError, yaml.YAMLError, DataError):
            return None
        return found if self.accepts(found) else None


def plan_searches(
    table: Table, order: TableConfig, output_dir: Path, *, absent_ok: bool = False
) -> list[RowSearch]:
    """The searches of ``table``, row by row; none for a row that is not trained, or that
    learns from another row.

    Args:
        table: without the rows that cannot run here.
        order: has a budget.
        output_dir: its folder ``search`` keeps them.
        absent_ok: plan also for data that are not here.

    Raises:
        ConfigError: an override or a space is wrong, or Optuna is not installed.
        DataError: the data are not there.
    """
    need_optuna()
    found = []
    for label, row in table.rows.items():
        if row.ensemble:
            continue
        overrides = merged(table.settings, order.overrides, row.settings)
        overrides = [one for one in overrides if _key(one) not in ("seed", "dataset.fold")]
        config, choices = run_config(overrides)
        if config.epochs == 0 or label in table.teachers:  # no teacher is trained yet
            continue
        try:
            space = _space(table, order, label, choices, overrides)
            arguments = [*overrides, *space, "seeds=1", f"trials={order.budget}"]
            search = define_search(typed("search", arguments))
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        for fold in folds_of(table, config):
            of_fold = replace(search, repeats=(Repeat(fold, 1),))
            found.append(_planned(table, label, of_fold, arguments, output_dir, absent_ok))
    return found


def _planned(
    table: Table,
    label: str,
    search: Search,
    arguments: Sequence[str],
    output_dir: Path,
    absent_ok: bool,
) -> RowSearch:
    (repeat,) = search.repeats
    known = ""
    try:
        data, lists = _data(_node(repeat.set(search.config)), repeat.fold)
        search = replace(search, select_value=value_for(search.config, lists))
        known = search_identity(search, data)
    except DataError:
        if not absent_ok:
            raise
    words = [table.name, label, str(search.config.dataset.name), str(repeat), known[:SHOWN]]
    name = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-").lower() for word in words)
    return RowSearch(
        label=label,
        fold=repeat.fold,
        search=replace(search, name=name, folder=output_dir / "search" / name),
        arguments=(
            *arguments,
            *([] if repeat.fold is None else [f"folds={repeat.fold}"]),
            f"select_value={search.select_value}",
            f"name={name}",
            f"output_dir={output_dir}",
        ),
        known=known,
    )


def _node(config: DictConfig) -> str:
    return json.dumps(OmegaConf.to_container(config.dataset, resolve=True), sort_keys=True)


@functools.cache
def _data(node: str, fold: int | None) -> tuple[dict[str, str], int]:
    """What identifies train and vali of the data set ``node``; how many lists vali has."""
    dataset = make_dataset(OmegaConf.create(json.loads(node)))
    lists = {split: dataset.split(split) for split in ("train", "vali")}
    return digests(fold, lists), len(lists["vali"])


def _space(
    table: Table,
    order: TableConfig,
    label: str,
    choices: Mapping[str, str],
    overrides: Sequence[str],
) -> list[str]:
    """The arguments that make a search over the row's space, also of keys in ``overrides``."""
    row, own = table.rows[label].settings, table.rows[label].space
    if any(_key(one) == "space" for one in own):
        levels: list[tuple[Sequence[str], Sequence[str]]] = [(own, ())]
        fixed = list(map(_key, order.overrides))
    else:  # what is said, and what is set above it, which is not searched
        levels = [(table.space, (*order.overrides, *row)), (order.space, row), (own, ())]
        fixed = [_key(one) for one in (*order.overrides, *row)]
    names: list[str] = []
    changes: dict[str, Any] = {}
    for said, above in levels:
        for one in said:
            names = one.partition("=")[2].split(",") if _key(one) == "space" else names
        _, more = split_changes(one for one in said if _key(one) != "space")
        changes |= {key: value for key, value in more.items() if key not in map(_key, above)}
    space = chosen_space(choices, names, changes, fixed)
    known = {_key(one) for one in overrides}  # what is set is searched only if it is said here
    without = [key for key in named_space(choices, names) if key not in space and key not in known]
    return [
        *([f"space={','.join(names)}"] if names else []),
        *(f"space.{key}={distribution}" for key, distribution in space.items()),
        *(f"space.{key}=null" for key in without),
    ]


def _key(override: str) -> str:
    return override.lstrip("+").partition("=")[0]
