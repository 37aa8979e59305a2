"""Read and write the settings that were found by the searches of a table's rows."""

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
_NO_FOLD = "all"  # the key that replaces the fold number for data without folds
_HEAD = """\
# {command}
# The settings that the searches found for each row in each fold, on the train and vali lists.
# The same command reads them from here. It searches again only if the row, its space or the data
# have changed. If you set found_settings=THIS_FILE instead of budget=N, nothing is searched.
# value: the value of the best trial; best_epoch: the metric of its best epoch on vali (too high);
# own: the value of the trial with the settings of the table.
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
        """Return the entries about the searches for the head of a report, as pairs (key, text)."""
        frame = self.frame()
        budget = (
            f"{frame.trials.max()} trials for each trained row in each fold, on the train and vali "
            "lists of this fold only, with seed 1; the best trial by "
            f"{', '.join(frame.worth.unique())} on vali is used; "
            f"{frame.trials.sum()} trials in all, {frame.pruned.sum()} pruned, "
            f"{frame.failed.sum()} failed"
        )
        return [("budget", budget), ("found settings", "/".join(self.path.parts[-3:]))]

    def describe_use(self) -> str:
        """Describe where the settings are, and how to use them again."""
        return (
            f"settings found: {self.path}; to train with them again, set found_settings={self.path}"
        )

    def frame(self) -> pd.DataFrame:
        """Return a frame with one line for each row and fold of the table."""
        lines = [
            {"row": row, "fold": fold, **result} for (row, fold), result in self.results.items()
        ]
        frame = pd.DataFrame(lines).drop(columns=["search", "code"], errors="ignore")
        settings = frame.settings.str.join(" ").replace("", "those of the row itself")
        return frame.assign(settings=settings)


def load_found(path: Path, table: Table, overrides: Sequence[str]) -> FoundSettings:
    """Read the settings for the rows of ``table`` from a file, without the keys of ``overrides``.

    Raises:
        ConfigError: there is no such file, it is malformed, or it has settings for none of the
            rows.
    """
    if not path.is_file():
        raise ConfigError(
            f"found_settings={path}: no such file: give the file in which an earlier search "
            "(budget=N) saved its settings"
        )
    typed_keys = {key_of(override) for override in overrides}
    results = {}
    for cell, result in read_settings(path).items():
        if cell[0] in table.rows:
            settings = [text for text in result["settings"] if key_of(text) not in typed_keys]
            results[cell] = {**result, "settings": settings}
    if not results:
        raise ConfigError(
            f"found_settings={path}: the file has no settings for any of the rows "
            f"{', '.join(table.rows)}; choose the file that a search with budget=N wrote for "
            "this table"
        )
    return FoundSettings(path, results)


def read_settings(path: Path) -> dict[TableCell, SearchResult]:
    """Read the settings that searches saved in ``path``; return an empty dict if it is missing.

    Raises:
        ConfigError: the file is malformed.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text()) if path.exists() else {}
        return {
            (label, None if fold == _NO_FOLD else int(fold)): dict(result)
            for label, folds in raw.items()
            for fold, result in folds.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: expected settings in the form that ltr table saves with budget=N: move or "
            "restore this file"
        ) from error


def add_settings(path: Path, command: str, results: Mapping[TableCell, SearchResult]) -> None:
    """Add ``results`` to the file ``path``, replacing those of the same rows and folds."""
    recorded = read_settings(path)
    if all(recorded.get(cell) == result for cell, result in results.items()):
        return  # nothing to add, and the file may be read-only
    make_folder("output_dir", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    for (label, fold), result in {**recorded, **results}.items():
        rows.setdefault(label, {})[_NO_FOLD if fold is None else fold] = dict(result)
    text = yaml.safe_dump(rows, sort_keys=False, width=1000)
    atomic_write(path, _HEAD.format(command=command) + text)
