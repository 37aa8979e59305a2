"""Turn the rows of a table into blocks of items, according to the roles of its columns."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from ltr.arrays import Doubles, Floats, Ints
from ltr.data.assemble import Block
from ltr.data.letor import ParseOptions
from ltr.data.lists import Columns
from ltr.data.rounding import inexact_values, to_float32
from ltr.data.table_sources import Source, TableChunk, check_column_names
from ltr.errors import ConfigError, DataError

READER_VERSION = 3  # part of every cache key: raise it if the same table gives different arrays
_LARGEST_CODE = 1 << 24  # float32 holds every whole number up to this one
_BLOCK_BYTES = 8 << 20  # the most bytes of features in a block
_MAX_ROWS = 1 << 15  # the most rows in a block
NAME_IT = (
    "to use such a column, name it (pandas writes row numbers into a column without a name, unless "
    "index=False)"
)
_INDEX = re.compile(r"__index_level_\d+__")  # an index column that pandas writes into Parquet
# An empty name, which pandas reads as "Unnamed: 0".
_UNNAMED = re.compile(r"\s*|Unnamed: \d+(_level_\d+)?(\.\d+)?")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_FLAGS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_KINDS: dict[str, Any] = {  # the types of values; numbers last, as NumPy's times are numbers too
    "text": (str, bytes),
    "date": (dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64),
    "number": (int, float, Decimal, np.bool_, np.integer, np.floating),
}
_OBJECTS = dict.fromkeys(("boolean", "integer", "floating", "decimal", "empty"), "number")
_OBJECTS |= {"mixed-integer-float": "number", "string": "text", "bytes": "text", "time": "date"}
_OBJECTS |= dict.fromkeys(("date", "datetime", "datetime64", "timedelta", "timedelta64"), "date")


@dataclass(frozen=True)
class ColumnRoles:
    """The columns of a table by role.

    Raises ``ConfigError`` if a column has two conflicting roles.
    """

    query: str
    label: str | None = None  # None: the rows have no labels
    id: tuple[str, ...] = ()  # columns that identify an item; they are not used as features
    features: tuple[str, ...] | None = None  # None: all other numeric columns, and the categories
    categories: tuple[str, ...] = ()  # features whose values are categories, collected from train
    weight: str | None = None  # weight of the query, > 0, the same in all of its rows
    category_values: int = 1000  # number of values of a category that are kept, most frequent first

    def __post_init__(self) -> None:
        single = [name for name in (self.query, self.label, self.weight) if name is not None]
        for names in ([*single, *(self.features or ())], [*single, *self.categories]):
            repeated = [name for name in names if names.count(name) > 1]
            if repeated:
                raise ConfigError(
                    f"column {repeated[0]!r} is named twice in dataset.query, label, weight, "
                    "features and categories; name each column only once"
                )
        limit = self.category_values
        if type(limit) is not int or not 1 <= limit < _LARGEST_CODE:
            raise ConfigError(
                f"dataset.category_values={limit}: give a whole number from 1 to "
                f"{_LARGEST_CODE - 1:,}"
            )

    @property
    def cache_text(self) -> str:
        """The roles as text for cache keys; changing it makes cached data unusable."""
        return f"Roles({', '.join(f'{role}={value!r}' for role, value in vars(self).items())})"

    def keys(self, *, labelled: bool) -> dict[str, str]:
        """Return the config key of each column with a role; omit label and weight if unlabelled."""
        keys = dict[str, str]()
        for role in ("id", "categories", "features", "weight", "label", "query"):
            if labelled or role not in ("weight", "label"):
                names = getattr(self, role) or ()
                if isinstance(names, str):
                    names = (names,)
                keys |= dict.fromkeys(names, f"dataset.{role}")
        return keys

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ColumnRoles":
        """Return the roles given by a config, which maps each role to one or several columns.

        Column names may be numbers in YAML, and a single name may be written without brackets.
        Raises ``ConfigError`` if ``query`` is not set, or a column has two conflicting roles.
        """
        if config.get("query") in (None, ""):
            raise ConfigError(
                "dataset.query is not set: set dataset.query=COLUMN, the column of the query ids"
            )
        roles = {role: columns for role, columns in config.items() if columns is not None}
        for role in {"query", "label", "weight"} & roles.keys():
            roles[role] = str(roles[role])
        for role in {"id", "features", "categories"} & roles.keys():
            names = roles[role]
            if isinstance(names, str | int):
                names = [names]
            roles[role] = tuple(map(str, names))
        return cls(**roles)


def kind(column: Any) -> str:
    """Return what kind of values a column holds: ``number``, ``text``, ``date`` or ``other``.

    >>> [kind(pd.Series(values)) for values in ([1, None], ["a"], [1, "a"], [Decimal(1)], [True])]
    ['number', 'text', 'other', 'number', 'number']
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return kind(column.dtype.categories)
    if column.dtype == object:
        return _OBJECTS.get(pd.api.types.infer_dtype(column), "other")
    value_type = column.dtype.type
    for name, types in _KINDS.items():
        if issubclass(value_type, types):
            return name
    return "other"


