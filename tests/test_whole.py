"""Files are written whole or not at all, and nobody else's are removed."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr.errors import OutputError
from ltr.whole import remove_dead_parts, safe_cell, write_csv, write_frame, write_whole

KILLED = """
import os, signal, sys
from pathlib import Path
from ltr.whole import write_whole
def write(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), write)
"""


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_file_before_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "first")
    with pytest.raises(OutputError, match=r"results.json.*No space left.*as it was.*free some"):
        write_whole(path, full)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device"):
        write_whole(path, b"second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("results.json", "first")]


def test_what_the_content_raises_comes_out_as_it_is(tmp_path) -> None:
    def broken(file: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write_whole(tmp_path / "a.csv", broken)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_part_of_a_killed_writer_goes_and_nothing_of_others_does(tmp_path) -> None:
    path = tmp_path / "last.pt"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"half"
    others = [".part-mine", "thesis.part", ".last.pt.123.part", ".part-0123456-x"]
    for name in others:
        (tmp_path / name).write_text("mine")
    write_whole(path, "whole")
    assert {p.name for p in tmp_path.iterdir()} == {"last.pt", *others}


def test_the_part_of_a_living_writer_stays(tmp_path) -> None:
    def write(file) -> None:
        remove_dead_parts(tmp_path)  # as another writer would
        write_whole(tmp_path / "other.txt", "other")
        file.write(b"whole")

    write_whole(tmp_path / "mine.txt", write)
    assert (tmp_path / "mine.txt").read_bytes() == b"whole"


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127])
def test_any_name_that_a_file_may_have_can_be_written(tmp_path, name) -> None:
    write_whole(tmp_path / name, "text")
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("place", ["there/not.txt", "x" * 256, "folder"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, place) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=r"cannot be written \(.*\).*choose a place"):
        write_whole(tmp_path / place, "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_rows_that_lack_a_name_have_an_empty_cell(tmp_path) -> None:
    path: Path = tmp_path / "history.csv"
    write_csv(path, [{"epoch": 0}, {"epoch": 1, "loss": 0.5}], ["epoch", "loss"])
    assert path.read_text() == "epoch,loss\n0,\n1,0.5\n"


def test_no_cell_of_text_is_a_formula_and_numbers_are_untouched(tmp_path) -> None:
    texts = ["=1+2", "+a", "-cmd|x", "@SUM(A1)", "\tx", "-1", "+2.5e-3", "plain", "a=b", ""]
    safe = ["'=1+2", "'+a", "'-cmd|x", "'@SUM(A1)", "'\tx", "-1", "+2.5e-3", "plain", "a=b", ""]
    numbers = np.arange(10) - 5.0
    of_arrow = pd.Series(texts, dtype=pd.ArrowDtype(pa.string()))  # as the ids of a table are
    frame = pd.DataFrame({"=head": texts, "=id": of_arrow, "number": numbers})
    write_frame(tmp_path / "frame.csv", frame)
    write_csv(tmp_path / "rows.csv", frame.to_dict("records"))
    for name in ("frame.csv", "rows.csv"):
        read = pd.read_csv(tmp_path / name, keep_default_na=False, dtype=str)
        assert read["'=head"].tolist() == read["'=id"].tolist() == safe
        assert read["number"].astype(float).tolist() == numbers.tolist()
    assert frame["=head"].tolist() == texts
    assert safe_cell(-1.5) == -1.5
