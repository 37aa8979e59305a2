"""Arrays and tables of a program, and the queries of their rows, as ``Lists``."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data as validated

from ltr.data.cut import cut, place
from ltr.data.lists import Columns, Floats, Ints, Lists
from ltr.errors import DataError

QID = "qid"  # the column of a table that holds query ids


@dataclass(frozen=True)
class Rows:
    """The rows of an ``X``: what ``Lists`` are made of.

    Attributes:
        features: ``[rows, width]``; NaN is missing, a category is its code.
        columns: names and categories of a table; None: an array.
        qid: the query id of each row, ``[rows]``; None: not given.
    """

    features: Floats
    columns: Columns | None
    qid: NDArray[Any] | None


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


@dataclass(frozen=True)
class Cut:
    """``part`` of the queries, drawn by ``seed``, is vali; the others are train.

    ``dataset=table`` cuts the same with ``dataset.seed`` and ``dataset.fractions``.
    """

    part: float
    seed: int

    def train(self, qids: NDArray[np.str_]) -> NDArray[np.bool_]:
        """Which of the queries ``qids``, each once, are of train.

        Raises:
            DataError: there is one only, or ``part`` is not between 0 and 1.
        """
        remedy = "give more queries, or eval_set=[(X, y, qid)]"
        if not isinstance(self.part, (int, float)) or not 0 < self.part < 1:
            raise DataError(
                f"vali_fraction={self.part}: give a number between 0 and 1, such as 0.2"
            )
        places = [place(qid, self.seed) for qid in qids.tolist()]
        parts = [1 - self.part, self.part]
        train = cut(places, parts, self.seed, title="vali from train", remedy=remedy)[0]
        return np.array([one < train.end for one in places])


def read_rows(
    estimator: Any, X: Any, qid: Any, columns: Columns | None, *, reset: bool,
    cut: Cut | None = None,
) -> Rows:  # fmt: skip
    """Check ``X`` as scikit-learn does, and its column ``qid`` where it is a table with one.

    Args:
        estimator: gets ``n_features_in_`` and ``feature_names_in_`` with ``reset``; else ``X`` must
            have these.
        X: ``[rows, width]``: an array, sparse matrix, or a table that narwhals knows.
        qid: ``[rows]``, or None.
        columns: encode categories with these; None: with those that are found.
        reset: whether this is the X of a fit.
        cut: categories are found in the rows of its train, as vali is not to be known.

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
        X = validated(estimator, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        features, found = _single(X.toarray() if issparse(X) else X), None
    else:
        if QID in frame.columns:
            if qid is not None:
                raise DataError(
                    "qid= and a column qid of X: give one of them, or rename the column where it "
                    "is a feature"
                )
            qid, frame = frame[QID], frame.drop(QID)
        validated(estimator, frame.to_native(), reset=reset, skip_check_array=True)
        if not len(frame):
            raise DataError("Found array with 0 sample(s): X has no rows, give at least 1")
    if qid is not None:
        qid = column_or_1d(_values(qid))
        check_consistent_length(X if frame is None else range(len(frame)), qid)
    if frame is not None:
        of_train = None
        if cut is not None and columns is None and qid is not None:
            numbers, ids = _queries(qid)
            of_train = cut.train(_texts(np.asarray(ids)))[numbers]
        features, found = _encoded(frame, columns, of_train)
    return Rows(features, found, qid)


def _frame(X: Any) -> Any:
    """``X`` as a frame of narwhals, None where it is no table."""
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, nw.DataFrame) else None


def _values(series: Any) -> Any:
    """A series of any library as an array; anything else as it is."""
    known = nw.from_native(series, series_only=True, pass_through=True)
    return known.to_numpy() if isinstance(known, nw.Series) else known


def _single(values: NDArray[Any]) -> Floats:
    """``values`` as float32; a number that is too large becomes NaN."""
    with np.errstate(over="ignore"):
        single = np.array(values, np.float32)
    single[np.isinf(single)] = np.nan
    return single


def _encoded(
    frame: Any, known: Columns | None, of_train: NDArray[np.bool_] | None
) -> tuple[Floats, Columns]:
    """The features of a table and its columns, as ``dataset=table`` reads them.

    Columns of text and of categories are categories, encoded with ``known`` if it is given, else
    with the values in the rows ``of_train``.
    """
    try:
        import pyarrow as pa

        from ltr.tabular.cells import kind
        from ltr.tabular.roles import Roles
        from ltr.tabular.rows import lists_of
    except ImportError as error:
        raise DataError(
            "X is a table, which needs pyarrow: pip install pyarrow, or give an array"
        ) from error
    names = tuple(map(str, frame.columns))
    try:
        cells = [series.to_arrow() for series in frame.iter_columns()]
    except (pa.ArrowException, TypeError) as error:
        text = " ".join(str(error).split())
        raise DataError(
            f"X: a column holds values of several types ({text}): give it one"
        ) from error
    coded = []
    for name, column in zip(names, cells, strict=True):
        found = kind(column.type)
        if found in ("date", "other"):
            raise DataError(
                f"column {name!r} of X holds {column.type}: turn it into numbers or texts, or "
                "leave it out"
            )
        if found == "text" or pa.types.is_dictionary(column.type):
            coded.append(name)
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


