"""The file of found settings, ``configs/found/NAME.yaml``: row -> fold -> what its search found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from filelock import FileLock

from ltr.atomic import atomic_write, make_folder, writing
from ltr.errors import ConfigError, DataError
from ltr.search.found import Found, parse_found

_WHOLE = "all"  # in place of a fold
Place = tuple[str, int | None]  # a row and a fold, None where the data have none
_HEAD = """\
# {command}
# The settings that the search of each row found, in each fold on its train and vali alone. The same
# command takes them from here and searches only where the row, its space or the data have changed.
# value: of the best trial; best_epoch: its best epoch on vali, which is too high; own: the value of
# the row as the table has it.
"""


def read_kept(path: Path) -> dict[Place, Found]:
    """What ``path`` holds; nothing where it is not there.

    Raises:
        ConfigError: it is not such a file.
    """
    if not path.exists():
        return {}
    try:
        raw: Any = yaml.safe_load(path.read_text())
        return {
            (str(label), None if fold == _WHOLE else int(fold)): parse_found(str(path), one)
            for label, folds in raw.items()
            for fold, one in folds.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, DataError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} is not what a table with a budget writes: move it away, and it is written anew"
        ) from error


def add_kept(path: Path, command: str, found: Mapping[Place, Found]) -> None:
    """Add ``found`` to what ``read_kept`` reads, over what stands there of the same places.

    Commands for other rows share the file and may write at the same time.

    Raises:
        ConfigError: ``path`` holds something else.
        OutputError: the folder cannot be made or written.
    """
    if found.items() <= read_kept(path).items():
        return  # which needs no right to write
    make_folder("configs", path.parent)
    rows: dict[str, dict[int | str, Any]] = {}
    with writing(path), FileLock(path.with_name(f".{path.name}.lock")):
        for (label, fold), one in (read_kept(path) | dict(found)).items():
            rows.setdefault(label, {})[_WHOLE if fold is None else fold] = one.plain()
        text = yaml.safe_dump(rows, sort_keys=False, width=1000)
        atomic_write(path, _HEAD.format(command=command) + text)
