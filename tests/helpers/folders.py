"""Small folders of text and one-line refusals, for the tests of archives and folders."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ltr.errors import DataError
from ltr.experiment.run_folder import FILES, write_results


def sha256(text: str) -> str:
    """The SHA-256 of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_folder(path: Path, files: dict[str, str]) -> Path:
    """Make ``path`` a folder that holds ``files``."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def read_folder(path: Path) -> dict[str, str]:
    """All files below ``path``."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_text() for file in files}


def finish(folder: Path, results: dict[str, Any]) -> None:
    """Make ``folder`` one of a finished run; files that are not there are empty."""
    for name in FILES:
        if not name.startswith("vali_"):  # a run with test lists keeps none of vali
            (folder / name).touch()
    write_results(folder, results)


def refused(action: Callable[[], object], kind: type[Exception] = DataError) -> str:
    """The message with which ``action`` is refused; one line."""
    with pytest.raises(kind) as error:
        action()
    assert "\n" not in str(error.value)
    return str(error.value)
