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
from folders import finish, refused
from omegaconf import OmegaConf

from ltr.analysis.report import Report, latex, markdown, terminal
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder
from ltr.tables import runs as runs_module
from ltr.tables.data_counts import unlike_published
from ltr.tables.measure import Measured
from ltr.tables.render import MARK, blocks, facts, unfinished
from ltr.tables.results import Results, over_repeats
from ltr.tables.runs import Run, missing_libraries
from ltr.tables.spec import Published, Row, Table, read_table

TABLE = Table(
    name="mine",
    title="Mine",
    settings=[],
    rows={label: Row() for label in ("good", "bad", "twin", "gone")},
    folds="all",
    metrics=["ndcg@5", "map"],
    conventions=["paper"],
    published={},
    verdicts=["ndcg@5"],
    baseline="bad",
)
CONFIG = OmegaConf.create(
    {
        "dataset": {"name": "letor"}, "select": "best", "select_on": "ndcg@5", "seed": 1,
        "suggested": {"levels": 3},
    }
)  # fmt: skip


def measured_row(label: str, seed: int, mean: float, *, fold: int | None = None) -> Measured:
    """A run whose queries vary around ``mean``, the same in every run but for a little noise."""
    shared = np.random.default_rng(7).normal(0, 0.05, 300)
    own = np.random.default_rng([seed, len(label)]).normal(0, 0.002, 300)
    values = mean + shared + own
    return Measured(
        run=Run(label, fold, seed, (), CONFIG, f"{label} {seed}", Path(f"/{label}/{seed}")),
        results={"selected_epoch": 2, "wall_seconds": 1.0, "commit": "a" * 40},
        values={"paper": {"ndcg@5": values, "map": values / 2}},
        means={"paper ndcg@5": values.mean(), "paper map": values.mean() / 2},
        qids=np.arange(300).astype(str),
        history=pd.DataFrame(),
    )


ROWS = [
    measured_row(label, seed, mean)
    for label, mean in {"good": 0.6, "bad": 0.5, "twin": 0.5004}.items()
    for seed in (1, 2, 3)
]


def results_of(
    measured: Sequence[Measured] = ROWS, published: Published | None = None, **more: Any
) -> Results:
    table = replace(TABLE, published={} if published is None else {"letor": published})
    return Results(table, more.pop("runs", [one.run for one in measured]), measured, **more)


def test_better_equivalent_and_the_baseline_itself() -> None:
    found = results_of().numbers.set_index(["row", "metric"])
    assert found.loc[("good", "ndcg@5"), "verdict"] == "better"
    assert found.loc[("twin", "ndcg@5"), "verdict"] == "equivalent"
    assert found.loc[("good", "ndcg@5"), "less_baseline"] == pytest.approx(0.1, abs=0.001)
    assert pd.isna(found.loc[("bad", "ndcg@5"), "verdict"])
    assert pd.isna(found.loc[("good", "map"), "verdict"])  # not a metric of verdicts


def test_a_published_number_is_covered_or_not_and_stands_beside_a_row_or_below() -> None:
    ours = results_of().numbers.set_index(["row", "metric"])["ours"]
    values = {
        "good": {"paper": {"ndcg@5": float(ours["good", "ndcg@5"])}},
        "bad": {"paper": {"ndcg@5": 0.9, "map": 0.25}},
        "theirs": {"paper": {"ndcg@5": 0.1}},
    }
    results = results_of(published=Published("there", values, others="theirs"))
    found = results.numbers.set_index(["metric", "row"])
    assert found.loc["ndcg@5", "covered"].to_dict() == {
        "good": "covers", "bad": "below", "twin": "above",
    }  # fmt: skip
    assert found.loc[("ndcg@5", "twin"), "beside"] == "theirs"
    assert found.loc[("ndcg@5", "bad"), "difference"] == pytest.approx(ours["bad", "ndcg@5"] - 0.9)
    assert found.loc[("map", "bad"), "published"] == 0.25
    assert pd.isna(found.loc[("map", "good"), "published"])
    verdicts = blocks(results)[1]
    assert "ours above" in [cell for row in verdicts.rows for cell in row]
    assert "no test of a difference" in verdicts.note

    values = {
        "theirs": {"paper": {"ndcg@5": 0.1, "map": 0.2}},
        "report": {"paper": {"ndcg@5": 0.5}},
    }
    beside = {"bad": "report", "good": "report"}
    published = Published("there", values, beside, others="theirs")
    table, *_ = blocks(results_of(published=published))
    assert tuple(table.head) == ("", "ndcg@5", "published", "difference", "map")
    by_label = {row[0]: row for row in table.rows}
    assert by_label["bad"][2] == "0.5000"
    assert by_label["twin"][2:4] == ["", ""]  # theirs is not its own
    assert by_label["theirs (published)"] == ["theirs (published)", "0.1000", "", "", "0.2000"]
    assert "report (published)" not in by_label
    # one row of four is too few for columns of their own
    table, *_ = blocks(results_of(published=Published("there", values, {"bad": "report"})))
    assert tuple(table.head) == ("", "ndcg@5", "map")
    assert "report (published)" in [row[0] for row in table.rows]


