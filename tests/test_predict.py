"""``ltr predict``: ids of the items, the order of the rows, tables as LETOR text, the output."""

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
from conftest import compose, make_lists
from folders import refused
from runs import run

from ltr.atomic import write_frame
from ltr.data.letor import read_letor
from ltr.data.lists import SPLITS, Columns
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.inference.evaluate import evaluate_model, evaluate_scores
from ltr.inference.predict import predict_file, ranking, unseen
from ltr.models import Linear
from ltr.scorers.inputs import read_file, read_input, read_table, set_threads
from ltr.scorers.scorer import Scorer

TEXT = (
    "2 qid:b 1:1 #docid = GX-1 inc = 0.5\n"
    "0 qid:a 1:2 # =sku 7\n"
    "1 qid:b 1:3\n"
    "0 qid:a 1:4 #docid = GX-4\n"
)


ROLES = ["dataset=table", "dataset.query=q", "dataset.label=y", "dataset.id=[sku]"]


def test_ids_go_with_the_items_and_rows_are_as_in_the_input_or_ranked(tmp_path: Path) -> None:
    (path := tmp_path / "new.txt").write_text("0 qid:1 1:1\n")
    assert read_file(path, True, ids=True)[1].empty
    path.write_text(TEXT)
    lists, ids = read_file(path, True, ids=True)
    assert lists.qids.tolist() == ["b", "a"]
    assert lists.source_rows.tolist() == [0, 2, 1, 3]
    assert ids["id"].tolist() == ["GX-1", "", "=sku 7", "GX-4"]
    scores = np.array([0.5, 0.9, 0.2, 0.2])
    table, ranked = (ranking(lists, ids, scores, order) for order in ("input", "ranked"))
    assert table.row.tolist() == [1, 2, 3, 4]
    assert table["rank"].tolist() == [2, 1, 1, 2], "ties in file order"
    assert ranked.qid.tolist() == ["b", "b", "a", "a"], "lists as they come"
    assert ranked.row.tolist() == [3, 1, 2, 4]
    assert ranked["rank"].tolist() == [1, 2, 1, 2]
    assert ranked.sort_values("row").score.tolist() == table.score.tolist()


