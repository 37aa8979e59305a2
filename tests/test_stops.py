"""A stop is a clean stop from the first line on: an exit status, no traceback, nothing half."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from ltr.training.interruption import Interrupted, Interruption, handing_on

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("train.py", "scripts/search.py")  # all of scripts/ are alike


def python(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, check=False
    )


def program(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is told of stops, and of ``stop()``, which is one."""
    head = """
        import os, signal
        from ltr.training.interruption import Interrupted, end_when_stopped, stoppable
        stop = lambda: os.kill(os.getpid(), signal.SIGTERM)
        end_when_stopped()
    """
    return python("-c", textwrap.dedent(head) + textwrap.dedent(text))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_stopped_cleanly_before_its_first_import_is_done(command, tmp_path):
    for first in ("hydra", "omegaconf", "argparse", "dataclasses"):
        text = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
        (tmp_path / f"{first}.py").write_text(text)
    got = python("-S", str(ROOT / command), path=tmp_path)
    assert (got.returncode, got.stdout, got.stderr) == (143, "", "")


@pytest.mark.slow
def test_what_is_under_way_is_undone(tmp_path) -> None:
    got = program(
        f"""
        from pathlib import Path
        from ltr.console.process import ending
        from ltr.atomic import atomic_write
        def half(file):
            file.write(b"half")
            stop()
        with ending("the same command goes on"), stoppable():
            atomic_write(Path({str(tmp_path)!r}, "a.csv"), half)
        """
    )
    assert (got.returncode, got.stdout, got.stderr) == (143, "", "the same command goes on\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_stop_within_an_import_waits_for_its_end(tmp_path) -> None:
    (tmp_path / "takes_long.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nwhole = True\n"
    )
    got = program(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        with stoppable():
            try:
                import takes_long
                while True:
                    pass
            except Interrupted as stopped:
                print(stopped, sys.modules["takes_long"].whole)
        """
    )
    assert (got.stdout, got.stderr) == ("SIGTERM True\n", "")


def test_a_request_that_nobody_looked_at_is_not_lost() -> None:
    with pytest.raises(Interrupted, match="SIGINT"), Interruption():
        os.kill(os.getpid(), signal.SIGINT)


SIGNAL = signal.SIGUSR2
heard: list[str] = []


class Requeued(Exception):
    """What a launcher ends the process with."""


@pytest.fixture
def launcher() -> Iterator[None]:
    """Handlers of a launcher such as submitit: it queues the job again, and outlasts SIGTERM."""

    def requeue(signum: int, frame: FrameType | None) -> None:
        heard.append("launcher")
        raise Requeued

    heard.clear()
    before = [signal.signal(SIGNAL, requeue), signal.signal(signal.SIGTERM, signal.SIG_IGN)]
    yield
    signal.signal(SIGNAL, before[0])
    signal.signal(signal.SIGTERM, before[1])


@handing_on()
def job(signum: int, *, trains: bool) -> None:
    """Get a signal in the midst of an epoch, or of other work."""
    if not trains:
        try:
            signal.raise_signal(signum)
        finally:
            heard.append("undone")
        return
    with Interruption() as interruption:
        signal.raise_signal(signum)
        assert interruption.signum == signum
        heard.append("checkpoint")


@pytest.mark.parametrize(("trains", "first"), [(True, "checkpoint"), (False, "undone")])
def test_the_launcher_gets_its_signal_when_a_checkpoint_is_written(
    trains: bool, first: str, launcher: None
) -> None:
    handler = signal.getsignal(SIGNAL)
    with pytest.raises(Requeued):
        job(SIGNAL, trains=trains)
    assert heard == [first, "launcher"]
    assert signal.getsignal(SIGNAL) is handler


@pytest.mark.parametrize("trains", [True, False])
def test_sigterm_which_a_launcher_outlasts_stops_the_work(trains: bool, launcher: None) -> None:
    with pytest.raises(Interrupted):
        job(signal.SIGTERM, trains=trains)
    assert "launcher" not in heard
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
