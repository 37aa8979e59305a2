"""Read tables in blocks: Parquet, CSV and TSV (also with gzip), Arrow, or frames in memory.

pyarrow reads the files. If it is not installed, only text files can be read. The values are then
the same, but reading takes longer.
"""

import csv
import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ltr.errors import DataError, has, need
from ltr.knobs import parse_number

_BLOCK_BYTES = 4 << 20  # bytes of text that are parsed at once; no row may be longer
_FIRST_ROWS = 10_000  # without pyarrow, the column types are guessed from this many rows
_PAGE_BYTES = 1 << 16  # bytes that are read at once for each column of a Parquet file
_DUPLICATE = re.compile(r"multiple columns named ?(.*)")
_ROW = re.compile(r"Row #(\d+): ?")
_QUOTE_BYTES = 1 << 16  # bytes of text whose quotes are checked at once
# The last two errors come from a truncated .gz file.
_UNREADABLE = (OSError, ValueError, csv.Error, EOFError, zlib.error)
_FORMS = {
    ".parquet": "parquet", ".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t",
    ".feather": "ipc", ".arrow": "ipc", ".ipc": "ipc", ".pq": "parquet",
}  # fmt: skip


def table_form(path: Path) -> str | None:
    """Return the format of a table file, judged by its name; None if it is not a table.

    The format is the delimiter of a text file, or pyarrow's name of any other format.

    >>> [table_form(Path(name)) for name in ("a.pq", "a.TSV.gz", "a.parquet.gz", "train.txt")]
    ['parquet', '\\t', None, None]
    """
    name = path.name.lower()
    return next((form for end, form in _FORMS.items() if name.endswith(end)), None)


def table_files(path: Path) -> list[Path]:
    """Return the table file ``path``, or the table files of the folder ``path``, sorted by name.

    Raises ``DataError`` if there is no table file, or if the files of the folder have different
    formats.
    """
    try:
        is_folder = path.is_dir()
        entries = sorted(path.iterdir()) if is_folder else [path]
        files = [entry for entry in entries if entry.is_file()]
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; give a table file") from None
    if not is_folder and not files:
        raise DataError(f"{path}: no such file; give a table file, or a folder of table files")
    if is_folder:
        files = [
            file for file in files if table_form(file) and not file.name.startswith((".", "_"))
        ]
    forms = {table_form(file) for file in files}
    if len(forms) != 1 or None in forms:
        raise DataError(
            f"{path}: not a table, or a folder with tables of several formats; expected tables in "
            f"one of the formats {', '.join(_FORMS)}"
        )
    return files


def check_column_names(required: Mapping[str, str], names: Sequence[str], title: str) -> None:
    """Raise ``DataError`` if a column is missing, or if two columns have the same name or no name.

    Args:
        required: for each required column name, what requires it, such as ``dataset.query``.
        names: the names of the columns of the table.
        title: the name of the table, for the error message.
    """
    for name, count in Counter(names).items():
        if count > 1:
            raise _duplicate_column(title, name)
    for name, purpose in required.items():
        if name not in names:
            shown = ", ".join(names[:12])
            if len(names) > 12:
                shown += ", ..."
            raise DataError(
                f"{title}: no column {name!r} ({purpose}); the table has the columns {shown}"
            )


def _duplicate_column(title: str, name: str) -> DataError:
    if not name.strip():
        return DataError(
            f"{title}: several columns have no name, for example row numbers that pandas wrote, or "
            "empty columns because each row ends in a comma; name or delete these columns"
        )
    return DataError(f"{title}: two columns are named {name!r}; rename one of them")


@dataclass(frozen=True)
class TableChunk:
    """Consecutive rows of one file or frame."""

    file: str
    first: int  # the 0-based number of the first row
    cells: pd.DataFrame

    def locate(self, row: int, column: str = "") -> str:
        """Describe, for messages, the position in the file of a row of the chunk.

        ``row`` is counted from 0.
        """
        suffix = f", column {column!r}" if column else ""
        return f"{self.file}, row {self.first + row + 1}{suffix}"


