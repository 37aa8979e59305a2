"""A full disk: what is no loss goes on with one warning, everything else ends in one line."""

import errno
import logging
import re
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import processes
import pytest
from test_cli import ROOT

from ltr.console.process import LogFile, ending, is_full
from ltr.errors import OutputError
from ltr.training.hooks import TensorBoard

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_the_log_is_no_loss(capfd, tmp_path) -> None:
    for path in (Path("/dev/full"), tmp_path / "train.log"):
        handler = LogFile(str(path))
        for number in range(3):
            handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"line {number}", (), None))
        with suppress(OSError):
            handler.close()
    assert capfd.readouterr().err == "warning: /dev/full cannot be written\n"
    assert (tmp_path / "train.log").read_text() == "line 0\nline 1\nline 2\n"


def test_scalars_are_no_loss_and_what_is_there_can_be_read(tmp_path, monkeypatch, caplog) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path)
    board.epoch({"epoch": 0, "vali_ndcg@5": 0.25})
    (file,) = tmp_path.iterdir()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # seven bytes more
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 7, hard))
        for epoch in (1, 2):
            board.epoch({"epoch": epoch, "vali_ndcg@5": 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caplog.text.count("goes on without them") == 1
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("vali/ndcg@5")] == [(0, 0.25)]


def test_a_resumed_run_purges_the_scalars_after_its_epoch(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for base, epochs in ((0, (0, 1, 2)), (10, (2, 3))):
        board = TensorBoard(tmp_path)
        board.replay({"epoch": 0, "loss": 99.0})
        for epoch in epochs:
            board.epoch({"epoch": epoch, "loss": float(epoch + base)})
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(0, 0), (1, 1), (2, 12), (3, 13)]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EROFS, "Read-only", "out"), "out: Read-only; choose"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), "File name too long; choose"),
        (FULL, "a file: No space left on device; free some space"),
        (MemoryError(), "not enough memory.*: lower batch_size"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9"), "not enough memory"),
        (OutputError("give less"), "give less"),
    ],
)
def test_one_line_and_status_2(error, line, capsys) -> None:
    with pytest.raises(SystemExit) as stop, ending():
        raise error
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.match(f"error: .*{line}", err)


def test_a_bug_keeps_its_traceback() -> None:
    for bug in (KeyError("x"), RuntimeError("ours"), OSError(errno.EBADF, "bad")):
        with pytest.raises(type(bug)), ending():
            raise bug


def test_what_is_behind_an_error_tells_whether_the_disk_is_full() -> None:
    with pytest.raises(OutputError) as caught:
        raise OutputError("cannot be written") from FULL
    assert is_full(caught.value)
    assert not is_full(OutputError("cannot be written"))


@pytest.mark.slow
def test_output_that_cannot_be_printed_is_one_line() -> None:
    code = "from ltr.console.process import ending\nwith ending(): print('x')"
    with open("/dev/full", "w") as full:  # noqa: PTH123
        got = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert got.returncode == 2
    assert got.stderr == "error: a file: No space left on device; free some space\n"


@pytest.mark.slow
def test_training_on_a_full_disk_keeps_what_there_was_and_says_how_to_go_on(tiny, tmp_path) -> None:
    """Files may have 30 kB: nothing but the checkpoint of a larger model is larger."""

    own = [item for item in tiny if not item.startswith(("suggested", "model."))]
    command = [*own, "model=mlp", "model.hidden_sizes=[2000]", "loss=listnet", "epochs=1"]
    got = processes.run("train.py", *command, f"hydra.run.dir={tmp_path}/run", file_size=30_000)
    assert got.returncode == 2, got.stderr
    assert "Traceback" not in got.stderr
    last = got.stderr.splitlines()[-1]
    assert last.startswith(f"error: {tmp_path}/run/last.pt cannot be written (File too large)")
    assert last.endswith("then give the same command again")
    assert not list((tmp_path / "run").glob(".part*"))
