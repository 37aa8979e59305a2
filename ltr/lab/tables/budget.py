"""Search for the best settings of every row of a table, with the same number of trials.

A search uses the training and validation lists only. In LETOR, the validation queries of one fold
are test queries of another; therefore, each row is searched separately in each fold. The first
trial uses the settings in the table. Keys that the row or the user sets are not searched, unless
the row has its own ``space=``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from ltr.cli.arguments import merged
from ltr.cli.compose import run_config, search_overrides, store_root_config, typed
from ltr.cli.options import parse_options
from ltr.cli.process import say
from ltr.errors import ConfigError, DataError
from ltr.experiment.identity import SHOWN
from ltr.lab.search.command import (
    check_space,
    read_all,
    search_identity,
    search_job,
    settings_path,
)
from ltr.lab.search.definition import Search, SearchOptions, define_search, repeat_name
from ltr.lab.search.space import join_spaces
from ltr.lab.tables.config import TableOptions
from ltr.lab.tables.found import FoundSettings, SearchResult, add_settings, read_settings
from ltr.lab.tables.launch import Job, launch
from ltr.lab.tables.runs import TableCell, folder_name, table_folds
from ltr.lab.tables.spec import Row, Table, key_of


class RowSearch(NamedTuple):
    """The search for the settings of one row in one fold."""

    cell: TableCell
    search: Search
    identity: str  # the identity (a hash) of the search; empty if the data are missing
    arguments: Sequence[str]  # for ``ltr search``

    def accepts(self, result: SearchResult | None) -> bool:
        """Return whether ``result`` comes from this search, with the same number of trials."""
        if result is None:
            return False
        expected = (self.identity, self.search.trials)
        return (result.get("search"), result.get("trials")) == expected

    def stored_result(self) -> SearchResult | None:
        """Return the result in the search's folder, or None if the search is not finished."""
        path = settings_path(self.search)
        result: SearchResult | None = yaml.safe_load(path.read_text()) if path.is_file() else None
        return result if self.accepts(result) else None

    def as_job(self) -> Job:
        """Return the job that runs this search; its outcome is the best value found."""

        def outcome() -> str | None:
            result = self.stored_result()
            return None if result is None else f"{result['worth']} {result['value']:.4f} on vali"

        label, fold = self.cell
        name = label if fold is None else f"{label}, fold {fold}"
        return Job(name, self.search.folder, search_overrides(self.arguments), outcome)


def spend_budget(table: Table, options: TableOptions, output_dir: Path) -> FoundSettings | None:
    """Run the searches that are not finished, and return the settings found for the rows.

    If ``dry_run`` is set, no search runs. The searches are kept in ``output_dir/search``, and the
    settings in a file in ``output_dir/found``.

    Returns:
        The results; None if no row needs a search.

    Raises:
        ConfigError: an override or a space is invalid, or a search failed.
        DataError: the data are missing, and ``dry_run`` is not set.
    """
    searches = plan_searches(table, options, output_dir)
    if not searches:
        return None
    config = searches[0].search.config
    data = str(config.dataset.name)
    path = Path(f"{options.path(output_dir / 'found', data, options.search_arguments)}.yaml")
    recorded = read_settings(path)
    results = _finished_results(searches, recorded)
    jobs = [search.as_job() for search in searches if search.cell not in results]
    say(
        f"{table.title}: {len(searches)} searches of {options.budget} trials each, "
        f"{len(jobs)} to do"
    )
    if options.dry_run:
        return FoundSettings(path, results)
    reasons: dict[Path, str] = {}
    try:
        if jobs:
            folder = options.path(output_dir / "tables", data, options.table_arguments)
            workers = options.choose_workers(config.device, config.threads)
            store_root_config("search")
            reasons = launch("search", search_job, jobs, folder / "searches.yaml", workers)
    finally:  # also if it is stopped: save the results so far
        results = _finished_results(searches, recorded)
        add_settings(path, options.command(options.search_arguments), results)
    for job in jobs:
        if job.folder in reasons:
            raise ConfigError(f"{job.name}: the search failed: {reasons[job.folder]}")
    return FoundSettings(path, results)


