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

from ltr.atomic import atomic_write, write_csv, write_frame
from ltr.errors import OutputError

KILLED = """
import os, signal, sys
from pathlib import Path
from ltr.atomic import atomic_write
def write(file):
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
atomic_write(Path(sys.argv[1]), write)
"""


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_file_before_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "results.json"
    atomic_write(path, "first")
    with pytest.raises(OutputError, match=r"results.json.*No space left.*free some"):
        atomic_write(path, full)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device"):
        atomic_write(path, b"second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("results.json", "first")]


def test_what_the_content_raises_comes_out_as_it_is(tmp_path) -> None:
    def broken(file: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        atomic_write(tmp_path / "a.csv", broken)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_part_of_a_killed_writer_is_taken_over_and_nothing_of_others_is(tmp_path) -> None:
    path = tmp_path / "last.pt"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"half of it"
    (tmp_path / "thesis.part").write_text("mine")
    atomic_write(path, "whole")
    assert path.read_text() == "whole"
    assert {p.name for p in tmp_path.iterdir()} == {"last.pt", "thesis.part"}


@pytest.mark.slow
def test_writers_of_one_file_wait_for_each_other(tmp_path) -> None:
    path = tmp_path / "summary.csv"
    code = "import sys; from pathlib import Path; from ltr.atomic import atomic_write\n"
    code += "for _ in range(200): atomic_write(Path(sys.argv[1]), sys.argv[2] * 10_000)"
    words = [[sys.executable, "-c", code, str(path), letter] for letter in "ab"]
    writers = [subprocess.Popen(word) for word in words]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in ("a" * 10_000, "b" * 10_000)
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["summary.csv"]


def test_a_link_in_place_of_the_part_is_not_followed(tmp_path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".part-last.pt").symlink_to("mine")
    with pytest.raises(OutputError, match=r"last\.pt cannot be written"):
        atomic_write(tmp_path / "last.pt", "theirs")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127])
def test_any_name_that_a_file_may_have_can_be_written(tmp_path, name) -> None:
    atomic_write(tmp_path / name, "text")
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("place", ["there/not.txt", "x" * 256, "folder"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, place) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=r"cannot be written \(.*\).*choose a place"):
        atomic_write(tmp_path / place, "text")
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
