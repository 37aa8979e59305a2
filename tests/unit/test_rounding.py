"""Numbers that float32 does not hold: columns that lose values, and the warnings of readers."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr import Ranker
from ltr.data.assemble import Block, assemble
from ltr.data.files import _warn_once
from ltr.data.letor import ParseOptions, read_letor
from ltr.data.rounding import inexact_columns, inexact_values
from ltr.data.table_files import TableFiles
from ltr.data.tables import ColumnRoles
from ltr.ranker_rows import lists_of_rows
from tests.helpers.made_columns import lists_of

AGE = np.arange(60) % 6
LOSSY = {  # values, and how many of the six remain different
    "YYYYMMDD": (20240104 + AGE, 3),
    "seconds": (1_700_000_000 + 20 * AGE, 2),
    "below zero": (-(16_777_216 + AGE), 3),
    "beyond float64": (2**60 + AGE, 1),
    "close fractions": (1 - 1e-9 * AGE, 1),
    "days with a time": (19_700.5 + AGE / 86_400, 1),
}
LOSSLESS = {
    "few digits": AGE / 10,
    "whole numbers up to 2^24": 16_777_211 + AGE,
    "large, but apart": 1e9 + 1e4 * AGE,
    "float32": (20240104 + AGE).astype(np.float32),
    "constant": np.full(60, 20240105),
    "noise of float64": 0.3 + 1e-17 * AGE,
    "missing": np.where(AGE > 1, np.nan, 20240105),
}


@pytest.mark.parametrize("name", LOSSY)
def test_rounding_remarks_name_columns_that_lose_values(name) -> None:
    values, remaining = LOSSY[name]
    table = pa.table({"q": range(60), "exact": AGE, "lossy": values})
    remarks = lists_of(table, ColumnRoles("q"), labelled=False).remarks
    assert f"lossy (6 different values become {remaining})" in remarks["rounding"]
    assert "exact" not in remarks["rounding"]
    frame = table.to_pandas()
    lists = lists_of_rows(Ranker(), frame[["exact", "lossy"]], frame["q"], y=AGE, reset=True)
    assert lists.remarks == remarks
    array = np.stack([AGE.astype(values.dtype), values], axis=1)
    lists = lists_of_rows(Ranker(), array, frame["q"], y=AGE, reset=True)
    assert f"column 1 (6 different values become {remaining})" in lists.remarks["rounding"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_rounding_remarks_do_not_name_lossless_columns(name) -> None:
    large = name in ("large, but apart", "constant", "missing")  # other blocks may have others
    assert large or not len(inexact_values(LOSSLESS[name]))
    table = pa.table({"q": range(60), "exact": LOSSLESS[name]})
    assert lists_of(table, ColumnRoles("q"), labelled=False).remarks == {}


def test_rounding_remarks_do_not_name_random_numbers() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(20_000, 3)) * [1, 1e6, 1e9] + [0, 0, 1e6]
    assert inexact_columns(numbers[:, :1]) == {}
    for column in numbers.T:
        table = pa.table({"q": range(len(column)), "x": column})
        assert lists_of(table, ColumnRoles("q"), labelled=False).remarks == {}


def test_assemble_counts_inexact_values_of_all_blocks() -> None:
    def block(values: np.ndarray) -> Block:
        indices = np.arange(len(values))
        return Block(
            values.astype(np.float32)[:, None],
            labels=np.zeros(len(values), np.float32),
            queries=[*map(str, indices)],
            query_indices=indices,
            inexact={0: inexact_values(values)},
        )

    lists = assemble([block(np.array([2.0**24, 2.0**24 + 3])), block(np.array([2.0**24 + 1, 1e8]))])
    assert "feature 1 (4 different values become 3)" in lists.remarks["rounding"]


def test_rounding_remarks_name_columns_constant_in_each_file(tmp_path) -> None:
    """A folder of one file a day: no file has two dates, but the table has."""
    (tmp_path / "days").mkdir()
    for age in range(6):
        rows = "".join(f"{age},{i % 2},{20240104 + age}\n" for i in range(4))
        (tmp_path / "days" / f"{age}.csv").write_text(f"q,y,date\n{rows}")
    table = {"query": "q", "label": "y", "path": "days", "fractions": [0.5, 0.5]}
    data = TableFiles(name="days", **table, data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "date (6 different values become 3)" in data.split("train").remarks["rounding"]


def write_letor(path: Path, values: np.ndarray) -> None:
    rows = [f"{age} qid:{i // 6} 1:{i % 5} 3:{values[i]}\n" for i, age in enumerate(AGE)]
    path.write_text("".join(rows))


def test_read_letor_names_columns_that_lose_values(tmp_path) -> None:
    path = tmp_path / "train.txt"
    for name in ("YYYYMMDD", "seconds", "below zero"):
        values, remaining = LOSSY[name]
        write_letor(path, values)
        remark = read_letor(path).remarks["rounding"]
        assert f"feature 3 (6 different values become {remaining})" in remark
    for name in ("few digits", "whole numbers up to 2^24", "large, but apart", "missing"):
        write_letor(path, LOSSLESS[name])
        assert read_letor(path, ParseOptions(width=3)).remarks == {}


def test_table_files_warn_once_also_from_the_cache(tmp_path, caplog) -> None:
    frame = pd.DataFrame({"q": np.arange(60) // 6, "y": AGE, "day": 20240104 + AGE, "b": AGE})
    frame.to_csv(tmp_path / "items.csv")  # writes the row numbers too
    knobs = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache", "query": "q", "label": "y"}
    for _ in range(2):
        caplog.clear()
        _warn_once.cache_clear()
        table = TableFiles(name="table", path="items.csv", **knobs)
        lists = [table.split(split) for split in ("train", "vali", "test")]
        assert lists[0].columns.names == ("day", "b")
        warnings = [
            record.getMessage() for record in caplog.records if record.levelno > logging.INFO
        ]
        remarks = sorted(warning.partition(": ")[2][:20] for warning in warnings)
        assert remarks == ["columns without a na", "different numbers be"]
        assert all(warning.startswith(f"{tmp_path}/items.csv: ") for warning in warnings)


@pytest.mark.slow
def test_ranker_warns_of_lost_values_in_fit_and_predict(caplog) -> None:
    frame = pd.DataFrame({"qid": np.arange(60) // 6, "day": 20240104.0 + AGE, "b": AGE})
    ranker = Ranker("linear", "listnet", epochs=1, threads=1, verbose=0)
    ranker.fit(frame, AGE, eval_set=[(frame, AGE)])
    assert caplog.text.count("day (6 different values become 3)") == 1
    for action in (ranker.predict, ranker.rank):
        caplog.clear()
        action(frame)
        assert "day (6 different values become 3)" in caplog.text
        caplog.clear()
        action(frame.assign(day=AGE))
        assert not caplog.text
