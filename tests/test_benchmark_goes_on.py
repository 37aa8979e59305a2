"""A benchmark that was cut goes on; it runs without git, network and the peers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from benchmark_here import InThisProcess, quick

from ltr.benchmark import bits, comparison, losses, needs, peers, runs, sections
from ltr.benchmark.comparison import ABSENT, FAILED, MEASURED, Comparison, Plan, Row
from ltr.benchmark.kept import Kept
from ltr.benchmark.side import DIED
from ltr.benchmark.worker import Case
from ltr.experiment.provenance import commit
from ltr.training.interruption import Interrupted

PLAN = Plan(repeats=1, seconds=1, long=1)
PLACE = {"device": "cpu", "threads": 1, "time_limit": 9}
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch) -> None:
    """No process is started, and no peer is in its folder."""
    monkeypatch.setattr(comparison, "Side", InThisProcess)
    monkeypatch.setenv("LTR_PEERS", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "peers" not in p])


def results(tmp_path: Path) -> list[tuple[list[str], str]]:
    """The cases in the files of each command, the oldest first, and its tables."""
    found = []
    for folder in sorted((tmp_path / "outputs/benchmarks").iterdir(), key=os.path.getmtime):
        rows = json.loads((folder / "results.json").read_text())["rows"]
        cases = dict.fromkeys(row["case"] for row in rows)
        found.append((list(cases), (folder / "results.md").read_text()))
    return found


@pytest.mark.slow
def test_a_cut_benchmark_goes_on_with_the_case_in_progress(tmp_path, monkeypatch, caplog) -> None:
    made, page = [], tmp_path / "page.md"
    stop_at = {"p_listmle"}
    make = losses.make

    def stopping(side, settings, device, cache_dir):
        made.append(settings["loss"])
        if settings["loss"] in stop_at:
            raise Interrupted(15)
        return make(side, settings, device, cache_dir)

    monkeypatch.setattr(losses, "make", stopping)
    asked = "what=losses", "only=listmle", f"write={page}"
    with pytest.raises(Interrupted):
        quick(tmp_path, *asked)
    ((cases, text),) = results(tmp_path)
    assert cases == ["listmle [4, 12]"]
    assert "the same command goes on" in text
    assert not page.exists(), "a section is replaced by a whole one"

    stop_at.clear()
    rows = quick(tmp_path, *asked)["losses"]
    assert made == ["listmle", "p_listmle", "p_listmle"]
    assert [row.case for row in rows if row.side == "ours"] == [
        "listmle [4, 12]",
        "p_listmle [4, 12]",
    ]
    assert all(row.seconds and row.date for row in rows if row.side == "ours")
    cases, text = results(tmp_path)[1]
    assert len(cases) == 2
    assert "goes on" not in text
    assert "p_listmle" in page.read_text()
    assert not list((tmp_path / "outputs/benchmark_runs").iterdir()), "the next measures anew"


class Stub:
    """A side whose first call compiles for 99 seconds."""

    died = False
    asked: ClassVar[list[str]] = []

    def __init__(self, *_: object) -> None:
        self.seconds = iter([99.0])

    def start(self) -> None: ...
    def close(self) -> None: ...

    def ask(self, do: str, **request: object) -> dict:
        self.asked.append(do)
        if self.died:
            return {"failed": f"{DIED} 3: so long"}
        if do in ("start", "prepare"):
            return {"amount": 2}
        return {"seconds": next(self.seconds, 0.5)}


def test_on_a_gpu_the_call_that_compiles_is_not_timed(monkeypatch) -> None:
    monkeypatch.setattr(comparison, "Side", Stub)
    rows = {}
    for device in ("cpu", "cuda"):
        one = Comparison("a.subject", PLACE | {"device": device}, PLAN, lambda _: None)
        (rows[device],) = one.run(Case("a case", {}, ("ours",)))
    assert (rows["cpu"].seconds, rows["cpu"].cold) == ([99.0], True)
    assert (rows["cuda"].seconds, rows["cuda"].cold) == ([0.5], False)


def test_what_is_kept_is_of_the_same_case_place_and_code(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(comparison, "Side", Stub)

    def row(size: int = 1, threads: int = 1, code: str = "one") -> tuple[Row, bool]:
        Stub.asked.clear()
        kept = Kept(tmp_path, {"code": code})
        one = Comparison("a.subject", PLACE | {"threads": threads}, PLAN, lambda _: None, kept)
        (found,) = one.run(Case("a case", {"size": size}, ("ours",)))
        return found, bool(Stub.asked)

    monkeypatch.setattr(Stub, "died", True)
    assert row()[0].status == FAILED
    monkeypatch.setattr(Stub, "died", False)
    first, measured = row()
    assert measured, "a process that ended, as one does that is stopped, is tried again"
    assert row() == (first, False)
    assert [row(size=2)[1], row(threads=2)[1], row(code="two")[1], row()[1]] == [True] * 3 + [False]


def test_a_peer_that_is_missing_is_one_line(monkeypatch) -> None:
    said: list[str] = []
    cases = [Case(name, {}, ("allrank",)) for name in ("one", "two")]
    comparison = Comparison("a.subject", PLACE, PLAN, said.append)
    rows = [row for some in comparison.grow(cases) for row in some]
    assert [row.status for row in rows] == [ABSENT, ABSENT]
    assert len(said) == 1
    assert "what=needs" in said[0]
    text = sections.section("losses", "cpu", rows, {"command": ""}, with_goals=False)
    assert text.count("allrank") == text.count("what=needs") == 1


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_cut_and_says_so(tmp_path) -> None:
    settings = {"queries": 4, "epochs": 8, "seconds": 0, "row": ["loss=listnet", "model.blocks=1"]}
    work = runs.make("ours", settings, "cpu", str(tmp_path))
    assert (work.part, work.amount, work.note.split(",")[0]) == (1 / 8, 4, "1 of 8 epochs")
    row = Row("runs", "NeuralNDCG@max, 8 epochs", "ours", seconds=[5.0], part=work.part)
    assert "extrapolated: 40 s" in sections.rows_table([row])[0]
    goals = {cells[0]: cells[1:] for cells in sections.goals_table("runs", "cuda", [row])}
    first, second = goals.values()
    assert first == ("<= 60 s", "40 s", "met, extrapolated")
    assert second == ("<= 900 s", "-", "not measured"), "one row is not all of them"
    rows = [Row("runs", f"row {i}", "ours", seconds=[60.0]) for i in range(16)]
    assert sections.goals_table("runs", "cuda", rows)[1][1:] == ("<= 900 s", "960 s", "not met")


@pytest.mark.slow
def test_another_seed_has_other_bits(tmp_path) -> None:
    settings = {"loss": "listnet", "queries": 4, "epochs": 1, "batch_size": 2, "list_size": 9}
    one, other = (
        bits.make("ours", settings | {"seed": seed}, "cpu", str(tmp_path)).answer()
        for seed in (1, 2)
    )
    assert one["weights"] != other["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["bits", "precision"])
def test_their_tables(tmp_path, what, capsys) -> None:
    few = (
        ["only=bfloat16", "quick_sizes.precision_seeds=1"]
        if what == "precision"
        else ["only=listnet"]
    )
    rows = quick(tmp_path, f"what={what}", *few)[what]
    other = {"bits": "again", "precision": "bfloat16"}[what]
    assert [(row.side, row.status) for row in rows] == [("ours", MEASURED), (other, MEASURED)]
    assert ("ndcg@10" in capsys.readouterr().out) == (what == "precision")


def test_what_a_machine_needs(monkeypatch, capsys) -> None:
    monkeypatch.setattr(needs, "_here", list)
    versions: dict[str, str | None] = {"hydra-core": "1.5.0", "omegaconf": None}
    monkeypatch.setattr(needs, "version_here", lambda name: versions.get(name, "99.0"))
    monkeypatch.setattr(peers, "installed", lambda peer: peer != "allrank")
    assert needs.needs() == 1
    said = capsys.readouterr().out
    lacking = [line.split()[1] for line in said.splitlines() if line.startswith("  lacks")]
    assert lacking == ["hydra-core>=1.3.6,<1.5", "omegaconf>=2.3,<2.5", "allrank"]
    assert "--target carried --constraint constraints.txt 'hydra-core>=1.3.6,<1.5'" in said
    assert f"'{needs._ALLRANK}'" in said
    assert needs._ALLRANK in (ROOT / "Makefile").read_text()

    versions |= {"hydra-core": "1.4.0", "omegaconf": "2.3.1"}
    monkeypatch.setattr(peers, "installed", lambda peer: True)
    assert needs.needs() == 0
    assert "pip" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_machine_needs_is_listed_by_python_alone() -> None:
    """Without site-packages nothing but Python's own modules can be imported."""
    code = (
        "import sys; sys.argv = ['', 'what=needs']; import ltr.__main__ as m; m.main('benchmark')"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "LTR_PEERS": "none"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert "lacks torch" in done.stdout


@pytest.mark.slow
def test_the_commit_is_known_without_git(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert commit(tmp_path / "ltr") is None
    monkeypatch.setenv("LTR_COMMIT", "0123abc")
    (tmp_path / "ltr").mkdir()
    assert commit(tmp_path / "ltr") == "0123abc"
