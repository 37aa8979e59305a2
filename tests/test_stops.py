"""A stop is a clean stop from the first line on: an exit status, no traceback, nothing half."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ltr.training import interruption
from ltr.training.interruption import Interrupted, Interruption

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
def test_where_nothing_is_under_way_it_ends_at_once_and_what_was_printed_is_there() -> None:
    got = program("print('printed')\nstop()\nprint('not reached')")
    assert (got.returncode, got.stdout, got.stderr) == (143, "printed\n", "")


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


def test_it_goes_from_process_to_process() -> None:
    again = pickle.loads(pickle.dumps(Interrupted(signal.SIGTERM)))
    assert (str(again), again.signum) == ("SIGTERM", signal.SIGTERM)


def test_nothing_here_is_told_of_stops() -> None:
    assert signal.getsignal(signal.SIGTERM) is not interruption._stop
