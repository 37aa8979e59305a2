"""Make lists of the rows of a table."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ltr.data.letor import LONGEST_QID, MemorySink
from ltr.data.letor_rows import LARGEST_INDEX, Rules
from ltr.data.lists import Columns, Doubles, Floats, Ints, Lists, Texts
from ltr.data.tabular.cells import category_text, distinct, float32, kind, numbers, query_text
from ltr.data.tabular.roles import Roles, check_there
from ltr.errors import ConfigError, DataError

READER_VERSION = 1  # part of every cache key: raise it when the same table gives other arrays
_BLOCK_BYTES = 8 << 20  # of the features of a block
_MOST_ROWS = 1 << 15  # of a block


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of one file: its name, the 0-based row of the first, their cells."""

    file: str
    first: int
    cells: Any  # pa.RecordBatch

    def at(self, row: int) -> str:
        """The place of the ``row``-th row of the block, for messages."""
        return f"{self.file}, row {self.first + row + 1}"


class Source(Protocol):
    """A table, in files or in memory, that can be read again and again."""

    @property
    def title(self) -> str:
        """Its name, for messages."""

    @property
    def schema(self) -> Any:
        """Names and types of its columns, a ``pa.Schema``."""

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Block]:
        """The rows in order, at most ``rows`` at once, with these columns alone.

        ``texts`` are columns whose text counts as the file has it; ``numbers`` are to be numbers.
        """


class TableSink(Protocol):
    """Takes rows in the table's order, block by block: ``ListsWriter`` or ``MemorySink``."""

    def append(self, features: Floats, labels: Floats) -> None:
        """Take ``[rows, width]`` and ``[rows]``."""

    def finish(
        self,
        offsets: Ints,
        qids: Texts,
        *,
        digest: str,
        missing: int,
        order: Ints | None,
        columns: Columns | None,
        weights: Floats | None,
    ) -> None:
        """Take the rest of ``Lists``; ``order``: the final order of the rows, None as appended."""

    def free(self) -> tuple[int, str]:
        """How many bytes the features may take in all, and where."""


@dataclass(frozen=True)
class TableLists:
    """Lists, and where their items were.

    Attributes:
        lists: the items of a query together, in the order of the table.
        order: ``[items]``, the 0-based row of the table of each item.
        ids: the columns of the role ``id``, a row for each row of the table, in its order.
    """

    lists: Lists
    order: Ints
    ids: Any  # pa.Table


class _InMemory:
    """A ``pa.Table`` as a source."""

    def __init__(self, table: Any) -> None:
        self.title, self.schema, self._table = "the table", table.schema, table

    def blocks(self, texts: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Block]:
        first = 0
        for cells in self._table.select([*texts, *numbers]).to_batches(max_chunksize=rows):
            yield Block(self.title, first, cells)
            first += len(cells)


def lists_of(
    table: Any,
    roles: Roles,
    *,
    columns: Columns | None = None,
    labelled: bool = True,
    labels: str = "grade",
    max_grade: int | None = None,
) -> TableLists:
    """Make lists of a table in memory.

    Args:
        table: a ``pa.Table``, or a ``Source``.
        roles: what its columns are.
        columns: names and categories that a model was trained on; None: found here, as in train.
        labelled: False: every label counts as 0, and no weight is read.
        labels, max_grade: as for ``ltr.data.letor_rows.Rules``.

    Raises:
        DataError: one line with the place: a missing column, a wrong type, a row without a query or
            a label, an infinite value, weights that differ within a query.
        ConfigError: a setting is out of its range.

    >>> table = pa.table({"q": [1, 2, 1], "y": [0, 1, 2], "x": [0.5, None, 1], "c": list("aba")})
    >>> made = lists_of(table, Roles(query="q", label="y", categories=("c",)))
    >>> made.lists.qids.tolist(), made.lists.features.tolist()
    (['1', '2'], [[0.5, 1.0], [1.0, 1.0], [nan, 2.0]])
    >>> made.order.tolist(), made.lists.columns.names
    ([0, 2, 1], ('x', 'c'))
    """
    source: Source = _InMemory(table) if isinstance(table, pa.Table) else table
    rules = Rules(labels=labels, max_grade=max_grade, labelled=labelled)
    found = find_columns(source, roles) if columns is None else columns
    sink, ids = MemorySink(), list[Any]()

    def see(cells: Any) -> None:
        ids.append(pa.Table.from_batches([cells.select(list(roles.id))]))

    parse_table(source, sink, roles, found, rules=rules, see=see)
    lists = replace(sink.lists, digest=_digest(sink.lists))
    order = np.arange(lists.items) if lists.rows is None else lists.rows
    return TableLists(lists, order, _joined(ids))


