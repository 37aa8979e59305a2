"""Make lists of the rows of a table."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from ltr.data.assemble import MOST_FEATURES, Block, assemble
from ltr.data.cells import category_text, checked_weights, distinct, kind, numbers, query_texts
from ltr.data.letor import Rules, to_float32
from ltr.data.lists import Columns, Floats, Ints, Lists
from ltr.data.roles import Roles, check_there
from ltr.data.table_sources import Piece, Source
from ltr.errors import ConfigError, DataError

READER_VERSION = 2  # part of every cache key: raise it when the same table gives other arrays
_BLOCK_BYTES = 8 << 20  # of the features of a block
_MOST_ROWS = 1 << 15  # of a block
_INDEX = re.compile(r"__index_level_\d+__")  # that pandas writes into Parquet


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
    source = Source(table) if isinstance(table, pa.Table) else table
    found = find_columns(source, roles) if columns is None else columns
    ids = list[Any]()

    def see(cells: Any) -> None:
        ids.append(pa.Table.from_batches([cells.select(list(roles.id))]))

    blocks = table_blocks(source, roles, found, rules=Rules(labelled=labelled), see=see)
    lists = assemble(blocks, columns=found).with_digest()
    order = np.arange(lists.items) if lists.rows is None else lists.rows
    try:
        return TableLists(lists, order, pa.concat_tables(ids, promote_options="permissive"))
    except pa.ArrowException as error:
        raise DataError(
            f"the id columns have other types from one file to the next ({error}); write them alike"
        ) from None


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
    check_there(roles.named(labelled=True), source.schema.names, source.title)
    names = _feature_names(source, roles)
    listed = [name for name in names if name in roles.categories]
    counts: dict[str, Counter[str]] = {name: Counter() for name in listed}
    for name in listed:
        _check_kind(source, name, coded=True)
    for block in source.blocks([*{roles.query, *listed}], [], _MOST_ROWS) if listed else ():
        cells = block.cells
        if keep is not None:
            texts, places = query_texts(cells.column(roles.query), block.at)
            cells = cells.filter(pa.array(np.array([text in keep for text in texts])[places]))
        for name in listed:
            values, places = distinct(cells.column(name))
            often = np.bincount(places, minlength=len(values)).tolist()
            for value, count in zip(values, often, strict=True):
                counts[name][category_text(value)] += count
    categories: dict[str, tuple[str, ...] | int] = {}
    for name in names:
        if name in roles.hashed:
            categories[name] = roles.hashed[name]
        elif name in listed:
            del counts[name][""]  # a missing value is none
            frequent = sorted(counts[name], key=lambda text: (-counts[name][text], text))
            categories[name] = tuple(frequent[: roles.category_values])
    return Columns(tuple(names), categories)


def _feature_names(source: Source, roles: Roles) -> list[str]:
    if roles.features is not None:
        return list(dict.fromkeys([*roles.features, *roles.coded]))
    types = {field.name: field.type for field in source.schema if not _INDEX.fullmatch(field.name)}
    others = {roles.query, roles.label, roles.weight, *roles.id}
    rest = [name for name in types if name not in others]
    strange = [name for name in rest if name not in roles.coded and kind(types[name]) != "number"]
    if strange:
        shown = ", ".join(f"{name} ({types[name]})" for name in strange[:12])
        first = {kind(types[name]): name for name in reversed(strange)}
        remedies = "; ".join(f"{name}: {_remedy(name, found)}" for found, name in first.items())
        raise DataError(
            f"{source.title}: no role for {shown}, which are no numbers; {remedies}; or give "
            "dataset.features"
        )
    names = list(dict.fromkeys([*rest, *roles.coded]))  # an id may be a feature too
    if not names:
        raise DataError(f"{source.title}: no number column is left as a feature; name some")
    return names


def _check_kind(source: Source, name: str, *, coded: bool) -> None:
    """Raise ``DataError`` where a column cannot be a feature."""
    type_ = source.schema.field(name).type
    found = kind(type_)
    if found != "number" and not (coded and found in ("text", "date")):
        raise DataError(
            f"{source.title}: feature {name!r} holds {type_}, where numbers are read; write "
            f"numbers, or to train {_remedy(name, found)}"
        )


def _remedy(name: str, found: str) -> str:
    """What to do with a column that holds ``found``, a ``kind`` that is no number."""
    if found == "text":
        listed, hashed = f"dataset.categories=[{name}]", f"dataset.hashed={{{name}: 1000}}"
        return f"name it in {quote(listed)}, {quote(hashed)} or dataset.id"
    what = "turn it into a number, such as days since a date"
    return (
        f"{what if found == 'date' else 'give a column for each of its numbers'}, or name it "
        "in dataset.id"
    )


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
    named = roles.named(labelled=rules.labelled) | dict.fromkeys(columns.names, "a feature")
    check_there(named, source.schema.names, source.title)
    if len(columns.names) > MOST_FEATURES:
        raise DataError(
            f"{source.title}: {len(columns.names):,} features; expected at most {MOST_FEATURES:,}"
        )
    for name in columns.names:
        _check_kind(source, name, coded=name in columns.categories)
    label, weight = (roles.label, roles.weight) if rules.labelled else (None, None)
    if rules.labelled and label is None:
        raise ConfigError("give dataset.label=COLUMN, the column of the labels")
    plain = [name for name in columns.names if name not in columns.categories]
    plain += [name for name in (label, weight) if name is not None]
    others = {*plain}
    texts = [n for n in dict.fromkeys([roles.query, *roles.id, *columns.categories])
             if n not in others]  # fmt: skip
    encode = {name: _encoder(values) for name, values in columns.categories.items()}
    at_once = max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * len(columns.names))))
    rows = 0
    for block in source.blocks(texts, plain, at_once):
        see(block.cells)
        if not len(block.cells):
            continue
        rows += len(block.cells)
        at = partial(block.at, column=roles.query)
        qids, places = query_texts(block.cells.column(roles.query), at)
        weights = None if weight is None else numbers(block.cells.column(weight))
        if weights is not None:
            checked_weights(weights, block.at)
        features = _features(block, columns, encode)
        missing = int(np.isnan(features).sum())
        labels = _labels(block, label, rules)
        yield Block(features, labels, qids, places, missing, block.at, weights=weights)
    if not rows:
        raise DataError(f"{source.title}: no rows; expected a row for each item")


def _encoder(values: Sequence[str] | int) -> Callable[[str], float]:
    """The code of a text in a column of the categories ``values``, as ``Columns`` has them."""
    if isinstance(values, int):
        return lambda text: 1 + crc32(text.encode()) % values if text else np.nan
    codes = {value: code for code, value in enumerate(values, 1)}
    return lambda text: codes.get(text, 0) if text else np.nan


def _features(block: Piece, columns: Columns, encode: dict[str, Callable[[str], float]]) -> Floats:
    """``[rows, width]``: numbers, and codes of categories."""
    by_column = np.empty((len(columns.names), len(block.cells)), np.float32)
    for name, out in zip(columns.names, by_column, strict=True):
        column = block.cells.column(name)
        if name in encode:
            values, places = distinct(column)
            codes = [encode[name](category_text(value)) for value in values]
            out[:] = np.array(codes, np.float32)[places]
            continue
        values = _numbers(block, name, "column")
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise DataError(
                f"{block.at(row)}: an infinite value in column {name!r}; expected a finite number, "
                "or an empty cell where it is missing"
            )
        out[:] = to_float32(values)[0]
    return np.ascontiguousarray(by_column.T)


def _labels(block: Piece, label: str | None, rules: Rules) -> Floats:
    if label is None:
        return np.zeros(len(block.cells), np.float32)
    return rules.checked(_numbers(block, label, "label").astype(np.float64), block.at)


def _numbers(block: Piece, name: str, what: str) -> Any:
    column = block.cells.column(name)
    if kind(column.type) != "number":
        raise DataError(
            f"{block.file}: {what} {name!r} holds {column.type}, where numbers are read; write it "
            "alike in every file"
        )
    return numbers(column)