def _queries(qid: NDArray[Any]) -> tuple[Ints, Any]:
    """The number of the query of each row, ``[rows]``, and the ids, in the order of appearance."""
    numbers, ids = pd.factorize(qid)
    if (numbers < 0).any():
        raise DataError(f"qid[{int(np.argmin(numbers))}] is missing: give each row its query id")
    return numbers, ids


def _texts(ids: NDArray[Any]) -> NDArray[np.str_]:
    """Query ids as ``dataset=table`` writes them."""
    if ids.dtype.kind == "f" and (ids == np.floor(ids)).all():
        ids = ids.astype(np.int64)  # whole numbers beside missing ones

    def text(one: Any) -> str:
        if isinstance(one, float) and one.is_integer():
            one = int(one)
        return str(one).lower() if isinstance(one, bool) else str(one)

    return np.array([text(one) for one in ids.tolist()])


def read_labels(y: Any, rows: int) -> Floats:
    """The labels ``y``, ``[rows]``.

    Raises:
        ValueError: ``y`` is missing, of another length, or not of finite numbers.
        DataError: a label is negative.
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
    if (labels < 0).any():
        row = int(np.flatnonzero(labels < 0)[0])
        raise DataError(f"y[{row}] is {labels[row]:g}: a label is a number from 0 on")
    return labels.astype(np.float32)


def grouped(
    rows: Rows, qid: NDArray[Any], labels: Floats | None = None, *,
    weights: Any = None, position: Any = None,
) -> Grouped:  # fmt: skip
    """The lists of ``rows``, queries in the order in which they appear.

    Args:
        rows: their items.
        qid: of each row, ``[rows]``; rows of a query may be apart.
        labels: ``[rows]``; None: 0.
        weights: one for each row, equal within a query, or one for each query; None: all the same.
        position: where each item was shown, ``[rows]``, which orders the items of a list; None:
            they stand in the order of the rows.

    Raises:
        DataError: a query id is missing, or weights or positions do not fit.
    """
    numbers, ids = _queries(qid)
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
        qids=_texts(np.asarray(ids)),
        missing=int(np.isnan(features).sum()),
        columns=rows.columns,
        weights=None if weights is None else _weights(weights, numbers, len(lengths)),
    )
    return Grouped(digested(lists), order)


def digested(lists: Lists) -> Lists:
    """``lists`` with the SHA-256 of their arrays."""
    digest = hashlib.sha256("\0".join(lists.qids).encode())
    for array in (lists.offsets, lists.labels, lists.features, lists.weights):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return replace(lists, digest=digest.hexdigest())


def _numbers(values: Any, name: str, rows: int) -> NDArray[np.float64]:
    found = check_array(
        column_or_1d(_values(values)), ensure_2d=False, dtype=np.float64, input_name=name
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
    given = _numbers(given, "sample_weight", len(given))
    if len(given) == len(numbers):
        of_list = np.empty(lists)
        of_list[numbers] = given
        if (of_list[numbers] != given).any():
            row = int(np.flatnonzero(of_list[numbers] != given)[0])
            raise DataError(
                f"sample_weight[{row}] differs from that of another row of its query: the weights "
                "are those of queries, give all rows of one the same"
            )
        given = of_list
    if not (given > 0).all():
        raise DataError("sample_weight has one of zero or less: leave these queries out")
    return given.astype(np.float32)


def cut_off(lists: Lists, cut: Cut) -> Mapping[str, Lists]:
    """The lists of train and of vali, both in order."""
    kept = cut.train(lists.qids)
    return {"train": _chosen(lists, kept), "vali": _chosen(lists, ~kept)}


def _chosen(lists: Lists, which: NDArray[np.bool_]) -> Lists:
    """The lists where ``which``, ``[lists]``, is True."""
    items = np.repeat(which, lists.lengths)
    features = lists.features[items]
    return digested(
        replace(
            lists,
            features=features,
            labels=lists.labels[items],
            offsets=np.concatenate([[0], np.cumsum(lists.lengths[which])]).astype(np.int64),
            qids=lists.qids[which],
            missing=int(np.isnan(features).sum()),
            weights=None if lists.weights is None else lists.weights[which],
        )
    )
