"""Read tables block by block: Parquet, CSV and TSV (gzip too), Arrow, or in memory.

pyarrow reads files. Without it text gives the same values more slowly; nothing else is read.
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
_FIRST_ROWS = 10_000  # the rows from which the types are guessed without pyarrow
_PAGE_BYTES = 1 << 16  # bytes that are read at once for each column of a Parquet file
_TWICE = re.compile(r"multiple columns named ?(.*)")
_ROW = re.compile(r"Row #(\d+): ?")
_QUOTE_BYTES = 1 << 16  # bytes of text whose quotes are checked at once
_UNREADABLE = (OSError, ValueError, csv.Error, EOFError, zlib.error)  # the last two: a cut .gz
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
    """Raise ``DataError`` if a column is missing, or if two columns have the same name, or none.

    Args:
        named: maps each required column to what it is, such as ``dataset.query`` or ``a feature``.
        there: the columns of the table.
        title: the table, for the text of the error.
    """
    if twice := [name for name, count in Counter(there).items() if count > 1]:
        raise _named_twice(title, twice[0])
    for name in (name for name in named if name not in there):
        shown = ", ".join(there[:12]) + (", ..." if len(there) > 12 else "")
        raise DataError(f"{title}: no column {name!r} ({named[name]}); it has {shown}")


def _named_twice(title: str, name: str) -> DataError:
    if not name.strip():
        return DataError(
            f"{title}: several columns have no name, such as row numbers that pandas writes, or "
            "after commas that end the rows; name them or delete them"
        )
    return DataError(f"{title}: two columns are named {name!r}; rename one of them")


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file."""

    file: str
    first: int  # the 0-based number of the first row
    cells: pd.DataFrame

    def at(self, row: int, column: str = "") -> str:
        """Return where row number ``row`` (from 0) of the piece is in the file, for messages."""
        named = f", column {column!r}" if column else ""
        return f"{self.file}, row {self.first + row + 1}{named}"


