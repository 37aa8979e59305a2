"""Turn the rows of a table into blocks for lists: the roles of its columns, and their values."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ltr.arrays import Doubles, Floats, Ints
from ltr.data.assemble import Block
from ltr.data.letor import Rules
from ltr.data.lists import Columns
from ltr.data.rounding import inexact_values, to_float32
from ltr.data.table_sources import Piece, Source, check_columns
from ltr.errors import ConfigError, DataError

READER_VERSION = 3  # part of every cache key: raise it when the same table gives other arrays
_LARGEST_CODE = 1 << 24  # float32 holds every whole number up to this one
_BLOCK_BYTES = 8 << 20  # the most bytes of features in a block
_MOST_ROWS = 1 << 15  # the most rows in a block
NAME_IT = "pandas writes row numbers so, unless index=False; name what is a feature"
_INDEX = re.compile(r"__index_level_\d+__")  # an index column that pandas writes into Parquet
_UNNAMED = re.compile(
    r"\s*|Unnamed: \d+(_level_\d+)?(\.\d+)?"
)  # "" is read as "Unnamed: 0" by pandas
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_FLAGS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_KINDS: dict[str, Any] = {  # the types of single values; what NumPy counts as a number comes last
    "text": (str, bytes),
    "date": (dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64),
    "number": (int, float, Decimal, np.bool_, np.integer, np.floating),
}
_OBJECTS = dict.fromkeys(("boolean", "integer", "floating", "decimal", "empty"), "number")
_OBJECTS |= {"mixed-integer-float": "number", "string": "text", "bytes": "text", "time": "date"}
_OBJECTS |= dict.fromkeys(("date", "datetime", "datetime64", "timedelta", "timedelta64"), "date")


@dataclass(frozen=True)
class Roles:
    """The columns of a table by role; ``ConfigError`` if a column has two roles that conflict."""

    query: str
    label: str | None = None  # None: the rows have no labels
    id: tuple[str, ...] = ()  # identify an item, such as a product id; not used as features
    features: tuple[str, ...] | None = None  # None: all other columns of numbers, and categories
    categories: tuple[str, ...] = ()  # features whose values are categories, collected from train
    weight: str | None = None  # weight of the query, > 0, the same in all of its rows
    category_values: int = 1000  # at most so many values of a category, the most frequent ones

    def __post_init__(self) -> None:
        single = [name for name in (self.query, self.label, self.weight) if name is not None]
        for names in ([*single, *(self.features or ())], [*single, *self.categories]):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(
                    f"column {twice[0]!r} stands twice in dataset.query, label, weight, features "
                    "and categories: give it one role"
                )
        if type(most := self.category_values) is not int or not 1 <= most < _LARGEST_CODE:
            raise ConfigError(
                f"dataset.category_values={most}: give a whole number from 1 to "
                f"{_LARGEST_CODE - 1:,}"
            )

    def keys(self, *, labelled: bool) -> dict[str, str]:
        """Map each column with a role to its config key; label and weight only if ``labelled``."""
        keys = dict[str, str]()
        for role in ("id", "categories", "features", "weight", "label", "query"):
            if labelled or role not in ("weight", "label"):
                names = getattr(self, role) or ()
                keys |= dict.fromkeys(
                    [names] if isinstance(names, str) else names, f"dataset.{role}"
                )
        return keys

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Roles":
        """Return the roles in a config. Column names may be numbers in YAML, and a single name may
        be written without brackets.
        """
        if given.get("query") in (None, ""):
            raise ConfigError("give dataset.query=COLUMN, the column of the query ids")
        roles = {role: one for role, one in given.items() if one is not None}
        for role in {"query", "label", "weight"} & roles.keys():
            roles[role] = str(roles[role])
        for role in {"id", "features", "categories"} & roles.keys():
            names = roles[role]
            roles[role] = tuple(map(str, [names] if isinstance(names, str | int) else names))
        return cls(**roles)


def kind(column: Any) -> str:
    """Return what a column holds: ``number``, ``text``, ``date`` or ``other``.

    >>> [kind(pd.Series(values)) for values in ([1, None], ["a"], [1, "a"], [Decimal(1)], [True])]
    ['number', 'text', 'other', 'number', 'number']
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return kind(column.dtype.categories)
    if column.dtype == object:
        return _OBJECTS.get(pd.api.types.infer_dtype(column), "other")
    one = column.dtype.type
    return next((kind for kind, types in _KINDS.items() if issubclass(one, types)), "other")


def _type(column: pd.Series) -> Any:
    """Return the type of a column for messages, in a file that of Arrow."""
    return getattr(column.dtype, "pyarrow_dtype", column.dtype)


