"""The benchmark: what it measures, what it refuses to time, and what it writes."""

import gc
import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import processes
import pytest
from benchmark_here import InThisProcess, quick
from conftest import compose

from ltr.benchmark import losses, peers, quality, runs, sections, serving
from ltr.benchmark.comparison import (
    ABSENT,
    DIFFERS,
    FAILED,
    MEASURED,
    NOT_TRIED,
    Comparison,
    Plan,
    Row,
)
from ltr.benchmark.estimates import ESTIMATES
from ltr.benchmark.kept import Kept
from ltr.benchmark.quality import METRICS
from ltr.benchmark.worker import Case, peak_of
from ltr.errors import ConfigError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PLAN = Plan(repeats=3, seconds=500, long=500)
FAULTY = Case("list, 1 lists", {"size": 1}, ("ours",), {"value": 0.5})

needs_allrank = pytest.mark.skipif(
    not peers.installed("allrank"), reason="allRank is not here: make bench"
)


@pytest.fixture
def options(tmp_path) -> dict:
    return {
        "device": "cpu",
        "threads": 1,
        "memory_limit": 8 << 30,
        "time_limit": 600,
        "cache_dir": str(tmp_path),
    }


@pytest.fixture
def faulty(options, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    with closing(Comparison("benchmark_subject", options, PLAN, lambda _: None)) as comparison:
        yield comparison


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    gc.freeze()  # each measurement of memory collects garbage
    monkeypatch.setattr("ltr.benchmark.comparison.Side", InThisProcess)


@pytest.fixture
def without_peers(tmp_path, monkeypatch):
    """allRank's place is empty, whatever is installed."""
    monkeypatch.setenv("LTR_PEERS", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "peers" not in p])


def measured(case: str, side: str, seconds: float, memory: int = 1) -> Row:
    return Row("losses", case, side, seconds=[seconds], bytes=memory)


def test_every_side_that_goes_wrong_says_how_and_the_rest_goes_on(faulty) -> None:
    sides = ("ours", "wrong", "nan", "raises", "dies", "hungry", "close")
    rows = {row.side: row for row in faulty.run(replace(FAULTY, sides=sides))}
    assert {side: row.status for side, row in rows.items()} == {
        "ours": MEASURED,
        "wrong": DIFFERS,
        "nan": DIFFERS,
        "raises": FAILED,
        "dies": FAILED,
        "hungry": FAILED,
        "close": MEASURED,
    }
    assert rows["wrong"].text == "value differs by 1 of the largest, 0.5 is allowed"
    assert rows["raises"].text == "RuntimeError: no way"
    assert rows["dies"].text == "its process ended with status 3: so long"
    assert rows["hungry"].text == "does not fit into memory"
    assert not any(rows[side].seconds for side in ("wrong", "nan", "raises"))
    assert len(rows["ours"].seconds) == len(rows["close"].seconds) == 3
    assert rows["ours"].threads == 1


