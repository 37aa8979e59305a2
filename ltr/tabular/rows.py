"""Make lists of the rows of a table."""

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from ltr.data.letor import MemorySink, Sink
from ltr.data.letor_rows import LARGEST_INDEX, Rules
from ltr.data.lists import Columns, Floats, Ints, Lists
from ltr.errors import ConfigError, DataError
from ltr.tabular.blocks import Block, MemoryTable, Source
from ltr.tabular.cells import category_text, distinct, float32, kind, numbers
from ltr.tabular.columns import check_kind, find_columns, named_columns
from ltr.tabular.queries import Queries
from ltr.tabular.roles import Roles, check_there

READER_VERSION = 2  # part of every cache key: raise it when the same table gives other arrays
_BLOCK_BYTES = 8 << 20  # of the features of a block
_MOST_ROWS = 1 << 15  # of a block


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


def lists_of(
    table: Any,
    roles: Roles,
    *,
    columns: Columns | None = None,
    labelled: bool = True,
) -> TableLists:
    """Make lists of a table in memory.

    Args:
        table: a ``pa.Table``, or a ``Source``.
        roles: what its columns are.
        columns: names and categories that a model was trained on; None: found here, as in train.
        labelled: False: every label counts as 0, and no weight is read.

    Raises:
        DataError: one line with the place: a missing column, a wrong type, a row without a query or
            a label, an infinite value, weights that differ within a query.
        ConfigError: ``labelled``, and the roles name no column of labels.

    >>> table = pa.table({"q": [1, 2, 1], "y": [0, 1, 2], "x": [0.5, None, 1], "c": list("aba")})
    >>> made = lists_of(table, Roles(query="q", label="y", categories=("c",)))
    >>> made.lists.qids.tolist(), made.lists.features.tolist()
    (['1', '2'], [[0.5, 1.0], [1.0, 1.0], [nan, 2.0]])
    >>> made.order.tolist(), made.lists.columns.names
    ([0, 2, 1], ('x', 'c'))
    """
    source: Source = MemoryTable(table) if isinstance(table, pa.Table) else table
    found = find_columns(source, roles) if columns is None else columns
    sink, ids = MemorySink(), list[Any]()

    def see(cells: Any) -> None:
        ids.append(pa.Table.from_batches([cells.select(list(roles.id))]))

    parse_table(source, sink, roles, found, rules=Rules(labelled=labelled), see=see)
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


def parse_table(
    source: Source,
    sink: Sink,
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
    named = named_columns(roles, labelled=rules.labelled)
    named |= dict.fromkeys(columns.names, "a feature")
    check_there(named, source.schema.names, source.title)
    for name in columns.names:
        check_kind(source, name, name in columns.categories)
    label, weight = (roles.label, roles.weight) if rules.labelled else (None, None)
    if rules.labelled and label is None:
        raise ConfigError("give dataset.label=COLUMN, the column of the labels")
    values = [name for name in columns.names if name not in columns.categories]
    plain = [name for name in (*values, label, weight) if name is not None]
    others = dict.fromkeys([roles.query, *roles.id, *columns.categories])
    texts = [name for name in others if name not in plain]
    encode = {name: _encoder(values) for name, values in columns.categories.items()}
    queries, missing, taken = Queries(), 0, 0
    before, kept = 0, list[Ints]()  # rows of the table so far, and those of them that are taken
    for block in source.blocks(texts, plain, _rows_at_once(len(columns.names))):
        if see is not None:
            see(block.cells)
        rows = queries.add(block, roles.query, keep)
        if keep is not None:
            kept.append(before + rows)
            before += len(block.cells)
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
        rows=np.concatenate(kept) if kept else None,
        columns=columns,
        weights=queries.weights,
    )


def _rows_at_once(width: int) -> int:
    return max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * width)))


def _check_room(sink: Sink, rows: int, width: int, block: Block) -> None:
    if width > LARGEST_INDEX:
        raise DataError(f"{block.file}: {width:,} features; expected at most {LARGEST_INDEX:,}")
    free, where = sink.free()
    if 4 * rows * width > free:
        raise DataError(
            f"{block.file}: {rows:,} rows of {width:,} features take more than the "
            f"{free / 1e9:,.1f} GB that {where} has left; use fewer rows or features"
        )


Encoder = Callable[[str], float]


def _encoder(values: Sequence[str] | int) -> Encoder:
    """The code of a text in a column of the categories ``values``, as ``Columns`` has them."""
    if isinstance(values, int):
        return lambda text: 1 + crc32(text.encode()) % values
    codes = {value: code for code, value in enumerate(values, 1)}
    return lambda text: codes.get(text, 0)


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
    return rules.checked(values, lambda row: block.at(rows[row]))
