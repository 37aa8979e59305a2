"""``dataset=table``: every form of file gives the same lists; cuts, shards, faults in files."""

import csv
import gzip
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from ltr.cli.cli import call_command
from ltr.data import table_sources as sources
from ltr.data.lists import Lists
from ltr.data.table_files import TableFiles
from ltr.errors import ConfigError
from ltr.experiment.prepare_data import prepare_data
from tests.helpers.folders import refused
from tests.helpers.runs import compose

Write = Callable[[pa.Table, Path], None]


def tsv(table: pa.Table, path: Path) -> None:
    table.to_pandas().to_csv(path, sep="\t", index=False)  # 1.0 and True of missing values


def shards(table: pa.Table, path: Path) -> None:
    path.mkdir()
    (path / "_SUCCESS").touch()
    for number, start in enumerate(range(0, len(table), 100)):
        pa.parquet.write_table(table.slice(start, 100), path / f"part-{number:03}.parquet")


def batches(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)


FORMS: dict[str, Write] = {
    "a.parquet": pa.parquet.write_table,
    "a.csv": pa.csv.write_csv,
    "a.tsv.gz": tsv,
    "a.feather": pa.feather.write_feather,
    "b.feather": batches,
    "a": shards,
}


@pytest.fixture(params=["pyarrow", "without pyarrow"])
def reader(request, monkeypatch) -> None:
    if request.param != "pyarrow":
        monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)


PLAIN: dict[str, Any] = {"id": None, "categories": None}


def table(rows: int = 360, seed: int = 0) -> pa.Table:
    """Rows of 40 queries that stand apart, with missing values and every type of feature."""
    rng = np.random.default_rng(seed)
    missing = rng.random(rows) < 0.1
    return pa.table(
        {
            "query": rng.integers(2**60, 2**60 + 40, rows),
            "grade": rng.integers(0, 4, rows),
            "price": pa.array(rng.normal(size=rows), mask=missing),
            "stock": pa.array(rng.integers(0, 9, rows), mask=missing),
            "new": pa.array(rng.random(rows) < 0.5, mask=missing),
            "brand": pa.array(rng.choice(["ä,b", 'c"d', "NA"], rows), mask=missing),
            "size": pa.array(rng.integers(0, 5, rows), mask=missing),
            "sku": [f"00{i}" for i in range(rows)],
        }
    )


def files(folder: Path, **knobs: Any) -> TableFiles:
    roles = {"query": "query", "label": "grade", "id": ["sku"], "categories": ["brand", "size"]}
    folders = {"data_dir": folder, "cache_dir": folder / "cache"}
    return TableFiles(name="table", **(folders | roles | knobs))


def all_splits(path: str) -> dict[str, str]:
    return dict.fromkeys(("train", "vali", "test"), path)