def test_a_side_that_does_not_end_is_stopped(options, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    limited = options | {"time_limit": 1}
    with closing(Comparison("benchmark_subject", limited, PLAN, lambda _: None)) as comparison:
        (row,) = comparison.run(replace(FAULTY, sides=("slow",)))
    assert (row.status, row.text, row.seconds) == (FAILED, "takes over 1 s", [])


def test_a_peer_is_timed_where_ours_takes_no_part(faulty) -> None:
    rows = faulty.run(replace(FAULTY, sides=("dies", "close")))
    assert [row.status for row in rows] == [FAILED, MEASURED]


def test_memory_is_the_peak_of_the_call(faulty) -> None:
    size = 10_000_000
    rows = faulty.run(replace(FAULTY, settings={"size": size}))
    assert rows[0].bytes == pytest.approx(8 * size, abs=2_000_000)  # the kernel counts in batches


def test_an_earlier_peak_does_not_count() -> None:
    _, large = peak_of(lambda: bytearray(b"x") * 100_000_000, "cpu")
    _, small = peak_of(lambda: bytearray(b"x") * 1000, "cpu")
    assert large > 90_000_000
    assert small < 9_000_000


def test_a_side_that_failed_is_not_tried_at_larger_sizes(faulty) -> None:
    cases = [
        replace(FAULTY, name=f"list, {n} lists", sides=("ours", "raises"), settings={"size": n})
        for n in (1, 2, 3)
    ]
    rows = [row for some in faulty.grow(cases) for row in some]
    assert [row.status for row in rows if row.side == "ours"] == [MEASURED] * 3
    failed = [row for row in rows if row.side == "raises"]
    assert [row.status for row in failed] == [FAILED, NOT_TRIED, NOT_TRIED]
    assert failed[2].text == "as list, 1 lists: RuntimeError: no way"


def test_a_call_that_takes_long_is_timed_once(options, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    comparison = Comparison("benchmark_subject", options, replace(PLAN, long=0), lambda _: None)
    (row,) = comparison.run(FAULTY)
    comparison.close()
    assert (len(row.seconds), row.cold) == (1, True)


@needs_allrank
def test_allranks_losses_agree_with_ours(options) -> None:
    comparison = Comparison(losses.__name__, options, replace(PLAN, repeats=0), lambda _: None)
    try:
        for name in peers.ALLRANK:
            case = losses.case(name, 4, 12, half_padded=True)
            for row in comparison.run(case):
                assert row.status == MEASURED, f"{name}: {row.text}"
        strict = replace(losses.case("neuralndcg", 4, 12, half_padded=True), tolerance={})
        assert comparison.run(strict)[1].status == DIFFERS
        as_many = strict.settings | {"overrides": ["loss.max_iter=50"]}  # iterations as allRank
        equal = replace(strict, settings=as_many, tolerance={"value": 1e-5, "gradient": 1e-4})
        assert comparison.run(equal)[1].status == MEASURED
    finally:
        comparison.close()


@needs_allrank
@pytest.mark.parametrize(
    ("what", "only"), [("reader", "read"), ("training", "lambdarank"), ("evaluation", "full")]
)
def test_every_subject_with_the_peers(tmp_path, what, only) -> None:
    rows = quick(tmp_path, f"what={what}", f"only={only}")[what]
    assert all(row.status == MEASURED for row in rows), [row.text for row in rows]
    assert "allrank" in {row.side for row in rows}


@pytest.mark.usefixtures("without_peers", "in_this_process")
@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("losses", ["only=ndcg"]),
        ("reader", []),
        ("training", ["only=listnet"]),
        ("evaluation", ["profile=true"]),
        ("growth", ["quick_sizes.growth_losses=[listnet]"]),
        ("quality", ["only=listnet", "quick_sizes.quality_seeds=1"]),
    ],
)
def test_every_subject_without_allrank(tmp_path, capsys, what, more) -> None:
    document = tmp_path / "docs" / "benchmarks.md"
    rows = quick(tmp_path, f"what={what}", f"write={document}", *more)[what]
    absent = [row for row in rows if row.side == "allrank"]
    assert {row.status for row in absent} == {ABSENT}
    ours = [row for row in rows if row.side == "ours"]
    assert ours
    assert all(row.status == MEASURED for row in ours), [row.text for row in ours]
    assert all(row.median > 0 for row in ours)

    printed = capsys.readouterr().out
    text = document.read_text()
    for shown in (printed, text):
        assert shown.count("what=needs") == 1
        assert ours[0].case in shown
    assert text.startswith("# Benchmarks\n")
    assert f"make bench ARGS='what={what} device=cpu" in text
    assert ("aten::" in text) == (what == "evaluation")
    (folder,) = (tmp_path / "outputs" / "benchmarks").iterdir()
    kept = json.loads((folder / "results.json").read_text())
    assert len(kept["rows"]) == len(rows)
    assert {"commit", "device", "versions", "date", "threads"} <= set(kept["about"])
    assert (folder / "results.md").read_text() in text
    assert (folder / "results.csv").read_text().count("\n") == len(rows) + 1
    if what == "growth":
        assert (folder / "growth.svg").is_file()
        assert "](growth-cpu.png)" in text
        assert (document.parent / "growth-cpu.png").stat().st_size > 1000


@pytest.mark.usefixtures("in_this_process")
def test_serving_has_latencies_of_single_calls(tmp_path, capsys) -> None:
    rows = quick(tmp_path, "what=serving", "only=lightgbm")["serving"]
    assert [(row.case, row.side) for row in rows] == [
        (f"lightgbm, 2 trees, {n} items", side) for n in (3, 5) for side in ("ours", "lightgbm")
    ]
    assert all(row.status == MEASURED for row in rows), [row.text for row in rows]
    assert {len(row.seconds) for row in rows} == {2 * 4}  # turns, calls in each
    shown = capsys.readouterr().out
    assert "p50" in shown
    assert "p99" in shown
    planned = serving.cases(compose("what=serving", config="benchmark").sizes)
    assert {len(of_model) for of_model in planned} == {3}


