"""What a table says of its rows: published numbers, verdicts, and why a row is missing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from ltr.experiment.run_folder import RunFolder, write_results
from ltr.lab.tables.report import (
    MARK,
    build_blocks,
    build_facts,
    build_fold_report,
    count_unfinished,
)
from ltr.lab.tables.results import Results, over_repeats
from ltr.lab.tables.runs import Run
from ltr.lab.tables.spec import Published, Row, Table, read_table
from ltr.pages.report import ResultsPage, latex, markdown, terminal
from tests.helpers.folders import finish
from tests.helpers.runs import compose

TABLE = Table(
    name="mine",
    title="Mine",
    rows={label: Row() for label in ("good", "bad", "twin", "gone")},
    metrics=["ndcg@5", "map"],
    conventions=["paper"],
    verdicts=["ndcg@5"],
    baseline="bad",
)
CONFIG = OmegaConf.create(
    {
        "dataset": {"name": "letor"}, "select": "best", "select_on": "ndcg@5", "seed": 1,
        "suggested": {"levels": 3},
    }
)  # fmt: skip


def measured_row(
    label: str, seed: int, mean: float, *, fold: int | None = None
) -> tuple[Run, dict[str, Any]]:
    """A run whose queries vary around ``mean``, the same in every run but for a little noise."""
    shared = np.random.default_rng(7).normal(0, 0.05, 300)
    noise = np.random.default_rng([seed, len(label)]).normal(0, 0.002, 300)
    values = mean + shared + noise
    run = Run(label, fold, seed, (), CONFIG, f"{label} {seed}", Path(f"/{label}/{seed}"))
    qids = np.arange(300).astype(str)
    return run, {
        "row": label, "fold": fold, "seed": seed, "epoch": 2, "crossfit vali": np.nan,
        "commit": "a" * 40, "paper ndcg@5": values.mean(), "paper map": values.mean() / 2,
        "queries": {"ndcg@5": (qids, values), "map": (qids, values / 2)},
    }  # fmt: skip


ROWS = [
    measured_row(label, seed, mean)
    for label, mean in {"good": 0.6, "bad": 0.5, "twin": 0.5004}.items()
    for seed in (1, 2, 3)
]


def results_of(
    rows: Sequence[tuple[Run, dict[str, Any]]] = ROWS,
    published: Published | None = None,
    **more: Any,
) -> Results:
    table = replace(TABLE, published={} if published is None else {"letor": published})
    fields = {"runs": [run for run, _ in rows], "missing": {}, "lists": "", **more}
    by_run = pd.DataFrame([row for _, row in rows], columns=[*ROWS[0][1]])
    return Results(table, by_run=by_run, margin=0.005, **fields)


@pytest.mark.slow
def test_build_blocks_shows_published_numbers_below_ours() -> None:
    ours = results_of().numbers.set_index(["row", "metric"])["ours"]
    values = {
        "good": {"paper": {"ndcg@5": float(ours["good", "ndcg@5"])}},
        "bad": {"paper": {"ndcg@5": 0.9, "map": 0.25}},
        "theirs": {"paper": {"ndcg@5": 0.1}},
    }
    results = results_of(published=Published("there", values, others="theirs"))
    numbers = results.numbers.set_index(["metric", "row"])
    assert numbers.loc["ndcg@5", "covered"].to_dict() == {
        "good": "covers", "bad": "below", "twin": "above",
    }  # fmt: skip
    assert numbers.loc[("ndcg@5", "twin"), "beside"] == "theirs"
    assert numbers.loc[("ndcg@5", "bad"), "difference"] == pytest.approx(
        ours["bad", "ndcg@5"] - 0.9
    )
    assert numbers.loc[("map", "bad"), "published"] == 0.25
    assert pd.isna(numbers.loc[("map", "good"), "published"])
    bare = replace(results.table, rows={**results.table.rows, "twin": Row(["epochs=0"])})
    numbers = replace(results, table=bare).numbers.set_index(["metric", "row"])
    assert pd.isna(numbers.loc[("ndcg@5", "twin"), "published"])  # others are of trained rows
    table, verdicts = build_blocks(results)
    assert [row for row in table.rows if "published" in row[0]][1:] == [
        ["bad (published)", "0.9000", "0.2500"], ["theirs (published)", "0.1000", ""],
    ]  # fmt: skip
    less = f"{ours['twin', 'ndcg@5'] - 0.1:+.4f}"
    assert verdicts.rows[2][-3:] == ["0.1000 of theirs", less, "ours above"]
    assert "is not a test of the difference" in verdicts.note


@pytest.mark.slow
def test_build_blocks_shows_every_row_and_marks_the_best() -> None:
    table, verdicts = build_blocks(results_of(missing={"gone": "failed"}))
    assert [row[0] for row in table.rows] == ["good", "bad", "twin", "gone"]
    assert table.rows[3][1] == "failed"
    assert build_blocks(results_of())[0].rows[3][1] == "not run"
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert [row[1] for row in verdicts.rows] == ["better", "", "equivalent"]
    numbers = results_of().numbers.set_index(["row", "metric"])
    assert numbers.loc[("good", "ndcg@5"), "less_baseline"] == pytest.approx(0.1, abs=0.001)
    assert pd.isna(numbers.loc[("good", "map"), "verdict"])  # not a metric of verdicts
    assert "the baseline" in verdicts.rows[1]
    assert table.best == [("good", "ndcg@5")]
    assert (
        build_blocks(results_of(ROWS[3:]))[0].best == []
    )  # the largest is equivalent to the baseline
    assert [row[1].endswith(f" {MARK}") for row in table.rows] == [True, False, False, False]
    assert verdicts.head[4] == "minus bad"
    assert f"{MARK}: differs from bad (p < 0.05 after Holm's correction)" in table.note
    report = ResultsPage("mine", "Mine", "make", (("data", "letor"),), (table, verdicts))
    assert re.search(r"\*\*0\.\d{4} ± 0\.\d{4} †\*\*", markdown(report))
    assert re.search(r"\\textbf{0\.\d{4} \$\\pm\$ 0\.\d{4} \$\^\\dagger\$}", latex(report))
    assert "**" not in terminal(report)


@pytest.mark.slow
def test_build_facts_names_data_seeds_and_verdicts() -> None:
    results = results_of(published=Published("a book", {}), lists="test 9")
    head = dict(build_facts(results))
    assert {key: head[key] for key in head if key != "verdict"} == {
        "data": "letor, test",
        "lists": "test 9",
        "selection": "best epoch by ndcg@5 on vali (select=best)",
        "seeds": "1 2 3",
        "runs": "9 of 9 runs are done",
        "commit": "a" * 40,
        "±": "standard deviation over seeds",
        "interval": "95%, over queries and seeds",
        "baseline": "bad",
        "published": "a book",
    }
    assert "Holm" in head["verdict"]
    without_baseline = [(run, row) for run, row in ROWS if run.label != "bad"]
    assert (
        "no row is compared with it" in dict(build_facts(results_of(without_baseline)))["baseline"]
    )
    last = CONFIG.copy()
    last.select = "last"
    runs = [replace(run, config=last) if run.label == "twin" else run for run, _ in ROWS]
    assert dict(build_facts(results_of(runs=runs)))["selection"] == (
        "best epoch by ndcg@5 on vali (select=best); last epoch (select=last)"
    )


@pytest.mark.slow
def test_build_blocks_names_vali_and_shows_no_published_number() -> None:
    theirs = Published("a book", {"good": {"paper": {"ndcg@5": 0.6}}})
    results = results_of(published=theirs, split="vali", left_out="they are of test")
    head = dict(build_facts(results))
    assert head["data"] == "letor, vali"
    assert head["NOTE"].startswith("no test split: these values are measured on vali")
    assert head["published"] == "left out: they are of test"
    numbers, verdicts = build_blocks(results)
    assert numbers.title == "Vali metrics, convention=paper"
    assert verdicts.title == "Verdicts by ndcg@5 on vali"
    assert "published" not in f"{numbers} {verdicts}"
    assert results.numbers["split"].unique().tolist() == ["vali"]


def test_results_leave_out_a_seed_that_lacks_a_fold() -> None:
    rows = [measured_row("bad", seed, 0.5, fold=fold) for seed in (1, 2) for fold in (1, 2)][:-1]
    results = results_of(rows)
    interval = results.verdicts["ndcg@5"].intervals["bad"]
    assert (interval.queries, interval.seeds) == (600, 1)
    assert results.complete["seed"].tolist() == [1, 1]
    assert results.numbers["runs"].unique().tolist() == [2]
    third = replace(rows[0][0], fold=3)
    without = results_of(rows, runs=[*(run for run, _ in rows), third])
    assert without.numbers.empty
    assert without.verdicts == {}


def test_count_unfinished_counts_missing_runs(tmp_path: Path) -> None:
    runs = [
        Run(label, fold, 1, (), CONFIG, "0" * 64, tmp_path / f"{label}{fold}")
        for label in ("some", "all")
        for fold in (1, 2)
    ]
    for run in runs:
        if run.label == "all" or run.fold == 1:
            run.folder.mkdir()
            RunFolder(run.folder).prepare(run.identity)
            finish(run.folder, {})
    assert count_unfinished(runs) == {"some": "1 of 2 runs"}
    assert dict(build_facts(results_of([], runs=runs)))["incomplete"] == "some has 1 of 2 runs"


@pytest.mark.slow
def test_build_facts_says_that_one_seed_covers_the_models_only() -> None:
    results = results_of([(run, row) for run, row in ROWS if run.seed == 1])
    assert (
        "good: holds for these models, not for the methods: one seed"
        in build_blocks(results)[1].note
    )
    assert "one seed" not in build_blocks(results_of())[1].note
    head = dict(build_facts(results))
    assert head["interval"] == "95%, over queries only (these models)"
    assert head["±"] == "no deviation: one seed"


def test_over_repeats_takes_deviations_over_seeds_of_means_over_folds() -> None:
    values = pd.DataFrame(product("a", (1, 2, 3), (0, 10)), columns=["row", "fold", "seed"])
    values["x"] = values["fold"] + values["seed"] / 10
    for runs, mean, means in ((values, 2.5, [0, 1]), (values[values["seed"] == 0], 2, [1, 2, 3])):
        repeats = over_repeats(runs)["a"]
        assert repeats["x", "mean"] == pytest.approx(mean)
        assert repeats["x", "std"] == pytest.approx(np.std(means, ddof=1))


@pytest.mark.slow
def test_verdicts_count_an_ensemble_of_all_seeds_as_one_training() -> None:
    run, row = measured_row("good", 1, 0.6)
    ensemble = replace(run, label="all"), row | {"row": "all"}
    judged = results_of([*ROWS, ensemble]).verdicts["ndcg@5"]
    seeds = {row: interval.seeds for row, interval in judged.intervals.items()}
    assert seeds == {"good": 3, "bad": 3, "twin": 3, "all": 1}
    assert judged.against["good"].word == "better"
    assert judged.against["all"].word == "differ"  # one seed tells nothing of the method
    assert judged.intervals["all"].standard_error.covers == "queries"


# --- fold by fold

FOLDS = read_table("letor4_baselines")


def finished(folder: Path, label: str, fold: int, vali: float, test: float) -> Run:
    """A run whose every metric is ``vali`` and ``test``."""
    folder = folder / f"{label}-{fold}"
    folder.mkdir()
    (folder / "history.csv").write_text("epoch\n1\n")
    splits = {"vali": vali, "test": test}
    results = {split: dict.fromkeys(FOLDS.metrics, value) for split, value in splits.items()}
    write_results(folder, {**results, "select_on": "map", "selected_epoch": 7})
    return Run(label, fold, 1, (), compose("dataset=mq2008"), "", folder)


def test_build_fold_report_shows_what_vali_chose(tmp_path: Path) -> None:
    sharp = "model.repeat=true model.sharpness=1"
    sharpest = "model.repeat=false model.sharpness=5"
    values = {
        (sharp, 1): (0.3, 0.9),
        (sharpest, 1): (0.4, 0.1),
        (sharp, 2): (0.5, 0.2),
        (sharpest, 2): (0.1, 1),
    }
    runs = [finished(tmp_path, f"AdaRank-MAP {name}", fold, *pair)
            for (name, fold), pair in values.items()]  # fmt: skip
    report, frames = build_fold_report(FOLDS, runs, "mine", "command")
    maps = frames["table"].query("split == 'test' and metric == 'map'")
    assert maps[["fold", "chosen", "ours"]].values.tolist() == [[1, sharpest, 0.1], [2, sharp, 0.2]]
    assert maps.published.tolist() == [0.4627, 0.4232]  # of the file
    assert dict(report.facts)["convention"].startswith("letor4: empty list = 0")
    assert ["AdaRank-MAP", f"{sharpest}, 7", f"{sharp}, 7"] in report.blocks[-1].rows
    (block,) = [block for block in report.blocks if block.title == "map of test"]
    assert block.rows == [
        ["AdaRank-MAP", "0.1000", "0.2000", "0.1500"],
        ["AdaRank-MAP (published)", "0.4627", "0.4232", "0.4430"],
        ["difference", "-0.3627", "-0.2232", "-0.2929"],
    ]


def test_build_fold_report_shows_a_published_mean_beside_our_mean(tmp_path: Path) -> None:
    runs = [finished(tmp_path, "ListNet optimizer.lr=0.1", fold, 0.4, 0.1 * fold)
            for fold in (1, 2)]  # fmt: skip
    means = Published("a paper", {"theirs": {"test": {"map": 0.2}}}, others="theirs")
    table = replace(FOLDS, published={"mq2008": means})
    report, frames = build_fold_report(table, runs, "mine", "command")
    blocks = {block.title: block for block in report.blocks}
    assert blocks["map of test"].rows == [
        ["ListNet", "0.1000", "0.2000", "0.1500"],
        ["ListNet (published)", "", "", "0.2000"],
        ["difference", "", "", "-0.0500"],
    ]
    assert blocks["map of vali"].rows == [["ListNet", "0.4000", "0.4000", "0.4000"]]
    assert [bool(blocks[f"map of {split}"].note) for split in ("test", "vali")] == [True, False]
    shown = frames["table"].query("split == 'test' and metric == 'map'")
    assert shown.published.isna().all()
    assert shown.published_mean.tolist() == [0.2, 0.2]
    # numbers of too few folds have no mean
    first_fold = replace(means, values={"theirs": {"test": {"map": [0.3]}}})
    report, _ = build_fold_report(
        replace(FOLDS, published={"mq2008": first_fold}), runs, "mine", "command"
    )
    (block,) = [block for block in report.blocks if block.title == "map of test"]
    assert block.rows[1:] == [
        ["ListNet (published)", "0.3000", "", ""], ["difference", "-0.2000", "", ""]
    ]  # fmt: skip
    report, _ = build_fold_report(replace(FOLDS, published={}), runs, "mine", "command")
    assert "published" not in f"{report.facts} {report.blocks}"
