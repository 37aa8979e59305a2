"""Commands: each has its parts, help and remedies name it as it was started, its stop is clean.

A clean stop, from the first line on: an exit status, no traceback, nothing half.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ltr.__main__ import COMMANDS
from ltr.cli.arguments import as_text
from ltr.cli.compose import run_config
from ltr.cli.help import help_of
from ltr.cli.process import ending
from ltr.errors import as_started
from ltr.training.interruption import Interrupted, Interruption, handing_on
from tests.helpers import processes
from tests.helpers.paths import ROOT
from tests.helpers.processes import wait_for


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
@pytest.mark.parametrize("command", [[str(ROOT / "train.py")], ["-m", "ltr", "search"]])
def test_every_command_is_stopped_cleanly_before_its_first_import_is_done(command, tmp_path):
    for first in ("hydra", "omegaconf", "argparse", "dataclasses"):
        text = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
        (tmp_path / f"{first}.py").write_text(text)
    got = python("-S", *command, path=tmp_path)
    assert (got.returncode, got.stdout, got.stderr) == (143, "", "")


@pytest.mark.slow
def test_what_is_under_way_is_undone(tmp_path) -> None:
    got = program(
        f"""
        from pathlib import Path
        from ltr.cli.process import ending
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


STOPPED_SWEEP = """
import os, sys
sys.modules["psutil"] = None  # as where it is not installed
os.environ["PATH"] = sys.argv.pop()  # a folder with another pgrep
from ltr.__main__ import main
main("train")
"""


@pytest.mark.slow
def test_a_sweep_ends_when_its_launcher_fails_to_end_a_worker(tiny, tmp_path) -> None:
    pgrep = tmp_path / "bin" / "pgrep"
    pgrep.parent.mkdir()
    pgrep.write_text("#!/bin/sh\nkill -TERM $$\n")
    pgrep.chmod(0o755)
    sweep = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2", "threads=1"]
    command = [*sweep, *tiny, "loss=listnet", "epochs=3000", f"output_dir={tmp_path}/out"]
    process = processes.start(STOPPED_SWEEP, *command, str(pgrep.parent))
    wait_for(lambda: len([*(tmp_path / "out").glob("*/*/history.csv")]) == 2, process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    for log in (tmp_path / "out").glob("*/*/train.log"):
        assert "epoch 3000/3000" not in log.read_text()  # the runs were not waited for


def test_a_request_that_nobody_looked_at_is_not_lost() -> None:
    with pytest.raises(Interrupted, match="SIGINT"), Interruption():
        os.kill(os.getpid(), signal.SIGINT)


class Requeued(Exception):
    """What a launcher ends the process with."""


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What happens under a launcher such as submitit: it queues the job again, outlasts SIGTERM."""
    events: list[str] = []

    def requeue(*_: object) -> None:
        events.append("launcher")
        raise Requeued

    handlers = {signal.SIGUSR2: requeue, signal.SIGTERM: signal.SIG_IGN}
    before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    yield events
    assert [signal.signal(*one) for one in before.items()] == [*handlers.values()], "put back"


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    ("signum", "end", "after"),
    [(signal.SIGUSR2, Requeued, ["launcher"]), (signal.SIGTERM, Interrupted, [])],
)
def test_the_launcher_gets_its_signal_when_a_checkpoint_is_written_and_sigterm_stops_the_work(
    heard: list[str], trains: bool, signum: int, end: type[Exception], after: list[str]
) -> None:
    @handing_on()
    def job() -> None:
        if trains:
            with Interruption() as interruption:
                signal.raise_signal(signum)
                assert interruption.signum == signum
                heard.append("checkpoint")
            return
        try:
            signal.raise_signal(signum)
        finally:
            heard.append("undone")

    with pytest.raises(end):
        job()
    assert heard == ["checkpoint" if trains else "undone", *after]


def test_where_signals_cannot_be_taken_the_work_is_done_as_it_is(heard: list[str]) -> None:
    with ThreadPoolExecutor() as pool:  # only the main thread has handlers
        assert pool.submit(handing_on()(lambda: "done")).result() == "done"


SPELLED = re.compile(r"python (train\.py|-m ltr)")


def test_commands_are_named_as_they_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    installed = ("ltr train", "ltr table")
    for started, names in (
        (str(ROOT / "train.py"), ("python train.py", "python -m ltr table")),
        (str(ROOT / "ltr/__main__.py"), ("python -m ltr train", "python -m ltr table")),
        ("/usr/bin/ltr", installed),
        ("/home/me/train.py", installed),  # the user's own, with a Ranker
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert (as_started("train"), as_started("table")) == names


def test_a_stop_that_a_library_s_clean_up_hides_is_one() -> None:
    hidden = UnboundLocalError("f")  # as Hydra's, of a file that it had not opened yet
    hidden.__context__ = AttributeError("x")  # one clean-up within another
    hidden.__context__.__context__ = Interrupted(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), ending():
        raise hidden


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_parts_and_its_help(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, function = COMMANDS[command][0].partition(":")
    assert callable(getattr(import_module(module), function))
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ltr"])
    text = help_of(command)
    assert "train.py" not in text
    assert f"  ltr {command}" in text
    monkeypatch.setattr(sys, "argv", [str(ROOT / "train.py")])
    as_in_clone = "python train.py" if command == "train" else f"python -m ltr {command}"
    assert f"  {as_in_clone}" in help_of(command)


@pytest.mark.slow
def test_recommend_is_auto_with_a_line_that_says_so() -> None:
    done = processes.run(processes.LTR, "recommend", "minutes=0", "dataset=synthetic")
    assert done.stderr.splitlines() == [
        "warning: ltr recommend is now called ltr auto; the next version will not accept the "
        "former name",
        "error: minutes=0: expected a number > 0, such as 30",
    ]
    assert "recommend" not in processes.run(processes.LTR, "--help").stdout


def test_the_keys_that_people_type_most_stand_first_with_their_defaults() -> None:
    first, _, rest = help_of("train").partition("Choices (GROUP=CHOICE)")
    listed = re.findall(r"^  '?([\w.]+)=(\S+?)'?  ", first.split("More keys")[1], re.M)
    assert len(listed) >= 20
    assert "(KEY=VALUE" in rest
    config, chosen = run_config([])
    chosen["transform"] = "web30k"  # the data set chooses it
    for key, shown in listed:
        value = chosen.get(key) or OmegaConf.select(config, key)
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        assert as_text(value).replace("'", "") == shown, key


def test_no_command_is_spelled_in_code_and_no_distribution_named() -> None:
    """Each takes ``as_started``."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "ltr").rglob("*.py")
        if "benchmark" not in path.parts and path.name not in ("errors.py", "configs.py")
        for line in path.read_text().splitlines()
        if (SPELLED.search(line) and '"""' not in line and "``" not in line) or "ltr-torch[" in line
    ]
    assert not wrong


def test_the_remedy_of_an_extra_names_one_that_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    used = {
        name
        for path in (ROOT / "ltr").rglob("*.py")
        for name in re.findall(r"\bneed\(\S+, \"(\w+)\"\)", path.read_text())
    }
    assert used == {"explain", "export", "gbdt", "parquet", "report", "search", "tracking"}
    assert used <= project["optional-dependencies"].keys()