def trained(seed: int, value: float) -> dict:
    """What a run leaves; lists differ, and seeds a little."""
    found = {name: [value + 0.1 * (i % 3) + 1e-4 * seed for i in range(60)] for name in METRICS}
    return {"amount": 6, "unit": "lists", "note": "", "threads": 1, "seconds": seed, **found}


def test_runs_that_ended_are_kept_and_compared(tmp_path, options, monkeypatch) -> None:
    trainings = []

    def training(self, side, settings):
        trainings.append((side, settings["loss"], settings["seed"]))
        if (side, settings["loss"]) == ("allrank", "listnet"):
            return {"failed": "no luck"}
        return trained(settings["seed"], 0.5 if settings["loss"] == "neuralndcg" else 0.3)

    monkeypatch.setattr(quality._Sides, "_trained", training)
    monkeypatch.setattr(peers, "installed", lambda peer: True)
    sizes = compose(config="benchmark").quick_sizes
    sizes.quality_seeds = 3
    cases = [case for case in quality.cases(sizes) if not case.name.startswith("lambdarank")]

    def measured() -> list[Row]:
        return quality.measured("quality", cases, options, sizes, Kept(tmp_path), lambda _: None)

    first = measured()
    assert trainings[:4] == [  # a seed of all cases before the next
        ("ours", "neuralndcg", 1), ("allrank", "neuralndcg", 1),
        ("ours", "listnet", 1), ("allrank", "listnet", 1),
    ]  # fmt: skip
    assert len(trainings) == 3 + 3 + 3 + 1  # what failed once is not tried again
    ours, theirs, _, failed = first
    assert (ours.seconds, theirs.seconds, failed.text) == ([1, 2, 3], [1, 2, 3], "no luck")
    assert [cells[1] for cells in ours.verdicts] == list(METRICS)
    assert ours.verdicts[0][2:6] == ("0.6002 ± 0.0001", "0.6002 ± 0.0001", "3 and 3", "+0.0000")
    assert ours.verdicts[0][-1] == "equivalent"
    assert not any(row.verdicts for row in first[1:])

    trainings.clear()
    assert measured()[:3] == first[:3]
    assert trainings == [("allrank", "listnet", 1)]
    trainings.clear()
    options["threads"] = 2  # another place: other runs
    measured()
    assert len(trainings) == 10


@pytest.mark.usefixtures("without_peers", "in_this_process")
def test_your_own_file_is_read(tmp_path) -> None:
    mine = tmp_path / "mine, all=1.txt"
    mine.write_text("".join(f"{i % 3} qid:{i // 5} 1:{i} 2:0.5\n" for i in range(40)))
    sizes = "quick_sizes.kept_queries=3"
    rows = quick(tmp_path, "what=reader", "only=read", f"data='{mine}'", sizes)["reader"]
    assert rows[0].bytes_needed == 40 * 2 * 4
    assert rows[0].amount == pytest.approx(mine.stat().st_size / 1e6)


def test_the_command(tmp_path) -> None:
    wrong = processes.run("scripts/benchmark.py", "what=speed", f"output_dir={tmp_path}")
    assert wrong.returncode == 2
    subjects = "losses, reader, training, evaluation, bits, precision, growth, serving, quality, "
    subjects += "runs, step, kernel, all, needs"
    assert wrong.stderr == f"error: what=speed: choose one of {subjects}\n"
    assert not list(tmp_path.iterdir())
    shown = processes.run("scripts/benchmark.py", "--help")
    assert shown.returncode == 0
    assert "what: all # losses | reader" in shown.stdout


def test_an_unknown_device_and_a_case_that_is_not_there(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"^device=tpu: choose one of cpu, cuda$"):
        quick(tmp_path, "what=losses", "device=tpu")
    with pytest.raises(ConfigError, match=r"^only=xyz: no case of what=losses has this in its"):
        quick(tmp_path, "what=losses", "only=xyz")


