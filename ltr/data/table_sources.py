"""Read table files block by block: Parquet, CSV and TSV (gzip too), Arrow IPC and Feather."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ltr.data.roles import ENDINGS, check_there, ending
from ltr.errors import ConfigError, DataError

_BLOCK_BYTES = 4 << 20  # of text that is parsed at once; no row may be longer
_PAGE_BYTES = 1 << 16  # read at once of each column of a Parquet file
_ROW = re.compile(r"Row #(\d+): ?")
_MERGED = re.compile(r"[;|,\t]")  # in the one name of a table: another delimiter
_DELIMITER = "write the file again with a comma between its columns, in a .tsv a tab"
_CELL = re.compile(r"In CSV column #(\d+): .*invalid value '(.*)'", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """Neighbouring rows of one file: its name, the 0-based row of the first, their cells."""

    file: str
    first: int
    cells: Any  # pa.RecordBatch

    def at(self, row: int, column: str = "") -> str:
        """The place of the ``row``-th row of the block, for messages."""
        named = f", column {column!r}" if column else ""
        return f"{self.file}, row {self.first + row + 1}{named}"


class Source(Protocol):
    """A table, in files or in memory, that can be read again and again."""

    @property
    def title(self) -> str:
        """Its name, for messages."""

    @property
    def schema(self) -> Any:
        """Names and types of its columns, a ``pa.Schema``."""

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        """The rows in order, at most ``rows`` at once, with these columns alone.

        ``texts`` are columns whose text counts as the file has it; ``numbers`` are to be numbers.
        """


class MemoryTable:
    """A ``pa.Table`` as a source."""

    def __init__(self, table: Any) -> None:
        self.title, self.schema, self._table = "the table", table.schema, table

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        first = 0
        for cells in self._table.select([*texts, *numbers]).to_batches(max_chunksize=rows):
            yield Piece(self.title, first, cells)
            first += len(cells)


@dataclass(frozen=True)
class Form:
    """How text files of a table are written: with a line of names, or with these ``names``.

    Without both the columns are ``1``, ``2``, ... from left to right.
    """

    header: bool = True
    names: tuple[str, ...] | None = None


class TableSource:
    """One file, or the files of a folder by their names, one below the other."""

    def __init__(self, path: Path, form: Form = Form()) -> None:
        """Read names and types of the columns from the first file.

        Raises:
            DataError: nothing readable is there.
        """
        self.title, self.files, self._form = str(path), table_files(path), form
        self.schema = _schema(self.files[0], form)

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        """As for ``Source``.

        Raises:
            DataError: a file cannot be read, or lacks a column.
        """
        for path in self.files:
            there = _schema(path, self._form).names
            check_there(dict.fromkeys([*texts, *numbers], "in the first file"), there, str(path))
            first = 0
            with _reading(path):
                for batch in _batches(path, self._form, texts, numbers, rows):
                    for start in range(0, len(batch), rows):
                        cells = batch.slice(start, rows)
                        yield Piece(str(path), first, cells.select([*texts, *numbers]))
                        first += len(cells)


def table_files(path: Path) -> list[Path]:
    """The file itself, or the table files of a folder, sorted by name.

    Raises:
        DataError: there are none, or of several forms.
    """
    try:
        if not path.is_dir():
            if not path.is_file():
                raise DataError(f"{path}: no such file; give a table file, or a folder of them")
            if ending(path) is None:
                raise DataError(f"{path}: not a table by its name; expected one of {ENDINGS}")
            return [path]
        visible = [one for one in sorted(path.iterdir()) if not one.name.startswith((".", "_"))]
        files = [one for one in visible if ending(one) is not None and one.is_file()]
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; give a table file") from None
    if len(kinds := sorted({str(ending(one)) for one in files})) != 1:
        found = f"files of several forms, {', '.join(kinds)}" if files else "no table file"
        raise DataError(f"{path}: {found}; expected shards of one form, one of {ENDINGS}")
    return files


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises over a file into a ``DataError``."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read, {why}; write the file again") from None


def _schema(path: Path, form: Form) -> Any:
    """Names and types of the columns of a file."""
    with _reading(path):
        if ending(path) == ".parquet":
            with _parquet(path) as file:
                return file.schema_arrow
        if ending(path) == ".arrow":
            with _ipc(path) as (schema, _):
                return schema
        return _text_schema(path, form)


def _batches(
    path: Path, form: Form, texts: Sequence[str], numbers: Sequence[str], rows: int
) -> Iterator[Any]:
    """The rows of a file, of Parquet at most ``rows`` at once, with these columns alone."""
    if ending(path) == ".parquet":
        with _parquet(path) as file:
            yield from file.iter_batches(batch_size=rows, columns=[*texts, *numbers])
    elif ending(path) == ".arrow":
        with _ipc(path, [*texts, *numbers]) as (_, batches):
            yield from batches
    else:
        yield from _text_batches(path, form, texts, numbers)


def _parquet(path: Path) -> Any:
    return pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_PAGE_BYTES)


@contextmanager
def _ipc(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and batches of an Arrow file or stream, with all columns or some."""
    with pa.memory_map(str(path)) as file:
        try:
            schema, opened = pa.ipc.open_file(file).schema, pa.ipc.open_file
        except pa.ArrowInvalid:  # a stream has no index of its batches
            file.seek(0)
            schema, opened = pa.ipc.open_stream(file).schema, pa.ipc.open_stream
            file.seek(0)
        chosen = None if columns is None else [schema.names.index(name) for name in columns]
        reader = opened(file, options=pa.ipc.IpcReadOptions(included_fields=chosen))
        if hasattr(reader, "get_batch"):
            yield schema, map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield schema, iter(reader)


