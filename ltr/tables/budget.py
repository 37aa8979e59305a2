"""A budget for every row of a table: the same number of trials, on train and vali alone.

In LETOR the vali queries of one fold are the test queries of another: settings chosen by a mean
over folds would have read test. So the budget is spent for each row in each fold, on the train and
vali of that fold; on data without folds, once for each row.

The first trial has the row as the table gives it. Searched are the spaces of its model and its loss
or those that ``space=`` names, without the keys that the row itself sets, which make it that row
(unless the row has a ``space=`` of its own), nor those that the user sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from ltr.console.arguments import as_hydra
from ltr.console.configs import CONFIGS, own_configs
from ltr.console.progress import say
from ltr.errors import ConfigError
from ltr.search.found import Found
from ltr.tables.config import TableConfig
from ltr.tables.found import Place, add_kept, read_kept
from ltr.tables.runs import Piece, launch
from ltr.tables.searches import RowSearch


@dataclass(frozen=True)
class Budget:
    """What the searches of a table have found.

    Attributes:
        trials: of each search.
        path: the file of what was found.
        found: by row and fold.
        failed: why a row has no settings.
    """

    trials: int
    path: Path
    found: Mapping[Place, Found]
    failed: Mapping[str, str]

    @property
    def settings(self) -> dict[Place, tuple[str, ...]]:
        """The overrides of each row and fold."""
        return {place: found.settings for place, found in self.found.items()}

    def facts(self, rows: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """For the head of a table of ``rows``, of which some were not searched."""
        found = self.found.values()
        worth = ", ".join(dict.fromkeys(one.worth for one in found))
        pruned, failed = (sum(getattr(one, name) for one in found) for name in ("pruned", "failed"))
        folds = " and fold" * any(fold is not None for _, fold in self.found)
        had = {*self.failed, *(label for label, _ in self.found)}
        without = [row for row in rows if row not in had]
        budget = (
            f"{self.trials} trials for each row{folds}, on its train and vali alone, with seed 1; "
            f"the best by {worth} on vali; {sum(one.trials for one in found)} trials in all, "
            f"{pruned} pruned, {failed} failed"
        )
        said = [("budget", budget)] if self.found else []
        said += [("found settings", "/".join(self.path.parts[-3:]))] if self.found else []
        return tuple(said + ([("without a budget", ", ".join(without))] if without else []))

    def frame(self) -> pd.DataFrame:
        """A row for each row and fold of the table."""
        return pd.DataFrame(
            {
                "row": label,
                "fold": fold,
                "settings": " ".join(one.settings) or "as the row has them",
                "worth": one.worth,
                "value": one.value,
                "best epoch": one.best_epoch,
                "own settings": one.own,
                "trials": one.trials,
            }
            for (label, fold), one in self.found.items()
        )


def found_file(searches: Sequence[RowSearch], order: TableConfig) -> Path:
    """Where the found settings are kept, as a search keeps its best configuration."""
    name = order.name(str(searches[0].search.config.dataset.name), order.of_search)
    return (own_configs() or CONFIGS) / "found" / f"{name}.yaml"


def known_already(searches: Sequence[RowSearch], path: Path) -> dict[Place, Found]:
    """What is found already: kept in ``path``, or left by a search that is done.

    Raises:
        ConfigError: ``path`` holds something else.
    """
    kept = read_kept(path)
    found: dict[Place, Found] = {}
    for one in searches:
        before = kept.get(one.place)
        if before is not None and one.accepts(before):
            found[one.place] = before
            continue
        if before is not None:
            say(f"note: {one.name}: {path.name} has it of other settings, space or data")
        if (left := one.left()) is not None:
            found[one.place] = left
    changed = [
        one for one in searches if one.place in found and one.search.code() != found[one.place].code
    ]
    if changed:
        say(f"note: the code changed since {len(changed)} settings in {path.name} were found")
    return found


def describe_budget(searches: Sequence[RowSearch], found: Mapping[Place, Found]) -> str:
    """How many trials would run, for ``dry_run``; ``found`` are settings by row and fold."""
    trials = sum(one.search.trials for one in searches if one.place not in found)
    if not trials:
        return "no trial would run: the settings of all rows are found"
    return (
        f"trials first, at most {trials} (the pruner ends some, what is begun goes on); then the "
        "runs, here with the table's own settings where none are found:"
    )


def spend(
    searches: Sequence[RowSearch],
    order: TableConfig,
    path: Path,
    found: Mapping[Place, Found],
    folder: Path,
    launcher: Sequence[str],
    extra: Sequence[str],
) -> Budget:
    """Do the searches that are not done, and keep what they find.

    Args:
        searches: at least one.
        order: of the table.
        path: the file of found settings.
        found: as ``known_already`` has it.
        folder: of the table; the list of the jobs is written there.
        launcher: overrides of Hydra's launcher.
        extra: overrides of all trials that change no result, such as ``threads=1``.

    Raises:
        ConfigError: a space cannot be built, or the file of found settings holds something else.
        OutputError: it cannot be written.
    """
    todo = [one for one in searches if one.place not in found]
    reasons: dict[Path, str] = {}
    try:
        if todo:
            from ltr.search.job import search_job  # Optuna
            from ltr.search.search import check_space

            for one in {one.label: one for one in todo}.values():
                try:
                    check_space(one.search)
                except ConfigError as error:
                    raise ConfigError(f"{one.label}: {error}") from None
            pieces = [_piece(one, extra) for one in todo]
            jobs = folder / "searches.yaml"
            reasons = launch("search", search_job, pieces, jobs, launcher, "search")
    finally:  # stopped, it keeps what is done
        more = {one.place: left for one in todo if (left := one.left()) is not None}
        found = {**found, **more}
        add_kept(path, order.command(order.of_search), found)
    failed = {one.label: reasons[one.search.folder] for one in todo if one.search.folder in reasons}
    return Budget(int(order.budget or 0), path, found, failed)


def _piece(one: RowSearch, extra: Sequence[str]) -> Piece:
    return Piece(
        folder=one.search.folder,
        name=one.name,
        job=tuple(as_hydra("search", [*one.arguments, *extra])),
        outcome=partial(_outcome, one),
    )


def _outcome(one: RowSearch) -> tuple[str, None] | None:
    found = one.left()
    return None if found is None else (f"{found.worth} {found.value:.4f} on vali", None)