def _finished_results(
    searches: Sequence[RowSearch], recorded: Mapping[TableCell, SearchResult]
) -> dict[TableCell, SearchResult]:
    """Return the results of the finished searches, from ``recorded`` or from their folders.

    A recorded result is used only if it comes from the same search.
    """
    results = {}
    for search in searches:
        result = recorded.get(search.cell)
        if not search.accepts(result):
            result = search.stored_result()
        if result is not None:
            results[search.cell] = result
    return results


def plan_searches(table: Table, options: TableOptions, output_dir: Path) -> list[RowSearch]:
    """Return the searches of ``table``, row by row.

    Ensembles, rows with 0 epochs, and rows that learn from another row (their teacher) are not
    searched.

    Raises:
        ConfigError: an override or a space is invalid.
        DataError: the data are missing, and ``dry_run`` is not set.
    """
    searches = []
    for label, row in table.rows.items():
        overrides = [
            override
            for override in merged(table.settings, options.overrides, row.settings)
            if key_of(override) not in ("seed", "dataset.fold")
        ]
        config, choices = run_config(overrides)
        if row.ensemble or config.epochs == 0 or label in table.teachers:
            continue
        arguments = [*overrides, *_space_arguments(table, options, row, choices)]
        arguments += ["seeds=1", f"trials={options.budget}"]
        try:
            search = define_search(parse_options(SearchOptions, typed("search", arguments)))
            check_space(search)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        extra = options.choose_workers(config.device, config.threads).extra
        for fold in table_folds(table, config.dataset.get("folds")):
            row_search = _search_in_fold(
                table.name,
                (label, fold),
                search,
                [*arguments, *extra],
                output_dir,
                absent_ok=options.dry_run,
            )
            searches.append(row_search)
    return searches


def _search_in_fold(
    table_name: str,
    cell: TableCell,
    search: Search,
    arguments: Sequence[str],
    output_dir: Path,
    *,
    absent_ok: bool,
) -> RowSearch:
    """Return the ``search`` of a row for one fold; ``arguments`` are those of ``ltr search``."""
    label, fold = cell
    repeat = ("seed=1",) if fold is None else (f"dataset.fold={fold}", "seed=1")
    search = replace(search, repeats=(repeat,))
    identity = ""
    try:
        identity = search_identity(read_all(search))
    except DataError:
        if not absent_ok:
            raise
    data = search.config.dataset.name
    name = folder_name(table_name, label, data, repeat_name(repeat), identity[:SHOWN])
    search = replace(search, name=name, folder=output_dir / "search" / name)
    fold_arguments = [f"name={name}", f"output_dir={output_dir}"]
    if fold is not None:
        fold_arguments.append(f"folds={fold}")
    return RowSearch(cell, search, identity, [*arguments, *fold_arguments])


def _space_arguments(
    table: Table, options: TableOptions, row: Row, choices: Mapping[str, str]
) -> list[str]:
    """Return the overrides that define the search space of ``row``.

    A row without ``space=`` uses the overrides ``space.KEY=`` of the table, of the user and of the
    row itself; a later one replaces an earlier one with the same key. Keys that the row or the user
    sets to a value are left out, unless the row itself has ``space.KEY=``.

    A row with ``space=`` uses only that space. Its keys are searched even if the table or the row
    sets them; the first trial then uses the value that was set.
    """
    set_by_user = {key_of(override) for override in options.overrides}
    row_space = {key_of(override): override for override in row.space}
    if "space" not in row_space:
        fixed = set_by_user | {key_of(setting) for setting in row.settings}
        shared_space = {key_of(override): override for override in (*table.space, *options.space)}
        searched = {
            key: override
            for key, override in shared_space.items()
            if key.removeprefix("space.") not in fixed
        }
        return [*(searched | row_space).values()]
    space = join_spaces(choices, row_space["space"].removeprefix("space=").split(","))
    set_by_table = {key_of(setting) for setting in (*table.settings, *row.settings)}
    first_trial = set_by_table - set_by_user
    return [
        *row_space.values(),
        *(f"space.{key}={space[key]}" for key in space if key in first_trial),
    ]
