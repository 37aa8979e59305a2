"""What a table says of its rows: published numbers, verdicts, and why a row is missing."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import finish
from omegaconf import OmegaConf

from ltr.analysis.report import Block, Report, latex, markdown, terminal
from ltr.data.public_sets import public_sets
from ltr.errors import ConfigError
from ltr.experiment.run_folder import prepare_folder
from ltr.metrics import Convention
from ltr.tables import runs as runs_module
from ltr.tables.data_counts import unlike_published
from ltr.tables.measure import Measured, stacked, whole_rows
from ltr.tables.render import MARK, blocks, facts, unfinished
from ltr.tables.runs import Run, missing_libraries
from ltr.tables.spec import Published, Row, Table, read_table
from ltr.tables.verdicts import Verdicts, judge, numbers, over_repeats

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
    {"dataset": {"name": "letor"}, "select": "best", "select_on": "ndcg@5", "seed": 1}
)


def measured_row(label: str, seed: int, mean: float, *, fold: int | None = None) -> Measured:
    """A run whose queries vary around ``mean``, the same in every run but for a little noise."""
    shared = np.random.default_rng(7).normal(0, 0.05, 300)
    own = np.random.default_rng([seed, len(label)]).normal(0, 0.002, 300)
    values = mean + shared + own
    return Measured(
        run=Run(label, fold, seed, (), CONFIG, f"{label} {seed}", Path(f"/{label}/{seed}")),
        results={"selected_epoch": 2, "wall_seconds": 1.0, "commit": "a" * 40},
        values={"paper": {"ndcg@5": values, "map": values / 2}},
        means={},
        qids=np.arange(300).astype(str),
        history=pd.DataFrame(),
    )


ROWS = [
    measured_row(label, seed, mean)
    for label, mean in {"good": 0.6, "bad": 0.5, "twin": 0.5004}.items()
    for seed in (1, 2, 3)
]
VERDICTS = {"ndcg@5": judge(ROWS, "paper", "ndcg@5", folds=[None], baseline="bad", margin=0.005)}


def frame_of(measured: list[Measured]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "row": one.run.label,
                "fold": one.run.fold,
                "seed": one.run.seed,
                "epoch": one.results["selected_epoch"],
                "paper ndcg@5": one.values["paper"]["ndcg@5"].mean(),
                "paper map": one.values["paper"]["map"].mean(),
                "run": str(one.run.folder),
            }
            for one in measured
        ]
    )


def found_of(published: Published | None = None) -> pd.DataFrame:
    return numbers(TABLE, frame_of(ROWS), VERDICTS, published, "bad")


def judged_without(label: str) -> dict[str, Verdicts]:
    rest = [one for one in ROWS if one.run.label != label]
    return {"ndcg@5": judge(rest, "paper", "ndcg@5", folds=[None], baseline=label, margin=0.005)}


def blocks_of(
    published: Published | None = None, missing: Mapping[str, str] | None = None
) -> tuple[Block, ...]:
    frame = frame_of(ROWS)
    found = numbers(TABLE, frame, VERDICTS, published, "bad")
    conventions = {"paper": Convention()}
    return blocks(TABLE, found, frame, VERDICTS, published, conventions, missing or {}, "bad")


def test_better_equivalent_and_the_baseline_itself() -> None:
    found = found_of().set_index(["row", "metric"])
    assert found.loc[("good", "ndcg@5"), "verdict"] == "better"
    assert found.loc[("twin", "ndcg@5"), "verdict"] == "equivalent"
    assert found.loc[("good", "ndcg@5"), "less_baseline"] == pytest.approx(0.1, abs=0.001)
    assert pd.isna(found.loc[("bad", "ndcg@5"), "verdict"])
    assert pd.isna(found.loc[("good", "map"), "verdict"])  # not a metric of verdicts


def test_a_published_number_is_covered_or_not() -> None:
    ours = found_of().set_index(["row", "metric"])["ours"]
    number = float(ours["good", "ndcg@5"])
    values = {
        "good": {"paper": {"ndcg@5": number}},
        "bad": {"paper": {"ndcg@5": 0.9, "map": 0.25}},
        "theirs": {"paper": {"ndcg@5": 0.1}},
    }
    found = found_of(Published("there", values, others="theirs")).set_index(["row", "metric"])
    assert found.loc[("good", "ndcg@5"), "covered"] == "covers"
    assert found.loc[("bad", "ndcg@5"), "covered"] == "below"
    assert found.loc[("twin", "ndcg@5"), "covered"] == "above"
    assert found.loc[("twin", "ndcg@5"), "beside"] == "theirs"
    assert found.loc[("bad", "ndcg@5"), "difference"] == pytest.approx(
        float(ours["bad", "ndcg@5"]) - 0.9
    )
    assert found.loc[("bad", "map"), "published"] == 0.25
    assert pd.isna(found.loc[("good", "map"), "published"])


def test_every_row_stands_in_the_table_also_one_that_cannot_run() -> None:
    table, verdicts = blocks_of(missing={"gone": "needs the extra gbdt"})
    assert [row[0] for row in table.rows] == ["good", "bad", "twin", "gone"]
    assert table.rows[3][1] == "needs the extra gbdt"
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert [row[0] for row in verdicts.rows] == ["good", "bad", "twin"]
    assert {row[-1] for row in verdicts.rows} == {"better", "", "equivalent"}
    assert "the baseline" in verdicts.rows[1]
    (not_run,) = [row[1] for row in blocks_of()[0].rows if row[0] == "gone"]
    assert not_run == "not run"


def test_the_best_is_bold_and_what_differs_from_the_baseline_is_marked() -> None:
    table, verdicts = blocks_of()
    cells = {row[0]: row[1] for row in table.rows}
    assert {row[0] for i, row in enumerate(table.rows) if (i, 1) in table.best} == {"good"}
    assert {label for label, cell in cells.items() if cell.endswith(f" {MARK}")} == {"good"}
    assert verdicts.head[3] == "minus bad"
    for said in (table.note, table.foot):
        assert f"{MARK}: differs from bad, p < 0.05 after Holm" in said
    assert table.foot.startswith("paper: empty list = 1, gain 2^y-1, ")
    assert "grades" not in table.foot  # on which no metric of the table depends
    report = Report("mine", "Mine", "make", (("data", "letor"),), (table, verdicts))
    assert re.search(r"\*\*0\.\d{4} ± 0\.\d{4} †\*\*", markdown(report))
    assert re.search(r"\\textbf{0\.\d{4} \$\\pm\$ 0\.\d{4} \$\^\\dagger\$}", latex(report))
    assert latex(report).count("grades") == 1  # in a comment
    assert "**" not in terminal(report)


def test_in_percent_the_metrics_their_intervals_and_differences_are_times_100() -> None:
    frame = frame_of(ROWS)
    found = numbers(TABLE, frame, VERDICTS, None, "bad")
    made = blocks(
        TABLE, found, frame, VERDICTS, None, {"paper": Convention()}, {}, "bad", percent=True
    )
    line = found.set_index(["row", "metric"]).loc[("good", "ndcg@5")]
    assert made[0].rows[0][1].startswith(f"{100 * line['ours']:.2f} ± ")
    assert list(made[1].rows[0][1:6]) == [
        f"{100 * line['ours']:.2f}",
        f"{100 * line['low']:.2f} to {100 * line['high']:.2f}",
        f"{100 * line['less_baseline']:+.2f}",
        f"{100 * line['less_low']:.2f} to {100 * line['less_high']:.2f}",
        f"{line['p']:.4f}",
    ]
    assert "in percent" in made[0].foot
    judged = judge(
        ROWS, "paper", "ndcg@5", folds=[None], baseline="bad", margin=0.005, percent=True
    )
    assert "±0.5;" in judged.rule


def test_published_numbers_of_other_data_are_named() -> None:
    known = {one.splits: one for one in public_sets()["web30k"].known if one.fold == 1}
    sizes = {
        split: (known[(split,)].lists or 0, known[(split,)].rows or 0)
        for split in ("train", "vali", "test")
    }
    assert unlike_published("web30k", {1: sizes}) is None
    assert unlike_published("mine", {None: {"test": (42, 1)}}) is None
    said = unlike_published("web30k", {1: sizes | {"test": (42, 4974)}})
    assert said is not None
    assert said.endswith("test of web30k Fold1 has 42 lists here, 6,306 as published")
    frame, values = frame_of(ROWS), {"good": {"paper": {"ndcg@5": 0.5}}}
    found = numbers(TABLE, frame, VERDICTS, Published("there", values), "bad")
    made = blocks(
        TABLE, found, frame, VERDICTS, Published("there", values), {"paper": Convention()}, {},
        "bad", unlike=said,
    )  # fmt: skip
    assert all(block.note.endswith(said) and said in block.foot for block in made)


def test_published_numbers_of_a_row_stand_beside_it_others_below() -> None:
    values = {
        "theirs": {"paper": {"ndcg@5": 0.1, "map": 0.2}},
        "report": {"paper": {"ndcg@5": 0.5}},
    }
    beside = {"bad": "report", "good": "report"}
    table, *_ = blocks_of(Published("there", values, beside, others="theirs"))
    assert tuple(table.head) == ("", "ndcg@5", "published", "difference", "map")
    by_label = {row[0]: row for row in table.rows}
    assert by_label["bad"][2] == "0.5000"
    assert by_label["twin"][2:4] == ["", ""]  # theirs is not its own
    assert by_label["theirs (published)"] == ["theirs (published)", "0.1000", "", "", "0.2000"]
    assert "report (published)" not in by_label
    # one row of four is too few for columns of their own
    table, *_ = blocks_of(Published("there", values, {"bad": "report"}))
    assert tuple(table.head) == ("", "ndcg@5", "map")
    assert "report (published)" in [row[0] for row in table.rows]


def test_the_head_names_everything() -> None:
    runs = [one.run for one in ROWS]
    said = dict(facts(TABLE, runs, ROWS, Published("a book", {}), VERDICTS, "bad"))
    assert said["data"] == "letor, test"
    assert said["selection"] == "best epoch by ndcg@5 of vali (select=best)"
    assert said["seeds"] == "1 2 3"
    assert said["commit"] == "a" * 12
    assert said["published"] == "a book"
    assert said["baseline"] == "bad"
    assert "Holm" in said["verdict"]
    assert said["interval"] == "95%, for other queries and other seeds"
    assert said["±"] == "standard deviation over seeds"
    assert (
        "no row is compared with it"
        in dict(facts(TABLE, runs, ROWS, None, judged_without("bad"), "bad"))["baseline"]
    )
    last = CONFIG.copy()
    last.select = "last"
    changed = [replace(run, config=last) if run.label == "twin" else run for run in runs]
    assert dict(facts(TABLE, changed, ROWS, None, {}, "bad"))["selection"] == (
        "best epoch by ndcg@5 of vali (select=best); of twin: last epoch (select=last)"
    )


def test_a_seed_that_lacks_a_fold_is_left_out() -> None:
    rows = [measured_row("bad", seed, 0.5, fold=fold) for seed in (1, 2) for fold in (1, 2)][:-1]
    found = stacked(rows, "paper", "ndcg@5", [1, 2])["bad"]
    assert found.values.shape == (1, 600)
    assert found.seeds == (1,)
    assert (found.queries[0], found.queries[300]) == ((1, "0"), (2, "0"))
    frame = frame_of(rows)
    assert whole_rows(frame, 2)["seed"].tolist() == [1, 1]
    assert numbers(TABLE, whole_rows(frame, 2), {}, None, "bad")["runs"].unique().tolist() == [2]
    assert whole_rows(frame, 3).empty
    assert stacked(rows, "paper", "ndcg@5", [1, 2, 3]) == {}


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
            prepare_folder(run.folder, run.known)
            finish(run.folder, {})
    assert unfinished(runs) == {"some": "2 of 4 runs", "part": "3 of 4 runs"}
    assert dict(facts(TABLE, runs, [], None, {}, "bad"))["incomplete"] == "part has 1 of 2 seeds"


@pytest.mark.slow
def test_one_seed_is_about_the_models_and_the_table_says_so() -> None:
    once = [one for one in ROWS if one.run.seed == 1]
    judged = judge(once, "paper", "ndcg@5", folds=[None], baseline="bad", margin=0.005)
    found = numbers(TABLE, frame_of(once), {"ndcg@5": judged}, None, "bad")
    made = blocks(
        TABLE, found, frame_of(once), {"ndcg@5": judged}, None, {"paper": Convention()}, {}, "bad"
    )
    assert "good: these models, not the methods: one seed" in made[1].note
    assert "one seed" not in blocks_of()[1].note
    said = dict(facts(TABLE, [one.run for one in once], once, None, {"ndcg@5": judged}, "bad"))
    assert said["interval"] == "95%, for other queries, but these trained models: there is one seed"
    assert said["±"] == "no deviation: one seed"


def test_beside_a_published_number_nothing_is_good_or_bad() -> None:
    values = {"good": {"paper": {"ndcg@5": 0.1}}}
    verdicts = blocks_of(Published("there", values))[1]
    assert "ours above" in [cell for row in verdicts.rows for cell in row]
    assert "no test of a difference" in verdicts.note


def test_deviation_is_over_seeds_of_means_over_folds() -> None:
    values = pd.DataFrame(
        [
            {"row": "a", "fold": fold, "seed": seed, "x": fold + seed / 10}
            for fold in (1, 2, 3)
            for seed in (0, 10)
        ]
    )
    found = over_repeats(values, ["x"])
    assert found["x"]["mean"]["a"] == pytest.approx(2.5)
    assert found["x"]["std"]["a"] == pytest.approx(np.std([0, 1], ddof=1))
    alone = over_repeats(values[values["seed"] == 0], ["x"])
    assert alone["x"]["std"]["a"] == pytest.approx(np.std([1, 2, 3], ddof=1))


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


def test_a_table_without_published_numbers(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "title: x\nsettings: []\nfolds: all\nmetrics: [ndcg@5]\nconventions: [paper]\n"
        "rows: {A: [loss=bce]}\n"
    )
    assert read_table(f"{tmp_path}/mine.yaml").published == {}


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
    if change.startswith("metrics"):
        text = text.replace("metrics: [ndcg@5]\n", "")
    text += "" if change.startswith("published") else "published: {}\n"
    (tmp_path / "mine.yaml").write_text(f"{text}{change}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        read_table(f"{tmp_path}/mine.yaml")
    assert "\n" not in str(caught.value)
