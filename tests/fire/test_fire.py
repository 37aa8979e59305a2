"""The fire itself: planted faults come out as faults, sound code passes."""

import logging
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fire.__main__ import Tally, findings, parse, table
from fire.children import ROOT, Ended, Moment, child
from fire.flips import heard, judged
from fire.kills import leftovers, stopped
from fire.works import Result, Subject
from ltr.errors import DataError


def refuse() -> dict[str, str]:
    raise DataError("file: damaged; write it again")


def fail() -> dict[str, str]:
    raise KeyError("model")


def warn() -> dict[str, str]:
    logging.getLogger("ltr").warning("the entry is damaged and was made again")
    return {"labels": "2"}


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda: {"labels": "1"}, "harmless"), (lambda: {"labels": "2"}, "silent"),
        (lambda: {}, "silent"), (refuse, "noticed"), (warn, "noticed"), (fail, "traceback"),
    ],
)  # fmt: skip
def test_how_a_damaged_file_is_read_is_judged(
    read: Callable[[], dict[str, str]], outcome: str
) -> None:
    assert judged(lambda: heard(read), ({"labels": "1"}, "")).outcome == outcome


def write_three() -> None:
    for name in ("a", "b", "c"):
        Path(name).write_text(name)


def stop() -> None:
    print("out")
    raise SystemExit("why")


@pytest.mark.slow
def test_a_child_ends_as_a_program_would_and_a_signal_comes_at_its_write(tmp_path: Path) -> None:
    assert child(stop, tmp_path)[:3] == (1, "out\n", "why\n")
    ended = child(fail, tmp_path)
    assert ended.status == 1
    assert str(ended.raised).startswith("KeyError: 'model'")
    assert child(signal.pause, tmp_path, limit=0.01).status is None
    assert child(write_three, tmp_path).writes == 3
    for signum, status in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        folder = tmp_path / str(status)
        folder.mkdir()
        assert child(write_three, folder, Moment(signum, "write", 2)).status == status
        assert not (folder / "c").exists()


@pytest.mark.parametrize(
    ("status", "err", "outcome"),
    [
        (143, "", "harmless"), (0, "", "harmless"), (None, "", "crash"),
        (-signal.SIGTERM, "", "crash"), (2, "error: x", "crash"),
        (143, 'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n', "traceback"),
    ],
)  # fmt: skip
def test_a_stop_is_clean_or_not(status: int | None, err: str, outcome: str) -> None:
    assert stopped(Ended(status, "", err), signal.SIGTERM).outcome == outcome


def test_parts_of_files_are_leftovers(tmp_path: Path) -> None:
    assert leftovers(tmp_path).outcome == "harmless"
    (tmp_path / ".part-last.pt").touch()
    assert leftovers(tmp_path).outcome == "left"


def test_the_report_counts_and_names_what_shows_a_fault_again() -> None:
    tally = Tally(Subject("flips", "best.pt", lambda rng: []))
    tally.add(1, [Result("noticed")])
    tally.add(2, [Result("silent", "another model")])
    assert table([tally]).replace("|", "").split()[-8:] == ["2", "1", "0", "0", "0", "0", "0", "1"]
    assert "make fire ARGS='only=flips/best.pt seed=3 first=2 tries=1'" in findings([tally], 3)
    for wrong in ("minutes=x", "tries=x", "speed=1", "tries"):
        with pytest.raises(SystemExit, match=wrong):
            parse([wrong])


def test_every_test_that_the_promises_name_is_there() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"(test_\w+\.py)::(\w+)", text)
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"
    assert set(re.findall(r"fire: (\w+)", text)) == {"kills", "flips"}
