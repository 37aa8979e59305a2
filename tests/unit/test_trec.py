"""Runs and qrels of TREC: how they are written, and the figures of trec_eval for them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.cli.cli import call_command
from ltr.cli.compose import typed
from ltr.errors import ConfigError
from ltr.inference.evaluate import evaluate_scores
from ltr.inference.inputs import read_file
from ltr.inference.trec import read_trec_run, write_qrels, write_trec_run
from tests.helpers.folders import refused

TEXT = "2 qid:b 1:1 #docid = D1 x = 1\n0 qid:a 1:2\n1 qid:b 1:3 # D2\n0 qid:b 1:4 # D3\n"


def test_write_trec_run_ranks_as_trec_eval(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text(TEXT)
    lists, ids = read_file(path, True, ids=True)
    write_trec_run(tmp_path / "run", lists, ids, np.array([0.1 + 1e-9, 0.1, 0.3, 7]))
    expected = ["b Q0 D3 1 0.3 ltr", "b Q0 D2 2 0.1 ltr", "b Q0 D1 3 0.1 ltr", "a Q0 2 1 7.0 ltr"]
    assert (tmp_path / "run").read_text().splitlines() == expected
    numbered = pd.DataFrame({"n": [5, None, 7, 4]}, dtype="Int64")
    for id_frame, expected in ((ids, ["D1", "D2", "D3", "2"]), (numbered, ["5", "3", "7", "4"])):
        write_qrels(tmp_path / "qrels", lists, id_frame)
        text = "b 0 {} 2\nb 0 {} 1\nb 0 {} 0\na 0 {} 0\n".format(*expected)
        assert (tmp_path / "qrels").read_text() == text
    for columns, kind, message in (
        ({"id": ["x", "y", "x", "z"]}, ValueError, "query 'b', id 'x'"),
        ({"id": ["x", "y z", "w", "z"]}, ValueError, "id 'y z'"),
        ({"id": list("wxyz"), "shop": list("wxyz")}, ConfigError, "name one column"),
    ):
        action = lambda columns=columns: write_qrels(tmp_path / "q", lists, pd.DataFrame(columns))  # noqa: E731
        assert message in refused(action, kind)
    half = replace(lists, labels=lists.labels / 2)
    assert "expected labels that are whole numbers" in refused(
        lambda: write_qrels(tmp_path / "q", half, ids)
    )


def test_evaluate_scores_agrees_with_trec_eval(tmp_path: Path, caplog) -> None:
    """Equal scores, some only in float32; items that were not retrieved, or not judged."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    ranked = {}
    judged = {}
    for query in map(str, range(60)):
        items = [f"d{i}" for i in rng.permutation(40)]
        scores = rng.integers(0, 9, 40) / 8 + 1 + rng.choice([0, 1e-9], 40)
        ranked[query] = dict(zip(items[:25], scores.tolist(), strict=False))
        judged[query] = dict(
            zip(items[10:], rng.choice([-2, 0, 0, 1, 3], 30).tolist(), strict=True)
        )
    ranked |= {"0": {"other": 1.0}, "run-only": {"d": 1.0}}
    judged |= {"1": {"d1": 0, "d2": -1}, "judged-only": {"d": 1}}
    ranked["3"]["d0"] = -1e300  # too low for float32, but retrieved
    judged["3"]["d0"] = 1
    lines = {"run": "{} Q0 {} 1 {!r} me\n", "qrels": "{}\t0\t{}\t{}\n"}
    for name, queries in (("run", ranked), ("qrels", judged)):
        rows = [(query, *item) for query, items in queries.items() for item in items.items()]
        (tmp_path / name).write_text("".join(lines[name].format(*row) for row in rows))
    names = {"map": "map", "recip_rank": "mrr", "ndcg": "ndcg"}
    names |= {"set_P": "precision", "set_recall": "recall"}
    cut = {"ndcg_cut": "ndcg", "P": "precision", "recall": "recall", "map_cut": "map"}
    trec_metrics = {*names, *(f"{name}.1,5,20,100" for name in cut)}
    names |= {f"{name}_{k}": f"{ours}@{k}" for name, ours in cut.items() for k in (1, 5, 20, 100)}
    printed = pytrec_eval.RelevanceEvaluator(judged, trec_metrics).evaluate(ranked)
    arguments = [
        f"scores={tmp_path}/run",
        f"qrels={tmp_path}/qrels",
        "convention=trec",
        f"metrics=[{','.join(names.values())}]",
        f"output={tmp_path}/q.csv",
    ]
    assert "qrels (file order: by id, descending), 60 lists" in call_command(
        evaluate_scores, typed("evaluate", arguments)
    )
    assert "1 queries that are only" in caplog.text
    ours = pd.read_csv(tmp_path / "q.csv", dtype={"qid": str}).set_index("qid")
    assert {*ours.index} == {*printed}
    for theirs, name in names.items():
        expected = [printed[query][theirs] for query in ours.index]
        np.testing.assert_allclose(ours[name], expected, atol=1e-12, rtol=0, err_msg=theirs)


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ("q Q0 d 1 x t", "q 0 d 1", "run:1: 'x': expected a finite number"),
        (
            "q Q0 d 1 .5 t\nq Q0 d 2 1 t",
            "q 0 d 1",
            "run:2: 'd': expected each id only once in a query",
        ),
        ("q Q0 d 1 .5 t\nq Q0 e 2", "q 0 d 1", "run:2: expected 6 words (qid"),
        ("q Q0 d 1 .5", "q 0 d 1", "run:1: expected 6 words (qid Q0 id rank score tag), got 5"),
        ("q Q0 d 1 1_0 t", "q 0 d 1", "run:1: '1_0': expected a finite number"),
        ("q Q0 d 1 \uff11 t", "q 0 d 1", "run:1: '\uff11': expected a finite number"),
        ("q Q0 d 1 .5 t", "q 0 d 1_0", "qrels:1: '1_0': expected a grade, which is a whole number"),
        ("q Q0 d 1 .5 t", "q 0 d 1.5", "qrels:1: '1.5': expected a grade, which is a whole number"),
        ("q Q0 d 1 .5 t", "q 0 d 1\nq 0 d 0", "qrels:2: 'd': expected each id only once"),
        ("q Q0 d 1 .5 t", "p 0 d 1", "have no query in common"),
        ("q Q0 d 1 .5 t", "", "qrels:1: expected 4 words"),
    ],
)
def test_read_trec_run_names_the_line_of_a_malformed_cell(
    run: str, qrels: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text(run)
    (tmp_path / "qrels").write_text(qrels)
    assert message in refused(lambda: read_trec_run(tmp_path / "run", tmp_path / "qrels"))


@pytest.mark.parametrize(
    "sign", ["\N{NO-BREAK SPACE}", "\u3000", "\N{LINE SEPARATOR}", "\x85", "\x1c"]
)
def test_read_trec_run_splits_at_ascii_spaces_only(sign: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    qrels = tmp_path / "qrels"
    run.write_text(f"q Q0 a{sign}b\t1 2 t\r\nq Q0 c{sign} 2 1 t\n", "utf-8", newline="")
    qrels.write_text(f"q 0 a{sign}b 1\nq 0 c 1\n", "utf-8", newline="")
    lists, scores = read_trec_run(run, qrels)
    assert lists.labels.tolist() == [0, 1, 1], "c is judged, and another item than that of the run"
    assert scores.tolist() == [1, -np.inf, 2]

    path = tmp_path / "new.txt"
    path.write_text(f"2 qid:b 1:1 # {sign}D{sign}1\n", "utf-8")
    lists, ids = read_file(path, True, ids=True)
    write_trec_run(run, lists, ids, np.array([1.0]))
    assert run.read_text("utf-8") == f"b Q0 {sign}D{sign}1 1 1.0 ltr\n"
