"""Scores of any tool: reading them, their errors, the table under several conventions."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import ConfigError, DataError
from ltr.experiment.run_folder import FILES, RunFolder, write_queries, write_results, write_scores
from ltr.inference.evaluate import evaluate, evaluate_scores
from ltr.inference.scores_file import read_scores
from ltr.metrics import Convention
from tests.helpers.folders import finish, refused
from tests.helpers.made_lists import make_lists, write_letor
from tests.helpers.runs import compose

QIDS = ["a", "a", "b"]


def read(path: Path, text: str, qids: list[str] = QIDS) -> list[float]:
    path.write_text(text)
    return read_scores(path, qids, "test.txt").tolist()


@pytest.mark.parametrize(
    "text",
    [
        "0.1\n-2e3\n+.5\n",
        "0.1\r\n-2e3\r\n 0.5 \r\n\r\n",
        "score\n0.1\n-2e3\n0.5\n",
        "\N{BYTE ORDER MARK}qid,score\na,0.1\na,-2e3\nb,0.5\n",
        'rank,score,"qid"\n2,0.1,"a"\n1, -2e3 ,a\n1,0.5,b\n',
        "qid,row,score,rank\nb,3,0.5,1\na,1,0.1,1\na,2,-2e3,2\n",
        'id,qid,score\nx\N{LINE SEPARATOR}y,a,0.1\n"x\ny",a,-2e3\nx\x85,b,0.5\n',
    ],
)
def test_read_scores_reads_every_form(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "scores", text) == [0.1, -2000, 0.5]


def test_read_scores_accepts_query_ids_that_look_like_formulas(tmp_path: Path) -> None:
    lists = replace(make_lists([2, 1]), qids=np.array(["=q", "-q"]))
    scores = np.array([1e-38, 0.1, 3], np.float32)
    write_scores(tmp_path / "scores.csv", lists, scores)
    text = (tmp_path / "scores.csv").read_text()
    assert text == "qid,score\n=q,1e-38\n=q,0.1\n-q,3.0\n"  # no digit is lost, none is made up
    for written in (text, text.replace("=", "'=").replace("-q", "'-q")):  # as it once was written
        scores_read = read(tmp_path / "again", written, ["=q", "=q", "-q"])
        assert (np.array(scores_read, np.float32) == scores).all()
    write_queries(tmp_path / "queries.csv", lists, {"ndcg": np.ones(2)})
    text = (tmp_path / "queries.csv").read_text()
    assert text == "qid,items,empty,ndcg\n=q,2,False,1.0\n-q,1,False,1.0\n"
    finish(tmp_path, {})
    values = RunFolder(tmp_path).values("ndcg")
    (tmp_path / "queries.csv").write_text(text.replace("=q", "'=q").replace("-q", "'-q"))
    finish(tmp_path, {})
    assert RunFolder(tmp_path).values("ndcg")[0] == values[0], "earlier runs can be set beside"


def test_read_scores_compares_ids_as_texts(tmp_path: Path) -> None:
    assert read(tmp_path / "scores", "1.00000000000001\n1\n0\n")[0] > 1  # float64
    ids = ["007", "NA", "nan", "a\x85b", "a\N{LINE SEPARATOR}b", "1e3"]
    text = "qid,score\n" + "".join(f"{qid},{i}\n" for i, qid in enumerate(ids))
    assert read(tmp_path / "scores", text, ids) == [0, 1, 2, 3, 4, 5]
    other_ids = ["7", *ids[1:]]
    assert ":2: '007': expected the query" in refused(
        lambda: read(tmp_path / "scores", text, other_ids)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.1\n0.2\n", ": expected a score for each of the 3 rows of test.txt, got 2"),
        ("", ": No columns to parse from file; expected a file of scores"),
        ("0.1\n0.2\n1e999\n", ":3: '1e999': expected a finite number"),
        ("qid,scores\na,1\n", ":1: expected a column named 'score', got none: write the names"),
        ("x" * 99 + "\n1\n2\n", f":1: '{'x' * 40}': expected a finite number"),
        (
            "qid,score\na,1\nb,2\nb,3\n",
            ":3: 'b': expected the query id of the same row of test.txt",
        ),
        ("qid,score\na,1\na\nb,1\n", ":3: '': expected"),
        ("qid,score\na,1\na,1,2\n", ": Error tokenizing"),
        ("qid,score\na,0,25\na,0,5\nb,1,0\n", ": Error tokenizing"),  # decimal commas
        ("score,tag\n0,25,x\n0,5,x\n1,0,x\n", ": Error tokenizing"),
        ("score,score\n1,2\n1,2\n1,2\n", ":1: two columns are named 'score'"),
        ("1_000\n2\n3\n", ":1: '1_000': expected a finite number"),
        ("1\n\u0662\n3\n", ":2: '\u0662': expected a finite number"),
        ("1\n2\N{NO-BREAK SPACE}\n3\n", ":2: '2\\xa0': expected a finite number"),
        ("score\n1\nInfinity\n3\n", ":3: 'Infinity': expected a finite number"),
        ("row,score\n1,1\n1,2\n", ":3: '1': expected a row number of test.txt, 1 to 3"),
        ("row,score\n4,1\n", ":2: '4': expected a row number of test.txt"),
        ("row,score\n2,1\n3,1\n", ": expected a score for each of the 3 rows of test.txt, got 2"),
    ],
)
def test_read_scores_names_the_line_of_a_malformed_cell(tmp_path, text, message) -> None:
    path = tmp_path / "scores"
    assert refused(lambda: read(path, text)).startswith(f"{path}{message}")
    assert "none'; expected a file of" in refused(lambda: read_scores(tmp_path / "none", QIDS, "x"))


def test_read_scores_refuses_damaged_scores_of_a_run(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("score\n1\n2\n3\n")
    write_results(tmp_path, {})
    path = tmp_path / "scores.csv"
    damaged = "score\n1\n2\n2\n"
    assert read_scores(path, QIDS, "test.txt").tolist() == [1, 2, 3]
    assert "scores.csv is damaged" in refused(lambda: read(path, damaged))
    (tmp_path / "results.json").unlink()  # then they are a file of the user
    assert read(path, damaged) == [1, 2, 2]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A LETOR file of 30 lists, 3 of them empty, and scores of its rows with ties."""
    rng = np.random.default_rng(0)
    lists = make_lists(rng.integers(1, 14, 30).tolist(), empty=(0, 7, 20))
    write_letor(tmp_path / "test.txt", lists)
    scores = tmp_path / "scores.txt"
    scores.write_text("".join(f"{s / 4}\n" for s in rng.integers(0, 8, lists.items)))
    return scores, tmp_path / "test.txt"


