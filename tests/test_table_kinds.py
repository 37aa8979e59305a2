"""Tables beside published numbers: fold by fold, as vali chose, and counts of data sets."""

import re
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from conftest import compose, make_lists, write_letor
from made_table import write_data
from orders import table_of

from ltr.data.lists import SPLITS
from ltr.errors import ConfigError
from ltr.experiment.run_folder import write_results
from ltr.tables.folds import fold_report
from ltr.tables.runs import Run
from ltr.tables.spec import STATISTICS, read_table
from ltr.tables.table import make_table

FOLDS = read_table("letor4_baselines")


def finished(folder: Path, label: str, fold: int, vali: float, test: float) -> Run:
    """A run whose every metric is ``vali`` and ``test``."""
    folder = folder / f"{label}-{fold}"
    folder.mkdir()
    (folder / "history.csv").write_text("epoch\n1\n")
    splits = {"vali": vali, "test": test}
    results = {split: dict.fromkeys(FOLDS.metrics, value) for split, value in splits.items()}
    write_results(folder, {**results, "select_on": "map", "selected_epoch": 7})
    return Run(label, fold, 1, (), compose(), "", folder)


def test_every_combination_of_choices_is_a_row() -> None:
    rows = [label for label, row in FOLDS.rows.items() if row.choice_of == "AdaRank-MAP"]
    assert rows[0] == "AdaRank-MAP model.repeat=true model.sharpness=1"
    assert FOLDS.rows[rows[0]].settings[-2:] == ["model.repeat=true", "model.sharpness=1"]
    assert list(FOLDS.only(["adarank-map"]).rows) == rows
    assert (len(rows), "RankBoost" in FOLDS.rows) == (4, True)


def test_each_fold_shows_what_its_vali_chose_whatever_its_test_says(tmp_path: Path) -> None:
    one, other = "model.repeat=true model.sharpness=1", "model.repeat=false model.sharpness=5"
    values = {
        (one, 1): (0.3, 0.9), (other, 1): (0.4, 0.1), (one, 2): (0.5, 0.2), (other, 2): (0.1, 1),
    }  # fmt: skip
    runs = [finished(tmp_path, f"AdaRank-MAP {name}", fold, *pair)
            for (name, fold), pair in values.items()]  # fmt: skip
    report, frames = fold_report(FOLDS, runs, "mine", "command")
    maps = frames["table"].query("split == 'test' and metric == 'map'")
    assert maps[["fold", "chosen", "ours"]].values.tolist() == [[1, other, 0.1], [2, one, 0.2]]
    assert maps.published.tolist() == [0.4627, 0.4232]  # of the file
    assert dict(report.facts)["convention"].startswith("letor4: empty list = 0")
    assert ["AdaRank-MAP", f"{other}, 7", f"{one}, 7"] in report.blocks[-2].rows
    (block,) = [block for block in report.blocks if block.title == "map of test"]
    assert block.rows == [
        ["AdaRank-MAP", "0.1000", "0.2000", "0.1500"],
        ["AdaRank-MAP (published)", "0.4627", "0.4232", "0.4430"],
        ["difference", "-0.3627", "-0.2232", "-0.2929"],
    ]


@pytest.mark.parametrize(
    "given",
    ["margin=0.1", "percent=true", "dataset=synthetic", "metrics_as=paper", "metrics=[map]",
     "epochs=1", "budget=2"],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_before_anything_runs(given: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(given)}: .*leave it out"):
        make_table(table_of(["table=letor4_baselines", "rows=RankBoost", given]))


@pytest.mark.slow
def test_lists_other_than_the_published_are_refused(tmp_path: Path) -> None:
    for fold, split in product(range(1, 6), SPLITS):
        write_letor(tmp_path / f"MQ2008/Fold{fold}/{split}.txt", make_lists([3], width=46))
    places = [f"data_dir={tmp_path}", f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}"]
    order = table_of(["table=letor4_baselines", "rows=RankBoost", *places, "dry_run=true"])
    with pytest.raises(ConfigError, match="1 lists here, 156 as published; give the published"):
        make_table(order)


@pytest.mark.slow
def test_any_data_set_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data(tmp_path)
    assert make_table(table_of(["table=neuralndcg_table2", *data, f"output_dir={tmp_path}/out"]))
    assert "lists train+vali" in capsys.readouterr().out
    folder = tmp_path / "out/tables/neuralndcg_table2_letor"
    found = pd.read_csv(folder / "table.csv").set_index("what")["counted"]
    counts = {"features": 5, "lists train": 24, "lists train+vali": 32, "lists test": 30}
    assert found[list(counts)].to_dict() == counts
    given = [f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out"]
    assert not make_table(table_of(["table=neuralndcg_table2", *given]))
    said = capsys.readouterr().err
    assert "download MSLR-WEB30K.zip" in said
    assert "download istella-letor.tar.gz" in said


def test_published_counts_stand_beside_and_runs_make_no_sense() -> None:
    published = read_table("neuralndcg_table2").published[STATISTICS].values
    assert published["web30k"] == {
        "features": 136, "lists train": 18919, "lists test": 6306, "empty lists": 982,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"seeds=2: .* counts data .*leave it out"):
        make_table(table_of(["table=neuralndcg_table2", "seeds=2"]))
