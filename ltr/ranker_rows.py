"""Arrays and tables of a program, and the queries of their rows, as ``Lists``."""

from collections.abc import Callable, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, column_or_1d
from sklearn.utils.validation import validate_data as validated

from ltr.data.assemble import Block, assemble
from ltr.data.letor import Rules, to_float32
from ltr.data.lists import Columns, Floats, Ints, Lists, Texts, split_queries
from ltr.data.table_sources import Source, check_columns
from ltr.data.tables import (
    Roles,
    checked_weights,
    find_columns,
    kind,
    query_text,
    query_texts,
    table_blocks,
)
from ltr.errors import DataError

QID = "qid"  # the column of a table that holds query ids
UNLABELLED: Any = object()


def lists_of_rows(
    estimator: Any, X: Any, qid: Any, *, y: Any = UNLABELLED, weights: Any = None,
    position: Any = None, columns: Columns | None = None, categories: Sequence[str] = (),
    reset: bool = False, without_qid: str = "refused",
    of_train: Callable[[Texts], set[str]] | None = None,
) -> Lists:  # fmt: skip
    """The lists of the rows of ``X``, queries in the order in which they appear.

    Args:
        estimator: gets ``n_features_in_`` and ``feature_names_in_`` with ``reset``, of a fit; else
            ``X`` must have these, and a table may have further columns, in any order.
        X, qid, y, weights, position: as for ``Ranker.fit``; without ``y`` all labels are 0.
        columns: of a table, encode the categories; None: those of the queries ``of_train``.
        categories: in a fit, such columns besides those of that type.
        without_qid: what rows without ``qid`` are: ``each`` a list, ``one`` list, or ``refused``.

    Raises:
        ValueError, TypeError: as scikit-learn's estimators.
        DataError: a column, a query id, a label, a weight or a position is wrong.
    """
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if is_table := isinstance(frame, nw.DataFrame):
        if QID in frame.columns:
            if qid is not None:
                raise DataError(
                    "qid= and a column qid of X: give one of them, or rename the column"
                )
            qid, frame = frame[QID], frame.drop(QID)
        names = list(map(str, frame.columns))
        if reset:
            own = [_column_of(frame, one) for one in (qid, y, weights)]
            frame = frame[:, [place for place in range(len(names)) if place not in own]]
        elif columns is not None:
            frame = frame[:, [names.index(name) for name in columns.names if name in names]]
        validated(estimator, frame.to_native(), reset=reset, skip_check_array=True)
        if not (count := len(frame)):
            raise DataError("Found array with 0 sample(s): X has no rows, give at least 1")
    else:
        if known := columns.categories if columns is not None else categories if reset else ():
            raise DataError(
                f"X is an array, but {', '.join(known)} are categories: give a table (pandas, "
                "polars, Arrow) with the columns of fit"
            )
        X = validated(estimator, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        features = to_float32(X.toarray() if issparse(X) else X)[0]
        count = len(features)
    if qid is not None:
        qids, numbers = read_queries(qid)
    elif without_qid == "refused":
        raise DataError(
            "qid is missing: give qid=, or a table with a column qid; one_list=True for one query; "
            "GridSearchCV passes qid on after sklearn.set_config(enable_metadata_routing=True)"
        )
    else:
        numbers = np.arange(count) if without_qid == "each" else np.zeros(count, np.int64)
        qids = np.unique(numbers).astype(str)
    _check_count(numbers, "qid", count, "the query id of each row; of group sizes that is "
                 "np.repeat(np.arange(len(sizes)), sizes)")  # fmt: skip
    if is_table:
        keep = of_train(qids) if of_train and columns is None and len(qids) > 1 else None
        features, columns = _encoded(
            frame, qids[numbers], columns, keep, categories if reset else ()
        )
    labels = np.zeros(count, np.float32)
    if y is None:
        raise DataError("Ranker requires y to be passed, but the target y is None: give the labels")
    if y is not UNLABELLED:
        y = _numbers(column_or_1d(_array(y), warn=True), "y", count)
        labels = Rules(labels="real").checked(y, lambda row: f"y[{row}]")
    if weights is not None:
        per_row = len(given := _column(weights, "sample_weight")) != len(qids)
        given = _numbers(given, "sample_weight", count if per_row else len(qids))
        weights = checked_weights(given, lambda row: f"sample_weight[{row}]")
        weights = weights if per_row else weights[numbers]
    order = None
    if position is not None:  # it orders the items of a list
        order = np.argsort(_numbers(position, "position", count), kind="stable")
        features, labels, numbers = features[order], labels[order], numbers[order]
        weights = None if weights is None else weights[order]
    block = Block(
        features, labels, qids.tolist(), numbers, int(np.isnan(features).sum()),
        lambda row: f"row {row if order is None else order[row]} of X", order, weights,
    )  # fmt: skip
    return assemble([block], columns=columns if is_table else None)


def _column_of(frame: Any, values: Any) -> int | None:
    """The place of the column of ``frame`` that a series is, by name and values; None: none is."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    if not isinstance(series, nw.Series) or series.name not in frame.columns:
        return None
    place = list(frame.columns).index(series.name)
    return place if np.array_equal(series.to_numpy(), frame[:, place].to_numpy()) else None


def _encoded(
    frame: Any, ids: NDArray[Any], known: Columns | None, keep: set[str] | None,
    categories: Sequence[str],
) -> tuple[Floats, Columns]:  # fmt: skip
    """The features of a table and its columns, as ``dataset=table`` reads them.

    Categories are encoded as ``known``, else by the values in rows whose ``ids`` are in ``keep``.
    """
    names = tuple(map(str, frame.columns))
    check_columns(dict.fromkeys(categories, "categories"), names, "X")
    try:
        cells = dict(zip(names, (one.to_arrow() for one in frame.iter_columns()), strict=True))
    except (pa.ArrowException, TypeError) as error:
        text = " ".join(str(error).split())
        raise DataError(f"X: a column holds several types ({text}): give it one") from error
    coded = {name for name in names if pa.types.is_dictionary(cells[name].type)} | {*categories}
    kinds = {name: kind(cells[name].type) for name in names}
    for name, found in kinds.items():
        if found == "other" or (found == "date" and name not in categories):
            raise DataError(
                f"column {name!r} of X holds {cells[name].type}: turn it into numbers or texts, or "
                "leave it out"
            )
    texts = [name for name in names if kinds[name] == "text" and name not in coded]
    if texts and known is None:
        raise DataError(
            f"X has texts without a role in {', '.join(texts)}: name those that are features in "
            f"Ranker(categories={texts}), leave ids out of X, and give those of queries as qid="
        )
    if known is not None and (wrong := coded.union(texts) - known.categories.keys()):
        raise DataError(
            f"column {min(wrong)!r} of X was numbers in fit, not categories: give those"
        )
    source = Source(pa.table([*cells.values(), ids], names=[*names, QID]))
    listed = tuple(name for name in names if name in coded)
    roles = Roles(query=QID, features=names, categories=listed)
    known = known or find_columns(source, roles, keep)
    blocks = table_blocks(source, roles, known, rules=Rules(labelled=False))
    return np.concatenate([block.features for block in blocks]), known


def _array(values: Any) -> Any:
    """A series of any library as an array; anything else as it is."""
    known = nw.from_native(values, series_only=True, pass_through=True)
    return known.to_numpy() if isinstance(known, nw.Series) else known


def _column(values: Any, name: str) -> NDArray[Any]:
    """``values`` as ``[rows]``; ``name`` is their argument."""
    try:
        return column_or_1d(_array(values))
    except ValueError:
        raise DataError(f"{name} has shape {np.shape(values)}: give one for each row") from None


def read_queries(qid: Any) -> tuple[Texts, Ints]:
    """The query ids, ``[lists]`` texts in the order of appearance, and the list of each row.

    ``DataError`` where it is no column, or an id is missing, or is neither number nor text.
    """
    if isinstance(qid, str):
        raise DataError(
            f"qid={qid!r}: give the query id of each row, qid=X[{qid!r}], or name that column qid"
        )
    if isinstance(qid, (list, tuple)):  # among texts NumPy would make NaN a text
        qid = np.array(qid, dtype=object)
    values = _column(qid, "qid")
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError):  # values of several types, or vast ones
        column = pa.array(["" if pd.isna(one) else query_text(one) for one in values.tolist()])
    texts, places = query_texts(column, lambda row: f"qid[{row}]")
    numbers, qids = pd.factorize(np.array(texts, object))
    return qids.astype(str), numbers.astype(np.int64)[places]


def _numbers(values: Any, name: str, rows: int) -> NDArray[np.float64]:
    found = check_array(_column(values, name), ensure_2d=False, dtype=np.float64, input_name=name)
    _check_count(found, name, rows, "one for each row")
    return found


def _check_count(values: NDArray[Any], name: str, rows: int, remedy: str) -> None:
    if len(values) != rows:
        raise DataError(
            f"{name} has {len(values)} values, X has {rows} rows (inconsistent numbers of samples):"
            f" give {remedy}"
        )


def in_rows(values: NDArray[Any], lists: Lists) -> NDArray[Any]:
    """``values`` of the items of ``lists``, ``[items]``, in the order of the rows."""
    if lists.rows is None:
        return values
    out = np.empty_like(values)
    out[lists.rows] = values
    return out


def queries_of_train(qids: Texts, fraction: float, seed: int) -> set[str]:
    """The queries of train as ``dataset=table`` cuts them, ``fraction`` of all going to vali.

    ``DataError`` where there is one only, or ``fraction`` is not between 0 and 1.
    """
    if not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise DataError(f"vali_fraction={fraction}: give a number between 0 and 1, such as 0.2")
    parts, remedy = [1 - fraction, fraction], "give more queries, or eval_set=[(X, y, qid)]"
    return split_queries(qids, parts, seed, title="vali from train", remedy=remedy)[0]
