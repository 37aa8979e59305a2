"""Make lists of the rows of a table."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from ltr.data.assemble import Block, assemble
from ltr.data.cells import (
    category_text,
    checked_weights,
    distinct,
    float32,
    kind,
    numbers,
    query_texts,
)
from ltr.data.columns import check_kind, find_columns, named_columns
from ltr.data.letor import MOST_FEATURES, Rules
from ltr.data.lists import Columns, Floats, Ints, Lists
from ltr.data.roles import Roles, check_there
from ltr.data.table_sources import MemoryTable, Piece, Source
from ltr.errors import ConfigError, DataError

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
    ids = list[Any]()

    def see(cells: Any) -> None:
        ids.append(pa.Table.from_batches([cells.select(list(roles.id))]))

    blocks = table_blocks(source, roles, found, rules=Rules(labelled=labelled), see=see)
    lists = assemble(blocks, columns=found)
    lists = replace(lists, digest=_digest(lists))
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


def table_blocks(
    source: Source,
    roles: Roles,
    columns: Columns,
    *,
    rules: Rules,
    see: Callable[[Any], object] = len,
) -> Iterator[Block]:
    """Yield the rows of a table, block by block; memory does not grow with the table.

    Args:
        source, roles: the table and what its columns are.
        columns: names and categories of the features.
        rules: of the labels; where nothing is labelled, labels and weights are not read.
        see: called with the cells of each block.

    Raises:
        DataError: as ``lists_of``.
    """
    named = named_columns(roles, labelled=rules.labelled)
    named |= dict.fromkeys(columns.names, "a feature")
    check_there(named, source.schema.names, source.title)
    if len(columns.names) > MOST_FEATURES:
        raise DataError(
            f"{source.title}: {len(columns.names):,} features; expected at most {MOST_FEATURES:,}"
        )
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
    at_once = max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * len(columns.names))))
    any_rows = False
    for block in source.blocks(texts, plain, at_once):
        see(block.cells)
        if not len(block.cells):
            continue
        any_rows = True
        found = block.cells.column(roles.query)
        qids, places = query_texts(found, partial(block.at, column=roles.query))
        weights = None if weight is None else numbers(block.cells.column(weight))
        if weights is not None:
            checked_weights(weights, block.at)
        features = _features(block, columns, encode)
        missing = int(np.isnan(features).sum())
        labels = _labels(block, label, rules)
        yield Block(features, labels, qids, places, missing, block.at, weights=weights)
    if not any_rows:
        raise DataError(f"{source.title}: no rows; expected a row for each item")


Encoder = Callable[[str], float]


def _encoder(values: Sequence[str] | int) -> Encoder:
    """The code of a text in a column of the categories ``values``, as ``Columns`` has them."""
    if isinstance(values, int):
        return lambda text: 1 + crc32(text.encode()) % values
    codes = {value: code for code, value in enumerate(values, 1)}
    return lambda text: codes.get(text, 0)


def _features(block: Piece, columns: Columns, encode: Mapping[str, Encoder]) -> Floats:
    """``[rows, width]``: numbers, and codes of categories."""
    cells = block.cells
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
                f"{block.file}: column {name!r} holds {column.type}, elsewhere numbers; "
                "write it alike in every file"
            )
        elif len(wrong := float32(numbers(column), out)):
            raise DataError(
                f"{block.at(wrong[0])}: an infinite value in column {name!r}; expected a "
                "finite number, or an empty cell where it is missing"
            )
    return np.ascontiguousarray(by_column.T)


def _labels(block: Piece, label: str | None, rules: Rules) -> Floats:
    if label is None:
        return np.zeros(len(block.cells), np.float32)
    column = block.cells.column(label)
    if kind(column.type) != "number":
        raise DataError(f"{block.file}: label {label!r} holds {column.type}; expected numbers")
    values = numbers(column).astype(np.float64)
    return rules.checked(values, block.at)
