"""Arrays and tables of a program, and the queries of their rows, as ``Lists``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, column_or_1d
from sklearn.utils.validation import validate_data as validated

from ltr.data.assemble import assemble
from ltr.data.letor import Rules, to_float32
from ltr.data.lists import Columns, Lists, split_queries
from ltr.data.table_sources import Source
from ltr.data.tables import Roles, find_columns, table_blocks, table_qids
from ltr.errors import DataError

QID = "qid"  # the column of a table that holds query ids
_LABEL, _WEIGHT, _POSITION = "y=", "sample_weight=", "position="  # no names of features
UNLABELLED: Any = object()


def lists_of_rows(
    estimator: Any, X: Any, qid: Any, *, y: Any = UNLABELLED, weights: Any = None,
    position: Any = None, columns: Columns | None = None, categories: Sequence[str] = (),
    reset: bool = False, without_qid: str = "refused",
    of_train: Callable[[set[str]], set[str]] | None = None,
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
    frame, cells = nw.from_native(X, pass_through=True), dict[str, Any]()
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if named := isinstance(frame, nw.DataFrame):
        if QID in frame.columns:
            if qid is not None:
                raise DataError("qid= and a column qid of X: give one of them")
            qid, frame = frame[QID], frame.drop(QID)
        if reset:  # columns that are given by themselves are no features
            given = {getattr(one, "name", None) for one in (qid, y, weights)}
            frame = frame[:, [i for i, name in enumerate(frame.columns) if name not in given]]
        elif columns is not None:
            there = list(map(str, frame.columns))
            frame = frame[:, [there.index(name) for name in columns.names if name in there]]
        validated(estimator, frame.to_native(), reset=reset, skip_check_array=True)
        cells |= {str(one.name): _column(one, f"column {one.name}") for one in frame.iter_columns()}
        count = len(frame)
    else:
        X = validated(estimator, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        numbers = to_float32(X.toarray() if issparse(X) else X)[0]
        cells["0"], count = numbers[:, 0], len(numbers)  # the others go by as they are
    names = tuple(cells)
    if qid is not None:
        cells[QID] = _column(qid, QID)
    elif without_qid == "refused":
        raise DataError(
            "qid is missing: give qid=, or a table with a column qid; one_list=True for one query; "
            "GridSearchCV passes qid on after sklearn.set_config(enable_metadata_routing=True)"
        )
    else:
        cells[QID] = np.arange(count) if without_qid == "each" else np.zeros(count, np.int64)
    if y is None:
        raise DataError("Ranker requires y to be passed, but the target y is None: give the labels")
    for key, values in {_LABEL: y, _WEIGHT: weights, _POSITION: position}.items():
        if values is not None and values is not UNLABELLED:
            values = column_or_1d(values, warn=key == _LABEL)
            cells[key] = check_array(values, ensure_2d=False, dtype=np.float64, input_name=key[:-1])
    try:
        table = pa.table(cells)
    except pa.ArrowException as error:
        raise DataError(f"inconsistent numbers of rows: {error}") from error
    order = None
    if position is not None:  # it orders the items of a list
        order = np.argsort(cells[_POSITION], kind="stable")
        table = table.take(order).drop_columns([_POSITION])  # and is no feature
    source, coded = Source(table), [n for n in names if pa.types.is_dictionary(table[n].type)]
    roles = Roles(
        query=QID,
        label=_LABEL if _LABEL in cells else None,
        categories=tuple(dict.fromkeys([*coded, *categories])),
        weight=_WEIGHT if _WEIGHT in cells else None,
    )
    if not named and not categories:
        known = Columns(names, {})
    elif columns is not None:
        known = columns
    else:
        qids = table_qids(source, roles)
        keep = of_train(qids) if of_train and len(qids) > 1 else None
        known = find_columns(source, roles, keep)
    blocks = table_blocks(
        source, roles, known, rules=Rules(labels="real", labelled=_LABEL in cells)
    )
    lists = assemble(blocks, columns=known if named else None)
    if order is not None:
        lists = replace(lists, rows=order[lists.source_rows])
    if named:
        return lists
    features = numbers if lists.rows is None else numbers[lists.rows]
    return replace(lists, features=features, missing=int(np.isnan(features).sum()))


def _column(values: Any, name: str) -> Any:
    """``values`` as a ``pa.Array``; what is missing is null."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    try:
        if isinstance(series, nw.Series):
            return series.to_arrow()
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        text = " ".join(str(error).split())
        raise DataError(f"{name}: {text}; give one type of values, one for each row") from error


def in_rows(values: NDArray[Any], lists: Lists) -> NDArray[Any]:
    """``values`` of the items of ``lists``, ``[items]``, in the order of the rows."""
    out = np.empty_like(values)
    out[lists.source_rows] = values
    return out


def queries_of_train(qids: Iterable[str], fraction: float, seed: int) -> set[str]:
    """The queries of train as ``dataset=table`` cuts them, ``fraction`` of all going to vali.

    ``DataError`` where there is one only, or ``fraction`` is not between 0 and 1.
    """
    if not 0 < fraction < 1:
        raise DataError(f"vali_fraction={fraction}: give a number between 0 and 1, such as 0.2")
    parts, remedy = [1 - fraction, fraction], "give more queries, or eval_set=[(X, y, qid)]"
    return split_queries(qids, parts, seed, title="vali from train", remedy=remedy)[0]
