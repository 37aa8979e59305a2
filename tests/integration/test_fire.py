"""The fire itself: planted faults come out as faults, sound code passes."""

import signal
from pathlib import Path
from random import Random

import pytest

from ltr.errors import DataError
from scripts.fire.__main__ import Tally, findings, parse, table
from scripts.fire.children import NEVER, Ended, Moment, child
from scripts.fire.parts import judged, leftovers, mix, read_as_pandas_does, stopped
from scripts.fire.works import Made, Result, Subject

TRACE = "Traceback (most recent call last):\n  File \"x\"\nKeyError: 'model'\n"


def refused() -> Made:
    raise DataError("file: damaged; write it again")


@pytest.mark.parametrize(
    ("ended", "made", "outcome"),
    [
        (Ended(0, "", ""), lambda: {"labels": "1"}, "harmless"),
        (Ended(0, "", "warning: usual"), lambda: {"labels": "2"}, "silent"),
        (Ended(0, "", ""), refused, "noticed"),
        (Ended(0, "", "the entry is damaged"), lambda: {"labels": "2"}, "noticed"),
        (Ended(2, "", "error: damaged"), dict, "noticed"),
        (Ended(2, "", ""), dict, "crash"),
        (Ended(-11, "", "error"), dict, "crash"),
        (Ended(1, "", TRACE), dict, "traceback"),
    ],
)
def test_how_a_damaged_file_is_read_is_judged(ended: Ended, made, outcome: str) -> None:
    usual = Ended(0, "", "warning: usual")
    assert judged(ended, made, usual, {"labels": "1"}).outcome == outcome


@pytest.mark.slow
def test_a_child_ends_as_a_program_would_and_a_signal_comes_at_its_write(tmp_path: Path) -> None:
    script = tmp_path / "three.py"
    script.write_text("for name in 'abc':\n    open(name, 'w').close()\nprint('out')\nexit('why')")
    for moment, status, files in (
        (NEVER, 1, "abc"),
        (Moment(9, "write", 2), -9, "a"),
        (Moment(2, "write", 2), 130, "a"),
    ):
        folder = tmp_path / str(status)
        folder.mkdir()
        ended = child((str(script),), folder, moment)
        assert ended.status == status
        assert {path.name for path in folder.glob("[a-c]")} == {*files}
        if moment is NEVER:
            assert (ended.out, ended.err) == ("out\n", "why\n")
            assert (folder / ".writes").read_text() == "3"
    assert str(Ended(1, "", TRACE).raised).startswith("KeyError: 'model'")


@pytest.mark.parametrize(
    ("status", "err", "outcome"),
    [
        (143, "", "harmless"), (0, "", "harmless"), (-signal.SIGALRM, "", "crash"),
        (-signal.SIGTERM, "", "crash"), (2, "error: x", "crash"), (143, TRACE, "traceback"),
    ],
)  # fmt: skip
def test_a_stop_is_clean_or_not(status: int, err: str, outcome: str) -> None:
    assert stopped(Ended(status, "", err), signal.SIGTERM).outcome == outcome


@pytest.mark.parametrize(
    ("text", "status", "printed", "outcome"),
    [
        ("q,g\n1,0\n1,1\n", 0, "   train   1  1\n   test   1  1", "harmless"),
        ("q,g\n1,0\n1,1\n", 0, "   train   1  1", "silent"),
        ('q,g\n1,"0\n1,1\n', 0, "   train   1  1", "silent"),
        ('q,g\n1,"0\n1,1\n', 2, "", "noticed"),
    ],
)
def test_a_csv_file_with_quotes_is_read_as_pandas_does_or_refused(
    tmp_path: Path, text: str, status: int, printed: str, outcome: str
) -> None:
    (tmp_path / "items.csv").write_text(text)
    ended = Ended(status, printed, "error: a quote is not closed" if status else "")
    assert read_as_pandas_does(ended, tmp_path / "items.csv").outcome == outcome


def test_a_file_is_mixed_with_that_of_another_run(tmp_path: Path) -> None:
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "best.pt").write_text(run)
    assert mix(tmp_path / "first" / "best.pt", Random(1)) == "that of second"
    assert (tmp_path / "first" / "best.pt").read_text() == "second"


def test_parts_of_files_are_leftovers(tmp_path: Path) -> None:
    assert leftovers(tmp_path).outcome == "harmless"
    (tmp_path / ".part-last.pt").touch()
    assert leftovers(tmp_path).outcome == "left"


def test_the_report_counts_and_names_what_shows_a_fault_again() -> None:
    results = {1: Result("noticed"), 2: Result("silent", "another model")}
    tally = Tally(Subject("flips", "resume", lambda rng: results[1]), 2, results)
    assert table([tally]).replace("|", "").split()[-8:] == ["2", "1", "0", "0", "0", "0", "0", "1"]
    assert "make fire ARGS='only=flips/resume seed=3 first=2 tries=1'" in findings([tally], 3)
    for wrong in ("minutes=x", "tries=x", "speed=1", "tries"):
        with pytest.raises(SystemExit, match=wrong):
            parse([wrong])