def _joined(tables: Sequence[Any]) -> Any:
    """Tables one below the other, also where one has no value in a column."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the id columns have other types from one file to the next ({error}); write them alike"
        ) from None


def _digest(lists: Lists) -> str:
    """SHA-256 of the arrays and names."""
    sha256 = hashlib.sha256()
    columns = None if lists.columns is None else lists.columns.state()
    sha256.update(json.dumps([columns, lists.qids.tolist()]).encode())
    for array in (lists.features, lists.labels, lists.offsets, lists.weights):
        if array is not None:
            sha256.update(np.ascontiguousarray(array).data if array.size else b"")
    return sha256.hexdigest()


def find_columns(source: Source, roles: Roles, keep: Container[str] | None = None) -> Columns:
    """Names and categories of the features of a table, which is train.

    The values of a category are in the order of their frequency, those of equal frequency in the
    order of their texts.

    Args:
        source, roles: the table and what its columns are.
        keep: the query ids whose rows count; None: all.

    Raises:
        DataError: a column is missing, has a type that is no feature's, or no role; no value.
    """
    check_there(_named(roles, labelled=True), source.schema.names, source.title)
    names = _feature_names(source, roles)
    listed = [name for name in names if name in roles.categories]
    categories: dict[str, tuple[str, ...] | int] = {
        name: size for name, size in roles.hashed.items() if name in names
    }
    counts: dict[str, Counter[str]] = {name: Counter() for name in listed}
    if listed:
        texts = list(dict.fromkeys([roles.query, *listed]))
        for block in source.blocks(texts, [], _MOST_ROWS):
            cells = block.cells
            if keep is not None:
                cells = cells.filter(pa.array(_kept(cells.column(roles.query), keep)))
            for name in listed:
                values, places = distinct(cells.column(name))
                often = np.bincount(places, minlength=len(values))
                for value, count in zip(values, often.tolist(), strict=True):
                    counts[name][category_text(value)] += count
    for name, count in counts.items():
        del count[""]  # a missing value is none
        frequent = sorted(count, key=lambda text: (-count[text], text))
        categories[name] = tuple(frequent[: roles.category_values])
    return Columns(tuple(names), {name: categories[name] for name in names if name in categories})


def parse_table(
    source: Source,
    sink: TableSink,
    roles: Roles,
    columns: Columns,
    *,
    rules: Rules,
    digest: str = "",
    keep: Container[str] | None = None,
    see: Callable[[Any], object] | None = None,
) -> None:
    """Read a table into ``sink`` block by block; memory grows by some bytes for each row.

    Args:
        source, roles: the table and what its columns are.
        sink: takes the rows, then the rest.
        columns: names and categories of the features.
        rules: of the labels; where nothing is labelled, labels and weights are not read.
        digest: of the table.
        keep: the query ids whose rows are taken; None: all.
        see: called with the cells of each block.

    Raises:
        DataError: as ``lists_of``.
    """
    named = _named(roles, labelled=rules.labelled)
    named |= dict.fromkeys(columns.names, "a feature")
    check_there(named, source.schema.names, source.title)
    for name in columns.names:
        _check_kind(source, name, name in columns.categories)
    label, weight = (roles.label, roles.weight) if rules.labelled else (None, None)
    if rules.labelled and label is None:
        raise ConfigError("give dataset.label=COLUMN, the column of the labels")
    values = [name for name in columns.names if name not in columns.categories]
    plain = [name for name in (*values, label, weight) if name is not None]
    others = dict.fromkeys([roles.query, *roles.id, *columns.categories])
    texts = [name for name in others if name not in plain]
    encode = _encoders(columns)
    queries, missing, taken = _Queries(), 0, 0
    for block in source.blocks(texts, plain, _rows_at_once(len(columns.names))):
        if see is not None:
            see(block.cells)
        rows = queries.add(block, roles.query, keep)
        cells = block.cells if len(rows) == len(block.cells) else block.cells.take(pa.array(rows))
        if not len(cells):
            continue
        taken += len(cells)
        _check_room(sink, taken, len(columns.names), block)
        features = _features(block, cells, rows, columns, encode)
        missing += int(np.isnan(features).sum())
        sink.append(features, _labels(block, cells, rows, label, rules))
        if weight is not None:
            queries.weigh(block, rows, numbers(cells.column(weight)))
    if not taken:
        raise DataError(f"{source.title}: no rows; expected a row for each item")
    offsets, qids, order = queries.result()
    sink.finish(
        offsets,
        qids,
        digest=digest,
        missing=missing,
        order=order,
        columns=columns,
        weights=queries.weights,
    )


def _named(roles: Roles, *, labelled: bool) -> dict[str, str]:
    """Columns that the roles name, and the key of each."""
    named = dict.fromkeys(roles.id, "dataset.id")
    named |= dict.fromkeys(roles.categories, "dataset.categories")
    named |= dict.fromkeys(roles.hashed, "dataset.hashed")
    named |= dict.fromkeys(roles.features or (), "dataset.features")
    if labelled:
        named |= {name: "dataset.weight" for name in [roles.weight] if name is not None}
        named |= {name: "dataset.label" for name in [roles.label] if name is not None}
    return {**named, roles.query: "dataset.query"}


def _feature_names(source: Source, roles: Roles) -> list[str]:
    coded = [*roles.categories, *roles.hashed]
    if roles.features is not None:
        return [*roles.features, *(name for name in coded if name not in roles.features)]
    others = {roles.query, roles.label, roles.weight, *roles.id}
    rest = [name for name in source.schema.names if name not in others]
    kinds = {name: kind(source.schema.field(name).type) for name in rest}
    if strange := [name for name in rest if name not in coded and kinds[name] != "number"]:
        shown = ", ".join(f"{name} ({source.schema.field(name).type})" for name in strange[:12])
        raise DataError(
            f"{source.title}: no role for {shown}, which are no numbers; name texts in "
            f"dataset.categories=[{strange[0]}] or dataset.hashed={{{strange[0]}: 1000}}, what is "
            "no feature in dataset.id, or give dataset.features"
        )
    names = [name for name in rest if name in coded or kinds[name] == "number"]
    names += [name for name in coded if name not in names]  # an id that is a feature too
    if not names:
        raise DataError(f"{source.title}: no number column is left as a feature; name some")
    return names


def _check_kind(source: Source, name: str, coded: bool) -> None:
    """Raise ``DataError`` where a column cannot be a feature."""
    type_ = source.schema.field(name).type
    found = kind(type_)
    if found == "number" or (coded and found in ("text", "date")):
        return
    remedy = {
        "text": f"name it in dataset.categories=[{name}] or dataset.hashed={{{name}: 1000}}",
        "date": "turn it into a number, such as days since a date, or name it in dataset.id",
    }.get(found, "give a column for each of its numbers, or name it in dataset.id")
    raise DataError(f"{source.title}: feature {name!r} holds {type_}; {remedy}")


def _rows_at_once(width: int) -> int:
    return max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * width)))


def _check_room(sink: TableSink, rows: int, width: int, block: Block) -> None:
    if width > LARGEST_INDEX:
        raise DataError(f"{block.file}: {width:,} features; expected at most {LARGEST_INDEX:,}")
    free, where = sink.free()
    if 4 * rows * width > free:
        raise DataError(
            f"{block.file}: {rows:,} rows of {width:,} features take more than the "
            f"{free / 1e9:,.1f} GB that {where} has left; use fewer rows or features"
        )


def _kept(query: Any, keep: Container[str]) -> NDArray[np.bool_]:
    values, places = distinct(query)
    return np.array([query_text(value) in keep for value in values], bool)[places]


Encoder = Callable[[str], float]


def _encoders(columns: Columns) -> dict[str, Encoder]:
    """The code of a text, for each category column."""

    def listed(values: Sequence[str]) -> Encoder:
        codes = {value: code for code, value in enumerate(values, 1)}
        return lambda text: codes.get(text, 0)

    def hashed(size: int) -> Encoder:
        return lambda text: 1 + crc32(text.encode()) % size

    return {
        name: hashed(values) if isinstance(values, int) else listed(values)
        for name, values in columns.categories.items()
    }


def _features(
    block: Block, cells: Any, rows: Ints, columns: Columns, encode: Mapping[str, Encoder]
) -> Floats:
    """``[rows, width]``: numbers, and codes of categories."""
    by_column = np.empty((len(columns.names), len(cells)), np.float32)
    for name, out in zip(columns.names, by_column, strict=True):
        column = cells.column(name)
        if name in encode:
            values, places = distinct(column)
            found = [category_text(value) for value in values]
            codes = [encode[name](text) if text else np.nan for text in found]
            out[:] = np.array(codes, np.float32)[places]
        elif kind(column.type) != "number":
            raise DataError(
                f"{block.file}: column {name!r} holds {column.type}, elsewhere numbers; write it "
                "alike in every file"
            )
        elif len(wrong := float32(numbers(column), out)):
            raise DataError(
                f"{block.at(rows[wrong[0]])}: an infinite value in column {name!r}; expected a "
                "finite number, or an empty cell where it is missing"
            )
    return np.ascontiguousarray(by_column.T)


def _labels(block: Block, cells: Any, rows: Ints, label: str | None, rules: Rules) -> Floats:
    if label is None:
        return np.zeros(len(cells), np.float32)
    column = cells.column(label)
    if kind(column.type) != "number":
        raise DataError(f"{block.file}: label {label!r} holds {column.type}; expected numbers")
    values = numbers(column).astype(np.float64)
    good = (values >= 0) & (values <= rules.largest_label)
    if rules.labels == "grade":
        good &= values == np.floor(values)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        found = "no label" if np.isnan(values[row]) else f"label {values[row]:g}"
        raise DataError(f"{block.at(rows[row])}: {found}; expected {rules.expected_label}")
    return np.abs(values).astype(np.float32)  # -0 is 0


class _Queries:
    """Collects the queries of rows, which need not be together, and their weights."""

    def __init__(self) -> None:
        self.lists: dict[str, int] = {}  # qid -> its list, in order of the first appearance
        self.runs: list[tuple[Ints, Ints]] = []  # lists and rows of neighbouring rows of a query
        self._weights = np.empty(0)  # of each list, with room for more; NaN: not known yet
        self._now = np.empty(0, np.int64)  # the list of each row of the last block

    def add(self, block: Block, query: str, keep: Container[str] | None) -> Ints:
        """Take a block; which of its rows are kept."""
        values, places = distinct(block.cells.column(query))
        texts = [query_text(value) for value in values]
        for value, text in zip(values, texts, strict=True):
            if not text or len(text) > LONGEST_QID:
                row = int(np.flatnonzero(places == values.index(value))[0])
                found = f"a query id of {len(text):,} characters" if text else "no query id"
                raise DataError(
                    f"{block.at(row)}: {found} in column {query!r}; expected one of at most "
                    f"{LONGEST_QID:,} characters in every row"
                )
        kept = [keep is None or text in keep for text in texts]
        known = [
            self.lists.setdefault(text, len(self.lists)) if take else -1
            for text, take in zip(texts, kept, strict=True)
        ]
        lists = np.array(known, np.int64)[places]
        rows = np.flatnonzero(lists >= 0)
        self._now = lists = lists[rows]
        if len(lists):
            starts = np.flatnonzero(np.diff(lists, prepend=-1))
            self.runs.append((lists[starts], np.diff(starts, append=len(lists))))
        return rows

    def weigh(self, block: Block, rows: Ints, values: Doubles | Floats) -> None:
        """Take the weights of the rows that ``add`` has kept."""
        if not (good := (values > 0) & np.isfinite(values.astype(np.float32))).all():
            row = int(np.flatnonzero(~good)[0])
            found = "no weight" if np.isnan(values[row]) else f"weight {values[row]:g}"
            raise DataError(f"{block.at(rows[row])}: {found}; expected a finite number > 0")
        if len(self.lists) > len(self._weights):
            room = np.full(2 * len(self.lists), np.nan)
            room[: len(self._weights)] = self._weights
            self._weights = room
        fresh, first = np.unique(self._now, return_index=True)
        unknown = np.isnan(self._weights[fresh])
        self._weights[fresh[unknown]] = values[first[unknown]]
        if len(other := np.flatnonzero(self._weights[self._now] != values)):
            row = int(other[0])
            qid = list(self.lists)[self._now[row]]
            raise DataError(
                f"{block.at(rows[row])}: weight {values[row]:g}, but query {qid!r} had "
                f"{self._weights[self._now[row]]:g}; give one weight to all rows of a query"
            )

    @property
    def weights(self) -> Floats | None:
        """``[lists]``; None where no weight was taken."""
        known = self._weights[: len(self.lists)]
        return known.astype(np.float32) if len(known) else None

    def result(self) -> tuple[Ints, Texts, Ints | None]:
        """Offsets, query ids, and the order of the rows that puts every list together."""
        lists, rows = (np.concatenate(part) for part in zip(*self.runs, strict=True))
        lengths = np.zeros(len(self.lists), np.int64)
        np.add.at(lengths, lists, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        returns = (np.diff(lists) < 0).any()
        order = np.argsort(np.repeat(lists, rows), kind="stable") if returns else None
        return offsets, np.array(list(self.lists)), order
