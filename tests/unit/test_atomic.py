"""Files are written whole or not at all; on a full disk what is no loss goes on with a warning."""

import errno
import fcntl
import logging
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr.atomic import atomic_write, filling, write_csv, write_frame, writing_folder
from ltr.cli.process import LogFile, ending, is_full
from ltr.errors import OutputError
from ltr.training.hooks import TensorBoard
from tests.helpers import processes
from tests.helpers.paths import ROOT

FULL = OSError(errno.ENOSPC, "No space left on device")

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
    raise FULL


def test_a_folder_that_cannot_be_filled_is_empty_again(tmp_path: Path) -> None:
    def fill() -> None:
        with filling(tmp_path) as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / "file").touch()
            raise OutputError("full")

    with pytest.raises(OutputError, match="full"):
        fill()
    assert not any(tmp_path.iterdir())
    with filling(tmp_path) as folder:
        (folder / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
    assert [left.read_bytes() for left in tmp_path.iterdir()] == [b"half of it"]
    (tmp_path / "thesis.part").write_text("mine")
    atomic_write(path, "whole")
    assert path.read_text() == "whole"
    assert {p.name for p in tmp_path.iterdir()} == {"last.pt", "thesis.part"}


@pytest.mark.slow
def test_writers_of_one_file_wait_for_each_other(tmp_path) -> None:
    path = tmp_path / "summary.csv"
    code = "import sys; from pathlib import Path; from ltr.atomic import atomic_write\n"
    code += "for _ in range(50): atomic_write(Path(sys.argv[1]), sys.argv[2] * 10_000)"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "ab"]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in ("a" * 10_000, "b" * 10_000)
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["summary.csv"]


def test_a_link_in_place_of_the_part_is_not_followed(tmp_path, monkeypatch) -> None:
    """Whoever can write to the folder may guess the name of the part: it is then not used."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0" * 8)
    part = tmp_path / f".part-last.pt-{'0' * 8}"
    (tmp_path / "mine").write_text("mine")
    for make_link in (part.symlink_to, part.hardlink_to):
        make_link(tmp_path / "mine")
        with suppress(OutputError):
            atomic_write(tmp_path / "last.pt", "theirs")
        assert (tmp_path / "mine").read_text() == "mine"
        assert not (tmp_path / "last.pt").is_symlink()
        part.unlink(missing_ok=True)
        (tmp_path / "last.pt").unlink(missing_ok=True)


def test_a_file_with_the_name_of_a_part_is_neither_used_nor_waited_for(tmp_path) -> None:
    """Another user may have made it, and may have locked it."""
    names = (".part-p.csv", f".part-p.csv-{'0' * 8}")
    made = [(tmp_path / name).open("w") for name in names]
    for file in made:
        fcntl.flock(file, fcntl.LOCK_EX)
    before = [os.fstat(file.fileno()).st_ino for file in made]
    for write in (atomic_write, lambda path, text: write_csv(path, [{"a": text}])):
        write(tmp_path / "p.csv", "text")
        assert (tmp_path / "p.csv").stat().st_ino not in before
    with writing_folder(tmp_path / "p") as part:
        (part / "file").write_text("x")
    assert [(tmp_path / name).stat().st_ino for name in names] == before
    for file in made:
        file.close()


KILLED_IN_A_FOLDER = """
import os, signal, sys
from pathlib import Path
from ltr.atomic import writing_folder
with writing_folder(Path(sys.argv[1])) as part:
    (part / "half").write_text("of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_is_there_whole_or_not_at_all(tmp_path, monkeypatch) -> None:
    place = tmp_path / "made" / "run"

    def stop_in(folder: Path) -> None:
        with writing_folder(folder) as part:
            (part / "results.json").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_in(place)
    assert list(place.parent.iterdir()) == []
    with writing_folder(place) as part:
        (part / "inner").mkdir()
        (part / "inner" / "results.json").write_text("whole")
        assert not place.exists()
        assert os.path.relpath(tmp_path, part) == os.path.relpath(tmp_path, place)
    assert [p.name for p in place.parent.iterdir()] == ["run"]
    assert (place / "inner" / "results.json").read_text() == "whole"
    with pytest.raises(OutputError, match="run cannot be written"), writing_folder(place) as part:
        (part / "other").write_text("x")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"), writing_folder(tmp_path / "x") as part:
        (part / "file").write_text("x")
    assert [p.name for p in tmp_path.iterdir()] == ["made"]
    assert [p.name for p in place.parent.iterdir()] == ["run"]
    assert [p.name for p in place.iterdir()] == ["inner"]


@pytest.mark.slow
def test_the_folder_of_a_killed_writer_is_removed_by_the_next_one_there(tmp_path) -> None:
    for name in ("a", "b"):
        command = [sys.executable, "-c", KILLED_IN_A_FOLDER, str(tmp_path / name)]
        subprocess.run(command, check=False)
    assert len([*tmp_path.rglob("half")]) == 1  # the second one has removed that of the first
    with writing_folder(tmp_path / "lives") as part:
        (part / "file").write_text("x")
        with writing_folder(tmp_path / "c"):  # leaves alone what another one is writing
            pass
        assert (part / "file").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"lives", "c"}