def test_without_a_gpu_its_sections_name_the_command(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    document = tmp_path / "benchmarks.md"
    quick(tmp_path, "what=all", "device=cuda", "quick=false", f"write={document}")
    text = document.read_text()
    assert text.count("Not measured yet") == len(sections.TITLES) - 3  # reader, serving, quality
    assert "`make bench ARGS='what=training device=cuda'`" in text
    goal, estimate = [line for line in text.splitlines() if "100-epoch" in line]
    assert [cell.strip() for cell in goal.split("|")][2:5] == ["<= 60 s", "-", "not measured"]
    heads = [line for line in text.splitlines() if line.startswith(("| goal", "| estimated"))]
    assert heads[-1].startswith("| estimated, not measured"), "a table of its own"
    assert estimate.split("|")[2].strip() == ESTIMATES["runs"][0].figure
    with pytest.raises(ConfigError, match=r"it uses no GPU; leave out device$"):
        quick(tmp_path, "what=reader", "device=cuda")


def test_the_runs_of_the_papers_table() -> None:
    rows = runs.table3_rows()
    assert len(rows) == 16
    for row in rows.values():
        assert str(compose(*row).loss["_target_"]).startswith("ltr.losses.")


def test_goals_are_judged_by_the_rows() -> None:
    case = "neuralndcg [64, 240]"
    rows = [measured(case, "ours", 0.2, 10), measured(case, "allrank", 2.2, 100)]
    table = {row[0]: row[1:] for row in sections.goals_table("losses", "cpu", rows)}
    assert table["NeuralNDCG faster than allRank"] == (">= 10 x", "11 x", "met")
    assert table["NeuralNDCG with less memory than allRank"] == (">= 20 x", "10 x", "not met")
    assert table["RankNet faster than allRank"] == (">= 3 x", "-", "not measured")
    table = {row[0]: row[1:] for row in sections.goals_table("losses", "cuda", rows)}
    assert table["NeuralNDCG faster than allRank"] == (">= 20 x", "11 x", "not met")

    rows = [Row("reader", "read 9 MB", "ours", seconds=[1], bytes=13, bytes_needed=10)]
    rows.append(Row("reader", "open 18,919 kept lists", "ours", seconds=[1.5]))
    table = {row[0]: row[1:] for row in sections.goals_table("reader", "cpu", rows)}
    ratio = "first parse: peak memory over the dense float32 array"
    assert table[ratio] == ("<= 1.3 x", "1.3 x", "met")
    assert table["a kept Web30K-sized set opens"] == ("<= 1 s", "1.5 s", "not met")


def test_every_goal_is_of_a_case_that_is_measured() -> None:
    sizes = compose(config="benchmark").sizes
    names = {case.name for case in [*losses.cases(sizes), *runs.cases(sizes, 600)]}
    for goal in sections.GOALS:
        if goal.subject in ("losses", "runs"):
            for figure in filter(None, (goal.top, goal.bottom)):
                assert any(name.startswith(figure.case) for name in names), figure.case


def test_ratios_stand_beside_the_peers() -> None:
    rows = [measured("a", "ours", 0.5, 2_000_000), measured("a", "allrank", 1.0, 6_000_000)]
    rows.append(Row("losses", "a", "gone", status=FAILED, text="does not fit into memory"))
    cells = sections.rows_table(rows)
    assert cells[0][:3] == ("a", "ours", "500 ms")
    assert cells[0][-2:] == ("2.0 MB", "")
    assert cells[1][0] == ""
    assert cells[1][-1] == "2 x time, 3 x memory"
    assert cells[2][1:3] == ("gone", "does not fit into memory")
    assert {len(row) for row in cells} == {len(sections.HEAD)}


def test_a_section_is_replaced_and_the_others_stay(tmp_path) -> None:
    path = tmp_path / "docs" / "benchmarks.md"
    sections.put_section(path, "losses", "cpu", "first\n")
    sections.put_section(path, "reader", "cpu", "second\n")
    path.write_text(path.read_text() + "\nby hand\n")
    before = path.read_text()
    sections.put_section(path, "losses", "cpu", "third\n")
    assert path.read_text() == before.replace("first", "third")
    sections.put_section(path, "reader", "cuda", "fourth\n")
    assert path.read_text().index("by hand") < path.read_text().index("fourth")

    path.write_text(path.read_text().replace("<!-- end of losses cpu -->", ""))
    with pytest.raises(ConfigError, match=r"put it back behind that section$"):
        sections.put_section(path, "losses", "cpu", "fifth\n")
    assert "fifth" not in path.read_text()
