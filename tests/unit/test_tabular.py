"""Lists of a table in memory: what each type becomes, queries, weights, categories, refusals."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ltr.data.lists import Columns, Lists
from ltr.data.table_sources import Source, as_frame
from ltr.data.tables import ColumnRoles, unnamed_remarks
from ltr.errors import ConfigError, DataError
from tests.helpers.folders import refused
from tests.helpers.made_columns import lists_of

DAY = dt.date(2026, 1, 2)
CELLS: dict[str, Any] = {
    "q": ["b", "a", "b", "c"],
    "y": [1, 0, 2, 0],
    "w": [2.0, 0.5, 2.0, 1.0],
    "x": [0.5, None, 1e39, -3.0],
    "c": ["red", "blue", None, "red"],
    "id": ["p1", "p2", "p3", "p4"],
}
ROLES = {"query": "q", "label": "y", "weight": "w", "categories": ("c",), "id": ("id",)}


def read_lists(cells: dict[str, Any] | None = None, **roles: Any) -> Lists:
    return lists_of(pa.table(CELLS | (cells or {})), ColumnRoles(**(ROLES | roles)))


def features_of(values: Any, columns: Columns | None = None) -> list[float]:
    cells = {"q": range(len(values)), "x": values}
    roles = ColumnRoles("q", features=("x",))
    lists = lists_of(pa.table(cells), roles, columns=columns, labelled=False)
    return lists.features[:, 0].tolist()


def test_table_blocks_become_lists_whose_rows_are_together() -> None:
    lists = read_lists()
    assert lists.qids.tolist() == ["b", "a", "c"]
    assert lists.rows.tolist() == [0, 2, 1, 3]
    assert lists.labels.tolist() == [1, 2, 0, 0]
    assert lists.weights.tolist() == [2, 0.5, 1]
    expected = [[0.5, 1], [np.nan, np.nan], [np.nan, 2], [-3, 1]]
    np.testing.assert_equal(lists.features.tolist(), expected)
    assert lists.missing == 3
    changed = read_lists({"x": [0.5, None, 1e39, -4.0]}).with_digest()
    assert lists.with_digest().digest == read_lists().with_digest().digest != changed.digest


def test_table_blocks_read_numbers_of_every_type() -> None:
    for values, expected in (
        (pa.array([True, False, None]), [1, 0, np.nan]),
        (pa.array([Decimal("1.25"), None]), [1.25, np.nan]),
        (pa.array([2**63 - 1, 1]), [2.0**63, 1]),
        (pa.array([1.5, np.nan], pa.float16()), [1.5, np.nan]),
        (pa.array([7, None, 7]).dictionary_encode(), [7, np.nan, 7]),
        (pa.array([0.1, -1e39]), [np.float32(0.1), np.nan]),
        (pa.nulls(2), [np.nan, np.nan]),
    ):
        np.testing.assert_equal(features_of(values), [float(value) for value in expected])


def test_table_blocks_read_query_ids_of_every_type() -> None:
    for values, expected in (
        ([2**60 + 1, 2**60], [str(2**60 + 1), str(2**60)]),
        ([DAY, DAY], ["2026-01-02"]),
        ([1.0, 1.5], ["1", "1.5"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        ([b"\xff", b"a"], ["\\xff", "a"]),
    ):
        lists = lists_of(pa.table({"q": values, "x": [1, 2]}), ColumnRoles("q"), labelled=False)
        assert lists.qids.tolist() == expected


def test_find_columns_lists_the_most_frequent_values_of_a_category_first() -> None:
    texts = ["d", "a", "b", "b", "c", "c", "", None]
    cells = {"q": range(8), "c": texts}
    roles = ColumnRoles("q", categories=("c",), category_values=3)
    lists = lists_of(pa.table(cells), roles, labelled=False)
    columns = lists.columns
    assert columns == Columns(("c",), {"c": ("b", "c", "a")})
    state = columns.state()
    assert Columns.from_state(state) == columns
    for wrong in ({"names": ["c", "c"]}, {"names": ["d"]}, {"categories": {"c": ["b", 1]}}):
        with pytest.raises(ValueError, match="expected unique column names"):
            Columns.from_state(state | wrong)
    np.testing.assert_equal(lists.features[:, 0].tolist(), [0, 3, 1, 1, 2, 2, np.nan, np.nan])

    later = pa.table({"another": ["text"], "c": ["new"], "q": [1]})
    codes = lists_of(later, roles, columns=columns, labelled=False).features
    assert codes.tolist() == [[0]], "by name; an unseen value is 0"


def test_table_blocks_code_a_category_by_its_text_whatever_the_type() -> None:
    columns = Columns(("x",), {"x": ("1", "2", "true")})
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], ["1.0", "2.0"]):
        assert features_of(values, columns=columns) == [1, 2]
    for values in ([True], ["True"], ["true"]):
        assert features_of(values, columns=columns) == [3]


def test_table_blocks_refuse_unreadable_cells_in_one_line() -> None:
    for cells, roles, expected in (
        ({"q": ["a", None, "b", "c"]}, {}, ["row 2", "no query id", "'q'"]),
        ({"q": ["a", "b", "", "c"]}, {}, ["row 3", "no query id"]),
        ({"q": ["a" * 1001] * 4}, {}, ["1,001 characters"]),
        ({"y": [0, 1, None, 0]}, {}, ["row 3", "label nan"]),
        ({"y": [0, 1, 1.5, 0]}, {}, ["row 3", "label 1.5", "dataset.labels=real"]),
        ({"y": ["0", "1", "2", "3"]}, {}, ["'y'", "string"]),
        ({"x": [0, 1, float("-inf"), 0]}, {}, ["row 3", "infinite", "'x'"]),
        ({"w": [1.0, 2.0, 3.0, 4.0]}, {}, ["weight 3", "query 'b'"]),
        ({"w": [1.0, 0.0, 1.0, 4.0]}, {}, ["row 2", "weight 0", "> 0"]),
        ({"w": [1.0, 1e39, 1.0, 4.0]}, {}, ["row 2", "weight 1e+39", "float32"]),
        ({"t": ["a"] * 4, "u": [DAY] * 4}, {}, ["t (string)", "u (date32[day])", "dataset.id"]),
        ({"x": [DAY] * 4}, {"features": ("x",)}, ["'x'", "date32", "number"]),
        ({"x": ["a"] * 4}, {"features": ("x",)}, ["'x'", "dataset.categories"]),
        ({"c": [[1.0]] * 4}, {}, ["'c'", "list", "numbers, strings or dates"]),
        ({"q": [[1.0]] * 4}, {}, ["row 1", "'q'", "list", "strings"]),
        ({}, {"label": "Yy"}, ["'Yy'", "dataset.label", "has the columns q, y"]),
        ({}, {"categories": ("colour",)}, ["'colour'", "dataset.categories"]),
    ):
        message = refused(lambda cells=cells, roles=roles: read_lists(cells, **roles), DataError)
        assert all(text in message for text in expected), message


def test_table_blocks_refuse_a_table_without_rows_a_feature_or_unique_names() -> None:
    roles = ColumnRoles(**ROLES)
    columns = Columns(("x", "price"), {})
    assert "'price'" in refused(lambda: lists_of(pa.table(CELLS), roles, columns=columns))
    assert "no rows" in refused(lambda: lists_of(pa.table(CELLS).slice(0, 0), roles))
    duplicate = pa.table([[1], [2]], names=["q", "q"])
    assert "two columns" in refused(lambda: lists_of(duplicate, ColumnRoles("q"), labelled=False))


def test_roles_refuse_conflicts() -> None:
    for roles, expected in (
        ({"label": "q"}, "name each column only once"),
        ({"features": ("x", "y")}, "name each column only once"),
        ({"categories": ("c", "w")}, "name each column only once"),
        ({"category_values": 0}, "whole number"),
        ({"category_values": True}, "whole number"),
        ({"query": None}, "dataset.query"),
    ):
        message = refused(lambda roles=roles: ColumnRoles.from_config(ROLES | roles), ConfigError)
        assert expected in message


def test_find_columns_ignores_the_index_of_pandas_unless_named() -> None:
    index = {"__index_level_0__": [3, 1, 4, 1]}
    assert read_lists(index).columns == read_lists().columns
    named = read_lists(index, features=("x", "__index_level_0__")).columns
    assert "__index_level_0__" in named.names


@pytest.mark.parametrize("name", ["", "  ", "Unnamed: 0", "Unnamed: 0.1"])
def test_find_columns_ignores_a_column_without_name_unless_it_has_a_role(name) -> None:
    rows = {name: [0, 1, 2, 3]}
    assert read_lists(rows).columns == read_lists().columns
    assert name in read_lists(rows, features=("x", name)).columns.names
    assert name in read_lists(rows, categories=("c", name)).columns.names
    source = Source(as_frame(pa.table(CELLS | rows)))
    remark = unnamed_remarks(source, ColumnRoles(**ROLES))["unnamed"]
    assert remark.startswith("columns without a name are not used as features: column 7; ")
    for roles in ({"id": ("id", name)}, {"features": ("x",)}):
        assert unnamed_remarks(source, ColumnRoles(**(ROLES | roles))) == {}
    assert unnamed_remarks(Source(as_frame(pa.table(CELLS))), ColumnRoles(**ROLES)) == {}
