"""Published rows fold by fold: what is shown of a fold was chosen on its own vali."""

from pathlib import Path

import pytest
from conftest import compose

from ltr.errors import ConfigError
from ltr.experiment.run_folder import write_results
from ltr.tables.folds import _chosen, _lines, _of, _tried, make_folds
from ltr.tables.order import Order
from ltr.tables.runs import Run
from ltr.tables.spec import FoldsTable, read_table


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


def test_mistakes_end_with_the_remedy() -> None:
    for order, said in (
        (Order("letor4_baselines", rows=("SVM",)), "rows=SVM"),
        (Order("letor4_baselines", margin=0.1), "margin"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_folds(folds_table(), order)