def cells(text: str) -> dict[str, list[str]]:
    """The rows of the table by metric."""
    rows = [line.split() for line in text.split("\n\n")[1].splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_evaluate_scores_shows_every_convention(files: tuple[Path, Path]) -> None:
    scores, data = files
    cfg = compose(f"scores={scores}", f"data={data}", config="evaluate")
    title, table, described = call_command(evaluate_scores, cfg).split("\n\n")
    assert title == f"{scores} on {data}, 30 lists"
    assert table.split()[:6] == ["metric", "letor4", "lightgbm", "paper", "sklearn", "trec"]
    assert [line.partition(":")[0] for line in described.splitlines()] == table.split()[1:6]
    assert "paper: empty list = 1 (no label > 0; map, " in described
    assert described.count("3 grades") == 5
    row = cells(call_command(evaluate_scores, cfg))["ndcg@10"]
    assert row[1] == row[2]  # LightGBM counts as the paper
    assert len(set(row)) == 4


def test_evaluate_scores_overrides_conventions_and_writes_queries(files, tmp_path) -> None:
    scores, data = files
    settings = f"scores={scores}", f"data={data}", "metrics=[ndcg@5,err]"
    names = "conventions=[letor4,paper]", "convention.empty=skip", "convention.levels=5"
    out = f"output={tmp_path / 'queries.csv'}"
    text = call_command(evaluate_scores, compose(*settings, *names, out, config="evaluate"))
    assert text.count("empty lists left out") == 2
    assert text.count("5 grades") == 2
    queries = pd.read_csv(tmp_path / "queries.csv")
    assert queries["paper ndcg@5"].isna().tolist() == queries["empty"].tolist()
    assert f"{queries['letor4 ndcg@5'].mean():.4f}" == cells(text)["ndcg@5"][0]
    table = call_command(evaluate_scores, typed("evaluate", [*settings, "convention=trec,paper"]))
    assert cells(table)["metric"] == ["trec", "paper"]
    alone = call_command(
        evaluate_scores, compose(*settings, "conventions=paper", config="evaluate")
    )
    assert cells(alone)["metric"] == ["paper"]
    assert alone.endswith(Convention(levels=3).describe())


@pytest.mark.slow
def test_evaluate_scores_ignores_batches_and_the_order_of_rows(files, tmp_path) -> None:
    scores, data = files
    settings = "conventions=[letor4,sklearn]", "regroup=true"
    files = f"scores={scores}", f"data={data}"
    report = call_command(evaluate_scores, compose(*files, *settings, config="evaluate"))
    one_by_one = compose(*files, *settings, "evaluation_items=1", config="evaluate")
    assert call_command(evaluate_scores, one_by_one) == report

    # queries that do not stand together: the items of each keep their order, ties too
    rows = data.read_text().splitlines()
    values = scores.read_text().splitlines()
    lists = [[i for i, row in enumerate(rows) if f"qid:q{q} " in row] for q in range(30)]
    order = [indices[k] for k in range(14) for indices in lists if k < len(indices)]
    mixed = tmp_path / "mixed.txt"
    mixed_scores = tmp_path / "theirs.csv"
    mixed.write_text("".join(f"{rows[i]}\n" for i in order))
    rows_with_qid = [f"{rows[i].split()[1][4:]},{values[i]}" for i in order]
    mixed_scores.write_text("\n".join(["qid,score", *rows_with_qid]))
    files = f"scores={mixed_scores}", f"data={mixed}"
    assert cells(
        call_command(evaluate_scores, compose(*files, *settings, config="evaluate"))
    ) == cells(report)
    ungrouped = compose(*files, config="evaluate")
    assert "or set regroup=true" in refused(lambda: call_command(evaluate_scores, ungrouped))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["scores=s.txt"], ConfigError, "set either data=FILE"),
        (["scores=s.txt", "checkpoint=run", "data=test.txt"], ConfigError, "set either data=FILE"),
        (["scores=s", "data=d", "qrels=q"], ConfigError, "or qrels=FILE"),
        (["checkpoint=run", "qrels=q"], ConfigError, "set scores=FILE"),
        (
            ["scores=s", "data=x.parquet"],
            DataError,
            "data=x.parquet: expected LETOR text, got a table",
        ),
        (
            ["scores=s", "data=d", "convention=[trec,papre]"],
            ConfigError,
            "convention=papre is not known",
        ),
    ],
)
def test_evaluate_refuses_arguments_that_do_not_go_together(arguments, error, message) -> None:
    assert message in refused(lambda: call_command(evaluate, typed("evaluate", arguments)), error)


