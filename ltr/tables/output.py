"""Every format of a table, written to its folder."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ltr.tables.formats import latex, markdown
from ltr.tables.page import Picture, page
from ltr.tables.report import Report
from ltr.whole import make_folder, write_frame, write_whole


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
        OutputError: the folder cannot be written.
    """
    texts = {
        "table.md": markdown(report, details[:1]),
        "table.tex": latex(report),
        "table.html": page(report, pictures, details),
    }
    make_folder("output_dir", folder)
    for name, text in texts.items():
        write_whole(folder / name, text)
    for name, frame in frames.items():
        write_frame(folder / f"{name}.csv", frame)
    return [*(folder / name for name in texts), *(folder / f"{name}.csv" for name in frames)]
