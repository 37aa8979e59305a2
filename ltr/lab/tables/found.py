"""Read and write the settings that the searches of a table's rows found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]

from ltr.atomic import atomic_write, make_folder
from ltr.errors import ConfigError
from ltr.lab.tables.runs import TableCell
from ltr.lab.tables.spec import Table, key_of

SearchResult = dict[str, Any]  # see ``ltr.lab.search.command.best_result``
_NO_FOLD = "all"  # key used instead of a fold number for data without folds
_HEAD = """\
# {command}
# The settings that the search of each row found, in each fold on its train and vali alone. The same
# command takes them from here and searches only where the row, its space or the data have changed;
# found_settings=THIS_FILE in place of budget=N takes them without a search.
# value: of the best trial; best_epoch: its best epoch on vali, which is too high; own: the value of
# the row as the table has it.
"""


@dataclass(frozen=True)
class FoundSettings:
    """The results of a table's searches."""

    path: Path  # the file that stores them
    results: Mapping[TableCell, SearchResult]

    @property
    def settings(self) -> dict[TableCell, list[str]]:
        """The overrides that were found for each row and fold."""
        return {cell: result["settings"] for cell, result in self.results.items()}

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

    def describe_use(self) -> str:
        """Return where the settings are, and how to use them again."""
        return f"settings found: {self.path}; to train with them again: found_settings={self.path}"

    def frame(self) -> pd.DataFrame:
        """Return a frame with one line for each row and fold of the table."""
        lines = [
            {"row": row, "fold": fold, **result} for (row, fold), result in self.results.items()
        ]
        frame = pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")
        settings = frame.settings.str.join(" ").replace("", "as the row has them")
        return frame.assign(settings=settings)


def load_found(path: Path, table: Table, overrides: Sequence[str]) -> FoundSettings:
    """Read the settings of a file for the rows of ``table``, without the keys of ``overrides``.

    Raises:
        ConfigError: there is no such file, it is malformed, or it has none of the rows.
    """
    if not path.is_file():
        raise ConfigError(
            f"found_settings={path}: expected a file of found settings, got none; see --help"
        )
    typed_keys = {key_of(override) for override in overrides}
    results = {}
    for cell, result in read_settings(path).items():
        if cell[0] in table.rows:
            settings = [text for text in result["settings"] if key_of(text) not in typed_keys]
            results[cell] = {**result, "settings": settings}
    if not results:
        raise ConfigError(
            f"found_settings={path}: expected settings of {', '.join(table.rows)}, got none of "
            "them; give the file of this table"
        )
    return FoundSettings(path, results)


def read_settings(path: Path) -> dict[TableCell, SearchResult]:
    """Read a file of found settings (nothing if missing); ``ConfigError`` if it is malformed."""
    try:
        raw: Any = yaml.safe_load(path.read_text()) if path.exists() else {}
        return {
            (label, None if fold == _NO_FOLD else int(fold)): dict(result)
            for label, folds in raw.items()
            for fold, result in folds.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: expected the settings that a table with a budget found, got something else; "
            "move it away"
        ) from error


def add_settings(path: Path, command: str, results: Mapping[TableCell, SearchResult]) -> None:
    """Add ``results`` to those in ``path``, replacing those of the same rows and folds."""
    recorded = read_settings(path)
    if all(recorded.get(cell) == result for cell, result in results.items()):
        return  # nothing to add: works also where the file may not be written
    make_folder("output_dir", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    for (label, fold), result in {**recorded, **results}.items():
        rows.setdefault(label, {})[_NO_FOLD if fold is None else fold] = dict(result)
    text = yaml.safe_dump(rows, sort_keys=False, width=1000)
    atomic_write(path, _HEAD.format(command=command) + text)