def test_unseen_counts_the_values_that_train_lacks(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    columns = Columns(("price", "brand"), {"brand": ("acme", "zeta")})
    kept = Scorer(Linear(2), no_transform(make_lists([2], width=2)), columns, {"dataset": {}})

    def said(brands: list[str]) -> dict[str, tuple[int, int]]:
        pd.DataFrame({"q": [1, 1, 2], "price": [1, 1, 3], "brand": brands}).to_csv(path)
        cfg = compose(f"input={path}", "query=q", "checkpoint=x", "output=x.csv", config="predict")
        return unseen(read_input(cfg, kept)[0], kept)

    assert said(["acme", "acme", "zeta"]) == {}
    assert said(["acme", "acme", "other"]) == {"brand": (1, 2)}
    assert said(["Acme", "ACME", ""]) == {"brand": (2, 0)}


@pytest.mark.parametrize(
    ("prices", "query", "said"),
    [(["3 €", "4 €"], "q", "categories=[price]"), ([date(2026, 1, 2)] * 2, "q", "price"),
     ([3, 4], "gone", "'gone' (")],
)  # fmt: skip
def test_a_column_that_cannot_be_read_is_named(prices, query, said, tmp_path: Path) -> None:
    path = tmp_path / "new.parquet"
    pd.DataFrame({"q": [1, 1], "price": prices}).to_parquet(path)
    kept = Scorer(Linear(1), no_transform(make_lists([2])), Columns(("price",)), {"dataset": {}})
    given = [f"input={path}", f"query={query}", "checkpoint=x", "output=x.csv"]
    assert said in refused(lambda: read_table(compose(*given, config="predict"), kept), DataError)


def columns_of(path: Path, query: str, *ids: str) -> pd.DataFrame:
    """The query column and the id columns of a table, as they go into the output."""
    kept = Scorer(Linear(1), no_transform(make_lists([2])), Columns(("price",)), {"dataset": {}})
    given = [f"input={path}", f"query={query}", f"id=[{','.join(ids)}]", "checkpoint=x", "output=y"]
    lists, columns, queries = read_table(compose(*given, config="predict"), kept)
    return ranking(lists, columns, np.zeros(lists.items), "input", queries)


def test_queries_and_ids_keep_their_name_type_and_text(tmp_path: Path) -> None:
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
def test_texts_of_digits_that_would_change_stay_texts(texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("q,price\n" + "".join(f"{text},1\n" for text in texts))
    assert columns_of(path, "q", "q")["q"].tolist() == texts


def test_a_column_that_the_output_makes_is_no_query_and_no_id(tmp_path: Path) -> None:
    (path := tmp_path / "new.csv").write_text("q,rank,price\n1,1,1\n")
    assert "query: a column 'rank'" in refused(lambda: columns_of(path, "rank"), ConfigError)
    assert "id: a column 'rank'" in refused(lambda: columns_of(path, "q", "rank"), ConfigError)


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
    back = text["test"].select(text["test"].column_names[::-1])
    pa.feather.write_feather(back, letor_folder / "test.feather")
    places = [f"data_dir={letor_folder}", f"cache_dir={letor_folder}/cache"]
    split = "dataset.split={train:train.parquet,vali:vali.csv,test:test.feather}"
    return [*ROLES, *places, split]


def predicted(checkpoint: Path, source: Path, name: str, *more: str) -> Path:
    path = checkpoint.parent / name
    args = [f"checkpoint={checkpoint}", f"input={source}", f"output={path}", *more]
    predict_file(compose(*args, config="predict"))
    return path


@pytest.mark.slow
def test_a_table_trains_as_letor_text_does_and_its_ids_travel(
    tables: list[str], tiny: list[str], letor_folder: Path, tmp_path: Path
) -> None:
    own = [one for one in tiny if not one.startswith(("epochs", "model", "suggested"))]
    own += ["model=linear", "loss=listnet", "epochs=1", "threads=1"]
    other = [*tables, *(one for one in own if not one.startswith("dataset"))]
    for folder in (run_a := tmp_path / "a", run_b := tmp_path / "b"):
        folder.mkdir()
    assert run(compose(*other), run_a, {}) == run(compose(*own), run_b, {})

    here = tables[4:6]
    ours, other = (
        evaluate_model(compose(f"checkpoint={run_a}", *given, config="evaluate"))
        for given in ([here[1]], [*ROLES, *here, "dataset.split.test=test.feather"])
    )
    assert ours == other, "train need not be there"

    test = as_table(letor_folder / "mine" / "test.txt")
    table = pd.read_parquet(predicted(run_a, letor_folder / "test.feather", "a.parquet"))
    assert list(table) == ["q", "sku", "row", "score", "rank"]
    assert table.sku.tolist() == test["sku"].to_pylist(), "whole numbers beyond 2**53 stay"
    text = pd.read_csv(predicted(run_b, letor_folder / "mine" / "test.txt", "b.csv"))
    assert table.score.astype(np.float32).tolist() == text.score.astype(np.float32).tolist()
    assert table["rank"].tolist() == text["rank"].tolist()

    # rows in another order, without labels, from CSV
    shuffled = test.take(np.random.default_rng(0).permutation(len(test))).drop_columns("y")
    pa.csv.write_csv(shuffled, tmp_path / "new.csv")
    mixed = pd.read_csv(predicted(run_a, tmp_path / "new.csv", "c.csv"))
    joined = mixed.merge(table, on=["q", "sku"], validate="1:1")
    np.testing.assert_allclose(joined.score_x, joined.score_y, rtol=1e-6)
    assert mixed.sku.tolist() == shuffled["sku"].to_pylist()
    bare = pd.read_csv(predicted(run_a, tmp_path / "new.csv", "d.csv", "id=[]"))
    assert list(bare) == ["q", "row", "score", "rank"]

    # a model without names takes its features in order
    by_order = ["features=[f1,f2,f3,f4,f5]", "query=q", "id=sku"]
    again = predicted(run_b, letor_folder / "test.feather", "e.parquet", *by_order)
    assert pd.read_parquet(again).score.tolist() == table.score.tolist()

    # as files of TREC; where there is no id, the row stands for it
    asked = ["metrics_as=trec", "metrics=[ndcg,map]"]
    wanted = evaluate_model(compose(f"checkpoint={run_a}", here[1], *asked, config="evaluate"))
    for folder, source in ((run_a, "test.feather"), (run_b, "mine/test.txt")):
        given = [f"qrels={tmp_path / folder.name}.qrels"]
        scored = predicted(folder, letor_folder / source, f"{folder.name}.trec", *given)
        cfg = compose(f"scores={scored}", *given, *asked, config="evaluate")
        assert (
            evaluate_scores(cfg).split("\n\n")[1].split()[2:] == wanted.split("\n\n")[1].split()[2:]
        )

    pa.parquet.write_table(test.drop_columns("f3"), tmp_path / "less.parquet")
    for name, source, more, kind, word in (
        ("a", "less.parquet", [], DataError, "'f3'"),
        ("a", "new.csv", ["features=[f1]"], ConfigError, "features"),
        ("b", "new.csv", ["query=q"], ConfigError, "5 columns"),
        ("b", "new.csv", [], ConfigError, "query=COLUMN"),
        ("a", "new.csv", ["query=Q"], DataError, "it has "),
        ("a", "gone.csv", [], DataError, "gone.csv"),
        ("a", "new.csv", ["qrels=q.qrels"], DataError, "'y' (label)"),
        ("a", "new.csv", ["qrels=best.pt"], ConfigError, "ends in .qrels or .txt"),
        ("b", "new.csv", [*by_order, "qrels=q.qrels"], ConfigError, "label=COLUMN"),
        ("a", "new.csv", [f"qrels={tmp_path}/new.csv"], ConfigError, "is input"),
    ):
        given = tmp_path / name, tmp_path / source, "f.csv", *more
        said = refused(lambda given=given: predicted(*given), kind)
        assert word in said
        assert "dataset." not in said


@pytest.mark.slow
def test_every_form_of_the_output_holds_the_same(tiny, tmp_path: Path) -> None:
    out, source = tmp_path / "run", tmp_path / "new.txt"
    out.mkdir()
    run(compose(*tiny, "loss=listnet", "epochs=0", "threads=1"), out, {})
    source.write_text(TEXT)

    def written(name: str, *more: str) -> Path:
        return predicted(out, source, name, "regroup=true", *more)

    plain = pd.read_csv(written("a.csv"))
    assert list(plain) == ["qid", "id", "row", "score", "rank"]
    assert plain.id.fillna("").tolist() == ["GX-1", "=sku 7", "", "GX-4"]
    for name, separator in (("a.csv.gz", ","), ("a.tsv", "\t"), ("a.tsv.gz", "\t")):
        pd.testing.assert_frame_equal(pd.read_csv(written(name), sep=separator), plain)
    kept = pd.read_parquet(written("a.parquet"))
    assert kept.id.tolist() == ["GX-1", "=sku 7", "", "GX-4"]
    measured = set()
    for file in written("ranked.csv", "order=ranked"), tmp_path / "a.csv":
        asked = compose(f"scores={file}", f"data={source}", "regroup=true", config="evaluate")
        measured.add(evaluate_scores(asked).partition(" on ")[2])
    assert len(measured) == 1, "its rows are named, so that their order does not matter"
    for name, wrong, remedy in (
        ("b.csv", ["order=best"], "input"),
        ("b.txt", [], ".tsv.gz"),
        ("b.csv", ["query=zzz"], "leave query out"),
        ("b.csv", ["header=false"], "leave header out"),
    ):
        asked_wrongly = lambda name=name, wrong=wrong: written(name, *wrong)  # noqa: E731
        assert remedy in refused(asked_wrongly, ConfigError)
    source = tmp_path / "new.parquet"
    ids = {"q": [1, 1], "sku": ["=1+2", None], "lots": [["-1"], []]}
    pd.DataFrame(ids | {name: [1.0, 2.0] for name in "abcde"}).to_parquet(source)
    table = written("t.tsv", "query=q", "id=[sku,lots]", "features=[a,b,c,d,e]")
    read = pd.read_csv(table, sep="\t", keep_default_na=False)
    assert (read.sku.tolist(), read.lots.tolist()) == (["=1+2", ""], ["['-1']", "[]"])


def test_one_thread_is_enough_and_none_is_not() -> None:
    set_threads(compose("checkpoint=x", "data=x", "threads=1", config="evaluate"))
    with pytest.raises(ConfigError, match="threads=0: give a whole number >= 1"):
        set_threads(compose("checkpoint=x", "data=x", "threads=0", config="evaluate"))