def test_every_row_stands_in_the_table_the_best_bold_and_what_differs_marked() -> None:
    table, verdicts = blocks(results_of(missing={"gone": "needs the extra gbdt"}))
    assert [row[0] for row in table.rows] == ["good", "bad", "twin", "gone"]
    assert table.rows[3][1] == "needs the extra gbdt"
    assert blocks(results_of())[0].rows[3][1] == "not run"
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert [row[-1] for row in verdicts.rows] == ["better", "", "equivalent"]
    assert "the baseline" in verdicts.rows[1]
    assert {i for i, _ in table.best} == {0}
    assert [row[1].endswith(f" {MARK}") for row in table.rows] == [True, False, False, False]
    assert verdicts.head[3] == "minus bad"
    for text in (table.note, table.foot):
        assert f"{MARK}: differs from bad, p < 0.05 after Holm" in text
    assert "grades" not in table.foot  # on which no metric of the table depends
    report = Report("mine", "Mine", "make", (("data", "letor"),), (table, verdicts))
    assert re.search(r"\*\*0\.\d{4} ± 0\.\d{4} †\*\*", markdown(report))
    assert re.search(r"\\textbf{0\.\d{4} \$\\pm\$ 0\.\d{4} \$\^\\dagger\$}", latex(report))
    assert latex(report).count("grades") == 1  # in a comment
    assert "**" not in terminal(report)


def test_in_percent_the_metrics_their_intervals_and_differences_are_times_100() -> None:
    results = results_of(percent=True)
    table, verdicts = blocks(results)
    line = results.numbers.set_index(["row", "metric"]).loc[("good", "ndcg@5")]
    assert table.rows[0][1].startswith(f"{100 * line['ours']:.2f} ± ")
    assert list(verdicts.rows[0][1:6]) == [
        f"{100 * line['ours']:.2f}",
        f"{100 * line['low']:.2f} to {100 * line['high']:.2f}",
        f"{100 * line['less_baseline']:+.2f}",
        f"{100 * line['less_low']:.2f} to {100 * line['less_high']:.2f}",
        f"{line['p']:.4f}",
    ]
    assert "in percent" in table.foot
    assert "±0.5;" in dict(facts(results))["verdict"]


def test_published_numbers_of_other_data_are_named() -> None:
    known = {one.splits: one for one in public_sets()["web30k"].known if one.fold == 1}
    sizes = {
        split: (known[(split,)].lists or 0, known[(split,)].rows or 0)
        for split in ("train", "vali", "test")
    }
    assert unlike_published("web30k", {1: sizes}) is None
    assert unlike_published("mine", {None: {"test": (42, 1)}}) is None
    unlike = unlike_published("web30k", {1: sizes | {"test": (42, 4974)}})
    assert unlike is not None
    assert unlike.endswith("test of web30k Fold1 has 42 lists here, 6,306 as published")
    published = Published("there", {"good": {"paper": {"ndcg@5": 0.5}}})
    for block in blocks(results_of(published=published, unlike=unlike)):
        assert block.note.endswith(unlike)
        assert unlike in block.foot


def test_the_head_names_everything() -> None:
    known = dict(facts(results_of(published=Published("a book", {}))))
    assert {key: known[key] for key in known if key != "verdict"} == {
        "data": "letor, test",
        "selection": "best epoch by ndcg@5 of vali (select=best)",
        "seeds": "1 2 3",
        "runs": "9 of 9 runs are done",
        "commit": "a" * 12,
        "±": "standard deviation over seeds",
        "interval": "95%, for other queries and other seeds",
        "baseline": "bad",
        "published": "a book",
    }
    assert "Holm" in known["verdict"]
    rest = [one for one in ROWS if one.run.label != "bad"]
    assert "no row is compared with it" in dict(facts(results_of(rest)))["baseline"]
    last = CONFIG.copy()
    last.select = "last"
    runs = [replace(one.run, config=last) if one.run.label == "twin" else one.run for one in ROWS]
    assert dict(facts(results_of(runs=runs)))["selection"] == (
        "best epoch by ndcg@5 of vali (select=best); of twin: last epoch (select=last)"
    )


