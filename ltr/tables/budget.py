"""Search settings for every row of a table, with the same number of trials for each row.

A search uses only train and vali. In LETOR the vali queries of one fold are the test queries of
another, so each row is searched separately in each fold. The first trial uses the settings in the
table. Keys that the row or the user sets are not searched, unless the row has its own ``space=``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml  # type: ignore[import-untyped]

from ltr.atomic import atomic_write, make_folder
from ltr.console.arguments import as_hydra, merged
from ltr.console.compose import run_config, typed
from ltr.console.configs import own_configs
from ltr.console.process import say
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.search.command import check_space, read_all, search_identity, search_job, settings_path
from ltr.search.definition import Search, define_search, repeat_name
from ltr.search.space import named_space
from ltr.tables.config import TableConfig
from ltr.tables.runs import Job, Place, folder_name, folds_of, launch
from ltr.tables.spec import Table, key_of

Best = dict[str, Any]  # the result that ``search_job`` writes
_WHOLE = "all"  # key used instead of a fold number for data without folds
_HEAD = """\
# {command}
# The settings that the search of each row found, in each fold on its train and vali alone. The same
# command takes them from here and searches only where the row, its space or the data have changed.
# value: of the best trial; best_epoch: its best epoch on vali, which is too high; own: the value of
# the row as the table has it.
"""


class RowSearch(NamedTuple):
    """The search for the settings of one row in one fold."""

    place: Place
    search: Search
    known: str  # the identity (a hash) of the search; empty if the data are missing
    arguments: Sequence[str]  # for ``ltr search``

    def accepts(self, best: Best | None) -> bool:
        """Return whether ``best`` is a result of this search, with its number of trials."""
        wanted = self.known, self.search.trials
        return best is not None and (best.get("search"), best.get("trials")) == wanted

    def left(self) -> Best | None:
        """Return the result in the search's folder, or None if the search is not finished."""
        path = settings_path(self.search)
        best: Best | None = yaml.safe_load(path.read_text()) if path.is_file() else None
        return best if self.accepts(best) else None

    def as_job(self) -> Job:
        """Return the job that runs this search and reports the value it found."""

        def outcome() -> str | None:
            best = self.left()
            return None if best is None else f"{best['worth']} {best['value']:.4f} on vali"

        label, fold = self.place
        name = label if fold is None else f"{label}, fold {fold}"
        return Job(name, self.search.folder, as_hydra("search", self.arguments), outcome)


@dataclass(frozen=True)
class Budget:
    """The results of a table's searches."""

    path: Path  # the file that stores them
    best: Mapping[Place, Best]  # (row, fold) -> result

    @property
    def settings(self) -> dict[Place, list[str]]:
        """The overrides that were found for each row and fold."""
        return {place: best["settings"] for place, best in self.best.items()}

    def facts(self) -> list[tuple[str, str]]:
        """Return the lines about the searches, as (key, text), for the head of a table."""
        frame = self.frame()
        budget = (
            f"{frame.trials.max()} trials for each row and fold that is trained, on its train and "
            f"vali alone, with seed 1; the best by {', '.join(frame.worth.unique())} on vali; "
            f"{frame.trials.sum()} trials in all, {frame.pruned.sum()} pruned, "
            f"{frame.failed.sum()} failed"
        )
        return [("budget", budget), ("found settings", "/".join(self.path.parts[-3:]))]

    def frame(self) -> pd.DataFrame:
        """Return a frame with one line for each row and fold of the table."""
        lines = [{"row": row, "fold": fold, **best} for (row, fold), best in self.best.items()]
        frame = pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")
        return frame.assign(
            settings=frame.settings.str.join(" ").replace("", "as the row has them")
        )


def spend_budget(table: Table, order: TableConfig, output_dir: Path) -> Budget | None:
    """Run the searches that are not finished, and return the settings found for the rows.

    Return None if no row needs a search; with ``dry_run``, none runs. The searches are in the
    folder ``search`` of ``output_dir``.

    Raises:
        ConfigError: an override or a space is wrong, or a search failed; the message says why.
        DataError: the data are missing (not with ``dry_run``).
    """
    searches = plan_searches(table, order, output_dir)
    if not searches:
        return None
    config = searches[0].search.config
    data, home = str(config.dataset.name), own_configs() or Path("configs")
    path = Path(f"{order.path(home / 'found', data, order.of_search)}.yaml")
    before = read_settings(path)

    def found() -> dict[Place, Best]:
        noted = ((one, before.get(one.place)) for one in searches)
        every = {one.place: best if one.accepts(best) else one.left() for one, best in noted}
        return {place: best for place, best in every.items() if best is not None}

    best = found()
    todo = [one.as_job() for one in searches if one.place not in best]
    counts = f"{len(searches)} searches of {order.cfg.budget} trials each, {len(todo)} to do"
    say(f"{table.title}: {counts}")
    if order.cfg.dry_run:
        return Budget(path, best)
    reasons: dict[Path, str] = {}
    try:
        if todo:
            file = order.path(output_dir / "tables", data, order.of_table) / "searches.yaml"
            reasons = launch("search", search_job, todo, file, order.workers(config))
    finally:  # also if it is stopped: save the results so far
        best = found()
        add_settings(path, order.command(order.of_search), best)
    for job in (job for job in todo if job.folder in reasons):
        raise ConfigError(f"{job.name}: its search failed: {reasons[job.folder]}")
    return Budget(path, best)