DATA = Path(os.environ.get("LTR_DATA_DIR", ""))
OFFICIAL = DATA.parent / "reference" / "letor4_eval"


@pytest.mark.slow
@pytest.mark.skipif(
    "LTR_DATA_DIR" not in os.environ or not OFFICIAL.is_dir() or not (DATA / "MQ2008").is_dir(),
    reason="LTR_DATA_DIR does not name MQ2008 with the official evaluation beside it",
)
def test_evaluate_scores_agrees_with_the_official_evaluation() -> None:
    patterns = {"NDCG@{}": "ndcg@{}", "P@{}": "precision@{}"}
    names = {a.format(k): b.format(k) for a, b in patterns.items() for k in range(1, 11)}
    names |= {"MeanNDCG": "mean_ndcg", "MAP": "map"}
    predictions = sorted(OFFICIAL.glob("MQ2008.*.pred.txt"))
    assert predictions
    for prediction in predictions:
        figures = prediction.with_name(prediction.name.replace(".pred.", ".perf.")).read_text()
        printed: dict[str, str] = {}
        for table in figures.strip().split("\n\n"):
            head, average = (line.split() for line in table.splitlines()[:2])
            printed |= dict(zip(head[1:], average[1:], strict=True))
        fold = prediction.name.split(".")[1]
        cfg = compose(
            *(f"scores={prediction}", f"data={DATA / 'MQ2008' / fold / 'test.txt'}"),
            *("conventions=letor4", f"metrics=[{','.join(names.values())}]"),
            config="evaluate",
        )
        computed = cells(call_command(evaluate_scores, cfg))
        assert {name: computed[ours][0] for name, ours in names.items()} == printed
