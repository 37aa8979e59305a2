"""Arrays and tables of a program, and the queries of their rows, as ``Lists``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, column_or_1d
from sklearn.utils.validation import validate_data as validated

from ltr.data.cells import checked_weights, kind, query_text, query_texts
from ltr.data.letor import Rules, to_float32
from ltr.data.lists import Columns, Floats, Ints, Lists, Texts
from ltr.data.roles import Roles, check_there
from ltr.data.rows import lists_of
from ltr.errors import DataError
from ltr.estimator.cut import Cut

QID = "qid"  # the column of a table that holds query ids


@dataclass(frozen=True)
class Queries:
    """The queries of rows, in the order of appearance.

    ``qids`` is ``[lists]``, ``numbers`` the list of each row, ``[rows]``.
    """

    qids: Texts
    numbers: Ints


@dataclass(frozen=True)
class Rows:
    """The rows of an ``X``: what ``Lists`` are made of.

    Attributes:
        features: ``[rows, width]``; NaN is missing, a category is its code.
        columns: names and categories of a table; None: an array.
        queries: None: not given.
    """

    features: Floats
    columns: Columns | None
    queries: Queries | None


@dataclass(frozen=True)
class Grouped:
    """Lists, and where their items stood.

    ``order`` is the row of each item, ``[items]``.
    """

    lists: Lists
    order: Ints

    def in_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """``values`` of the items, ``[items]``, in the order of the rows."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


def read_rows(
    estimator: Any, X: Any, qid: Any, columns: Columns | None, *, reset: bool,
    cut: Cut | None = None, categories: Sequence[str] = (), others: Sequence[Any] = (),
) -> Rows:  # fmt: skip
    """Check ``X`` as scikit-learn does, and its column ``qid`` where it is a table with one.

    Args:
        estimator: gets ``n_features_in_`` and ``feature_names_in_`` with ``reset``; else ``X`` must
            have these; a table may have further columns, in any order.
        X: ``[rows, width]``: an array, sparse matrix, or a table that narwhals knows.
        qid: ``[rows]``, or None.
        columns: encode categories with these; None: with those that are found.
        reset: whether this is the X of a fit.
        cut: of several queries the categories are those of its train, as vali is not to be known.
        categories: the columns of a fit whose values are categories, besides those of that type.
        others: labels, weights: like ``qid`` no features, where they are columns of a fit's X.

    Raises:
        ValueError, TypeError: as scikit-learn's estimators.
        DataError: ``qid`` is given twice, or a column is neither numbers nor categories.
    """
    frame = _frame(X)
    if frame is None:
        if columns is not None and columns.categories:
            raise DataError(
                f"X is an array, but {', '.join(columns.categories)} of the model are categories: "
                "give a table (pandas, polars, Arrow) with the columns of fit"
            )
        if categories and reset:
            raise DataError(
                f"categories={list(categories)}: X is an array, whose columns have no names: give "
                "a table (pandas, polars, Arrow)"
            )
        X = validated(estimator, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        features, found = to_float32(X.toarray() if issparse(X) else X)[0], None
    else:
        if QID in frame.columns:
            if qid is not None:
                raise DataError(
                    "qid= and a column qid of X: give one of them, or rename the column where it "
                    "is a feature"
                )
            qid, frame = frame[QID], frame.drop(QID)
        names = list(map(str, frame.columns))
        if reset:
            own = [_column_of(frame, one) for one in (qid, *others)]
            frame = frame[:, [place for place in range(len(names)) if place not in own]]
        elif columns is not None:
            frame = frame[:, [names.index(name) for name in columns.names if name in names]]
        validated(estimator, frame.to_native(), reset=reset, skip_check_array=True)
        if not len(frame):
            raise DataError("Found array with 0 sample(s): X has no rows, give at least 1")
    queries = None if qid is None else read_queries(qid)
    rows = X.shape[0] if frame is None else len(frame)
    if queries is not None and len(queries.numbers) != rows:
        raise DataError(
            f"qid has {len(queries.numbers)} values, X has {rows} rows: give the query id of each "
            "row; of group sizes that is np.repeat(np.arange(len(sizes)), sizes)"
        )
    if frame is not None:
        of_train = None
        if cut and columns is None and queries and len(queries.qids) > 1:
            of_train = cut.train(queries.qids)[queries.numbers]
        features, found = _encoded(frame, columns, of_train, categories if reset else ())
    return Rows(features, found, queries)


def _frame(X: Any) -> Any:
    """``X`` as a frame of narwhals, None where it is no table."""
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, nw.DataFrame) else None


