"""Lists of a table in memory: what each type becomes, queries, weights, categories, refusals."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from folders import refused
from made_columns import lists_of

from ltr.data.lists import Columns, Lists
from ltr.data.table_sources import Source, framed
from ltr.data.tables import Roles, unnamed_remarks
from ltr.errors import ConfigError, DataError

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


def made(cells: dict[str, Any] | None = None, **roles: Any) -> Lists:
    return lists_of(pa.table(CELLS | (cells or {})), Roles(**(ROLES | roles)))


def features_of(values: Any, **known: Any) -> list[float]:
    cells = {"q": range(len(values)), "x": values}
    read = lists_of(pa.table(cells), Roles("q", features=("x",)), labelled=False, **known)
    return read.features[:, 0].tolist()


def test_rows_of_a_query_come_together_and_say_where_they_were() -> None:
    read = made()
    assert read.qids.tolist() == ["b", "a", "c"]
    assert read.rows.tolist() == [0, 2, 1, 3]
    assert read.labels.tolist() == [1, 2, 0, 0]
    assert read.weights.tolist() == [2, 0.5, 1]
    expected = [[0.5, 1], [np.nan, np.nan], [np.nan, 2], [-3, 1]]
    np.testing.assert_equal(read.features.tolist(), expected)
    assert read.missing == 3
    other = made({"x": [0.5, None, 1e39, -4.0]}).with_digest()
    assert read.with_digest().digest == made().with_digest().digest != other.digest


def test_numbers() -> None:
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


def test_query_ids_of_any_type() -> None:
    for values, expected in (
        ([2**60 + 1, 2**60], [str(2**60 + 1), str(2**60)]),
        ([DAY, DAY], ["2026-01-02"]),
        ([1.0, 1.5], ["1", "1.5"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        ([b"\xff", b"a"], ["\\xff", "a"]),
    ):
        read = lists_of(pa.table({"q": values, "x": [1, 2]}), Roles("q"), labelled=False)
        assert read.qids.tolist() == expected


def test_categories_are_those_of_train_the_most_frequent_first() -> None:
    texts = ["d", "a", "b", "b", "c", "c", "", None]
    cells = {"q": range(8), "c": texts}
    roles = Roles("q", categories=("c",), category_values=3)
    read = lists_of(pa.table(cells), roles, labelled=False)
    columns = read.columns
    assert columns == Columns(("c",), {"c": ("b", "c", "a")})
    state = columns.state()
    assert Columns.from_state(state) == columns
    for wrong in ({"names": ["c", "c"]}, {"names": ["d"]}, {"categories": {"c": ["b", 1]}}):
        with pytest.raises(ValueError, match="each name stands once"):
            Columns.from_state(state | wrong)
    np.testing.assert_equal(read.features[:, 0].tolist(), [0, 3, 1, 1, 2, 2, np.nan, np.nan])

    later = pa.table({"another": ["text"], "c": ["new"], "q": [1]})
    codes = lists_of(later, roles, columns=columns, labelled=False).features
    assert codes.tolist() == [[0]], "by name; an unseen value is 0"


def test_a_category_is_known_by_its_text_whatever_the_type() -> None:
    known = Columns(("x",), {"x": ("1", "2", "true")})
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], ["1.0", "2.0"]):
        assert features_of(values, columns=known) == [1, 2]
    for values in ([True], ["True"], ["true"]):
        assert features_of(values, columns=known) == [3]


def test_what_cannot_be_read_is_one_line() -> None:
    for cells, roles, words in (
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
        ({"c": [[1.0]] * 4}, {}, ["'c'", "list", "numbers or texts"]),
        ({"q": [[1.0]] * 4}, {}, ["row 1", "'q'", "list", "texts"]),
        ({}, {"label": "Yy"}, ["'Yy'", "dataset.label", "it has q, y"]),
        ({}, {"categories": ("colour",)}, ["'colour'", "dataset.categories"]),
    ):
        said = refused(lambda cells=cells, roles=roles: made(cells, **roles), DataError)
        assert all(word in said for word in words), said


def test_a_table_without_rows_a_feature_or_single_names() -> None:
    given = {"columns": Columns(("x", "price"), {})}
    assert "'price'" in refused(lambda: lists_of(pa.table(CELLS), Roles(**ROLES), **given))
    assert "no rows" in refused(lambda: lists_of(pa.table(CELLS).slice(0, 0), Roles(**ROLES)))
    twice = pa.table([[1], [2]], names=["q", "q"])
    assert "two columns" in refused(lambda: lists_of(twice, Roles("q"), labelled=False))


def test_roles_that_do_not_go_together() -> None:
    for roles, word in (
        ({"label": "q"}, "one role"),
        ({"features": ("x", "y")}, "one role"),
        ({"categories": ("c", "w")}, "one role"),
        ({"category_values": 0}, "whole number"),
        ({"category_values": True}, "whole number"),
        ({"query": None}, "dataset.query"),
    ):
        assert word in refused(lambda roles=roles: Roles.of(ROLES | roles), ConfigError)


def test_the_index_that_pandas_writes_is_no_feature_unless_it_is_named() -> None:
    index = {"__index_level_0__": [3, 1, 4, 1]}
    assert made(index).columns == made().columns
    named = made(index, features=("x", "__index_level_0__")).columns
    assert "__index_level_0__" in named.names


@pytest.mark.parametrize("name", ["", "  ", "Unnamed: 0", "Unnamed: 0.1"])
def test_a_column_without_a_name_is_no_feature_unless_it_has_a_role(name) -> None:
    rows = {name: [0, 1, 2, 3]}
    assert made(rows).columns == made().columns
    assert name in made(rows, features=("x", name)).columns.names
    assert name in made(rows, categories=("c", name)).columns.names
    source = Source(framed(pa.table(CELLS | rows)))
    remark = unnamed_remarks(source, Roles(**ROLES))["unnamed"]
    assert remark.startswith("no name, so not a feature: column 7: ")
    for roles in ({"id": ("id", name)}, {"features": ("x",)}):
        assert unnamed_remarks(source, Roles(**(ROLES | roles))) == {}
    assert unnamed_remarks(Source(framed(pa.table(CELLS))), Roles(**ROLES)) == {}