def _open_text(path: Path, form: Form, convert: Any = None, *, threads: bool = True) -> Any:
    names = form.names if not form.header else None
    read = pa.csv.ReadOptions(
        use_threads=threads,
        block_size=_BLOCK_BYTES,
        column_names=None if names is None else list(names),
        autogenerate_column_names=not form.header and names is None,
    )
    parse = pa.csv.ParseOptions(
        delimiter="\t" if ending(path) == ".tsv" else ",", newlines_in_values=True
    )
    return pa.csv.open_csv(path, read, parse, convert)


def _text_schema(path: Path, form: Form) -> Any:
    """Names, and the types of the first block."""
    try:
        with _open_text(path, form) as reader:
            schema = reader.schema
    except pa.ArrowInvalid as error:
        raise DataError(_explain(path, form, None, None, error)) from None
    if form.header and len(schema) == 1 and _MERGED.search(schema.names[0]):
        raise DataError(f"{path}: one column, {schema.names[0]!r}; {_DELIMITER}")
    if form.header or form.names is not None:
        return schema
    return pa.schema([field.with_name(str(i)) for i, field in enumerate(schema, 1)])


def _text_batches(
    path: Path, form: Form, texts: Sequence[str], numbers: Sequence[str]
) -> Iterator[Any]:
    schema = _text_schema(path, form)
    flags = [name for name in numbers if pa.types.is_boolean(schema.field(name).type)]
    types = dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64())
    convert = pa.csv.ConvertOptions(
        include_columns=[*texts, *numbers],
        column_types=types | dict.fromkeys(flags, pa.bool_()),
        strings_can_be_null=False,  # NA is a text as any other
    )
    named = Form(form.header, None if form.header else tuple(schema.names))
    try:
        with _open_text(path, named, convert) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        raise DataError(_explain(path, named, convert, schema, error)) from None


def _explain(path: Path, form: Form, convert: Any, schema: Any, error: pa.ArrowInvalid) -> str:
    """What is wrong with a text file, with its row, which only one thread can tell."""
    text = str(error)
    try:
        with _open_text(path, form, convert, threads=False) as reader:
            for _ in reader:
                pass
    except pa.ArrowInvalid as found:
        text = str(found)
    row = _ROW.search(text)
    where = f"{path}, row {int(row[1]) - form.header}" if row else str(path)
    if schema is not None and (cell := _CELL.search(text)):
        return (
            f"{where}: {cell[2][:40]!r} in column {schema.names[int(cell[1])]!r}; expected a "
            "number, or an empty cell where it is missing (to train on texts: dataset.categories)"
        )
    why = " ".join(_ROW.sub("", text).split())[:200]
    remedy = _DELIMITER if "Expected 1 columns" in why else "write the file again"
    return f"{where}: {why}; {remedy}"


def check_form(form: Form) -> None:
    """Raise ``ConfigError`` where names are given for a file that has a line of names."""
    if form.header and form.names is not None:
        raise ConfigError("dataset.names is for files without a line of names: set header=false")
