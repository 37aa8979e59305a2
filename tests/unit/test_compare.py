"""``ltr compare``: runs become systems, and every mistake has its line."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import RunFolder, find_runs
from ltr.inference.evaluate import evaluate_scores
from ltr.lab.analysis.compare import Findings, compare, compare_runs
from tests.helpers.folders import finish, refused
from tests.helpers.orders import comparison_of
from tests.helpers.runs import compose, run

BETTER = {"rmse": 0.0, "listnet": 0.1}
BASE = np.random.default_rng(0).uniform(0.2, 0.8, 40)


def keep(
    folder: Path,
    *,
    loss: str = "rmse",
    seed: int = 1,
    fold: int | None = None,
    better: float = 0.0,
    digest: str = "d",
    dataset: str = "mine",
    convention: str = "empty list = 1",
    levels: dict | None = None,
    select_on: str = "ndcg@5",
    typed: tuple[str, ...] = (),
    commit: str = "c" * 40,
    config: dict | None = None,
) -> Path:
    """Write what a run leaves behind: ``better`` is what it adds to NDCG@5 of every query."""
    rng = np.random.default_rng([seed, fold or 0, len(loss)])
    values = BASE + better + rng.normal(0, 0.002) + rng.normal(0, 0.01, len(BASE))
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("")
    overrides = "".join(f"- {item}\n" for item in (f"loss={loss}", f"seed={seed}", *typed))
    (folder / ".hydra" / "overrides.yaml").write_text(overrides)
    pd.DataFrame(
        {"qid": [f"{i:03}" for i in range(len(BASE))], "items": 9, "empty": False,
         select_on: values, "ndcg@10": 1 - values}
    ).to_csv(folder / "queries.csv", index=False)  # fmt: skip
    results = {
        "choices": {"loss": loss, "model": "mlp", "dataset": "mine", "convention": "paper"},
        "convention": {"empty": convention, "text": convention, **(levels or {})},
        "select": "best", "select_on": select_on, "commit": commit, "seed": seed,
        "dataset": dataset, "fold": fold,
        "data": {"test": {"digest": f"{digest}{fold}", "lists": len(BASE)}},
        "protocol": {
            "seed": seed, "epochs": 9, "data_dir": str(folder), "threads": seed,
            "metrics": ["ndcg@5"], "suggested": {"epochs": 9},
            "loss": {"_target_": loss, "k": None}, "model": {"sizes": [4], "head": loss},
            "dataset": {"name": "mine", "fold": fold}, **(config or {}),
        },
    }  # fmt: skip
    finish(folder, results)
    return folder


def findings_of(*arguments: object) -> Findings:
    cfg = comparison_of([str(argument) for argument in arguments])
    return compare_runs(find_runs(cfg.runs)[0], cfg)


def report_of(*arguments: object) -> str:
    return compare(comparison_of([str(argument) for argument in arguments]))


def sweep(folder: Path, seeds=(1, 2, 3), folds=(None,)) -> Path:
    for loss, seed, fold in product(BETTER, seeds, folds):
        run_folder = folder / f"{loss}-{seed}-{fold}"
        keep(run_folder, loss=loss, seed=seed, fold=fold, better=BETTER[loss])
    return folder


def test_compare_runs_groups_a_sweep_into_systems(tmp_path) -> None:
    findings = findings_of(sweep(tmp_path))
    assert list(findings.systems) == ["loss=listnet", "loss=rmse"]
    assert [system.seeds for system in findings.systems.values()] == [3, 3]
    (pair,) = findings.pairs
    assert (pair.first, pair.word, pair.second) == ("loss=listnet", "better", "loss=rmse")
    assert pair.standard_error.covers == "seeds"
    files = sorted(tmp_path.glob("listnet*/queries.csv"))
    values = [pd.read_csv(file)["ndcg@5"].mean() for file in files]
    assert findings.systems["loss=listnet"].mean == pytest.approx(np.mean(values))
    assert findings.systems["loss=listnet"].deviation == pytest.approx(np.std(values, ddof=1))


def test_compare_runs_joins_folds_and_test_lists_of_several_data_seeds(tmp_path) -> None:
    findings = findings_of(sweep(tmp_path / "a", seeds=(1,), folds=(1, 2, 3)))
    assert findings.report.title == "ndcg@5 on mine, test: 120 queries of 3 folds"
    assert findings.pairs[0].queries == 120
    assert findings.pairs[0].standard_error.covers == "folds"
    assert "the same in every fold" in findings.report.notes[0]
    beginning = "NOT COVERED for systems with one seed: what the folds"
    assert any(note.startswith(beginning) for note in findings.report.notes)
    for draw, loss in product((1, 2, 3), ("rmse", "bce")):
        config = {"dataset": {"name": "mine", "seed": draw}}
        keep(tmp_path / "b" / f"{loss}-{draw}", loss=loss, digest=str(draw), config=config)
    assert findings_of(tmp_path / "b").pairs[0].queries == 120


def test_compare_runs_counts_test_queries_once_if_only_vali_is_cut_anew(tmp_path) -> None:
    for loss, cut in product(BETTER, (1, 2, 3)):
        config = {"dataset": {"name": "mine", "seed": cut}}
        keep(tmp_path / f"{loss}-{cut}", loss=loss, better=BETTER[loss], config=config)
    findings = findings_of(tmp_path)
    assert findings.report.title == "ndcg@5 on mine, test: 40 queries, dataset.seed 1"
    assert findings.pairs[0].queries == 40
    assert [system.seeds for system in findings.systems.values()] == [3, 3]
    assert findings.pairs[0].standard_error.covers == "seeds"


def test_compare_runs_accepts_other_grades_unless_the_metric_reads_them(tmp_path) -> None:
    for fold in (1, 2):
        for loss in ("rmse", "bce"):
            keep(tmp_path / f"{loss}{fold}", loss=loss, fold=fold, levels={"levels": 1 + fold})
    assert findings_of(tmp_path).pairs[0].queries == 80
    with pytest.raises(ConfigError, match=r"suggested\.levels="):
        findings_of(tmp_path, "metric=err")


def test_compare_runs_identifies_a_teacher_by_its_method(tmp_path) -> None:
    for seed in (1, 2):
        teacher = keep(tmp_path / "teachers" / f"t{seed}", loss="bce", seed=seed)
        keep(tmp_path / "runs" / f"s{seed}", seed=seed, config={"teacher": str(teacher)})
    (only,) = findings_of(tmp_path / "runs").systems.values()
    assert only.seeds == 2


def test_compare_runs_groups_a_run_from_before_the_key_gain(tmp_path) -> None:
    keep(tmp_path / "old", seed=1)
    for seed, gain in ((2, "exp2"), (3, "linear")):
        loss = {"_target_": "rmse", "k": None, "gain": gain}
        keep(tmp_path / gain, seed=seed, config={"loss": loss, "gain": None})
    assert [system.seeds for system in findings_of(tmp_path).systems.values()] == [2, 1]


@pytest.mark.slow
def test_compare_runs_groups_a_run_from_before_a_key_that_is_null(tmp_path) -> None:
    node = {"_target_": "listnet", "k": None}
    keep(tmp_path / "old", seed=1, config={"loss": node})
    keep(tmp_path / "new", seed=2, config={"loss": node | {"list_weight": None}})
    keep(tmp_path / "other", seed=2, config={"loss": node | {"list_weight": "pairs"}})
    systems = findings_of(tmp_path).systems
    assert [system.seeds for system in systems.values()] == [2, 1]


def test_compare_runs_names_systems_by_what_differs(tmp_path) -> None:
    keep(tmp_path / "a", typed=("epochs=0",), config={"epochs": 0})
    keep(tmp_path / "b")
    assert list(findings_of(tmp_path).systems) == ["epochs=0", "epochs=9"]
    keep(tmp_path / "c", loss="bce", config={"loss": {"_target_": "bce", "k": 5}})
    names = list(findings_of(tmp_path).systems)
    assert names == ["loss=rmse, epochs=0", "loss=rmse, epochs=9", "loss=bce, epochs=9"]
    keep(tmp_path / "d", config={"model": {"sizes": [4, 2], "head": "rmse"}})  # nobody typed it
    assert "loss=rmse, epochs=9, model.sizes=[4,2]" in findings_of(tmp_path).systems


@pytest.mark.slow
def test_compare_measures_score_files_beside_runs(tiny, letor_folder, tmp_path) -> None:
    run(compose(*tiny, "loss=listnet", "epochs=0"), tmp_path, {"loss": "listnet"})
    scores = pd.read_csv(tmp_path / "scores.csv")["score"]
    same = tmp_path / "same.txt"
    turned = tmp_path / "turned.txt"
    same.write_text("".join(f"{score}\n" for score in scores))
    turned.write_text("".join(f"{-score}\n" for score in scores))
    settings = [f"cache_dir={letor_folder}/cache", "samples=200"]
    findings = findings_of(tmp_path, f"scores=[{same},{turned}]", *settings)
    assert findings.systems["same"].mean == findings.systems["loss=listnet"].mean
    assert findings.systems["turned"].mean != findings.systems["same"].mean
    assert ("scores", f"turned of {turned}") in findings.report.facts

    evaluate_config = compose(
        f"scores={same}",
        f"data={letor_folder}/mine/test.txt",
        "metrics=[map]",
        "conventions=paper",
        config="evaluate",
    )
    measured_later = findings_of(tmp_path, f"scores=[{same}]", "metric=map", *settings)
    means = {f"{system.mean:.4f}" for system in measured_later.systems.values()}
    assert means == {call_command(evaluate_scores, evaluate_config).split("\n\n")[1].split()[-1]}, (
        "of the scores it keeps"
    )

    data = letor_folder / "mine" / "test.txt"
    arguments = [f"scores={{theirs: {same}}}", f"data={data}", "baseline=theirs", *settings]
    (pair,) = findings_of(tmp_path, *arguments).pairs
    assert (pair.difference, pair.second) == (0, "theirs")

    lines = data.read_text().splitlines(keepends=True)
    other_data = tmp_path / "other.txt"
    other_data.write_text("".join(line.replace("qid:", "qid:x") for line in lines))
    message = refused(
        lambda: report_of(tmp_path, f"scores=[{same}]", f"data={other_data}"), DataError
    )
    assert "other.txt: the query ids, the list lengths" in message
    assert "use the file on which the run was tested" in message
    same.write_text("1\n")
    assert "expected a score for each of the 40 rows" in refused(
        lambda: report_of(tmp_path, f"scores={same}", *settings)
    )


@pytest.mark.slow
def test_compare_runs_does_not_import_torch(tmp_path) -> None:
    code = (
        "import sys\n"
        "from ltr.cli.compose import typed\n"
        "from ltr.lab.analysis.compare import compare\n"
        "from ltr.cli.cli import call_command\n"
        f"cfg = typed('compare', [{str(sweep(tmp_path))!r}, 'samples=500'])\n"
        "print(call_command(compare, cfg))\n"
        "print('torch' in sys.modules)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "40 queries" in process.stdout, process.stderr
    assert process.stdout.endswith("False\n")


def test_compare_runs_groups_seeds_into_one_system(tmp_path) -> None:
    a = keep(tmp_path / "a", seed=1)
    config = {"metrics": ["ndcg@5", "map"], "device": "cpu", "suggested": {"epochs": 5}}
    b = keep(tmp_path / "b", seed=2, better=0.2, config=config)  # far apart, and yet
    findings = findings_of(a, b)
    assert (list(findings.systems), findings.pairs) == (["model=mlp, loss=rmse"], [])
    assert [block.title for block in findings.report.blocks] == ["Systems"]


def test_compare_reports_settings_numbers_and_what_is_not_covered(tmp_path) -> None:
    sweep(tmp_path)
    (tmp_path / "cut" / ".hydra").mkdir(parents=True)
    (tmp_path / "cut" / ".hydra" / "config.yaml").write_text("")
    arguments = (tmp_path, "published=0.5", "margin=0.01")
    text = report_of(*arguments)
    assert text.startswith("ndcg@5 on mine, test: 40 queries\n")
    facts = dict(findings_of(*arguments).report.facts)
    assert facts["weights"] == "best epoch by ndcg@5 on vali"
    assert (facts["seeds"], facts["commit"]) == ("1 2 3", "c" * 40)
    for expected in (
        "95% interval", "sd of seeds", "better", "queries and seeds", "40/0/0", "±0.01",
        "empty list = 1", "0.5000", "40 queries resolve a true difference of",
        "not covered: other data", f"not finished, left out: {tmp_path / 'cut'}",
    ):  # fmt: skip
        assert expected in text, expected
    assert report_of(*arguments) == text


def test_compare_uses_metric_baseline_seed_and_paths(tmp_path) -> None:
    sweep(tmp_path)
    assert len(find_runs([f"{tmp_path}", f"{tmp_path}/rmse-1-None/results.json"])[0]) == 6
    for seed, commit in ((1, "c"), (2, "d")):
        keep(tmp_path / f"b{seed}", loss="bce", seed=seed, commit=40 * commit)
    two = [str(path) for name in ("rmse*", "listnet*") for path in sorted(tmp_path.glob(name))]
    by_other = findings_of(*two, "metric=ndcg@10", "margin=0.01")
    assert by_other.pairs[0].word == "better"
    assert by_other.report.command.endswith(f"{two[-1]} metric=ndcg@10 margin=0.01")
    assert findings_of(*two, "seed=1").pairs[0].interval != findings_of(*two).pairs[0].interval
    assert (
        dict(findings_of(*two, *tmp_path.glob("b?")).report.facts)["commit"]
        == f"{40 * 'c'}, {40 * 'd'}"
    )
    keep(tmp_path / "b3", loss="bce", seed=3)
    assert len(findings_of(tmp_path).pairs) == 3
    pairs = findings_of(tmp_path, "baseline=listnet").pairs
    assert [(pair.second, pair.word) for pair in pairs] == [("loss=listnet", "worse")] * 2


@pytest.mark.slow
def test_compare_writes_a_folder_or_one_file(tmp_path) -> None:
    folder = tmp_path / "verdicts"
    text = report_of(sweep(tmp_path / "s"), f"write={folder}", "published=0.5")
    assert f"kept in {folder} (compare.html, compare.md, compare.tex, compare.csv)" in text
    table = pd.read_csv(folder / "compare.csv")
    assert table["word"].tolist() == ["better"]
    assert table.notna().sum(axis=1)[0] == len(table.columns) - 1  # no note
    assert "| better " in (folder / "compare.md").read_text()
    paper = (folder / "compare.tex").read_text()
    assert paper.count(r"\begin{tabular}") == paper.count(r"\end{table}") == 2
    assert paper.count(r"\textbf{") == 1
    for name in ("verdicts.tex", "verdicts.html", "verdicts.csv"):
        alone = tmp_path / "one" / name
        assert f"kept in {alone}" in report_of(tmp_path / "s", f"write={alone}", "published=0.5")
        assert alone.read_text() == (folder / f"compare{alone.suffix}").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digest": "e"}, "have different test lists (mine and mine): compare runs on the same"),
        ({"fold": 2, "dataset": "theirs"}, "(mine and theirs): compare runs on the same"),
        ({"convention": "empty list = 0"}, "(empty list = 1 | empty list = 0): train one of them"),
        ({"select_on": "map"}, "selected by map and ndcg@5: set metric=NAME"),
        ({"fold": 2}, "has no run with seed "),
        ({"loss": "rmse"}, "are the same run"),
        ({"config": {"dataset": {"name": "mine", "seed": 2, "path": "all.csv"}}, "digest": "e"},
         "split from one table with several seeds"),
    ],
)  # fmt: skip
def test_compare_refuses_runs_that_cannot_be_compared(tmp_path, change, message) -> None:
    keep(tmp_path / "a")
    keep(tmp_path / "b", **{"loss": "bce", **change})
    assert message in refused(lambda: report_of(tmp_path), (ConfigError, DataError))


def test_compare_names_a_missing_or_damaged_run(tmp_path) -> None:
    sweep(tmp_path / "s", seeds=(1, 2), folds=(1, 2))
    run = tmp_path / "s" / "rmse-2-2"
    file = run / "queries.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:9]))
    assert "queries.csv is damaged" in refused(lambda: report_of(tmp_path / "s"))
    finish(run, {})
    assert "does not record which lists were measured" in refused(lambda: report_of(tmp_path / "s"))
    (run / "results.json").unlink()
    message = refused(lambda: report_of(tmp_path / "s"), ConfigError)
    assert "loss=rmse has no run with seed 2 on fold 2" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected run folders"),
        (["RUNS", "margin=a"], "margin=a"),
        (["RUNS", "samples=-1"], "samples=-1: give a whole number >= 100"),
        (["RUNS", "metric=map"], "did not compute this metric, and its test lists cannot be read"),
        (["RUNS", "baseline=loss"], "baseline=loss: choose one of loss="),
        (["RUNS", "scores=[theirs.txt]"], "write 'scores={theirs:[FILE,FILE]}'"),  # two folds
        (["RUNS", "scores=[a/theirs.txt,b/theirs.txt]"], "two files have the same name"),
        (["RUNS", "scores=['loss=rmse.txt']"], "the name loss=rmse already belongs to a system"),
        (["EVIL", "scores=[a.txt]"], "set metric=evil.hits@5"),  # a run may be anyone's
    ],
)
def test_compare_refuses_wrong_arguments(arguments, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep(tmp_path / "RUNS", seeds=(1,), folds=(1, 2))
    keep(tmp_path / "EVIL", select_on="evil.hits@5")
    assert message in refused(lambda: report_of(*arguments), (ConfigError, DataError))


def test_compare_names_an_unreadable_file(tmp_path) -> None:
    sweep(tmp_path / "s", seeds=(1,))
    (tmp_path / "s" / "rmse-1-None" / "queries.csv").unlink()
    assert "queries.csv cannot be read (No such file" in refused(lambda: report_of(tmp_path / "s"))


def scored(folder: Path, name: str, noise: float, *, lacks: str = "") -> None:
    """Write scores of 40 lists, as ``NAME.txt`` for ``test.txt`` and as the run ``NAME.run``."""
    rng = np.random.default_rng(len(name))
    numbers = np.random.default_rng(0)
    scores, run, data, qrels = (list[str]() for _ in range(4))
    for query in map(str, range(40)):
        for item in range(6):
            grade = int(numbers.integers(0, 3))
            score = grade + rng.normal(0, noise)
            data.append(f"{grade} qid:{query} 1:0")
            scores.append(f"{score}")
            qrels.append(f"{query} 0 d{item} {grade}")
            run += [f"{query} Q0 d{item} 1 {score} {name}"] if query != lacks else []
    files = {"test.txt": data, f"{name}.txt": scores, "test.qrels": qrels, f"{name}.run": run}
    for file, lines in files.items():
        (folder / file).write_text("\n".join(lines) + "\n")


@pytest.fixture
def rankers(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scored(tmp_path, "sharp", 0.1, lacks="3")
    scored(tmp_path, "dull", 3.0)


@pytest.mark.usefixtures("rankers")
@pytest.mark.parametrize("convention", [[], ["convention=letor4"]])
def test_compare_runs_measures_score_files_without_a_run(convention: list[str]) -> None:
    settings = ["data=test.txt", "metric=ndcg@5", "samples=200", *convention]
    findings = compare_runs([], comparison_of(["scores=[sharp.txt,dull.txt]", *settings]))
    (pair,) = findings.pairs
    assert (pair.first, pair.word, pair.queries) == ("sharp", "differ", 40)
    assert findings.report.title == "ndcg@5 on test.txt, test: 40 queries"
    chosen_convention = convention or ["convention=paper"]
    for name, system in findings.systems.items():
        arguments = [f"scores={name}.txt", "data=test.txt", "metrics=[ndcg@5]", *chosen_convention]
        table = call_command(evaluate_scores, typed("evaluate", arguments))
        assert f"{system.mean:.4f}" == table.split("\n\n")[1].split()[-1]
        assert table.endswith(findings.report.notes[-1])
    assert findings.report.title in report_of("sharp.txt", "dull.txt", *settings), "without scores="


@pytest.mark.usefixtures("rankers")
def test_compare_runs_measures_trec_runs_on_their_shared_queries() -> None:
    settings = ["qrels=test.qrels", "metric=ndcg@5", "samples=200"]
    findings = compare_runs([], comparison_of(["scores={a:sharp.run,b:dull.run}", *settings]))
    assert findings.report.title == "ndcg@5 on test.qrels, test: 39 queries"
    assert "1 queries that the convention skips, or that a file lacks" in str(findings.report.notes)
    arguments = ["scores=sharp.run", "qrels=test.qrels", "metrics=[ndcg@5]", "convention=trec"]
    table = call_command(evaluate_scores, typed("evaluate", arguments))
    assert f"{findings.systems['a'].mean:.4f}" == table.split("\n\n")[1].split()[-1]


@pytest.mark.usefixtures("rankers")
def test_compare_runs_measures_a_trec_run_beside_a_run(tmp_path: Path) -> None:
    run = keep(tmp_path / "ours", levels={"empty": 1.0})
    table = pd.read_csv(run / "queries.csv", dtype={"qid": str})
    table["qid"] = [*map(str, range(40))][::-1]
    table.to_csv(run / "queries.csv", index=False)
    finish(run, {**RunFolder(run).results})
    findings = findings_of(run, "scores=[dull.run]", "qrels=test.qrels", "samples=200")
    assert findings.pairs[0].queries == 40
    alone = compare_runs([], comparison_of(
        ["scores=[dull.run]", "qrels=test.qrels", "metric=ndcg@5", "convention=paper"]
    ))  # fmt: skip
    assert findings.systems["dull"].mean == pytest.approx(alone.systems["dull"].mean)


@pytest.mark.usefixtures("rankers")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scores=[sharp.txt,dull.txt]", "metric=map"], "data= (LETOR text) or qrels="),
        (["sharp.txt", "dull.txt", "data=test.txt"], "set metric=NAME"),
        (["scores=[sharp.run]", "data=test.txt", "qrels=test.qrels"], "with data= (LETOR text) or"),
        (["sharp.txt", "data=[test.txt,test.txt]", "metric=map"], "a file for each of the 2 folds"),
        (["sharp.txt", "data=test.txt", "metric=map", "convention=trec,paper"], "choose one"),
    ],
)
def test_compare_refuses_wrong_arguments_without_a_run(arguments: list[str], message: str) -> None:
    assert message in refused(lambda: report_of(*arguments), (ConfigError, DataError))
