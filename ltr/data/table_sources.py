"""Read tables block by block, by pyarrow: Parquet, CSV and TSV (gzip too), Arrow, or in memory."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from ltr.data.roles import ENDINGS, check_there, ending
from ltr.errors import ConfigError, DataError

_BLOCK_BYTES = 4 << 20  # of text that is parsed at once; no row may be longer
_PAGE_BYTES = 1 << 16  # read at once of each column of a Parquet file
_ROW = re.compile(r"Row #(\d+): ?")
_CELL = re.compile(r"In CSV column #(\d+): .*invalid value '(.*)'", re.DOTALL)
_DELIMITER = "write the file again with a comma between its columns, in a .tsv a tab"


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


@dataclass(frozen=True)
class Form:
    """How text files of a table are written: with a line of names, or with these ``names``.

    Without both the columns are ``1``, ``2``, ... from left to right.

    Raises:
        ConfigError: names are given for files that have a line of names.
    """

    header: bool = True
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.header and self.names is not None:
            raise ConfigError(
                "dataset.names is for files without a line of names: set header=false"
            )


class Source:
    """A table in memory, a file, or the files of a folder by their names, one below the other.

    Attributes:
        title: for messages.
        schema: names and types of the columns, of the first file.
    """

    def __init__(self, table: Any, form: Form = Form()) -> None:
        """``table`` is a path or a ``pa.Table``.

        Raises:
            DataError: nothing readable is there.
        """
        in_memory = isinstance(table, pa.Table)
        self.title, self._form = "the table" if in_memory else str(table), form
        self._files = [table] if in_memory else table_files(table)
        self.schema = self._opened(self._files[0]).schema

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
        """The rows in order, at most ``rows`` at once, with these columns alone.

        Args:
            texts: columns whose text counts as the file has it.
            numbers: columns that are to be numbers.
            rows: of a block.

        Raises:
            DataError: a file cannot be read, or lacks a column.
        """
        names = [*texts, *numbers]
        for file in self._files:
            title = self.title if isinstance(file, pa.Table) else str(file)
            data, first = self._opened(file, texts, numbers), 0
            there = data.schema.names
            check_there(dict.fromkeys(names, "in the first file"), there, title)
            ahead: dict[str, Any] = {"columns": names, "batch_size": rows, "batch_readahead": 2}
            with _reading(title, there, self._form.header):
                try:
                    for cells in data.to_batches(**ahead):
                        yield Piece(title, first, cells)
                        first += len(cells)
                except pa.ArrowInvalid:  # it names the row where one thread reads
                    for _ in data.to_batches(**ahead, use_threads=False):
                        pass
                    raise

    def _opened(self, file: Any, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> Any:
        """A file, or a table, as a ``pa.dataset.Dataset``."""
        if isinstance(file, pa.Table):
            return pa.dataset.dataset(file)
        with _reading(str(file), header=self._form.header):
            if ending(file) in (".csv", ".tsv"):
                return self._opened_text(file, texts, numbers)
            scan = pa.dataset.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=_PAGE_BYTES, pre_buffer=False
            )
            form = pa.dataset.ParquetFileFormat(default_fragment_scan_options=scan)
            return pa.dataset.dataset(file, format=form if ending(file) == ".parquet" else "ipc")

    def _opened_text(self, path: Path, texts: Sequence[str], numbers: Sequence[str]) -> Any:
        def form(names: Sequence[str] | None) -> Any:
            delimiter = "\t" if ending(path) == ".tsv" else ","
            return pa.dataset.CsvFileFormat(
                pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                read_options=pa.csv.ReadOptions(
                    block_size=_BLOCK_BYTES, column_names=names,
                    autogenerate_column_names=not self._form.header and names is None,
                ),
                convert_options=pa.csv.ConvertOptions(strings_can_be_null=False),  # NA is a text
            )  # fmt: skip

        found = pa.dataset.dataset(path, format=form(self._form.names)).schema
        names = found.names
        if self._form.header and len(names) == 1 and re.search(r"[;|,\t]", names[0]):
            raise DataError(f"{path}: one column, {names[0]!r}; {_DELIMITER}")
        if not self._form.header and self._form.names is None:
            names = [str(i) for i, _ in enumerate(names, 1)]
        types = dict(zip(names, found.types, strict=True)) | dict.fromkeys(texts, pa.string())
        flags = [name for name in numbers if pa.types.is_boolean(types.get(name, pa.null()))]
        types |= dict.fromkeys({*numbers}.difference(flags), pa.float64())
        schema = pa.schema([(name, types[name]) for name in names])
        return pa.dataset.dataset(
            path, schema=schema, format=form(None if self._form.header else names)
        )


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
def _reading(title: str, names: Sequence[str] = (), header: bool = False) -> Iterator[None]:
    """Turn what pyarrow raises over a file with the columns ``names`` into a ``DataError``."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error).rpartition("Invalid: ")[2]  # behind where pyarrow was
        row, cell = _ROW.search(text), _CELL.search(text)
        where = f"{title}, row {int(row[1]) - header}" if row else title
        if names and cell:
            raise DataError(
                f"{where}: {cell[2][:40]!r} in column {names[int(cell[1])]!r}; expected a number, "
                "or an empty cell where it is missing (to train on texts: dataset.categories)"
            ) from None
        why = " ".join(_ROW.sub("", text).split())[:200]
        remedy = _DELIMITER if "Expected 1 columns" in why else "write the file again"
        raise DataError(f"{where}: cannot be read, {why}; {remedy}") from None
