"""The commands on tables: the same run as on LETOR text, ids that travel, roles from the run."""

import json
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

from ltr.data.letor import read_letor
from ltr.errors import ConfigError, DataError
from ltr.experiment.run import run
from ltr.inference.evaluate import evaluate_model
from ltr.inference.predict import predict_file

SPLITS = ("train", "vali", "test")
ROLES = ["dataset=table", "dataset.query=q", "dataset.label=y", "dataset.id=[sku]"]
QUICK = ["model=linear", "loss=listnet", "epochs=1", "threads=1"]


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


def trained(folder: Path, *overrides: str) -> dict[str, float]:
    folder.mkdir()
    return run(compose(*overrides, *QUICK), folder, {})


def predicted(checkpoint: Path, source: Path, name: str, *more: str) -> pd.DataFrame:
    path = checkpoint.parent / name
    args = [f"checkpoint={checkpoint}", f"input={source}", f"output={path}", *more]
    predict_file(compose(*args, config="predict"))
    return pd.read_parquet(path) if name.endswith("parquet") else pd.read_csv(path)


@pytest.mark.slow
def test_a_table_trains_as_letor_text_does_and_its_ids_travel(
    tables: list[str], tiny: list[str], letor_folder: Path, tmp_path: Path
) -> None:
    own = [one for one in tiny if not one.startswith(("epochs", "model", "suggested"))]
    places = [one for one in own if not one.startswith("dataset")]
    assert trained(tmp_path / "a", *tables, *places) == trained(tmp_path / "b", *own)

    here = (*tables[4:6],)
    ours, other = (
        evaluate_model(compose(f"checkpoint={tmp_path}/a", *given, config="evaluate"))
        for given in ([here[1]], [*ROLES, *here, "dataset.split.test=test.feather"])
    )
    assert ours == other, "train need not be there"

    test = as_table(letor_folder / "mine" / "test.txt")
    table = predicted(tmp_path / "a", letor_folder / "test.feather", "a.parquet")
    assert list(table) == ["qid", "sku", "row", "score", "rank"]
    assert table.sku.tolist() == test["sku"].to_pylist(), "whole numbers beyond 2**53 stay"
    text = predicted(tmp_path / "b", letor_folder / "mine" / "test.txt", "b.csv")
    assert table.score.astype(np.float32).tolist() == text.score.astype(np.float32).tolist()
    assert table["rank"].tolist() == text["rank"].tolist()

    # rows in another order, without labels, from CSV
    shuffled = test.take(np.random.default_rng(0).permutation(len(test))).drop_columns("y")
    pa.csv.write_csv(shuffled, tmp_path / "new.csv")
    mixed = predicted(tmp_path / "a", tmp_path / "new.csv", "c.csv")
    joined = mixed.merge(table.astype({"sku": "int64"}), on="sku", validate="1:1")
    np.testing.assert_allclose(joined.score_x, joined.score_y, rtol=1e-6)
    assert mixed.sku.tolist() == shuffled["sku"].to_pylist()
    assert list(predicted(tmp_path / "a", tmp_path / "new.csv", "d.csv", "id=[]")) == [
        "qid", "row", "score", "rank",
    ]  # fmt: skip

    # a model without names takes its features in order
    names = ",".join(f"f{i}" for i in range(1, 6))
    by_order = [f"features=[{names}]", "query=q", "id=sku"]
    again = predicted(tmp_path / "b", letor_folder / "test.feather", "e.parquet", *by_order)
    assert again.score.tolist() == table.score.tolist()

    pa.parquet.write_table(test.drop_columns("f3"), tmp_path / "less.parquet")
    for run_, source, more, kind, word in (
        ("a", "less.parquet", [], DataError, "'f3'"),
        ("a", "new.csv", ["features=[f1]"], ConfigError, "features"),
        ("b", "new.csv", ["query=q"], ConfigError, "5 columns"),
        ("b", "new.csv", [], ConfigError, "query=COLUMN"),
        ("a", "new.csv", ["query=Q"], DataError, "it has "),
        ("a", "gone.csv", [], DataError, "gone.csv"),
    ):
        said = refused(
            lambda run_=run_, source=source, more=more: predicted(
                tmp_path / run_, tmp_path / source, "f.csv", *more
            ),
            kind,
        )
        assert word in said
        assert "dataset." not in said


@pytest.mark.slow
def test_categories_and_a_cut_through_the_commands(tmp_path: Path) -> None:
    lists = make_lists([6] * 20)
    rng = np.random.default_rng(0)
    columns = {"q": np.repeat(lists.qids, lists.lengths), "y": lists.labels}
    columns |= {"f": lists.features[:, 0], "brand": rng.choice(["x", "y"], lists.items)}
    table = pa.table(columns)
    pa.parquet.write_table(table, tmp_path / "all.parquet")
    overrides = [*ROLES[:3], "dataset.path=all.parquet", "dataset.categories=[brand]"]
    places = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache"]
    trained(tmp_path / "run", *overrides, *places)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [results["data"][split]["lists"] for split in SPLITS] == [16, 2, 2]

    new = table.drop_columns("y").set_column(2, "brand", [["never seen"] * lists.items])
    pa.csv.write_csv(new, tmp_path / "new.csv")
    scores = predicted(tmp_path / "run", tmp_path / "new.csv", "a.csv")
    assert np.isfinite(scores.score).all()
    (tmp_path / "new.txt").write_text("qid:1 1:0.5 2:1\n")
    said = refused(lambda: predicted(tmp_path / "run", tmp_path / "new.txt", "b.csv"), ConfigError)
    assert "give a table" in said