def assert_same(a: Lists, b: Lists) -> None:
    for name in ("features", "labels", "offsets"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.qids.tolist() == b.qids.tolist()
    assert (a.columns, a.missing) == (b.columns, b.missing)


def test_table_files_read_every_form_alike(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 1000)  # many blocks of text
    lists_of_forms = {}
    for name, write in FORMS.items():
        write(table(), tmp_path / name)
        data = files(tmp_path, split=all_splits("none") | {"train": name})
        lists_of_forms[name] = data.split("train")
    first = lists_of_forms["a.parquet"]
    assert first.columns.names == ("price", "stock", "new", "brand", "size")
    assert len(first.columns.categories["brand"]) == 3, "the text NA is a value"
    assert len(first) == 40
    for lists in lists_of_forms.values():
        assert_same(lists, first)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.dataset", None)
        plain = {"cache_dir": tmp_path / "plain"}  # nothing is cached there
        for name in ("a.csv", "a.tsv.gz"):
            assert_same(files(tmp_path, split=all_splits(name), **plain).split("train"), first)
        feather = files(tmp_path, split=all_splits("a.feather"), **plain)
        assert "'ltr-torch[parquet]'" in refused(lambda: feather.split("train"), ConfigError)
    rows = table().to_pandas()  # the items of a query are in the order of the rows
    expected = rows[rows["query"].astype(str) == first.qids[3]]["grade"].tolist()
    assert next(labels for qid, _, labels in first if qid == first.qids[3]).tolist() == expected
    overrides = ["dataset=table", "dataset.query=query", "dataset.label=grade", "dataset.id=[sku]"]
    overrides += ["dataset.path=a.parquet", "dataset.categories=[brand,size]"]
    overrides += [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache"]
    call_command(prepare_data, compose(*overrides, config="prepare_data"))
    assert "5 features, categories: brand, size" in capsys.readouterr().out


def test_table_files_divide_a_table_by_query_whatever_its_order(tmp_path: Path) -> None:
    pa.parquet.write_table(table(), tmp_path / "a.parquet")
    shards(table().take(np.random.default_rng(1).permutation(360)), tmp_path / "b")

    def split_qids(path: str, **knobs: Any) -> list[set[str]]:
        cut = files(tmp_path, path=path, fractions=[0.5, 0.3, 0.2], **knobs)
        return [set(cut.split(split).qids.tolist()) for split in ("train", "vali", "test")]

    train, vali, test = split_qids("a.parquet")
    assert [len(train), len(vali), len(test)] == [20, 12, 8]
    assert len(train | vali | test) == 40
    assert split_qids("b") == [train, vali, test]
    assert split_qids("a.parquet", seed=1)[0] != train
    with_test = files(tmp_path, split={"train": "a.parquet", "test": "b"})
    assert [len(with_test.split(split)) for split in ("train", "vali", "test")] == [32, 8, 40]
    lists = files(tmp_path, path="a.parquet", fractions=[0.5, 0.3, 0.2]).split("test")
    in_file = [str(table()["query"][int(row)].as_py()) for row in lists.rows]
    assert in_file == np.repeat(lists.qids, lists.lengths).tolist()  # rows are those of the file
    first, fewer = (files(tmp_path, path="a.parquet", category_values=n) for n in (9, 1))
    assert first.split("test").digest == fewer.split("test").digest  # such runs can be compared
    assert first.columns != fewer.columns
    seeds = [files(tmp_path, path="a.parquet", seed=seed).split("test") for seed in (0, 1)]
    assert seeds[0].digest != seeds[1].digest
    pa.parquet.write_table(table().slice(0, 0), tmp_path / "none.parquet")
    for knobs, expected in (
        ({"path": "a.parquet", "fractions": [0.98, 0.01, 0.01]}, "dataset.fractions"),
        ({"path": "a.parquet", "query": "querry"}, "(dataset.query); the table has the columns "),
        ({"path": "none.parquet"}, "0 queries"),
    ):
        message = refused(lambda knobs=knobs: files(tmp_path, **knobs).split("train"))
        assert expected in message


def test_table_files_give_every_split_the_columns_of_train(tmp_path: Path) -> None:
    pa.parquet.write_table(table(), tmp_path / "a.parquet")
    later = table(seed=1).set_column(5, "brand", [["unseen"] * 360])
    pa.csv.write_csv(later.select(later.column_names[::-1]), tmp_path / "b.csv")
    split = {"train": "a.parquet", "vali": "b.csv", "test": "b.csv"}
    data = files(tmp_path, split=split)
    vali = data.split("vali")
    assert vali.columns == data.split("train").columns
    assert (vali.features[:, 3] == 0).all(), "other"
    trained = files(tmp_path, split=split | {"train": "gone"}).with_columns(data.columns)
    assert_same(trained.split("test"), vali)
    fewer = files(tmp_path, split=split, category_values=1)
    assert len(fewer.split("vali").columns.categories["brand"]) == 1


@pytest.mark.usefixtures("reader")
def test_table_files_read_text_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("7,0.5,x,1\n8,0.25,y,2\n7,0,z,\n")
    knobs = {"query": 1, "label": 2, "categories": [], "header": False}
    knobs |= {"labels": "real", "split": {"train": "a.csv", "vali": "a", "test": "a"}}
    lists = files(tmp_path, **knobs, id=[3]).split("train")
    assert lists.columns.names == ("4",)
    assert lists.labels.tolist() == [0.5, 0, 0.25]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("end", [",", "\t"])
def test_table_files_ignore_row_numbers_and_trailing_commas(tmp_path: Path, end) -> None:
    plain = ["q,y,x", "1,0,.5", "1,1,.25", "2,1,.75"]
    variants = {
        "numbered": [",q,y,x", "0,1,0,.5", "1,1,1,.25", "2,2,1,.75"],
        "comma": [f"{row}," for row in plain],
    }
    name = "a.csv" if end == "," else "a.tsv"
    for folder, rows in variants.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("\n".join(rows).replace(",", end))
        knobs = {"query": "q", "label": "y", "id": None, "categories": None}
        knobs |= {"split": all_splits(name), "cache_dir": tmp_path / f"cache of {folder}"}
        lists = files(tmp_path / folder, **knobs).split("train")
        assert lists.columns.names == ("x",)
        assert lists.features.tolist() == [[0.5], [0.25], [0.75]]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("q,y,x\n1,0,1\n" + "2,1,2\n" * 300 + "3,1,abc\n", ["row 302", "'abc'", "column #2"]),
        ("q,y,x\n1,0,1\n1,0\n", ["row 2", "Expected 3 columns"]),
        ("q,y,x\n1,0,1\n1,,1\n", ["row 2", "label nan"]),
        ("q,y,x\n", ["no rows"]),
        ("", ["Empty"]),
        ("q,y,x\n1,0,\xff\n", []),
        ("q;y;x\n1;0;1\n", ["the table has the columns q;y;x"]),
        ("q,y,x,x\n1,0,1,2\n", ["two columns are named 'x'"]),
        (",,q,y,x\n0,0,1,0,1\n", ["several columns have no name", "delete these columns"]),
        ("q;y;x\n1;0;1,5\n", ["row 1", "comma"]),
        ('q,y,x,id\n1,0,1,"a\n1,0,1,b\n', ["a.csv:2", "a cell begins with a quote", 'write ""']),
        ('q,y,x,id\n1,0,1,a\n1,0,1,"b', ["a.csv:3", "a cell begins with a quote"]),
        ('q,y,x,id\n1,0,1,"a\n1,0,1,"b\n1,0,1,c\n', ["a.csv:2", "a cell begins with a quote"]),
        ('q,y,x,id\n1,0,1,"a""\n1,0,1,b\n', ["a.csv:2", "a cell begins with a quote"]),
    ],
)
def test_table_files_refuse_a_faulty_text_file_in_one_line(
    tmp_path, monkeypatch, content, expected
) -> None:
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 500)
    monkeypatch.setattr(sources, "_FIRST_ROWS", 100)
    (tmp_path / "a.csv").write_bytes(content.encode("latin-1"))
    data = files(tmp_path, **PLAIN, query="q", label="y", split=all_splits("a.csv"))
    message = refused(lambda: data.split("train"))
    assert "a.csv" in message
    assert all(text in message for text in expected), message


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("block", [1, 2, 1 << 16])
def test_table_files_read_closed_quotes(tmp_path: Path, monkeypatch, block: int) -> None:
    monkeypatch.setattr(sources, "_QUOTE_BYTES", block)
    cells = {'"a\nb"': "a\nb", '"a,""\r\n"""': 'a,"\r\n"', '5" pipe': '5" pipe', '"a" b': "a b"}
    cells |= {'""""': '"', '""': "", "it's": "it's", '"a\n" ': "a\n "}
    rows = [f"1,0,1,{cell}\n" for cell in cells]
    (tmp_path / "a.csv").write_text("".join(["query,grade,x,id\n", *rows]), newline="")
    data = files(tmp_path, categories=None, id=["id"], split=all_splits("a.csv"))
    assert data.ids("train", range(len(cells))) == [*cells.values()]


