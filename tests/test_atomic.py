"""Files are written whole or not at all, and nobody else's are removed."""

import errno
import os
import subprocess
import sys

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
    with pytest.raises(TypeError):  # the content's own
        atomic_write(path, lambda: None)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device"):
        atomic_write(path, b"second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("results.json", "first")]


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
    code += "for _ in range(50): atomic_write(Path(sys.argv[1]), sys.argv[2] * 10_000)"
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


def test_any_name_can_be_written_and_a_place_that_cannot_be_is_one_line(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("x" * 255, "ü" * 127):
        atomic_write(tmp_path / name, "text")
        (tmp_path / name).unlink()
    for place in ("there/not.txt", "x" * 256, "folder"):
        with pytest.raises(OutputError, match=r"cannot be written \(.*\).*choose a place"):
            atomic_write(tmp_path / place, "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_no_cell_of_text_is_a_formula_and_numbers_are_untouched(tmp_path) -> None:
    formulas, others = ["=1+2", "+a", "-cmd|x", "@A1", "\tx"], ["-1", "+2.5e-3", "plain", "a=b", ""]
    texts, numbers = [*formulas, *others], np.arange(10) - 5.0
    safe = [*(f"'{text}" for text in formulas), *others]
    of_arrow = pd.Series(texts, dtype=pd.ArrowDtype(pa.string()))  # as the ids of a table are
    frame = pd.DataFrame({"=head": texts, "=id": of_arrow, "number": numbers})
    write_frame(tmp_path / "frame.csv", frame)
    write_csv(tmp_path / "rows.csv", frame.to_dict("records"))
    write_csv(tmp_path / "history.csv", [{"epoch": 0}, {"epoch": 1, "loss": 0.5}])
    assert (tmp_path / "history.csv").read_text() == "epoch,loss\n0,\n1,0.5\n"
    for name in ("frame.csv", "rows.csv"):
        read = pd.read_csv(tmp_path / name, keep_default_na=False, dtype=str)
        assert read["'=head"].tolist() == read["'=id"].tolist() == safe
        assert read["number"].astype(float).tolist() == numbers.tolist()
    assert frame["=head"].tolist() == texts
