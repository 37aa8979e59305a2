"""``ltr predict``: ids of the items, the order of the rows, tables like LETOR text, the output."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from ltr.atomic import write_frame
from ltr.cli.cli import call_command
from ltr.cli.options import parse_options
from ltr.data.letor import read_letor
from ltr.data.lists import SPLITS, Columns
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.inference.evaluate import evaluate_model, evaluate_scores
from ltr.inference.inputs import read_file, read_input, read_table_lists
from ltr.inference.predict import PredictOptions, predict_file, ranking, unseen
from ltr.models import Linear
from ltr.parts.scorer import Scorer
from tests.helpers.folders import refused
from tests.helpers.made_lists import make_lists
from tests.helpers.runs import compose, run

TEXT = (
    "2 qid:b 1:1 #docid = GX-1 inc = 0.5\n"
    "0 qid:a 1:2 # =sku 7\n"
    "1 qid:b 1:3\n"
    "0 qid:a 1:4 #docid = GX-4\n"
)


# for a model whose features have no names
BY_ORDER = ["features=[f1,f2,f3,f4,f5]", "query=q", "id=sku"]
ROLES = ["dataset=table", "dataset.query=q", "dataset.label=y", "dataset.id=[sku]"]


def test_ranking_orders_rows_as_in_the_input_or_by_rank(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("0 qid:1 1:1\n")
    assert read_file(path, True, ids=True)[1].empty
    path.write_text(TEXT)
    lists, ids = read_file(path, True, ids=True)
    assert lists.qids.tolist() == ["b", "a"]
    assert lists.source_rows.tolist() == [0, 2, 1, 3]
    assert ids["id"].tolist() == ["GX-1", "", "=sku 7", "GX-4"]
    scores = np.array([0.5, 0.9, 0.2, 0.2])
    table = ranking(lists, ids, scores, "input")
    ranked = ranking(lists, ids, scores, "ranked")
    assert table.row.tolist() == [1, 2, 3, 4]
    assert table["rank"].tolist() == [2, 1, 1, 2], "ties in file order"
    assert ranked.qid.tolist() == ["b", "b", "a", "a"], "lists as they come"
    assert ranked.row.tolist() == [3, 1, 2, 4]
    assert ranked["rank"].tolist() == [1, 2, 1, 2]
    assert ranked.sort_values("row").score.tolist() == table.score.tolist()


def options(*overrides: str) -> PredictOptions:
    cfg = compose("checkpoint=x", "input=x", "output=x.csv", *overrides, config="predict")
    return parse_options(PredictOptions, cfg)


def price_scorer() -> Scorer:
    """A model whose only feature is the column price."""
    return Scorer(Linear(1), no_transform(make_lists([2])), Columns(("price",)), {"dataset": {}})


def test_unseen_counts_the_values_that_train_lacks(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    columns = Columns(("price", "brand"), {"brand": ("acme", "zeta")})
    scorer = Scorer(Linear(2), no_transform(make_lists([2], width=2)), columns, {"dataset": {}})

    def counts(brands: list[str]) -> dict[str, tuple[int, int]]:
        pd.DataFrame({"q": [1, 1, 2], "price": [1, 1, 3], "brand": brands}).to_csv(path)
        return unseen(read_input(path, options("query=q"), scorer).lists, scorer)

    assert counts(["acme", "acme", "zeta"]) == {}
    assert counts(["acme", "acme", "other"]) == {"brand": (1, 2)}
    assert counts(["Acme", "ACME", ""]) == {"brand": (2, 0)}


@pytest.mark.parametrize(
    ("prices", "query", "expected"),
    [(["3 €", "4 €"], "q", "categories=[price]"), ([date(2026, 1, 2)] * 2, "q", "price"),
     ([3, 4], "gone", "'gone' (")],
)  # fmt: skip
def test_read_table_lists_names_a_column_that_cannot_be_read(
    prices, query, expected, tmp_path: Path
) -> None:
    path = tmp_path / "new.parquet"
    pd.DataFrame({"q": [1, 1], "price": prices}).to_parquet(path)
    asked = options(f"query={query}")
    message = refused(lambda: read_table_lists(path, asked, price_scorer()), DataError)
    assert expected in message


def columns_of(path: Path, query: str, *ids: str) -> pd.DataFrame:
    """The query column and the id columns of a table, as they go into the output."""
    asked = options(f"query={query}", f"id=[{','.join(ids)}]")
    lists, columns, queries = read_table_lists(path, asked, price_scorer())
    return ranking(lists, columns, np.zeros(lists.items), "input", queries)


def test_read_table_lists_keeps_name_type_and_text_of_queries_and_ids(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"search id": [7, 7, 8], "@sku": ["@a", "=1+2", "007"], "size": [1, 2, 2**60], "price": 1.0}
    )
    for name in ("new.csv", "new.tsv", "new.parquet"):
        path = tmp_path / name
        if path.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
        table = columns_of(path, "search id", "@sku", "size")
        assert list(table) == ["search id", "@sku", "size", "row", "score", "rank"]
        joined = frame.merge(table, on=["search id", "@sku", "size"], validate="1:1")
        assert joined["row"].tolist() == [1, 2, 3]
        write_frame(tmp_path / "out.csv", table, guard=False)
        joined = frame.merge(pd.read_csv(tmp_path / "out.csv"), on=["search id", "@sku", "size"])
        assert joined["row"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("texts", [["007", "7"], ["1.10", "1.1"], ["+1", "-0"], ["1", "9" * 19]])
def test_read_table_lists_keeps_digits_that_would_change_as_text(
    texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "new.csv"
    path.write_text("q,price\n" + "".join(f"{text},1\n" for text in texts))
    assert columns_of(path, "q", "q")["q"].tolist() == texts


def test_read_table_lists_refuses_a_column_that_the_output_adds(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("q,rank,price\n1,1,1\n")
    assert "query: the output would have two columns named 'rank'" in refused(
        lambda: columns_of(path, "rank"), ConfigError
    )
    assert "id: the output would have two columns named 'rank'" in refused(
        lambda: columns_of(path, "q", "rank"), ConfigError
    )


def as_table(path: Path) -> pa.Table:
    """A LETOR file as a table, with an id for each row."""
    lists = read_letor(path)
    columns: dict[str, Any] = {
        "q": np.repeat(lists.qids, lists.lengths).tolist(),
        "y": lists.labels.astype(int),
        "sku": np.arange(lists.items) + 2**60,
    }
    return pa.table(columns | {f"f{i}": column for i, column in enumerate(lists.features.T, 1)})


@pytest.fixture
def tables(letor_folder: Path) -> list[str]:
    """Overrides for the lists of ``letor_folder`` as tables of three forms."""
    text = {split: as_table(letor_folder / "mine" / f"{split}.txt") for split in SPLITS}
    pa.parquet.write_table(text["train"], letor_folder / "train.parquet")
    pa.csv.write_csv(text["vali"], letor_folder / "vali.csv")
    reversed_columns = text["test"].select(text["test"].column_names[::-1])
    pa.feather.write_feather(reversed_columns, letor_folder / "test.feather")
    folders = [f"data_dir={letor_folder}", f"cache_dir={letor_folder}/cache"]
    split = "dataset.split={train:train.parquet,vali:vali.csv,test:test.feather}"
    return [*ROLES, *folders, split]


def predicted(checkpoint: Path, source: Path, name: str, *overrides: str) -> Path:
    """The file that ``ltr predict`` writes beside the run folder."""
    path = checkpoint.parent / name
    keys = [f"checkpoint={checkpoint}", f"input={source}", f"output={path}"]
    call_command(predict_file, compose(*keys, *overrides, config="predict"))
    return path


def evaluated(*overrides: str) -> str:
    return call_command(evaluate_model, compose(*overrides, config="evaluate"))


def printed_values(report: str) -> list[str]:
    """The table of a report, without its head."""
    return report.split("\n\n")[1].split()[2:]


@pytest.fixture
def trained(tables: list[str], tiny: list[str], tmp_path: Path) -> tuple[Path, Path]:
    """The folders of two runs with the same results: of tables, and of the same LETOR text."""
    letor = [text for text in tiny if not text.startswith(("epochs", "model", "suggested"))]
    letor += ["model=linear", "loss=listnet", "epochs=1", "threads=1"]
    table = [*tables, *(text for text in letor if not text.startswith("dataset"))]
    table_run = tmp_path / "a"
    letor_run = tmp_path / "b"
    table_run.mkdir()
    letor_run.mkdir()
    assert run(compose(*table), table_run, {}) == run(compose(*letor), letor_run, {})
    return table_run, letor_run


@pytest.mark.slow
def test_predict_scores_tables_as_letor_text(
    trained: tuple[Path, Path], tables: list[str], letor_folder: Path, tmp_path: Path
) -> None:
    table_run, letor_run = trained
    folders = tables[4:6]
    test_file = [*ROLES, *folders, "dataset.split.test=test.feather"]
    of_run = evaluated(f"checkpoint={table_run}", folders[1])
    assert evaluated(f"checkpoint={table_run}", *test_file) == of_run, "train need not be there"

    test = as_table(letor_folder / "mine" / "test.txt")
    table = pd.read_parquet(predicted(table_run, letor_folder / "test.feather", "a.parquet"))
    assert list(table) == ["q", "sku", "row", "score", "rank"]
    assert table.sku.tolist() == test["sku"].to_pylist(), "whole numbers beyond 2**53 stay"
    text = pd.read_csv(predicted(letor_run, letor_folder / "mine" / "test.txt", "b.csv"))
    assert table.score.astype(np.float32).tolist() == text.score.astype(np.float32).tolist()
    assert table["rank"].tolist() == text["rank"].tolist()

    # rows in another order, without labels, from CSV
    shuffled = test.take(np.random.default_rng(0).permutation(len(test))).drop_columns("y")
    pa.csv.write_csv(shuffled, tmp_path / "new.csv")
    mixed = pd.read_csv(predicted(table_run, tmp_path / "new.csv", "c.csv"))
    joined = mixed.merge(table, on=["q", "sku"], validate="1:1")
    np.testing.assert_allclose(joined.score_x, joined.score_y, rtol=1e-6)
    assert mixed.sku.tolist() == shuffled["sku"].to_pylist()
    without_ids = pd.read_csv(predicted(table_run, tmp_path / "new.csv", "d.csv", "id=[]"))
    assert list(without_ids) == ["q", "row", "score", "rank"]

    # a model without names takes its features in order
    by_order = predicted(letor_run, letor_folder / "test.feather", "e.parquet", *BY_ORDER)
    assert pd.read_parquet(by_order).score.tolist() == table.score.tolist()

    # as files of TREC; where there is no id, the row stands for it
    metrics = ["conventions=trec", "metrics=[ndcg,map]"]
    expected = printed_values(evaluated(f"checkpoint={table_run}", folders[1], *metrics))
    for folder, source in ((table_run, "test.feather"), (letor_run, "mine/test.txt")):
        qrels = f"qrels={tmp_path / folder.name}.qrels"
        scored = predicted(folder, letor_folder / source, f"{folder.name}.trec", qrels)
        cfg = compose(f"scores={scored}", qrels, *metrics, config="evaluate")
        assert printed_values(call_command(evaluate_scores, cfg)) == expected


@pytest.mark.slow
def test_predict_refuses_wrong_inputs_and_outputs(
    trained: tuple[Path, Path], letor_folder: Path, tmp_path: Path
) -> None:
    test = as_table(letor_folder / "mine" / "test.txt")
    pa.csv.write_csv(test.drop_columns("y"), tmp_path / "new.csv")
    pa.parquet.write_table(test.drop_columns("f3"), tmp_path / "less.parquet")
    for name, source, overrides, kind, expected in (
        ("a", "less.parquet", [], DataError, "'f3'"),
        ("a", "new.csv", ["features=[f1]"], ConfigError, "features"),
        ("b", "new.csv", ["query=q"], ConfigError, "hold these 5 f"),
        ("b", "new.csv", [], ConfigError, "query=COLUMN"),
        ("a", "new.csv", ["query=Q"], DataError, "the table has the columns"),
        ("a", "gone.csv", [], DataError, "gone.csv"),
        ("a", "new.csv", ["qrels=q.qrels"], DataError, "'y' (label)"),
        ("a", "new.csv", ["qrels=best.pt"], ConfigError, "ends in .qrels or .txt"),
        ("b", "new.csv", [*BY_ORDER, "qrels=q.qrels"], ConfigError, "label=COLUMN"),
        ("a", "new.csv", [f"qrels={tmp_path}/new.csv"], ConfigError, "would overwrite input"),
    ):
        arguments = (tmp_path / name, tmp_path / source, "f.csv", *overrides)
        message = refused(lambda arguments=arguments: predicted(*arguments), kind)
        assert expected in message
        assert "dataset." not in message


@pytest.fixture
def linear_run(tiny: list[str], tmp_path: Path) -> Path:
    """The folder of a run that was not trained."""
    folder = tmp_path / "run"
    folder.mkdir()
    run(compose(*tiny, "loss=listnet", "epochs=0", "threads=1"), folder, {})
    return folder


@pytest.mark.slow
def test_predict_writes_the_same_in_every_format(linear_run: Path, tmp_path: Path) -> None:
    source = tmp_path / "new.txt"
    source.write_text(TEXT)

    def written(name: str, *overrides: str) -> Path:
        return predicted(linear_run, source, name, "regroup=true", *overrides)

    plain = pd.read_csv(written("a.csv"))
    assert list(plain) == ["qid", "id", "row", "score", "rank"]
    assert plain.id.fillna("").tolist() == ["GX-1", "=sku 7", "", "GX-4"]
    for name, separator in (("a.csv.gz", ","), ("a.tsv", "\t"), ("a.tsv.gz", "\t")):
        pd.testing.assert_frame_equal(pd.read_csv(written(name), sep=separator), plain)
    parquet = pd.read_parquet(written("a.parquet"))
    assert parquet.id.tolist() == ["GX-1", "=sku 7", "", "GX-4"]
    reports = set()
    for file in written("ranked.csv", "order=ranked"), tmp_path / "a.csv":
        cfg = compose(f"scores={file}", f"data={source}", "regroup=true", config="evaluate")
        reports.add(call_command(evaluate_scores, cfg).partition(" on ")[2])
    assert len(reports) == 1, "its rows are named, so that their order does not matter"
    for name, overrides, remedy in (
        ("b.csv", ["order=best"], "input"),
        ("b.txt", [], ".tsv.gz"),
        ("b.csv", ["query=zzz"], "leave query out"),
        ("b.csv", ["header=false"], "leave header out"),
    ):
        arguments = (name, *overrides)
        assert remedy in refused(lambda arguments=arguments: written(*arguments), ConfigError)


@pytest.mark.slow
def test_predict_writes_ids_of_any_type_to_text(linear_run: Path, tmp_path: Path) -> None:
    source = tmp_path / "new.parquet"
    ids = {"q": [1, 1], "sku": ["=1+2", None], "lots": [["-1"], []]}
    pd.DataFrame(ids | {name: [1.0, 2.0] for name in "abcde"}).to_parquet(source)
    keys = ["regroup=true", "query=q", "id=[sku,lots]", "features=[a,b,c,d,e]"]
    table = predicted(linear_run, source, "t.tsv", *keys)
    frame = pd.read_csv(table, sep="\t", keep_default_na=False)
    assert frame.sku.tolist() == ["=1+2", ""]
    assert frame.lots.tolist() == ["['-1']", "[]"]


def test_options_refuse_zero_threads() -> None:
    cfg = compose("checkpoint=x", "data=x", "threads=0", config="evaluate")
    with pytest.raises(ConfigError, match="threads=0: give a whole number >= 1"):
        call_command(evaluate_model, cfg)
