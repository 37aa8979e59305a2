"""Convert in-memory arrays and tables, with the query of each row, to ``Lists``."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, column_or_1d
from sklearn.utils.validation import validate_data as validated

from ltr.data.assemble import assemble
from ltr.data.letor import ParseOptions
from ltr.data.lists import Columns, Lists, split_queries
from ltr.data.rounding import inexact_columns, rounding_remarks, to_float32
from ltr.data.table_sources import Source, as_frame, check_column_names
from ltr.data.tables import (
    NAME_IT,
    ColumnRoles,
    find_columns,
    same_texts,
    table_blocks,
    table_qids,
    unnamed_columns,
)
from ltr.errors import DataError, need

log = logging.getLogger(__name__)

QID = "qid"  # the column of a table that holds query ids
# These cannot be the names of features.
_LABEL = "y="
_WEIGHT = "sample_weight="
_POSITION = "position="
UNLABELLED: Any = object()


def lists_of_rows(
    estimator: Any, X: Any, qid: Any = None, *, group: Any = None, y: Any = UNLABELLED,
    weights: Any = None, position: Any = None, columns: Columns | None = None,
    categories: Sequence[str] = (), reset: bool = False, without_qid: str = "refused",
    of_train: Callable[[set[str]], set[str]] | None = None,
) -> Lists:  # fmt: skip
    """Return the lists of the rows of ``X``, in the order in which their queries first appear.

    Args:
        estimator: if ``reset``, its ``n_features_in_`` and ``feature_names_in_`` are set. Otherwise
            ``X`` must have these features; a table may have further columns, and its columns may be
            in any order.
        X, qid, group, y, weights, position: as for ``Ranker.fit``. If there is no ``y``, all labels
            are 0.
        columns: the names and category values of a table's columns; None: find them in the rows of
            the queries that ``of_train`` returns, or in all rows if ``of_train`` is None.
        categories: in a fit, the category columns, in addition to columns of a categorical type.
        reset: True in a fit.
        without_qid: what to do if there is no ``qid``. ``"each"``: make every row a list.
            ``"one"``: make one list of all rows. ``"refused"``: raise ``DataError``.
        of_train: in a fit, a function that returns those of the given queries that are in train.

    Raises:
        ValueError, TypeError: ``X`` fails a check that scikit-learn's estimators make.
        DataError: a column, a query id, a label, a weight or a position is invalid.
    """
    frame = _pandas(X)
    cells = dict[str, Any]()
    arguments = {"qid": qid, "group": group, "y": y, "sample_weight": weights, "position": position}
    _refuse_levels(arguments)
    if named := isinstance(frame, pd.DataFrame):
        check_column_names({}, [str(name) for name in frame], "X")
        if QID in frame:
            if qid is not None:
                raise DataError("got both qid= and a column qid of X: give only one of them")
            qid = frame[QID]
            frame = frame.drop(columns=QID)
        if reset:
            no_features = _argument_columns(frame, {"qid": qid, "y": y, "sample_weight": weights})
            no_features += _unnamed(frame, categories)
            frame = frame.drop(columns=no_features)
        elif columns is not None:
            is_present = list(map(str, frame))
            frame = frame.iloc[
                :, [is_present.index(name) for name in columns.names if name in is_present]
            ]
        validated(estimator, frame, reset=reset, skip_check_array=True)
        cells |= {str(name): column for name, column in frame.items()}
        count = len(frame)
    else:
        X = validated(estimator, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        dense = X.toarray() if issparse(X) else X
        inexact = inexact_columns(dense)
        numbers = to_float32(dense)[0]
        # The first column stands for all columns, which are added below.
        cells["0"] = numbers[:, 0]
        count = len(numbers)
    names = tuple(cells)
    if group is not None:
        if qid is not None:
            raise DataError(
                "got both group= and qid= (or a column qid of X): give only one of them"
            )
        qid = _qids_of(group, count)
    if qid is not None:
        cells[QID] = _pandas(qid)
    elif without_qid == "refused":
        raise DataError(
            "qid is missing: give qid= or group=, or a table with a column qid, or set "
            "one_list=True if all rows belong to one query. Only models that score each item "
            "independently, such as trees, predict without qid. GridSearchCV passes qid to the "
            "estimator after sklearn.set_config(enable_metadata_routing=True)"
        )
    else:
        cells[QID] = np.arange(count) if without_qid == "each" else np.zeros(count, np.int64)
    if y is None:
        raise DataError("Ranker requires y to be passed, but the target y is None: pass the labels")
    for key, values in {_LABEL: y, _WEIGHT: weights, _POSITION: position}.items():
        if values is not None and values is not UNLABELLED:
            values = column_or_1d(values, warn=key == _LABEL)
            cells[key] = check_array(values, ensure_2d=False, dtype=np.float64, input_name=key[:-1])
    for name, values in cells.items():
        try:
            cells[name] = pd.Series(values).array
        except (ValueError, TypeError) as error:
            raise DataError(f"{name}: {error}; give one value for each row") from error
        if len(cells[name]) != count:
            raise DataError(
                f"{name}: expected {count} values, one for each row, got {len(cells[name])}"
            )
    table = pd.DataFrame(cells, copy=False)
    order = None
    if position is not None:  # ``position`` is the order of the items in their list
        order = np.argsort(cells[_POSITION], kind="stable")
        table = table.iloc[order].drop(columns=_POSITION)  # not a feature
    coded = [name for name in names if isinstance(table[name].dtype, pd.CategoricalDtype)]
    source = Source(table)
    roles = ColumnRoles(
        query=QID,
        label=_LABEL if _LABEL in cells else None,
        categories=tuple(dict.fromkeys([*coded, *categories])),
        weight=_WEIGHT if _WEIGHT in cells else None,
    )
    if not named and not categories:
        feature_columns = Columns(names, {})
    elif columns is not None:
        feature_columns = columns
    else:
        qids = table_qids(source, roles)
        keep = of_train(qids) if of_train and len(qids) > 1 else None
        feature_columns = find_columns(source, roles, keep)
    blocks = table_blocks(
        source, roles, feature_columns, rules=ParseOptions(labels="real", labelled=_LABEL in cells)
    )
    lists = assemble(blocks, columns=feature_columns if named else None)
    if order is not None:
        lists = replace(lists, rows=order[lists.source_rows])
    if named:
        return lists
    features = numbers if lists.rows is None else numbers[lists.rows]
    missing = int(np.isnan(features).sum())
    return replace(
        lists,
        features=features,
        missing=missing,
        remarks=rounding_remarks({f"column {i}": inexact[i] for i in inexact}),
    )


def _qids_of(group: Any, count: int) -> NDArray[Any]:
    """Return a query id for each of ``count`` rows, from the number of rows of each query."""
    sizes = column_or_1d(group)
    are_counts = sizes.dtype.kind in "iuf" and ((sizes > 0) & (sizes % 1 == 0)).all()
    if not are_counts or sizes.sum() != count:
        problem = (
            f"got the sum {sizes.sum():g}"
            if are_counts
            else "got values that are not whole numbers >= 1"
        )
        raise DataError(
            "group: expected the number of rows of each query (whole numbers >= 1 that add up to "
            f"{count}, the number of rows of X); {problem}"
        )
    return np.repeat(np.arange(len(sizes)), sizes.astype(np.int64))


def _refuse_levels(arguments: Mapping[str, Any]) -> None:
    """Raise ``DataError`` if one of ``arguments`` (values by name) has several levels."""
    for name, values in arguments.items():
        if isinstance(values, pd.MultiIndex):
            raise DataError(
                f"{name} is an index with {values.nlevels} levels: give only one level, such as "
                f"{name}=index.get_level_values({values.names[0] or 0!r})"
            )


def _argument_columns(frame: pd.DataFrame, arguments: Mapping[str, Any]) -> list[Any]:
    """Return the columns of ``frame`` that are also passed as a series; they are not features.

    Raises ``DataError`` if a series has the same name as a column, but different values.
    """
    columns = []
    for argument, values in arguments.items():
        name = getattr(values, "name", None)
        if name is None or name not in frame:
            continue
        series = pd.Series(_pandas(values)).reset_index(drop=True)
        if not same_texts(series, frame[name].reset_index(drop=True)):
            raise DataError(
                f"{argument} has the same name as column {name!r} of X, but different values: "
                "rename the series if the column is a feature; otherwise drop the column from X"
            )
        columns.append(name)
    return columns


def _unnamed(frame: pd.DataFrame, categories: Sequence[str]) -> list[Any]:
    """Return the columns of ``frame`` without a name; log a warning that they are not features."""
    names = [name for name in frame if str(name) not in categories]
    unnamed = [name for name in names if unnamed_columns([str(name)])]
    if unnamed:
        shown = ", ".join(repr(name) for name in unnamed)
        log.warning("X: columns without a name are not used as features: %s; %s", shown, NAME_IT)
    return unnamed


def given_qids(lists: Lists, X: Any, qid: Any = None, group: Any = None) -> pd.Series:
    """Return the query ids of ``lists``, one for each list, with their original type.

    ``lists`` were made from ``X`` and ``qid`` or ``group``. If there are no query ids, there is
    only one list, and its id is 0.
    """
    frame = _pandas(X)
    if isinstance(frame, pd.DataFrame) and QID in frame:
        qid = frame[QID]
    elif group is not None:
        qid = _qids_of(group, lists.items)
    elif qid is None:
        qid = np.zeros(lists.items, np.int64)
    first_rows = lists.source_rows[lists.offsets[:-1]]
    return pd.Series(_pandas(qid)).iloc[first_rows].reset_index(drop=True)


def _pandas(values: Any) -> Any:
    """Return a table or a series of any library as a pandas object, and other values unchanged."""
    if isinstance(values, pd.DataFrame | pd.Series):
        return values
    native = nw.from_native(values, pass_through=True, allow_series=True)
    if native is values:
        return values
    need("pyarrow", "parquet")
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if isinstance(native, nw.Series):
        return as_frame(native.to_frame().to_arrow()).iloc[:, 0]
    return as_frame(native.to_arrow())


def in_rows(values: NDArray[Any], lists: Lists) -> NDArray[Any]:
    """Return ``values`` of the items of ``lists``, ``[items]``, in the order of the rows."""
    out = np.empty_like(values)
    out[lists.source_rows] = values
    return out


def queries_of_train(qids: Iterable[str], fraction: float, seed: int) -> set[str]:
    """Return the queries that stay in train when a ``fraction`` of the queries becomes vali.

    The split is the same as with ``dataset=table``. Raises ``DataError`` if there are too few
    queries, or if ``fraction`` is not between 0 and 1.
    """
    if not 0 < fraction < 1:
        raise DataError(f"vali_fraction={fraction}: give a number between 0 and 1, such as 0.2")
    parts = [1 - fraction, fraction]
    remedy = "give more queries, or eval_set=[(X, y, qid)]"
    return split_queries(qids, parts, seed, title="vali from train", remedy=remedy)[0]