def _column_type(column: pd.Series) -> Any:
    """Return the type of a column for messages; Arrow's type if the column is from a file."""
    return getattr(column.dtype, "pyarrow_dtype", column.dtype)


def query_text(value: Any) -> str:
    """Return a query id as a string; an empty string if it is missing.

    >>> [query_text(value) for value in (7, 7.0, 2**60 + 1, "007", True, None)]
    ['7', '7', '1152921504606846977', '007', 'true', '']
    """
    if pd.isna(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def category_text(value: Any) -> str:
    """Return the string that identifies a value of a category; it is the same for 1 and ``1.0``.

    >>> [category_text(value) for value in ("red", 3, 3.0, "3.0", "1.5", True, "True", None, "")]
    ['red', '3', '3', '3', '1.5', 'true', 'true', '', '']
    """
    text = query_text(value)
    number = _WHOLE.fullmatch(text)
    return number[1] if number else _FLAGS.get(text, text)


def _distinct(column: pd.Series, text: Callable[[Any], str]) -> tuple[list[str], Ints]:
    """Return the distinct values of a column as strings, and the index of each row's value."""
    indices, values = pd.factorize(column)
    texts = [text(value) for value in values.tolist()]
    missing = np.flatnonzero(indices < 0)
    if len(missing):
        indices[missing] = len(texts)
        texts.append("")
    return texts, indices


def same_texts(column: pd.Series, second_column: pd.Series) -> bool:
    """Return whether two columns have the same strings row by row; 1, 1.0 and "1" are the same."""
    texts, indices = _distinct(column, category_text)
    other_texts, other_indices = _distinct(second_column, category_text)
    return texts == other_texts and np.array_equal(indices, other_indices)


def _category_column(chunk: TableChunk, name: str) -> pd.Series:
    """Return the column ``name``; raise ``DataError`` unless it holds numbers, strings or dates."""
    column = chunk.cells[name]
    if kind(column) not in ("number", "text", "date"):
        raise DataError(
            f"{chunk.file}: column {name!r} is a category, so it must hold numbers, strings or "
            f"dates, but it holds {_column_type(column)}; turn its values into strings"
        )
    return column


def _numbers(chunk: TableChunk, name: str) -> Doubles | Floats:
    """Return the numbers of a column, NaN where they are missing.

    They have the type of the column if it is a float type, else float64. Raises ``DataError`` if
    the column does not hold numbers.
    """
    column = chunk.cells[name]
    if kind(column) != "number":
        raise DataError(
            f"{chunk.file}: column {name!r} must hold numbers, but it holds "
            f"{_column_type(column)}; write numbers in every file, or train with "
            f"'dataset.categories=[{name}]' or 'dataset.id=[{name}]'"
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    elif isinstance(column.dtype, pd.SparseDtype):
        column = pd.Series(column.to_numpy())
    dtype: Any = column.dtype
    numpy_dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    float_type = numpy_dtype if numpy_dtype.kind == "f" else np.float64
    return column.to_numpy(float_type, na_value=np.nan)


def _queries(chunk: TableChunk, roles: ColumnRoles) -> tuple[list[str], Ints]:
    """Return the distinct query ids of ``chunk``, and the index of each row's query id.

    Raises ``DataError`` if an id is missing, or is not a number, a string or a date.
    """
    column = chunk.cells[roles.query]
    if kind(column) == "other":
        raise DataError(
            f"{chunk.locate(0, roles.query)}: the query ids have the type {_column_type(column)}; "
            "expected numbers or strings"
        )
    texts, indices = _distinct(column, query_text)
    if "" in texts:
        row = int(np.flatnonzero(indices == texts.index(""))[0])
        raise DataError(
            f"{chunk.locate(row, roles.query)}: no query id; expected a query id in every row"
        )
    return texts, indices


def table_qids(source: Source, roles: ColumnRoles) -> set[str]:
    """Return the query ids of a table."""
    check_column_names({roles.query: "dataset.query"}, source.names, source.title)
    qids = set[str]()
    for chunk in source.chunks([roles.query], [], _MAX_ROWS):
        chunk_qids, _ = _queries(chunk, roles)
        qids.update(chunk_qids)
    return qids


def find_columns(source: Source, roles: ColumnRoles, keep: Container[str] | None = None) -> Columns:
    """Return the names and categories of the features in ``source``, the training table.

    Args:
        source: the table.
        roles: the roles of its columns.
        keep: only rows with these query ids are counted; None: all rows.

    Returns:
        The columns. The values of a category are in descending order of frequency; equally frequent
        values are sorted as strings.

    Raises:
        DataError: a column is missing or has the wrong type, or a column without a role is not
            numeric.
    """
    check_column_names(roles.keys(labelled=True), source.names, source.title)
    names = _feature_names(source, roles)
    counters = {name: Counter[str]() for name in names if name in roles.categories}
    if counters:
        for chunk in source.chunks([*{roles.query, *counters}], [], _MAX_ROWS):
            _count_values(counters, chunk, roles, keep)
    categories = dict[str, tuple[str, ...]]()
    for name, counter in counters.items():
        del counter[""]  # a missing value is not a category
        frequent = sorted(+counter, key=lambda text: (-counter[text], text))
        categories[name] = tuple(frequent[: roles.category_values])
    return Columns(tuple(names), categories)


def _count_values(
    counters: Mapping[str, Counter[str]],
    chunk: TableChunk,
    roles: ColumnRoles,
    keep: Container[str] | None,
) -> None:
    """Add to each counter how often its column has each value in ``chunk``."""
    rows = np.ones(len(chunk.cells), bool)
    if keep is not None:
        qids, indices = _queries(chunk, roles)
        rows = np.array([qid in keep for qid in qids], bool)[indices]
    for name, counter in counters.items():
        texts, indices = _distinct(_category_column(chunk, name), category_text)
        counts = np.bincount(indices[rows], minlength=len(texts)).tolist()
        for text, count in zip(texts, counts, strict=True):
            counter[text] += count


def unnamed_columns(names: Sequence[str]) -> list[str]:
    """Return the elements of ``names`` that stand for a column without a name.

    >>> unnamed_columns(["", "price", "Unnamed: 0", "Unnamed: 0.1"])
    ['', 'Unnamed: 0', 'Unnamed: 0.1']
    """
    return [name for name in names if _UNNAMED.fullmatch(name)]


def unnamed_remarks(source: Source, roles: ColumnRoles) -> dict[str, str]:
    """Return a warning about columns that are not features because they have no name, if any."""
    used = roles.keys(labelled=True)
    unused = [name for name in unnamed_columns(source.names) if name not in used]
    if not unused or roles.features is not None:
        return {}
    columns = [f"column {i}" for i, name in enumerate(source.names, 1) if name in unused]
    shown = ", ".join(columns)
    return {"unnamed": f"columns without a name are not used as features: {shown}; {NAME_IT}"}


def _feature_names(source: Source, roles: ColumnRoles) -> list[str]:
    if roles.features is not None:
        return list(dict.fromkeys([*roles.features, *roles.categories]))
    no_features = {
        roles.query,
        roles.label,
        roles.weight,
        *roles.id,
        *unnamed_columns(source.names),
    }
    candidates = [
        name for name in source.names if name not in no_features and not _INDEX.fullmatch(name)
    ]
    unusable = [
        name
        for name in candidates
        if name not in roles.categories and kind(source.head[name]) != "number"
    ]
    if unusable:
        shown = ", ".join(f"{name} ({_column_type(source.head[name])})" for name in unusable[:12])
        raise DataError(
            f"{source.title}: only numbers are features by default, so it is not clear how to use "
            f"{shown}: name each column in 'dataset.categories=[NAME]' or, to ignore it, in "
            "'dataset.id=[NAME]', or name all features in 'dataset.features=[NAME]'; convert dates "
            "and lists to numbers"
        )
    names = list(dict.fromkeys([*candidates, *roles.categories]))  # an id may be a feature too
    if not names:
        raise DataError(
            f"{source.title}: no numeric column is left as a feature; name the features in "
            "'dataset.features=[NAME]' or 'dataset.categories=[NAME]'"
        )
    return names


def table_blocks(
    source: Source,
    roles: ColumnRoles,
    columns: Columns,
    *,
    rules: ParseOptions,
    on_block: Callable[[Any], object] = len,
) -> Iterator[Block]:
    """Yield the rows of a table in blocks; memory does not grow with the table.

    Args:
        source: the table.
        roles: the roles of its columns.
        columns: the features.
        rules: which labels are valid; labels and weights are read only if ``rules.labelled``.
        on_block: called with the cells of each block (a frame).

    Raises:
        DataError: a column or a query id is missing, or a value is invalid or has the wrong type.
            The message names the place.
        ConfigError: labels should be read, but ``roles.label`` is None.
    """
    keys = roles.keys(labelled=rules.labelled) | dict.fromkeys(columns.names, "a feature")
    check_column_names(keys, source.names, source.title)
    label = roles.label if rules.labelled else None
    weight = roles.weight if rules.labelled else None
    if rules.labelled and label is None:
        raise ConfigError(
            "dataset.label is not set: set dataset.label=COLUMN, the column of the labels"
        )
    numbers = [name for name in columns.names if name not in columns.categories]
    numbers += [name for name in (label, weight) if name is not None]
    texts = [*dict.fromkeys([roles.query, *roles.id, *columns.categories])]
    texts = [name for name in texts if name not in numbers]
    encoders = {name: _encoder(values) for name, values in columns.categories.items()}
    rows_at_once = max(1, min(_MAX_ROWS, _BLOCK_BYTES // (4 * len(columns.names))))
    is_empty = True
    for chunk in source.chunks(texts, numbers, rows_at_once):
        on_block(chunk.cells)
        rows = len(chunk.cells)
        if not rows:
            continue
        is_empty = False
        qids, query_indices = _queries(chunk, roles)
        weights = None if weight is None else _weights(chunk, weight)
        features, inexact = _features(chunk, columns, encoders)
        labels = np.zeros(rows, np.float32)
        if label is not None:
            numbers_of_label = _numbers(chunk, label).astype(np.float64)
            labels = rules.check_labels(numbers_of_label, chunk.locate)
        yield Block(
            features,
            labels,
            qids,
            query_indices,
            missing=int(np.isnan(features).sum()),
            locate=chunk.locate,
            weights=weights,
            inexact=inexact,
        )
    if is_empty:
        raise DataError(f"{source.title}: no rows; expected a row for each item")


def _weights(chunk: TableChunk, name: str) -> Doubles | Floats:
    """Return the weights in a column; raise ``DataError`` unless each is a finite number > 0."""
    weights = _numbers(chunk, name)
    rounded, _ = to_float32(weights)
    invalid = np.flatnonzero(~(rounded > 0))
    if len(invalid):
        row = int(invalid[0])
        raise DataError(
            f"{chunk.locate(row)}: weight {weights[row]:g}; expected a finite number > 0 in "
            "float32 (leave out queries whose weight is zero)"
        )
    return weights


def _encoder(values: Sequence[str]) -> Callable[[str], float]:
    """Return a function from a value to its code in ``values``; the codes are those of ``Columns``.

    A value is given as a string; an empty string is a missing value.
    """
    codes = {value: code for code, value in enumerate(values, 1)}
    return lambda text: codes.get(text, 0) if text else np.nan


def _features(
    chunk: TableChunk, columns: Columns, encoders: Mapping[str, Callable[[str], float]]
) -> tuple[Floats, dict[int, Any]]:
    """Return the features ``[rows, width]``, which are numbers and the codes of categories.

    Also return the ``inexact_values`` of the columns that have any, by column.
    """
    by_column = np.empty((len(columns.names), len(chunk.cells)), np.float32)
    inexact = dict[int, Any]()
    for index, name in enumerate(columns.names):
        if name in encoders:
            texts, indices = _distinct(_category_column(chunk, name), category_text)
            codes = np.array([encoders[name](text) for text in texts], np.float32)
            by_column[index] = codes[indices]
            continue
        values = _numbers(chunk, name)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise DataError(
                f"{chunk.locate(int(infinite[0]))}: an infinite value in column {name!r}; expected "
                "a finite number, or an empty cell if the value is missing"
            )
        by_column[index], _ = to_float32(values)
        distinct = inexact_values(_exact_values(chunk.cells[name], values))
        if len(distinct):
            inexact[index] = distinct
    return np.ascontiguousarray(by_column.T), inexact


def _exact_values(column: pd.Series, values: Doubles | Floats) -> Any:
    """Return ``values``, the numbers of ``column``, or integers if float64 rounded some of them."""
    if not pd.api.types.is_integer_dtype(column.dtype) or not (np.abs(values) > 2**53).any():
        return values
    unsigned = getattr(column.dtype, "kind", "i") == "u"
    return column.dropna().to_numpy(np.uint64 if unsigned else np.int64)
