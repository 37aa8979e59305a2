"""Read tables block by block with pyarrow: Parquet, CSV and TSV (gzip too), Arrow, or in memory."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from ltr.errors import DataError

_BLOCK_BYTES = 4 << 20  # bytes of text that are parsed at once; no row may be longer
_PAGE_BYTES = 1 << 16  # bytes that are read at once for each column of a Parquet file
_ROW = re.compile(r"Row #(\d+): ?")
_FORMS = {
    ".parquet": "parquet", ".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t",
    ".feather": "ipc", ".arrow": "ipc", ".ipc": "ipc", ".pq": "parquet",
}  # fmt: skip


def table_form(path: Path) -> str | None:
    """Return the form of a table file, judged by its name; None if it is not a table. The form is
    the delimiter of a text file, or pyarrow's name for any other form.

    >>> [table_form(Path(name)) for name in ("a.pq", "a.TSV.gz", "a.parquet.gz", "train.txt")]
    ['parquet', '\\t', None, None]
    """
    name = path.name.lower()
    return next((form for end, form in _FORMS.items() if name.endswith(end)), None)


def table_files(path: Path) -> list[Path]:
    """Return a table file, or those of a folder by name.

    ``DataError``: there is none, or the files of a folder have different forms.
    """
    try:
        folder = path.is_dir()
        files = [one for one in sorted(path.iterdir() if folder else [path]) if one.is_file()]
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; give a table file") from None
    if not folder and not files:
        raise DataError(f"{path}: no such file; give a table file, or a folder of them")
    if folder:
        files = [one for one in files if table_form(one) and not one.name.startswith((".", "_"))]
    if len(forms := {table_form(one) for one in files}) != 1 or None in forms:
        raise DataError(
            f"{path}: not a table, or files of several forms; expected one of {', '.join(_FORMS)}"
        )
    return files


def check_columns(named: Mapping[str, str], there: Sequence[str], title: str) -> None:
    """Raise ``DataError`` if a column is missing, or if two columns have the same name.

    Args:
        named: maps each required column to what it is, such as ``dataset.query`` or ``a feature``.
        there: the columns of the table.
        title: the table, for the text of the error.
    """
    if len({*there}) < len(there):
        twice = next(name for name in there if list(there).count(name) > 1)
        raise DataError(f"{title}: two columns are named {twice!r}; rename one of them")
    for name in (name for name in named if name not in there):
        shown = ", ".join(there[:12]) + (", ..." if len(there) > 12 else "")
        raise DataError(f"{title}: no column {name!r} ({named[name]}); it has {shown}")


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file."""

    file: str
    first: int  # the 0-based number of the first row
    cells: Any  # pa.RecordBatch

    def at(self, row: int, column: str = "") -> str:
        """Return where row number ``row`` (from 0) of the piece is in the file, for messages."""
        named = f", column {column!r}" if column else ""
        return f"{self.file}, row {self.first + row + 1}{named}"


class Source:
    """A table: in memory, in a file, or in the files of a folder, one after another by name.
    ``title`` is its name for messages, ``schema`` has names and types of the columns in the first
    file.
    """

    def __init__(self, table: Any, header: bool = True) -> None:
        """Open ``table``, a path or a ``pa.Table``; ``DataError`` if it cannot be read. Without
        ``header``, the columns of text files are named ``1``, ``2``, ...
        """
        in_memory = isinstance(table, pa.Table)
        self.title, self._header = "the table" if in_memory else str(table), header
        self._files = [table] if in_memory else table_files(table)
        self.schema = self._open(self._files[0]).schema

    def pieces(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        """Yield the rows in order, at most ``rows`` at once, with only the given columns. From text
        files, ``texts`` are read without any conversion, and ``numbers`` as numbers. ``DataError``:
        a file cannot be read, or lacks a column.
        """
        names = [*texts, *numbers]
        for file in self._files:
            title = self.title if isinstance(file, pa.Table) else str(file)
            data, first = self._open(file, texts, numbers), 0
            check_columns(dict.fromkeys(names, "in the first file"), data.schema.names, title)
            ahead: dict[str, Any] = {"columns": names, "batch_size": rows, "batch_readahead": 2}
            with self._reading(title):
                try:
                    for cells in data.to_batches(**ahead):
                        yield Piece(title, first, cells)
                        first += len(cells)
                except pa.ArrowInvalid:  # read again in one thread, where the error has the row
                    for _ in data.to_batches(**ahead, use_threads=False):
                        pass
                    raise

    def _open(self, file: Any, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> Any:
        """Return a file, or a table in memory, as a ``pa.dataset.Dataset``."""
        if isinstance(file, pa.Table):
            return pa.dataset.dataset(file)
        form: Any = table_form(file)
        with self._reading(str(file)):
            if form in (",", "\t"):
                return self._open_text(file, form, texts, numbers)
            if form == "parquet":
                scan = pa.dataset.ParquetFragmentScanOptions(
                    use_buffered_stream=True, buffer_size=_PAGE_BYTES, pre_buffer=False
                )
                form = pa.dataset.ParquetFileFormat(default_fragment_scan_options=scan)
            return pa.dataset.dataset(file, format=form)

    def _open_text(
        self, path: Path, delimiter: str, texts: Sequence[str], numbers: Sequence[str]
    ) -> Any:
        def opened(names: Sequence[str] | None = None, schema: Any = None) -> Any:
            form = pa.dataset.CsvFileFormat(
                pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                read_options=pa.csv.ReadOptions(
                    block_size=_BLOCK_BYTES, column_names=names,
                    autogenerate_column_names=not self._header and names is None,
                ),
                convert_options=pa.csv.ConvertOptions(strings_can_be_null=False),  # NA is a text
            )  # fmt: skip
            return pa.dataset.dataset(path, schema=schema, format=form)

        first = opened().schema  # guessed from the first block
        names, types = first.names, dict.fromkeys(texts, pa.string())
        if not self._header:
            names = [str(i) for i, _ in enumerate(names, 1)]
        for name, type_ in zip(names, first.types, strict=True):
            number = name in numbers and not pa.types.is_boolean(type_)
            types.setdefault(name, pa.float64() if number else type_)
        schema = pa.schema([(name, types[name]) for name in names])
        return opened(None if self._header else names, schema)

    @contextmanager
    def _reading(self, title: str) -> Iterator[None]:
        """Context that turns pyarrow's errors about the file ``title`` into ``DataError``."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            text = str(error).rpartition("Invalid: ")[2]  # without where in pyarrow it was raised
            row = _ROW.search(text)
            where = f"{title}, row {int(row[1]) - self._header}" if row else title
            raise DataError(
                f"{where}: cannot be read, {' '.join(_ROW.sub('', text).split())[:200]}; write "
                "commas between the columns (.tsv: tabs), and numbers, or name texts in "
                "dataset.categories"
            ) from None