def query_text(value: Any) -> str:
    """Return a query id as text; empty if it is missing.

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
    """Return the text that identifies a value of a category; the same for 1 and ``1.0``.

    >>> [category_text(value) for value in ("red", 3, 3.0, "3.0", "1.5", True, "True", None, "")]
    ['red', '3', '3', '3', '1.5', 'true', 'true', '', '']
    """
    text = query_text(value)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else _FLAGS.get(text, text)


def _distinct(column: pd.Series, text: Callable[[Any], str]) -> tuple[list[str], Ints]:
    """Return the texts of the distinct values of a column, and for each row its index there."""
    places, values = pd.factorize(column)
    texts = [text(value) for value in values.tolist()]
    if len(missing := np.flatnonzero(places < 0)):
        places[missing] = len(texts)
        texts.append("")
    return texts, places


def same_texts(column: pd.Series, other: pd.Series) -> bool:
    """Return whether two columns hold the same values, row by row, as texts: 1, 1.0 and "1"."""
    texts, places = _distinct(column, category_text)
    other_texts, other_places = _distinct(other, category_text)
    return texts == other_texts and np.array_equal(places, other_places)


def _column(piece: Piece, name: str, *, coded: bool = False) -> pd.Series:
    """Return a column; ``DataError`` unless it holds numbers (or, if ``coded``, texts or dates)."""
    column = piece.cells[name]
    if kind(column) not in ("number", *(["text", "date"] * coded)):
        raise DataError(
            f"{piece.file}: column {name!r} holds {_type(column)}, where "
            + (
                "numbers or texts are read; turn its values into texts"
                if coded
                else "numbers are read; write it so in every file, or train with "
                f"'dataset.categories=[{name}]' or dataset.id"
            )
        )
    return column


def _numbers(piece: Piece, name: str) -> Doubles | Floats:
    """Return the numbers of a column as floats, float64 unless the column is float; NaN if missing.
    ``DataError``: the column does not hold numbers.
    """
    column = _column(piece, name)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    elif isinstance(column.dtype, pd.SparseDtype):
        column = pd.Series(column.to_numpy())
    own: Any = column.dtype
    plain = np.dtype(getattr(own, "numpy_dtype", own))
    return column.to_numpy(plain if plain.kind == "f" else np.float64, na_value=np.nan)


def _queries(piece: Piece, roles: Roles) -> tuple[list[str], Ints]:
    """Return the distinct query ids of ``piece``, and for each row its index there.

    ``DataError``: an id is missing, or neither a number, a text nor a date.
    """
    column, at = piece.cells[roles.query], partial(piece.at, column=roles.query)
    if kind(column) == "other":
        raise DataError(f"{at(0)}: a query id is {_type(column)}; expected numbers or texts")
    texts, places = _distinct(column, query_text)
    if "" in texts:
        row = int(np.flatnonzero(places == texts.index(""))[0])
        raise DataError(f"{at(row)}: no query id; expected one in every row")
    return texts, places


def table_qids(source: Source, roles: Roles) -> set[str]:
    """Return the query ids of a table."""
    check_columns({roles.query: "dataset.query"}, source.names, source.title)
    pieces = source.pieces([roles.query], [], _MOST_ROWS)
    return {qid for piece in pieces for qid in _queries(piece, roles)[0]}


def find_columns(source: Source, roles: Roles, keep: Container[str] | None = None) -> Columns:
    """Find names and categories of the features in ``source``, the training table. The values of a
    category are sorted by falling frequency, then by text; only rows with a query id in ``keep``
    are counted (None: all). ``DataError``: a column is missing, has a wrong type, or has no role
    and does not hold numbers.
    """
    check_columns(roles.keys(labelled=True), source.names, source.title)
    names = _feature_names(source, roles)
    counts = {name: Counter[str]() for name in names if name in roles.categories}
    for piece in source.pieces([*{roles.query, *counts}], [], _MOST_ROWS) if counts else ():
        rows = np.ones(len(piece.cells), bool)
        if keep is not None:
            qids, places = _queries(piece, roles)
            rows = np.array([qid in keep for qid in qids], bool)[places]
        for name, count in counts.items():
            texts, places = _distinct(_column(piece, name, coded=True), category_text)
            often = np.bincount(places[rows], minlength=len(texts)).tolist()
            for text, times in zip(texts, often, strict=True):
                count[text] += times
    categories = dict[str, tuple[str, ...]]()
    for name, count in counts.items():
        del count[""]  # a missing value is not a category
        frequent = sorted(+count, key=lambda text: (-count[text], text))
        categories[name] = tuple(frequent[: roles.category_values])
    return Columns(tuple(names), categories)


def unnamed_columns(names: Sequence[str]) -> list[str]:
    """Return those of ``names`` that stand for a column without a name.

    >>> unnamed_columns(["", "price", "Unnamed: 0", "Unnamed: 0.1"])
    ['', 'Unnamed: 0', 'Unnamed: 0.1']
    """
    return [name for name in names if _UNNAMED.fullmatch(name)]


def unnamed_remarks(source: Source, roles: Roles) -> dict[str, str]:
    """Return a warning about the columns that are not features as they have no name; empty if there
    are none.
    """
    used = roles.keys(labelled=True)
    unused = [name for name in unnamed_columns(source.names) if name not in used]
    if not unused or roles.features is not None:
        return {}
    places = [f"column {i}" for i, name in enumerate(source.names, 1) if name in unused]
    return {"unnamed": f"no name, so not a feature: {', '.join(places)}: {NAME_IT}"}


def _feature_names(source: Source, roles: Roles) -> list[str]:
    if roles.features is not None:
        return list(dict.fromkeys([*roles.features, *roles.categories]))
    others = {roles.query, roles.label, roles.weight, *roles.id, *unnamed_columns(source.names)}
    own = [name for name in source.names if name not in others and not _INDEX.fullmatch(name)]
    if strange := [
        name for name in own if name not in roles.categories and kind(source.head[name]) != "number"
    ]:
        shown = ", ".join(f"{name} ({_type(source.head[name])})" for name in strange[:12])
        raise DataError(
            f"{source.title}: no role for {shown}; only numbers are features by default: put each "
            "column into 'dataset.categories=[NAME]' or, to ignore it, into 'dataset.id=[NAME]', "
            "or all features into 'dataset.features=[NAME]'; turn dates and lists into numbers"
        )
    if not (names := list(dict.fromkeys([*own, *roles.categories]))):  # an id may be a feature too
        raise DataError(f"{source.title}: no number column is left as a feature; name some")
    return names


def table_blocks(
    source: Source, roles: Roles, columns: Columns, *, rules: Rules,
    see: Callable[[Any], object] = len,
) -> Iterator[Block]:  # fmt: skip
    """Yield the rows of a table, block by block; memory does not grow with the table.

    Labels and weights are read only if ``rules.labelled``. ``see`` is called with the cells of each
    block (a frame). ``DataError``: something is missing, has a wrong type, or is
    infinite; one line says where. ``ConfigError``: labels are to be read, and no column has that
    role.
    """
    keys = roles.keys(labelled=rules.labelled) | dict.fromkeys(columns.names, "a feature")
    check_columns(keys, source.names, source.title)
    label, weight = (roles.label, roles.weight) if rules.labelled else (None, None)
    if rules.labelled and label is None:
        raise ConfigError("give dataset.label=COLUMN, the column of the labels")
    numbers = [name for name in columns.names if name not in columns.categories]
    numbers += [name for name in (label, weight) if name is not None]
    texts = [*dict.fromkeys([roles.query, *roles.id, *columns.categories])]
    texts = [name for name in texts if name not in numbers]
    encode = {name: _encoder(values) for name, values in columns.categories.items()}
    at_once = max(1, min(_MOST_ROWS, _BLOCK_BYTES // (4 * len(columns.names))))
    empty = True
    for piece in source.pieces(texts, numbers, at_once):
        see(piece.cells)
        if not (rows := len(piece.cells)):
            continue
        empty = False
        qids, places = _queries(piece, roles)
        weights = None if weight is None else _numbers(piece, weight)
        if weights is not None and len(wrong := np.flatnonzero(~(to_float32(weights)[0] > 0))):
            row = int(wrong[0])
            raise DataError(
                f"{piece.at(row)}: weight {weights[row]:g}; expected a finite number > 0 in "
                "float32, so leave out the queries of weight zero"
            )
        features, inexact = _features(piece, columns, encode)
        labels = np.zeros(rows, np.float32)
        if label is not None:
            labels = rules.checked(_numbers(piece, label).astype(np.float64), piece.at)
        missing = int(np.isnan(features).sum())
        yield Block(
            features, labels, qids, places, missing, piece.at, weights=weights, inexact=inexact
        )
    if empty:
        raise DataError(f"{source.title}: no rows; expected a row for each item")


def _encoder(values: Sequence[str]) -> Callable[[str], float]:
    """Return a function from a text to its code in a category of ``values``, as in ``Columns``."""
    codes = {value: code for code, value in enumerate(values, 1)}
    return lambda text: codes.get(text, 0) if text else np.nan


def _features(
    piece: Piece, columns: Columns, encode: dict[str, Callable[[str], float]]
) -> tuple[Floats, dict[int, Any]]:
    """Return the features ``[rows, width]``, numbers and the codes of categories, and the
    ``inexact_values`` of the columns that have some.
    """
    by_column = np.empty((len(columns.names), len(piece.cells)), np.float32)
    inexact = dict[int, Any]()
    for i, (name, out) in enumerate(zip(columns.names, by_column, strict=True)):
        if name in encode:
            texts, places = _distinct(_column(piece, name, coded=True), category_text)
            out[:] = np.array([encode[name](text) for text in texts], np.float32)[places]
            continue
        values = _numbers(piece, name)
        if len(infinite := np.flatnonzero(np.isinf(values))):
            raise DataError(
                f"{piece.at(int(infinite[0]))}: an infinite value in column {name!r}; expected a "
                "finite number, or an empty cell where it is missing"
            )
        out[:] = to_float32(values)[0]
        if len(distinct := inexact_values(_exact(piece.cells[name], values))):
            inexact[i] = distinct
    return np.ascontiguousarray(by_column.T), inexact


def _exact(column: pd.Series, values: Doubles | Floats) -> Any:
    """Return ``values``, the numbers of ``column``; of large whole ones, what float64 rounds."""
    if not pd.api.types.is_integer_dtype(column.dtype) or not (np.abs(values) > 2**53).any():
        return values
    unsigned = getattr(column.dtype, "kind", "i") == "u"
    return column.dropna().to_numpy(np.uint64 if unsigned else np.int64)
