"""The scripts of ``benchmarks/`` run in small, and say what goes wrong."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers import processes
from tests.helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import calls  # noqa: E402
import common  # noqa: E402
import losses  # noqa: E402
import peers  # noqa: E402
from common import Case, Work  # noqa: E402


@pytest.fixture
def keys(tmp_path) -> SimpleNamespace:
    into = str(tmp_path / "rows.jsonl")
    return SimpleNamespace(device="cpu", only="", repeats=3, seconds=100.0, long=100.0, into=into)


def run(tmp_path: Path, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    places = f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/out"
    peers_at = {"LTR_PEERS": str(tmp_path / "none")}
    command = f"benchmarks/{script}.py", "quick=true", "threads=1", *places, *arguments
    done = processes.run(*command, env=peers_at)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.tutorial
@pytest.mark.parametrize(
    ("script", "only", "case", "sides"),
    [
        ("losses", "listmle", "listmle [4, 12]", {"ours", "allrank"}),
        ("reader", "", "open 6 kept lists", {"scikit-learn", "ours, into the cache"}),
        ("training", "listnet", "listnet, 8 lists", {"ours", "allrank"}),
        ("evaluation", "", "6 full lists", {"ours", "allrank"}),
        ("serving", "mlp", "mlp, 3 items", {"ours", "onnxruntime"}),
        ("growth", "listnet", "listnet [1, 10]", {"ours", "allrank"}),
    ],
)
def test_a_script_prints_its_table_and_keeps_its_rows(tmp_path, script, only, case, sides) -> None:
    picture = f"picture={tmp_path}/growth.png"
    done = run(tmp_path, script, f"only={only}", *([picture] if script == "growth" else []))
    assert f"benchmarks/{script}.py quick=true" in done.stdout
    assert f"| {case}" in done.stdout
    assert ("p99" in done.stdout) == (script == "serving")
    (file,) = (tmp_path / "out").glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().split("\n") if line]
    assert {row["side"] for row in rows} >= sides
    for row in rows:
        if row["side"] != "allrank":
            assert row["seconds"], row
            assert min(row["seconds"]) > 0
        elif find_spec("allrank") is None:
            assert "allrank" in row["failed"]
            assert "make bench" in row["failed"]
    if script == "growth":
        assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_quality_goes_on_where_it_was_cut(tmp_path) -> None:
    asked = "only=listnet", "sides=[precision=bfloat16]", f"into={tmp_path}/rows"
    text = run(tmp_path, "quality", *asked).stdout
    rows = (tmp_path / "rows").read_text()
    assert rows.count("\n") == 4  # two seeds, two sides
    assert "undecided" in text or "equivalent" in text or "better" in text or "worse" in text
    (tmp_path / "rows").write_text(rows[:-9])  # the last one was cut
    done = run(tmp_path, "quality", *asked)
    assert done.stderr.count("listnet") == 1, "one run is done again"
    assert "ndcg@10" in done.stdout


def test_a_mistake_is_one_line(keys, monkeypatch) -> None:
    for argument, said in (
        ("onyl=ndcg", "the keys are device, threads, only"),
        ("device=tpu", "device=tpu: cpu, or cuda where PyTorch sees a GPU"),
    ):
        monkeypatch.setattr(sys, "argv", ["losses.py", argument])
        with pytest.raises(SystemExit, match=said):
            common.arguments(losses.SIZES)
    keys.only = "nothing"
    with pytest.raises(SystemExit, match="only=nothing: no case has this in its name"):
        common.show("Losses", [], keys)


def made(side: str, size: int = 1) -> Work:
    """A side that goes wrong in the way of its name."""

    def call() -> object:
        if side == "raises":
            raise RuntimeError("no\nway")
        if side == "hungry":
            raise MemoryError
        return [0.0] * size

    if side == "absent":
        peers.need("no_such_module")
    return Work(call, lambda: {"value": {"wrong": 2.0, "nan": float("nan")}.get(side, 1.0)})


def test_every_side_that_goes_wrong_says_how_and_the_rest_goes_on(keys) -> None:
    sides = ("ours", "wrong", "nan", "raises", "hungry", "absent", "close")
    rows = common._sides(Case("case", made, sides, {"value": 0.5}), keys, 0)
    said = {row["side"]: row.get("failed") for row in rows}
    assert said["ours"] is said["close"] is None
    assert "value differs from ours" in said["wrong"]
    assert "value differs from ours" in said["nan"]
    assert said["raises"] == "RuntimeError: no way"
    assert said["hungry"] == "does not fit into memory"
    assert "make bench installs it" in said["absent"]
    assert [len(row["seconds"]) for row in rows if "failed" not in row] == [3, 3]


@pytest.mark.slow
def test_calls_times_a_loss_by_its_kernel_and_as_an_operator(monkeypatch, capsys) -> None:
    monkeypatch.setattr(calls, "NAMES", ("ranknet", "approx_ndcg"))
    monkeypatch.setattr(calls, "SHAPES", ((2, 4),))
    monkeypatch.setattr(calls, "SECONDS", 1e-4)
    calls.main(["times"])
    times = json.loads(capsys.readouterr().out)
    cases = ["ranknet [2, 4]", "approx_ndcg [2, 4]"]
    assert list(times) == [text for case in cases for text in (case, f"{case} operator")]
    assert all(microseconds > 0 for microseconds in times.values())