class Source:
    """A table in memory, in a file, or in the files of a folder, in the order of their names.

    Attributes:
        title: the name of the table for messages.
        names: the names of the columns of the first file.
        head: a frame whose columns have the types of these columns; its rows do not matter.
        is_text: whether the files are text files.
    """

    def __init__(self, table: Path | pd.DataFrame, header: bool = True) -> None:
        """Open ``table``.

        Args:
            table: a file, a folder, or a frame in memory.
            header: whether text files begin with a row of column names. If not, the columns are
                named ``1``, ``2``, ...

        Raises:
            DataError: the table cannot be read.
            ConfigError: pyarrow is needed but not installed.
        """
        self._header = header
        self._checked = set[Path]()  # the text files whose quotes have been checked
        self._files: list[Any]
        if isinstance(table, pd.DataFrame):
            self.title = "the table"
            self._files = [table]
            self.is_text = False
        else:
            self.title = str(table)
            self._files = table_files(table)
            self.is_text = table_form(self._files[0]) in (",", "\t")
        first_file = self._open(self._files[0])
        self.names = first_file.names
        self.head = first_file.head

    def chunks(
        self, texts: Sequence[str], numbers: Sequence[str], rows: int
    ) -> Iterator[TableChunk]:
        """Yield the rows in order, with only the named columns.

        Args:
            texts: the columns that are read from text files as strings, without conversion.
            numbers: the columns that are read from text files as numbers.
            rows: the maximum number of rows in a chunk.

        Raises:
            DataError: a file cannot be read, or lacks a column.
        """
        columns = [*texts, *numbers]
        for file in self._files:
            title = self.title if isinstance(file, pd.DataFrame) else str(file)
            reader = self._open(file, texts, numbers)
            check_column_names(dict.fromkeys(columns, "as in the first file"), reader.names, title)
            first = 0
            with self._reading(title):
                for cells in reader.blocks(columns, rows):
                    yield TableChunk(title, first, cells)
                    first += len(cells)

    def _open(self, file: Any, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> Any:
        if isinstance(file, pd.DataFrame):
            return _Memory(file)
        form: Any = table_form(file)
        without_arrow = form in (",", "\t") and not has("pyarrow.dataset")
        if not without_arrow:
            need("pyarrow.dataset", "parquet")
        with self._reading(str(file)):
            if form in (",", "\t") and file not in self._checked:
                _check_quotes(file, form)
                self._checked.add(file)
            if without_arrow:
                return _Text(file, form, self._header, texts)
            return _Arrow(file, form, self._header, texts, numbers)

    @contextmanager
    def _reading(self, title: str) -> Iterator[None]:
        """Context in which a reader's errors become a ``DataError`` about the file ``title``."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            of_arrow = type(error).__module__.startswith("pyarrow")
            if not of_arrow and not isinstance(error, _UNREADABLE):
                raise
            text = str(error).rpartition("Invalid: ")[2]  # without pyarrow's own prefix
            duplicate = _DUPLICATE.search(text)
            if duplicate:
                raise _duplicate_column(title, duplicate[1]) from None
            row = _ROW.search(text)
            source = f"{title}, row {int(row[1]) - int(self._header)}" if row else title
            reason = " ".join(_ROW.sub("", text).split())[:200]
            raise DataError(
                f"{source}: cannot be read ({reason}); separate columns by commas (by tabs in .tsv "
                "files), write only numbers in feature columns, and name text columns in "
                "dataset.categories"
            ) from None


def as_frame(cells: Any) -> pd.DataFrame:
    """Return a ``pa.Table`` or ``pa.RecordBatch`` as a frame whose columns keep their types."""
    import pyarrow as pa

    def pandas_type(type_: Any) -> Any:
        if pa.types.is_dictionary(type_) or pa.types.is_null(type_):
            return None  # pandas makes a categorical column, or a column of None
        return pd.ArrowDtype(type_)

    return cells.to_pandas(types_mapper=pandas_type, ignore_metadata=True)


class _Memory:
    """A table in memory."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.names = list(frame.columns)
        self.head = frame

    def blocks(self, columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
        cells = self.head[columns]
        return (cells.iloc[first : first + rows] for first in range(0, len(cells), rows))


class _Arrow:
    """A file that pyarrow reads."""

    def __init__(
        self, path: Path, form: Any, header: bool, texts: Sequence[str], numbers: Sequence[str]
    ) -> None:
        import pyarrow.dataset as ds

        if form in (",", "\t"):
            self._data = _text_dataset(path, form, header, texts, numbers)
        else:
            if form == "parquet":
                scan = ds.ParquetFragmentScanOptions(
                    use_buffered_stream=True, buffer_size=_PAGE_BYTES, pre_buffer=False
                )
                form = ds.ParquetFileFormat(default_fragment_scan_options=scan)
            self._data = ds.dataset(path, format=form)
        self.names = self._data.schema.names
        self.head = as_frame(self._data.schema.empty_table())

    def blocks(self, columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
        settings: dict[str, Any] = {"columns": columns, "batch_size": rows, "batch_readahead": 2}
        try:
            yield from map(as_frame, self._data.to_batches(**settings))
        except ValueError:  # read again in one thread, so that the error names the row
            for _ in self._data.to_batches(**settings, use_threads=False):
                pass
            raise


def _text_dataset(
    path: Path, delimiter: str, header: bool, texts: Sequence[str], numbers: Sequence[str]
) -> Any:
    """Return a text file as a ``pa.dataset.Dataset``."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.dataset

    def open_dataset(names: Sequence[str] | None = None, schema: Any = None) -> Any:
        form = pa.dataset.CsvFileFormat(
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES,
                column_names=names,
                autogenerate_column_names=not header and names is None,
            ),
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=False),  # NA is a string
        )
        return pa.dataset.dataset(path, schema=schema, format=form)

    guessed_schema = open_dataset().schema  # guessed from the first block
    names = guessed_schema.names
    if not header:
        names = [str(i) for i, _ in enumerate(names, 1)]
    types = dict.fromkeys(texts, pa.string())
    for name, type_ in zip(names, guessed_schema.types, strict=True):
        is_number = name in numbers and not pa.types.is_boolean(type_)
        types.setdefault(name, pa.float64() if is_number else type_)
    schema = pa.schema([(name, types[name]) for name in names])
    return open_dataset(None if header else names, schema)


def _open_text(path: Path, mode: str, **settings: Any) -> Any:
    """Open a text file; if its name ends in ``.gz``, its content is decompressed."""
    open_file = gzip.open if path.suffix.lower() == ".gz" else open
    return open_file(path, mode, **settings)


def _check_quotes(path: Path, delimiter: str) -> None:
    """Raise ``DataError`` if a quote that begins a cell has no closing quote in that cell.

    If such a cell is the last of its row, the readers would silently read the rows below into this
    cell: all of them, or those before the next cell that begins with a quote.
    """
    closed = _closed_quotes(delimiter.encode())
    text = b"\n"  # the text that is not checked yet, and the byte before it
    line = 0
    with _open_text(path, "rb") as file:
        text += file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while block := file.read(max(_QUOTE_BYTES, len(text))):
            while block.endswith(b'"'):  # the next byte may belong to the quote
                byte = file.read(1)
                if not byte:
                    break
                block += byte
            text += block
            end = _match_length(closed.match(text))
            if b'"' not in text[end:]:
                end = max(end - 1, text.rfind(delimiter.encode()), text.rfind(b"\n"))
            line += text.count(b"\n", 0, end)
            text = text[end:]
            if len(text) > _BLOCK_BYTES:
                break
    text += b"\n"
    end = _match_length(closed.match(text))
    quote = text.find(b'"', end)
    if quote >= 0:
        line += text.count(b"\n", 0, quote)
        raise DataError(
            f"{path}:{line}: a cell begins with a quote that is not closed in this cell; "
            'close it, or write "" for a quote inside a quoted cell'
        )


def _match_length(match: re.Match[bytes] | None) -> int:
    return match.end() if match else 0


def _closed_quotes(delimiter: bytes) -> re.Pattern[bytes]:
    """Return a pattern that matches up to the last quote that is closed or inside a plain cell."""
    ends = b"[%b\r\n]" % delimiter  # what ends a cell
    on_one_line = b'[^"\r\n]*"(?:"[^"\r\n]*")*(?!")'  # plain text may follow
    on_several_lines = b'[^"]*"(?:"[^"]*")*(?!")(?= *%b)' % ends
    quoted_cell = b'(?<=%b")(?:%b|%b)' % (ends, on_one_line, on_several_lines)
    plain_cell = b'(?<!%b")"*' % ends
    return re.compile(b'(?:[^"]*"(?:%b|%b))*' % (quoted_cell, plain_cell))


# The spellings of a missing number and of a truth value that pyarrow recognises in text.
_MISSING = dict.fromkeys(
    ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
     "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"], np.nan,
)  # fmt: skip
_FLAGS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}


class _Text:
    """A text file that is read without pyarrow."""

    def __init__(self, path: Path, delimiter: str, header: bool, texts: Sequence[str]) -> None:
        self._path = path
        self._delimiter = delimiter
        self._texts = texts
        first_rows = [cells for _, cells in islice(self._rows(), _FIRST_ROWS)]
        if not first_rows:
            raise ValueError("Empty CSV file")
        self._header_rows = int(header)
        self.names = first_rows[0]
        if not header:
            self.names = [str(i) for i, _ in enumerate(first_rows[0], 1)]
        columns = [*zip(*first_rows[self._header_rows :], strict=True)] or [()] * len(self.names)
        empty = [pd.Series(dtype=_guess_type(cells)) for cells in columns]
        self.head = pd.DataFrame(dict(zip(self.names, empty, strict=True)))

    def blocks(self, columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
        remaining = islice(self._rows(), self._header_rows, None)
        indices = {name: self.names.index(name) for name in columns}
        while block := [*islice(remaining, rows)]:
            yield pd.DataFrame(
                {name: self._column(name, index, block) for name, index in indices.items()}
            )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the 1-based number of each row in the file, and the cells of the row."""
        width = 0
        with _open_text(self._path, "rt", encoding="utf-8-sig", newline="") as file:
            for row, cells in enumerate(csv.reader(file, delimiter=self._delimiter), 1):
                if cells:
                    width = width or len(cells)
                    if len(cells) != width:
                        raise ValueError(f"Row #{row}: Expected {width} columns, got {len(cells)}")
                    yield row, cells

    def _column(self, name: str, index: int, block: Sequence[tuple[int, list[str]]]) -> Any:
        """Return the cells at ``index`` in the rows of ``block``, as strings or numbers."""
        if name in self._texts:
            return pd.Series([cells[index] for _, cells in block], dtype="string")
        constants = _MISSING | _FLAGS if self.head[name].dtype == bool else _MISSING
        values = list[float]()
        for row, cells in block:
            cell = cells[index]
            try:
                values.append(constants[cell] if cell in constants else parse_number(cell))
            except ValueError:
                raise ValueError(
                    f"In CSV column #{index}: Row #{row}: invalid value {cell!r}"
                ) from None
        return np.array(values)


def _guess_type(cells: Sequence[str]) -> str:
    """Return the type of a column of text: ``bool``, ``float`` or ``string``."""
    values = {*cells} - _MISSING.keys()
    if values & _FLAGS.keys() and values <= {*_FLAGS, "0", "1"}:
        return "bool"
    try:
        for value in values:
            parse_number(value)
    except ValueError:
        return "string"
    return "float"