def _column_of(frame: Any, values: Any) -> int | None:
    """The place of the column of ``frame`` that a series is, by name and values; None: none is."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    if not isinstance(series, nw.Series) or series.name not in frame.columns:
        return None
    place = list(frame.columns).index(series.name)
    return place if np.array_equal(series.to_numpy(), frame[:, place].to_numpy()) else None


def _column(values: Any, name: str) -> NDArray[Any]:
    """``values`` as ``[rows]``; ``name`` is their argument."""
    try:
        return column_or_1d(values)
    except ValueError:
        raise DataError(
            f"{name} has shape {np.shape(values)}: give one value for each row"
        ) from None


def _values(series: Any) -> Any:
    """A series of any library as an array; anything else as it is."""
    known = nw.from_native(series, series_only=True, pass_through=True)
    return known.to_numpy() if isinstance(known, nw.Series) else known


def _encoded(
    frame: Any, known: Columns | None, of_train: NDArray[np.bool_] | None, categories: Sequence[str]
) -> tuple[Floats, Columns]:
    """The features of a table and its columns, as ``dataset=table`` reads them.

    The columns ``categories``, and those of a type of categories, are encoded with ``known`` if it
    is given, else with the values in the rows ``of_train``.
    """
    names = tuple(map(str, frame.columns))
    check_there(dict.fromkeys(categories, "categories"), names, "X")
    try:
        cells = [series.to_arrow() for series in frame.iter_columns()]
    except (pa.ArrowException, TypeError) as error:
        text = " ".join(str(error).split())
        raise DataError(
            f"X: a column holds values of several types ({text}): give it one"
        ) from error
    coded, texts = [], []
    for name, column in zip(names, cells, strict=True):
        found = kind(column.type)
        if found == "other" or (found == "date" and name not in categories):
            raise DataError(
                f"column {name!r} of X holds {column.type}: turn it into numbers or texts, or "
                "leave it out"
            )
        of_type = pa.types.is_dictionary(column.type)
        if name in categories or found == "text" or of_type:
            coded.append(name)
        if found == "text" and known is None and not of_type and name not in categories:
            texts.append(name)
    if texts:
        raise DataError(
            f"X has texts without a role in {', '.join(texts)}: name those that are features in "
            f"Ranker(categories={texts}), leave ids out of X, and give those of queries as qid="
        )
    if known is not None and (wrong := [name for name in coded if name not in known.categories]):
        raise DataError(
            f"column {wrong[0]!r} of X holds categories, the model was fitted on numbers: give "
            "numbers"
        )
    table = pa.table([*cells, np.zeros(len(frame), np.int8)], names=[*names, QID])
    roles = Roles(query=QID, features=names, categories=tuple(coded))
    if known is None and of_train is not None and coded:
        known = lists_of(table.filter(pa.array(of_train)), roles, labelled=False).lists.columns
    lists = lists_of(table, roles, columns=known, labelled=False).lists
    assert lists.columns is not None
    return lists.features, lists.columns


def read_queries(qid: Any) -> Queries:
    """The queries of rows with these ids, ``[rows]``, known by their texts as in ``dataset=table``.

    Raises:
        DataError: it is no column, or an id is missing, or is neither number nor text.
    """
    if isinstance(qid, str):
        raise DataError(
            f"qid={qid!r}: give the query id of each row, qid=X[{qid!r}], or name that column qid"
        )
    values = _values(qid)
    if isinstance(values, (list, tuple)):  # among texts NumPy would make NaN a text
        values = np.array(values, dtype=object)
    values = _column(values, "qid")
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError):  # values of several types, or vast ones
        column = pa.array(["" if pd.isna(one) else query_text(one) for one in values.tolist()])
    texts, places = query_texts(column, lambda row: f"qid[{row}]")
    if pa.types.is_integer(column.type):  # each number has a text of its own
        return Queries(np.array(texts), places)
    lists: dict[str, int] = {}
    known = [lists.setdefault(text, len(lists)) for text in texts]
    return Queries(np.array(list(lists)), np.array(known, np.int64)[places])


def read_labels(y: Any, rows: int) -> Floats:
    """The labels ``y``, ``[rows]``.

    Raises:
        ValueError: ``y`` is missing, of another length, or not of finite numbers.
        DataError: a label is negative, or beyond float32.
    """
    if y is None:
        raise DataError("Ranker requires y to be passed, but the target y is None: give the labels")
    labels = check_array(
        column_or_1d(_values(y), warn=True), ensure_2d=False, dtype=np.float64, input_name="y"
    )
    if len(labels) != rows:
        raise DataError(
            f"y has {len(labels)} labels, X has {rows} rows (inconsistent numbers of samples): "
            "give a label for each row"
        )
    return Rules(labels="real").checked(labels, lambda row: f"y[{row}]")


def grouped(
    rows: Rows, queries: Queries, labels: Floats | None = None, *,
    weights: Any = None, position: Any = None,
) -> Grouped:  # fmt: skip
    """The lists of ``rows``, queries in the order in which they appear.

    Args:
        rows: their items.
        queries: of the rows; those of a query may be apart.
        labels: ``[rows]``; None: 0.
        weights: one for each row, equal within a query, or one for each query; None: all the same.
        position: where each item was shown, ``[rows]``, which orders the items of a list; None:
            they stand in the order of the rows.

    Raises:
        DataError: weights or positions do not fit.
    """
    numbers = queries.numbers
    if position is None:
        order = np.argsort(numbers, kind="stable")
    else:
        shown = _numbers(position, "position", len(numbers))
        order = np.lexsort((shown, numbers))
    sorted_already = bool((order[:-1] < order[1:]).all())
    features = rows.features if sorted_already else rows.features[order]
    labels = np.zeros(len(numbers), np.float32) if labels is None else labels[order]
    lengths = np.bincount(numbers)
    lists = Lists(
        features=features,
        labels=labels,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        qids=queries.qids,
        missing=int(np.isnan(features).sum()),
        columns=rows.columns,
        weights=None if weights is None else _weights(weights, numbers, len(lengths)),
    )
    return Grouped(lists.with_digest(), order)


def _numbers(values: Any, name: str, rows: int) -> NDArray[np.float64]:
    found = check_array(
        _column(_values(values), name), ensure_2d=False, dtype=np.float64, input_name=name
    )
    if len(found) != rows:
        raise DataError(f"{name} has {len(found)} values, X has {rows} rows: give one for each row")
    return found


def _weights(weights: Any, numbers: Ints, lists: int) -> Floats:
    given = np.asarray(_values(weights))
    if given.ndim != 1 or len(given) not in (len(numbers), lists):
        raise DataError(
            f"sample_weight has shape {given.shape}, X has {len(numbers)} rows of {lists} queries: "
            "give one for each row, or one for each query"
        )
    given = checked_weights(
        _numbers(given, "sample_weight", len(given)), lambda row: f"sample_weight[{row}]"
    )
    if len(given) == len(numbers):
        of_list = np.empty(lists, np.float32)
        of_list[numbers] = given
        if (of_list[numbers] != given).any():
            row = int(np.flatnonzero(of_list[numbers] != given)[0])
            raise DataError(
                f"sample_weight[{row}] differs from that of another row of its query: the weights "
                "are those of queries, give all rows of one the same"
            )
        given = of_list
    return given