def test_what_another_user_left_stays(tmp_path, monkeypatch) -> None:
    (tmp_path / ".part-a.csv-0123abcd").write_text("theirs")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    atomic_write(tmp_path / "a.csv", "x")
    assert {p.name for p in tmp_path.iterdir()} == {".part-a.csv-0123abcd", "a.csv"}
    monkeypatch.undo()
    atomic_write(tmp_path / "a.csv", "y")
    assert {p.name for p in tmp_path.iterdir()} == {"a.csv"}


def test_any_name_can_be_written_and_a_place_that_cannot_be_is_one_line(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("x" * 255, "ü" * 127):
        atomic_write(tmp_path / name, "text")
        (tmp_path / name).unlink()
        with writing_folder(tmp_path / name):
            pass
        (tmp_path / name).rmdir()
    for place in ("there/not.txt", "x" * 256, "folder"):
        with pytest.raises(OutputError, match=r"cannot be written \(.*\).*choose a folder"):
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_the_log_is_no_loss(capfd, tmp_path) -> None:
    for path in (Path("/dev/full"), tmp_path / "train.log"):
        handler = LogFile(str(path))
        for number in range(3):
            handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"line {number}", (), None))
        with suppress(OSError):
            handler.close()
    assert capfd.readouterr().err == "warning: /dev/full cannot be written\n"
    assert (tmp_path / "train.log").read_text() == "line 0\nline 1\nline 2\n"


def test_scalars_are_no_loss_can_be_read_and_go_back_with_a_resumed_run(
    tmp_path, monkeypatch, caplog
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for base, epochs in ((0, (0, 1, 2)), (10, (2, 3))):  # the second run goes on after epoch 1
        board = TensorBoard(tmp_path)
        board.replay({"epoch": 0, "loss": 99.0})
        for epoch in epochs:
            board.epoch({"epoch": epoch, "loss": float(epoch + base)})
    size = max((file.stat() for file in tmp_path.iterdir()), key=lambda s: s.st_mtime_ns).st_size
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # seven bytes more
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 7, hard))
        for epoch in (4, 5, 6):
            board.epoch({"epoch": epoch, "loss": 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caplog.text.count("training continues without them") == 1
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(0, 0), (1, 1), (2, 12), (3, 13)]


def test_one_line_and_status_2(capsys) -> None:
    for error, line in (
        (OSError(errno.EROFS, "Read-only", "out"), "out: Read-only; choose"),
        (FULL, "a file: No space left on device; free some disk space"),
        (MemoryError(), "not enough memory.*: lower batch_size"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9"), "not enough memory"),
        (OutputError("give less"), "give less"),
    ):
        with pytest.raises(SystemExit) as stop, ending():
            raise error
        err = capsys.readouterr().err
        assert (stop.value.code, err.count("\n")) == (2, 1)
        assert re.match(f"error: .*{line}", err)


def test_a_bug_keeps_its_traceback_and_what_is_behind_an_error_tells_of_a_full_disk() -> None:
    for bug in (KeyError("x"), RuntimeError("ours"), OSError(errno.EBADF, "bad")):
        with pytest.raises(type(bug)), ending():
            raise bug
    with pytest.raises(OutputError) as caught:
        raise OutputError("cannot be written") from FULL
    assert is_full(caught.value)
    assert not is_full(OutputError("cannot be written"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.slow
def test_output_that_cannot_be_printed_is_one_line() -> None:
    code = "from ltr.cli.process import ending\nwith ending(): print('x')"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", code]
        got = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    line = b"error: a file: No space left on device; free some disk space\n"
    assert (got.returncode, got.stderr) == (2, line)


@pytest.mark.slow
def test_training_on_a_full_disk_keeps_what_there_was_and_says_how_to_go_on(tiny, tmp_path) -> None:
    """Files may have 1 MB: nothing but the checkpoint of a larger model is larger."""
    own = [item for item in tiny if not item.startswith(("suggested", "model."))]
    command = [*own, "model=mlp", "model.hidden_sizes=[100000]", "loss=listnet", "epochs=1"]
    got = processes.run("train.py", *command, f"hydra.run.dir={tmp_path}/run", file_size=1_000_000)
    assert (got.returncode, "Traceback" in got.stderr) == (2, False), got.stderr
    last = got.stderr.splitlines()[-1]
    assert last.startswith(f"error: {tmp_path}/run/best.pt cannot be written (File too large)")
    assert last.endswith("then repeat the command")
    assert not list((tmp_path / "run").glob(".part*"))