class Source:
    """A table: in memory, in a file, or in the files of a folder, one after another by name.
    ``title`` is its name for messages. ``names`` are the columns of the first file, and the columns
    of ``head`` have their types, with any number of rows.
    """

    def __init__(self, table: Path | pd.DataFrame, header: bool = True) -> None:
        """Open ``table``; ``DataError`` if it cannot be read, ``ConfigError`` if pyarrow is needed
        and missing. Without ``header``, the columns of text files are named ``1``, ``2``, ...
        """
        in_memory = isinstance(table, pd.DataFrame)
        self.title, self._header = "the table" if in_memory else str(table), header
        self._checked = set[Path]()  # the text files whose quotes are known to be closed
        self._files: list[Any] = [table] if isinstance(table, pd.DataFrame) else table_files(table)
        self.is_text = not in_memory and table_form(self._files[0]) in (",", "\t")
        first = self._open(self._files[0])
        self.names, self.head = first.names, first.head

    def pieces(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        """Yield the rows in order, at most ``rows`` at once, with only the given columns. From text
        files, ``texts`` are read without any conversion, and ``numbers`` as numbers. ``DataError``:
        a file cannot be read, or lacks a column.
        """
        columns = [*texts, *numbers]
        for file in self._files:
            title = self.title if isinstance(file, pd.DataFrame) else str(file)
            opened, first = self._open(file, texts, numbers), 0
            check_columns(dict.fromkeys(columns, "in the first file"), opened.names, title)
            with self._reading(title):
                for cells in opened.blocks(columns, rows):
                    yield Piece(title, first, cells)
                    first += len(cells)

    def _open(self, file: Any, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> Any:
        if isinstance(file, pd.DataFrame):
            return _Memory(file)
        form: Any = table_form(file)
        plain = form in (",", "\t") and not has("pyarrow.dataset")
        if not plain:
            need("pyarrow.dataset", "parquet")
        with self._reading(str(file)):
            if form in (",", "\t") and file not in self._checked:
                _check_quotes(file, form)
                self._checked.add(file)
            if plain:
                return _Text(file, form, self._header, texts)
            return _Arrow(file, form, self._header, texts, numbers)

    @contextmanager
    def _reading(self, title: str) -> Iterator[None]:
        """Context that turns a reader's errors about the file ``title`` into ``DataError``."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            of_arrow = type(error).__module__.startswith("pyarrow")
            if not of_arrow and not isinstance(error, _UNREADABLE):
                raise
            text = str(error).rpartition("Invalid: ")[2]  # without where in pyarrow it was raised
            if twice := _TWICE.search(text):
                raise _named_twice(title, twice[1]) from None
            row = _ROW.search(text)
            where = f"{title}, row {int(row[1]) - self._header}" if row else title
            raise DataError(
                f"{where}: cannot be read, {' '.join(_ROW.sub('', text).split())[:200]}; write "
                "commas between the columns (.tsv: tabs), and numbers, or name texts in "
                "dataset.categories"
            ) from None


def framed(cells: Any) -> pd.DataFrame:
    """Return a ``pa.Table`` or ``pa.RecordBatch`` as a frame whose columns keep their types."""
    import pyarrow as pa

    def typed(type_: Any) -> Any:  # None: a category, or objects that are all None
        is_own = pa.types.is_dictionary(type_) or pa.types.is_null(type_)
        return None if is_own else pd.ArrowDtype(type_)

    return cells.to_pandas(types_mapper=typed, ignore_metadata=True)


class _Memory:
    """A table in memory."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.names, self.head = list(frame.columns), frame

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
        self.head = framed(self._data.schema.empty_table())

    def blocks(self, columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
        ahead: dict[str, Any] = {"columns": columns, "batch_size": rows, "batch_readahead": 2}
        try:
            yield from map(framed, self._data.to_batches(**ahead))
        except ValueError:  # read again in one thread, where the error has the row
            for _ in self._data.to_batches(**ahead, use_threads=False):
                pass
            raise


def _text_dataset(
    path: Path, delimiter: str, header: bool, texts: Sequence[str], numbers: Sequence[str]
) -> Any:
    """Return a text file as a ``pa.dataset.Dataset``."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.dataset

    def opened(names: Sequence[str] | None = None, schema: Any = None) -> Any:
        form = pa.dataset.CsvFileFormat(
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES, column_names=names,
                autogenerate_column_names=not header and names is None,
            ),
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=False),  # NA is a text
        )  # fmt: skip
        return pa.dataset.dataset(path, schema=schema, format=form)

    first = opened().schema  # guessed from the first block
    names, types = first.names, dict.fromkeys(texts, pa.string())
    if not header:
        names = [str(i) for i, _ in enumerate(names, 1)]
    for name, type_ in zip(names, first.types, strict=True):
        number = name in numbers and not pa.types.is_boolean(type_)
        types.setdefault(name, pa.float64() if number else type_)
    schema = pa.schema([(name, types[name]) for name in names])
    return opened(None if header else names, schema)


def _open_text(path: Path, mode: str, **how: Any) -> Any:
    """Open a text file; if its name ends in ``.gz``, its content is unpacked."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, mode, **how)


def _check_quotes(path: Path, delimiter: str) -> None:
    """Raise ``DataError`` if a quote that begins a cell has no closing quote in that cell.

    If such a cell is the last of its row, the readers take the rows below into it without an error:
    all of them, or those up to the next cell that begins with a quote.
    """
    closed = _closed_quotes(delimiter.encode())
    text = b"\n"  # what is not checked yet, with the byte before it
    line = 0
    with _open_text(path, "rb") as file:
        text += file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while block := file.read(max(_QUOTE_BYTES, len(text))):
            while block.endswith(b'"') and (byte := file.read(1)):  # the next may belong to it
                block += byte
            text += block
            end = _length(closed.match(text))
            if b'"' not in text[end:]:
                end = max(end - 1, text.rfind(delimiter.encode()), text.rfind(b"\n"))
            line += text.count(b"\n", 0, end)
            text = text[end:]
            if len(text) > _BLOCK_BYTES:
                break
    text += b"\n"
    end = _length(closed.match(text))
    if (quote := text.find(b'"', end)) >= 0:
        line += text.count(b"\n", 0, quote)
        raise DataError(
            f"{path}:{line}: a quote opens a cell and is not closed "
            'in it: close it, or write "" for a quote in a quoted cell'
        )


def _length(match: re.Match[bytes] | None) -> int:
    return match.end() if match else 0


def _closed_quotes(delimiter: bytes) -> re.Pattern[bytes]:
    """Return a pattern for a text up to the last quote that is closed or is inside a plain cell."""
    ends = b"[%b\r\n]" % delimiter  # what ends a cell
    on_one_line = b'[^"\r\n]*"(?:"[^"\r\n]*")*(?!")'  # a plain text may follow
    on_several_lines = b'[^"]*"(?:"[^"]*")*(?!")(?= *%b)' % ends
    quoted_cell = b'(?<=%b")(?:%b|%b)' % (ends, on_one_line, on_several_lines)
    plain_cell = b'(?<!%b")"*' % ends
    return re.compile(b'(?:[^"]*"(?:%b|%b))*' % (quoted_cell, plain_cell))


# How pyarrow writes a missing number and a truth value in text.
_MISSING = dict.fromkeys(
    ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
     "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"], np.nan,
)  # fmt: skip
_FLAGS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}


class _Text:
    """A text file that is read without pyarrow."""

    def __init__(self, path: Path, delimiter: str, header: bool, texts: Sequence[str]) -> None:
        self._path, self._delimiter, self._texts = path, delimiter, texts
        first = [cells for _, cells in islice(self._rows(), _FIRST_ROWS)]
        if not first:
            raise ValueError("Empty CSV file")
        self._first = int(header)
        self.names = first[0] if header else [str(i) for i, _ in enumerate(first[0], 1)]
        columns = [*zip(*first[self._first :], strict=True)] or [()] * len(self.names)
        empty = [pd.Series(dtype=_guessed(cells)) for cells in columns]
        self.head = pd.DataFrame(dict(zip(self.names, empty, strict=True)))

    def blocks(self, columns: list[str], rows: int) -> Iterator[pd.DataFrame]:
        left, at = islice(self._rows(), self._first, None), map(self.names.index, columns)
        places = dict(zip(columns, at, strict=True))
        while block := [*islice(left, rows)]:
            yield pd.DataFrame({name: self._column(name, i, block) for name, i in places.items()})

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of each row in the file, from 1, and its cells."""
        width = 0
        with _open_text(self._path, "rt", encoding="utf-8-sig", newline="") as file:
            for row, cells in enumerate(csv.reader(file, delimiter=self._delimiter), 1):
                if cells:
                    width = width or len(cells)
                    if len(cells) != width:
                        raise ValueError(f"Row #{row}: Expected {width} columns, got {len(cells)}")
                    yield row, cells

    def _column(self, name: str, place: int, block: Sequence[tuple[int, list[str]]]) -> Any:
        if name in self._texts:
            return pd.Series([cells[place] for _, cells in block], dtype="string")
        known = _MISSING | _FLAGS if self.head[name].dtype == bool else _MISSING
        values = list[float]()
        for row, cells in block:
            cell = cells[place]
            try:
                values.append(known[cell] if cell in known else parse_number(cell))
            except ValueError:
                where = f"In CSV column #{place}: Row #{row}"
                raise ValueError(f"{where}: invalid value {cell!r}") from None
        return np.array(values)


def _guessed(cells: Sequence[str]) -> str:
    """Return the type of a column of text: ``bool``, ``float`` or ``string``."""
    values = {*cells} - _MISSING.keys()
    if values & _FLAGS.keys() and values <= {*_FLAGS, "0", "1"}:
        return "bool"
    try:
        [*map(parse_number, values)]
    except ValueError:
        return "string"
    return "float"