@pytest.mark.usefixtures("reader")
def test_table_files_read_a_quoted_first_cell_after_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ufeff",",q,y\n0.5,1,0\n', encoding="utf-8")
    data = files(tmp_path, **PLAIN, query="q", label="y", split=all_splits("a.csv"))
    assert data.split("train").columns.names == (",",)
    (tmp_path / "a.csv").write_text('\ufeff"x,q,y\n0.5,1,0\n', encoding="utf-8")
    data = files(tmp_path, **PLAIN, query="q", label="y", split=all_splits("a.csv"))
    assert "a.csv:1: a cell begins with a quote" in refused(lambda: data.split("train"))


@pytest.mark.parametrize("left", [0, 5, 40, -1])
def test_table_files_refuse_a_truncated_gzip_without_pyarrow_too(
    tmp_path, monkeypatch, left: int
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    content = gzip.compress("".join(f"{i},0,{i * i % 97}\n" for i in range(9999)).encode())
    (tmp_path / "a.csv.gz").write_bytes(content[:left])
    data = files(
        tmp_path, **PLAIN, header=False, query="1", label="2", split=all_splits("a.csv.gz")
    )
    assert "a.csv.gz" in refused(lambda: data.split("train"))


@pytest.mark.usefixtures("reader")
def test_table_files_read_text_as_pyarrow_does(tmp_path: Path) -> None:
    """Truth values, missing numbers, a byte order mark, quotes, empty lines, texts as they are."""
    rows = ['1,0,true,NA," 1.50",1e-3,é', "", '1,1,,null,-0,nan,"a\n,""b"""', "2,0,FALSE,,3,N/A,NA"]
    content = "\n".join(["\ufeffquery,grade,flag,gone,x,y,brand", *rows])
    (tmp_path / "a.csv").write_text(content, encoding="utf-8", newline="")
    data = files(tmp_path, id=["brand"], categories=["brand"], split=all_splits("a.csv"))
    lists = data.split("train")
    none = np.nan
    expected = [[1, none, 1.5, 1e-3, 3], [none, none, 0, none, 2], [0, none, 3, none, 1]]
    np.testing.assert_array_equal(lists.features, np.array(expected, np.float32))
    assert data.columns.categories == {"brand": ("NA", 'a\n,"b"', "é")}
    assert data.ids("train", [2, 0]) == ["NA", "é"]
    for cells in (["true", "2.5"], ["1_0", "2"], ["\u0661", "2"]):  # Python reads 10 and 1
        text = "".join(f"1,0,{cell}\n" for cell in cells)
        (tmp_path / "b.csv").write_text(f"query,grade,x\n{text}")
        data = files(tmp_path, **PLAIN, split=all_splits("b.csv"))
        assert "x (string)" in refused(lambda data=data: data.split("train"))
    (tmp_path / "b.csv").write_text("query,grade,x\n1,0,true\n1,1,0\n1,0,1\n")
    lists = files(tmp_path, **PLAIN, split=all_splits("b.csv")).split("train")
    assert lists.features[:, 0].tolist() == [1, 0, 1]


def test_table_files_widen_whole_numbers_and_refuse_shards_that_differ(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 100)
    rows = ["1,0,1"] * 50 + ["1,0,0.5"]
    (tmp_path / "a.csv").write_text("\n".join(["query,grade,x", *rows]) + "\n")
    data = files(tmp_path, **PLAIN, split={"train": "a.csv", "vali": "b", "test": "c"})
    assert data.split("train").features[-1] == 0.5
    row = {"query": [1], "grade": [0]}
    for name, split, second_row in (("b", "vali", row | {"x": ["text"]}), ("c", "test", row)):
        (tmp_path / name).mkdir()
        pa.parquet.write_table(pa.table(row | {"x": [1]}), tmp_path / name / "1.parquet")
        pa.parquet.write_table(pa.table(second_row), tmp_path / name / "2.parquet")
        message = refused(lambda split=split: data.split(split))
        assert "2.parquet" in message
        assert "'x'" in message


def test_table_files_refuse_files_that_are_no_tables(tmp_path: Path) -> None:
    split = all_splits("a.parquet")
    data = files(tmp_path, split=split)
    assert "no such file" in refused(data.check)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    assert "a.parquet" in refused(lambda: data.split("train"))
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"query\tgrade\n1\t0\n" * 9999)[:-20])
    cut_off = files(tmp_path, split=split | {"train": "b.tsv.gz"}, id=None, categories=None)
    assert "b.tsv.gz" in refused(lambda: cut_off.split("train"))
    assert "not a table" in refused(lambda: files(tmp_path, path=__file__).check())
    for knobs, expected in (
        ({}, "dataset.split="),
        ({"path": "a", "split": {"train": "b"}}, "dataset.path"),
        ({"path": "a", "fractions": [0.5, 0.5, 0]}, "train, vali and test, or of train and vali"),
        ({"split": split | {"vali": "v"}, "fractions": [0.5, 0.5]}, "dataset.fractions"),
        ({"path": "a", "label": None}, "dataset.label"),
        ({"split": {"train": "a", "dev": "b"}}, "dataset.split"),
    ):
        assert expected in refused(lambda knobs=knobs: files(tmp_path, **knobs), ConfigError)


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_check_quotes_accepts_closed_quotes_at_any_end_of_a_block(
    tmp_path, monkeypatch, block
) -> None:
    monkeypatch.setattr(sources, "_QUOTE_BYTES", block)
    draws = random.Random(0)
    path = tmp_path / "a.csv"
    for _ in range(150):
        with path.open("w", newline="") as file:
            for _ in range(4):
                row = ["".join(draws.choices('ab",\n\r 1', k=draws.randrange(7))) for _ in "xyz"]
                csv.writer(file, quoting=csv.QUOTE_ALL).writerow(row)
        sources._check_quotes(path, ",")  # raises no error
