"""The fire itself: planted faults are found, sound code passes, and nothing waits for a clock."""

import logging
import re
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fire import flips, reader, report, texts
from fire.children import ROOT, Ended, child
from fire.damage import damage
from fire.kills import _stopped, leftovers
from fire.moments import AT_WRITE, Moment
from fire.options import parse
from fire.outcomes import Result, Tally
from ltr.errors import ConfigError, DataError


def test_damage_is_one_bit_or_a_cut(tmp_path: Path) -> None:
    whole = bytes(range(256))
    for seed in range(40):
        path = tmp_path / "file"
        path.write_bytes(whole)
        how = damage(path, Random(seed))
        now = path.read_bytes()
        if how.startswith("bit"):
            assert sum((a ^ b).bit_count() for a, b in zip(whole, now, strict=True)) == 1
        else:
            assert whole.startswith(now)
            assert len(now) < len(whole)


def refuse() -> dict[str, str]:
    raise DataError("file: damaged; write it again")


def fail() -> dict[str, str]:
    raise KeyError("model")


def warn() -> dict[str, str]:
    logging.getLogger("ltr").warning("the entry is damaged and was made again")
    return {"labels": "1"}


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda: {"labels": "1"}, "harmless"),
        (lambda: {"labels": "2"}, "silent"),
        (lambda: {}, "silent"),
        (refuse, "noticed"),
        (warn, "noticed"),
        (fail, "traceback"),
    ],
)
def test_how_a_damaged_file_is_read_is_judged(
    read: Callable[[], dict[str, str]], outcome: str
) -> None:
    assert flips.judged(read, ({"labels": "1"}, []))[0] == outcome


def test_the_reader_agrees_with_the_grammar_and_a_planted_fault_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ltr.data.letor as letor

    draws = [lambda rng: texts.valid(rng).encode(), texts.spoilt, texts.reordered]
    for seed in range(60):
        draw = draws[seed % 3]
        outcome, said = reader.compared(tmp_path / "f", draw(Random(seed)), sound=seed % 3 == 0)
        assert outcome in ("harmless", "noticed"), said
    read = letor.read_letor

    def wrong(path: Path) -> object:
        lists = read(path)
        lists.features[0, 0] += 1
        return lists

    monkeypatch.setattr(letor, "read_letor", wrong)
    assert reader.compared(tmp_path / "f", b"1 qid:1 1:2\n", sound=True)[0] == "silent"
    assert reader.compared(tmp_path / "f", b"nothing\n", sound=True)[0] == "lost"


@pytest.mark.slow
def test_a_child_ends_as_a_program_would(tmp_path: Path) -> None:
    def stop() -> None:
        print("out")
        raise SystemExit("why")

    ended = child(stop, tmp_path)
    assert (ended.status, ended.out, ended.err, ended.raised) == (1, "out\n", "why\n", None)
    ended = child(fail, tmp_path)
    assert (ended.status, ended.raised) == (1, "KeyError: 'model'")
    assert child(lambda: "answer", tmp_path).answer == "answer"
    assert child(signal.pause, tmp_path, limit=0.01).hung


def write_three() -> None:
    for name in ("a", "b", "c"):
        Path(name).write_text(name)


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_signal_comes_at_its_write(tmp_path: Path, signum: int, status: int) -> None:
    assert child(write_three, tmp_path).writes == 3
    folder = tmp_path / "cut"
    folder.mkdir()
    ended = child(write_three, folder, moment=Moment(signum, AT_WRITE, 2))
    assert ended.status == status
    assert not (folder / "c").exists()


@pytest.mark.parametrize(
    ("status", "err", "outcome"),
    [
        (143, "", "harmless"),
        (0, "", "harmless"),
        (-signal.SIGTERM, "", "crash"),
        (2, "error: x", "crash"),
        (143, 'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n', "traceback"),
    ],
)
def test_a_stop_is_clean_or_not(status: int, err: str, outcome: str) -> None:
    ended = Ended(status, "", err, "", hung=False, seconds=1.0, writes=0)
    assert _stopped(ended, Moment(signal.SIGTERM, AT_WRITE, 1)).outcome == outcome


@pytest.mark.parametrize("name", [".part-0a1b2c3d-last.pt", "last.pt.tmp"])
def test_parts_of_files_are_leftovers(name: str, tmp_path: Path) -> None:
    assert leftovers(tmp_path).outcome == "harmless"
    (tmp_path / name).touch()
    assert leftovers(tmp_path).outcome == "left"


def test_the_report_counts_and_names_what_shows_a_fault_again(tmp_path: Path) -> None:
    tally = Tally("flips", "best.pt")
    tally.add(1, Result("noticed"))
    tally.add(2, Result("silent", "another model"))
    assert report.rows([tally])[-1] == ["all", "", 2, 1, 0, 1, 0, 0, 0, 0]
    assert "make fire ARGS='only=flips/best.pt seed=3 first=2 tries=1'" in report.findings(
        [tally], 3
    )
    path = tmp_path / "reliability.md"
    path.write_text(f"before\n{report.BEGIN}old\n{report.END}after\n")
    report.put(path, "new\n")
    assert path.read_text() == f"before\n{report.BEGIN}new\n{report.END}after\n"


@pytest.mark.parametrize("wrong", ["only=all", "minutes=0", "tries=x", "speed=1"])
def test_a_mistake_is_one_line(wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
        parse([wrong])


def test_every_test_that_the_promises_name_is_there() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"(test_\w+\.py)::(\w+)", text)
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"
    subjects = set(re.findall(r"fire: (\w+)", text))
    assert subjects <= {"kills", "flips", "reader", "disks"}
    assert report.BEGIN in text
    assert report.END in text


@pytest.mark.slow
def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    child(lambda: "", tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
