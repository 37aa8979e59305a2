"""Every format of a table, written to its folder."""

import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ltr.errors import ConfigError
from ltr.experiment.table.formats import latex, markdown
from ltr.experiment.table.page import Picture, page
from ltr.experiment.table.report import Report


def write_table(
    folder: Path,
    report: Report,
    frames: Mapping[str, pd.DataFrame],
    pictures: tuple[Picture, ...] = (),
    details: tuple[tuple[str, pd.DataFrame], ...] = (),
) -> list[Path]:
    """Write ``table.md``, ``table.tex``, ``table.html`` and a CSV of each frame; what was written.

    Args:
        folder: made if it is not there.
        report: the table.
        frames: by name of the CSV file, without ``.csv``.
        pictures: for the page.
        details: tables that the page shows when asked, with their titles; the first is in
            ``table.md`` too.

    Raises:
        ConfigError: the folder cannot be written.
    """
    texts = {
        "table.md": markdown(report, details[:1]),
        "table.tex": latex(report),
        "table.html": page(report, pictures, details),
    }
    texts |= {
        f"{name}.csv": frame.to_csv(index=False, lineterminator="\n")
        for name, frame in frames.items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}): give another output_dir"
        ) from error


def _write(path: Path, text: str) -> Path:
    """Write a file so that it is whole whenever it is read."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path