def read_settings(path: Path) -> dict[Place, Best]:
    """Read a file of ``configs/found`` (nothing if missing); ``ConfigError`` if it is malformed."""
    try:
        raw: Any = yaml.safe_load(path.read_text()) if path.exists() else {}
        return {
            (label, None if fold == _WHOLE else int(fold)): dict(best)
            for label, folds in raw.items()
            for fold, best in folds.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} is not what a table with a budget writes: move it away, and it is written anew"
        ) from error


def add_settings(path: Path, command: str, best: Mapping[Place, Best]) -> None:
    """Add ``best`` to the results in ``path``, replacing those of the same rows and folds."""
    before = read_settings(path)
    if all(before.get(place) == one for place, one in best.items()):
        return  # nothing to add: works also where the file may not be written
    make_folder("configs", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    for (label, fold), one in {**before, **best}.items():
        rows.setdefault(label, {})[_WHOLE if fold is None else fold] = dict(one)
    text = yaml.safe_dump(rows, sort_keys=False, width=1000)
    atomic_write(path, _HEAD.format(command=command) + text)


def plan_searches(table: Table, order: TableConfig, output_dir: Path) -> list[RowSearch]:
    """Return the searches of ``table``, row by row.

    Ensembles, rows with 0 epochs and rows that learn from another row (a teacher) have none.

    Raises:
        ConfigError: an override or a space is wrong.
        DataError: the data are missing (not with ``dry_run``).
    """
    searches = []
    for label, row in table.rows.items():
        overrides = merged(table.settings, order.overrides, row.settings)
        overrides = [one for one in overrides if key_of(one) not in ("seed", "dataset.fold")]
        config, choices = run_config(overrides)
        if row.ensemble or config.epochs == 0 or label in table.teachers:
            continue
        arguments = [*overrides, *_space(table, order, label, choices)]
        arguments += ["seeds=1", f"trials={order.cfg.budget}"]
        try:
            search = define_search(typed("search", arguments))
            check_space(search)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        for fold in folds_of(table, config):
            repeat = (*[f"dataset.fold={fold}"] * (fold is not None), "seed=1")
            one, known = replace(search, repeats=(repeat,)), ""
            try:
                known = search_identity(read_all(one))
            except DataError:
                if not order.cfg.dry_run:
                    raise
            words = (label, config.dataset.name, repeat_name(repeat), known[:SHOWN])
            name = folder_name(table.name, *words)
            one = replace(one, name=name, folder=output_dir / "search" / name)
            own = [*arguments, *order.workers(config).extra, f"name={name}"]
            own += [f"output_dir={output_dir}", *[f"folds={fold}"] * (fold is not None)]
            searches.append(RowSearch((label, fold), one, known, own))
    return searches


def _space(table: Table, order: TableConfig, label: str, choices: Mapping[str, str]) -> list[str]:
    """Return the overrides that define the search space of the row ``label``.

    A row without ``space=`` gets the keys ``space.KEY=`` of the table, of the user and of the row
    itself, except those whose ``KEY`` the row or the user sets to a value. A row with ``space=``
    gets only that space. Its keys are searched even if the table or the row sets them; the first
    trial then uses the value that is set.
    """
    row, by_user = table.rows[label], set(map(key_of, order.overrides))
    own = {key_of(one): one for one in row.space}
    if "space" not in own:
        fixed = by_user | set(map(key_of, row.settings))
        named = {key_of(one): one for one in (*table.space, *order.space)}
        named = {key: one for key, one in named.items() if key.removeprefix("space.") not in fixed}
        return [*(named | own).values()]
    space = named_space(choices, own["space"].removeprefix("space=").split(","))
    first = {key_of(one) for one in (*table.settings, *row.settings)} - by_user
    return [*own.values(), *(f"space.{key}={space[key]}" for key in space if key in first)]
