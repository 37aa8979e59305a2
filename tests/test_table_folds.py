"""Published rows fold by fold: what is shown of a fold was chosen on its own vali."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from conftest import compose, make_lists, write_letor

from ltr.data.lists import SPLITS
from ltr.errors import ConfigError
from ltr.experiment.run_folder import write_results
from ltr.metrics import Convention
from ltr.tables.folds import _chosen, _lines, _of, _report, _tried, make_folds
from ltr.tables.order import Order
from ltr.tables.runs import Run
from ltr.tables.spec import Choices, FoldsTable, read_table


def folds_table() -> FoldsTable:
    table = read_table("letor4_baselines")
    assert isinstance(table, FoldsTable)
    return table


def finished(folder: Path, label: str, fold: int, vali: float, test: float) -> Run:
    """A run whose every metric is ``vali`` and ``test``."""
    table, folder = folds_table(), folder / f"{label}-{fold}"
    folder.mkdir()
    (folder / "history.csv").write_text("epoch\n1\n")
    splits = {"vali": vali, "test": test}
    results = {split: dict.fromkeys(table.metrics, value) for split, value in splits.items()}
    write_results(folder, {**results, "select_on": "map", "selected_epoch": 7})
    return Run(label, fold, 1, (), compose(), "", folder)


def test_every_combination_of_choices_is_a_row() -> None:
    table = folds_table()
    rows = _tried(table, "AdaRank-MAP").rows
    assert list(rows)[:2] == [
        "AdaRank-MAP model.repeat=true model.sharpness=1",
        "AdaRank-MAP model.repeat=true model.sharpness=5",
    ]
    assert len(rows) == 4
    assert list(_tried(table, "RankBoost").rows) == ["RankBoost"]
    mine = Choices(("model=mlp",), {"patience": [None, 5], "model.hidden_sizes": [[8, 4]]}, "")
    (tried, _) = _tried(replace(table, rows={"mine": mine}), "mine").rows.values()
    assert tried == ("model=mlp", "patience=null", "model.hidden_sizes=[8,4]")


def test_each_fold_shows_what_its_vali_chose_whatever_its_test_says(tmp_path: Path) -> None:
    values = {("a", 1): (0.3, 0.9), ("b", 1): (0.4, 0.1), ("a", 2): (0.5, 0.2), ("b", 2): (0.1, 1)}
    runs = [finished(tmp_path, f"RankBoost {name}", fold, *pair)
            for (name, fold), pair in values.items()]  # fmt: skip
    frame = _of(_chosen("RankBoost", runs, folds_table()), split="test", metric="map")
    assert frame[["fold", "chosen", "ours"]].values.tolist() == [[1, "b", 0.1], [2, "a", 0.2]]
    assert frame.published.tolist() == [0.4666, 0.438]  # of the file
    ours, published, apart = ([cell.text for cell in line] for line in _lines("RankBoost", frame))
    assert ours == ["RankBoost", "0.1000", "0.2000", "0.1500"]
    assert published[1:] == ["0.4666", "0.4380", "0.4523"]
    assert apart == ["difference", "-0.3666", "-0.2380", "-0.3023"]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (Order("t", rows=("SVM",)), "rows=SVM: "),
        (Order("t", margin=0.1), "margin: .*leave it out"),
        (Order("t", percent=True), "percent: .*leave it out"),
        (Order("t", ("dataset=synthetic",)), "dataset=synthetic, 0 folds: .* mq2008, 5 folds"),
        (Order("t", ("dataset=mq2007",)), "dataset=mq2007, 5 folds: .*leave dataset out"),
        (Order("t", ("metrics_as=paper",)), "letor4 .*leave metrics_as and convention out"),
        (Order("t", ("convention.empty=1",)), "letor4 .*leave metrics_as"),
        (Order("t", ("metrics=[ndcg@5]",)), "metrics: map is compared"),
        (Order("t", ("epochs=1",)), "epochs=1: every row .*leave it out"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(order: Order, said: str) -> None:
    order = replace(order, rows=order.rows or ("RankBoost",))
    with pytest.raises(ConfigError, match=f"^{said}"):
        make_folds(folds_table(), order)


@pytest.mark.slow
def test_lists_other_than_the_published_are_refused(tmp_path: Path) -> None:
    for fold, split in product(range(1, 6), SPLITS):
        write_letor(tmp_path / f"MQ2008/Fold{fold}/{split}.txt", make_lists([3], width=46))
    places = (f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache")
    order = Order("t", places, rows=("RankBoost",), output_dir=str(tmp_path), dry_run=True)
    with pytest.raises(ConfigError, match="1 lists here, 156 as published; give the published"):
        make_folds(folds_table(), order)


def test_the_page_says_the_convention(tmp_path: Path) -> None:
    table, run = folds_table(), finished(tmp_path, "RankBoost", 1, 0.1, 0.2)
    frame = _chosen("RankBoost", [run], table)
    convention = Convention(0, discount="letor", short="zero", levels=3)
    facts = dict(_report(table, Order("t"), frame, 1, convention).facts)
    assert facts["convention"] == f"letor4: {convention.describe()}"
