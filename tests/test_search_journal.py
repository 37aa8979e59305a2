"""The journal of a search: what was noted is what is read, or its damage is told."""

from pathlib import Path

import pytest
from optuna.storages.journal import BaseJournalBackend

from ltr.errors import DataError
from ltr.search.journal import SealedJournal

LOGS = [{"op_code": 0, "study_name": "search"}, {"op_code": 6, "values": [0.5]}, {"op_code": 8}]


def read(path: Path) -> list[dict[str, object]]:
    return list(SealedJournal(path).read_logs(0))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.log"
    writer: BaseJournalBackend = SealedJournal(path)
    writer.append_logs(LOGS[:2])
    writer.append_logs(LOGS[2:])
    return path


def test_two_writers_see_what_the_other_noted(journal: Path) -> None:
    one, other = SealedJournal(journal), SealedJournal(journal)
    assert list(one.read_logs(1)) == LOGS[1:]
    other.append_logs([{"of": "other"}])
    one.append_logs([{"of": "one"}])
    assert list(other.read_logs(2)) == [*LOGS[2:], {"of": "other"}, {"of": "one"}]
    assert read(journal) == [*LOGS, {"of": "other"}, {"of": "one"}]


def test_every_flipped_bit_is_one_line(journal: Path) -> None:
    whole = journal.read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        journal.write_bytes(flipped)
        with pytest.raises(DataError, match=rf"{journal.name}:\d: .*name=NAME"):
            read(journal)
        with pytest.raises(DataError):
            SealedJournal(journal).append_logs(LOGS)
        assert journal.read_bytes() == flipped


def test_lines_that_are_gone_or_exchanged_are_told(journal: Path) -> None:
    one, two, three = journal.read_bytes().splitlines(keepends=True)
    for lines in ([two, three], [one, three], [two, one, three], [one, one, two, three]):
        journal.write_bytes(b"".join(lines))
        with pytest.raises(DataError):
            read(journal)


def test_a_last_line_that_was_cut_short_is_dropped(journal: Path) -> None:
    whole = journal.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for length in range(start, len(whole)):
        journal.write_bytes(whole[:length])
        assert read(journal) == LOGS[:2]
        SealedJournal(journal).append_logs(LOGS[2:])
        assert journal.read_bytes() == whole