def test_a_seed_that_lacks_a_fold_is_left_out() -> None:
    rows = [measured_row("bad", seed, 0.5, fold=fold) for seed in (1, 2) for fold in (1, 2)][:-1]
    results = results_of(rows)
    found = results.verdicts["ndcg@5"].systems["bad"]
    assert (found.values.shape, found.seeds) == ((1, 600), (1,))
    assert (found.queries[0], found.queries[300]) == ((1, "0"), (2, "0"))
    assert results.whole["seed"].tolist() == [1, 1]
    assert results.numbers["runs"].unique().tolist() == [2]
    third = replace(rows[0].run, fold=3)
    without = results_of(rows, runs=[*(one.run for one in rows), third])
    assert without.numbers.empty
    assert without.verdicts["ndcg@5"].systems == {}


def test_a_row_that_lacks_a_fold_has_no_mean_and_says_so(tmp_path: Path) -> None:
    runs = [
        Run(label, fold, seed, (), CONFIG, "0" * 64, tmp_path / f"{label}{fold}{seed}")
        for label in ("some", "part", "all")
        for seed in (1, 2)
        for fold in (1, 2)
    ]
    for run in runs:
        if run.label == "all" or run.fold == 1 or (run.label, run.seed) == ("part", 1):
            run.folder.mkdir()
            RunFolder(run.folder).prepare(run.known)
            finish(run.folder, {})
    assert unfinished(runs) == {"some": "2 of 4 runs", "part": "3 of 4 runs"}
    assert dict(facts(results_of([], runs=runs)))["incomplete"] == "part has 1 of 2 seeds"


def test_one_seed_is_about_the_models_and_the_table_says_so() -> None:
    results = results_of([one for one in ROWS if one.run.seed == 1])
    assert "good: these models, not the methods: one seed" in blocks(results)[1].note
    assert "one seed" not in blocks(results_of())[1].note
    known = dict(facts(results))
    assert known["interval"].endswith("but these trained models: there is one seed")
    assert known["±"] == "no deviation: one seed"


def test_a_row_whose_library_is_not_here_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    table = read_table("letor4_mq2008").only(
        ["trees together", "XGBoost rank:pairwise", "NeuralNDCG"]
    )
    monkeypatch.setattr(
        runs_module, "find_spec", lambda name: None if name == "xgboost" else object()
    )
    lacking = {"XGBoost rank:ndcg", "XGBoost rank:pairwise", "trees together"}
    assert missing_libraries(table, []) == dict.fromkeys(lacking, "needs the extra gbdt")
    row = {"by its experiment": Row(["experiment=xgboost_mq2008"])}
    assert missing_libraries(replace(table, settings=[], rows=row), []).keys() == {*row}
    monkeypatch.setattr(runs_module, "find_spec", lambda name: object())
    assert missing_libraries(table, []) == {}


def test_deviation_is_over_seeds_of_means_over_folds() -> None:
    values = pd.DataFrame(
        [
            {"row": "a", "fold": fold, "seed": seed, "x": fold + seed / 10}
            for fold, seed in product((1, 2, 3), (0, 10))
        ]
    )
    for runs, mean, means in ((values, 2.5, [0, 1]), (values[values["seed"] == 0], 2, [1, 2, 3])):
        found = over_repeats(runs, ["x"])["a"]
        assert found["x", "mean"] == pytest.approx(mean)
        assert found["x", "std"] == pytest.approx(np.std(means, ddof=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("verdicts: [ndcg@7]", r"verdicts: ndcg@7 is not known; choose of ndcg@5"),
        ("baseline: B", r"baseline: B is not known; choose of A"),
        ("metrics: [ncdg@5]", r"ncdg"),
        ("metrics: ndcg@5", r"metrics"),
        ("kind: graph", r"kind: graph is not known; choose of runs, statistics"),
        ("sort: up", r"sort"),
        (
            "published: {mq2008: {source: s, values: {}, others: C}}",
            r"published.mq2008: C is not known; choose of",
        ),
        (
            "published: {mq2008: {source: s, values: {C: {}}, beside: {B: C}}}",
            r"published.mq2008.beside: B is not known; choose of A",
        ),
    ],
)
def test_a_table_that_names_nothing_is_refused(change: str, message: str, tmp_path: Path) -> None:
    text = (
        "title: x\nsettings: []\nfolds: all\nmetrics: [ndcg@5]\nconventions: [paper]\n"
        "rows: {A: [loss=bce]}\n"
    )
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert read_table(str(path)).published == {}
    if change.startswith("metrics"):
        text = text.replace("metrics: [ndcg@5]\n", "")
    path.write_text(f"{text}{change}\n")
    assert re.search(message, refused(lambda: read_table(str(path)), ConfigError))
