"""``ltr predict``: ids of the items, the order of the rows, and the form of the output."""

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import compose, make_lists
from folders import refused

from ltr.data.lists import Columns, Lists
from ltr.data.transforms import no_transform
from ltr.errors import ConfigError, DataError
from ltr.experiment.run import run
from ltr.inference.evaluate import evaluate_scores
from ltr.inference.predict import predict_file, ranking, unseen
from ltr.models import Linear
from ltr.scorers.inputs import read_file, read_input, read_table
from ltr.scorers.scorer import Scorer

TEXT = (
    "2 qid:b 1:1 #docid = GX-1 inc = 0.5\n"
    "0 qid:a 1:2 # =sku 7\n"
    "1 qid:b 1:3\n"
    "0 qid:a 1:4 #docid = GX-4\n"
)


def given(folder: Path, text: str = TEXT) -> tuple[Lists, pd.DataFrame]:
    path = folder / "new.txt"
    path.write_text(text)
    return read_file(path, True, labelled=False)


def test_ids_go_with_the_items_and_rows_are_as_in_the_input_or_ranked(tmp_path: Path) -> None:
    assert given(tmp_path, "0 qid:1 1:1\n")[1].empty
    lists, ids = given(tmp_path)
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


def test_a_column_none_of_whose_values_train_had_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    columns = Columns(("price", "brand"), {"brand": ("acme", "zeta")})
    kept = Scorer(Linear(2), no_transform(make_lists([2], width=2)), columns, {"dataset": {}})

    def said(brands: list[str]) -> list[str]:
        pd.DataFrame({"q": [1, 1, 2], "price": [1, 1, 3], "brand": brands}).to_csv(path)
        cfg = compose(f"input={path}", "query=q", "checkpoint=x", "output=x.csv", config="predict")
        return unseen(read_input(cfg, kept)[0], kept)

    assert said(["acme", "acme", "other"]) == []
    assert said(["Acme", "ACME", ""]) == ["brand"]


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


@pytest.mark.slow
def test_every_form_of_the_output_holds_the_same(tiny, tmp_path: Path) -> None:
    out, source = tmp_path / "run", tmp_path / "new.txt"
    out.mkdir()
    run(compose(*tiny, "loss=listnet", "epochs=0", "threads=1"), out, {})
    source.write_text(TEXT)

    def predicted(name: str, *more: str) -> Path:
        path = tmp_path / name
        args = [f"checkpoint={out}", f"input={source}", f"output={path}", "regroup=true", *more]
        predict_file(compose(*args, config="predict"))
        return path

    plain = pd.read_csv(predicted("a.csv"))
    assert list(plain) == ["qid", "id", "row", "score", "rank"]
    assert plain.id.fillna("").tolist() == ["GX-1", "'=sku 7", "", "GX-4"]
    for name, separator in (("a.csv.gz", ","), ("a.tsv", "\t"), ("a.tsv.gz", "\t")):
        pd.testing.assert_frame_equal(pd.read_csv(predicted(name), sep=separator), plain)
    kept = pd.read_parquet(predicted("a.parquet"))
    assert kept.id.tolist() == ["GX-1", "=sku 7", "", "GX-4"], "no spreadsheet opens it"
    measured = set()
    for file in predicted("ranked.csv", "order=ranked"), tmp_path / "a.csv":
        asked = compose(f"scores={file}", f"data={source}", "regroup=true", config="evaluate")
        measured.add(evaluate_scores(asked).partition(" on ")[2])
    assert len(measured) == 1, "its rows are named, so that their order does not matter"
    for name, wrong, remedy in (
        ("b.csv", ["order=best"], "input"),
        ("b.txt", [], ".tsv.gz"),
        ("b.csv", ["query=zzz"], "leave query out"),
        ("b.csv", ["header=false"], "leave header out"),
    ):
        asked_wrongly = lambda name=name, wrong=wrong: predicted(name, *wrong)  # noqa: E731
        assert remedy in refused(asked_wrongly, ConfigError)
    source = tmp_path / "new.parquet"
    ids = {"q": [1, 1], "sku": ["=1+2", None], "lots": [["-1"], []]}
    pd.DataFrame(ids | {name: [1.0, 2.0] for name in "abcde"}).to_parquet(source)
    table = predicted("t.tsv", "query=q", "id=[sku,lots]", "features=[a,b,c,d,e]")
    read = pd.read_csv(table, sep="\t", keep_default_na=False)
    assert (read.sku.tolist(), read.lots.tolist()) == (["'=1+2", ""], ["['-1']", "[]"])
