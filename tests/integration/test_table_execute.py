"""The runs of a table: each is done once, whoever is stopped, killed, fails or changes the code."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
import yaml
from filelock import FileLock, Timeout

from ltr.experiment.run_folder import RunFolder
from ltr.lab.tables.config import Workers
from ltr.lab.tables.runs import Run, execute, plan
from ltr.lab.tables.spec import read_table
from tests.helpers import processes
from tests.helpers.made_table import train_here, write_data
from tests.helpers.processes import Process, wait_for

pytestmark = pytest.mark.slow

PARALLEL = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return processes.run(processes.LTR, "table", *arguments)


def started(*arguments: str) -> Process:
    return processes.start(processes.LTR, "table", *arguments)


def in_parallel(small: list[str]) -> list[str]:
    return [item for item in small if not item.startswith("workers=")] + PARALLEL


def test_table_command_makes_a_table_once(small: list[str], tmp_path: Path) -> None:
    first = run(*small)
    assert first.returncode == 0, first.stderr
    assert "1 runs, 1 to do" in first.stderr
    pattern = r"^1 of 1  BCE, seed 1  ndcg@\d+ 0\.\d{4} on vali$"
    assert re.search(pattern, first.stderr, re.MULTILINE)
    assert re.search(r"^lists +train \d+, vali \d+, test \d+$", first.stdout, re.MULTILINE)
    for expected in ("paper: empty list = 1", "letor4: empty list = 0", "1 of 1 runs"):
        assert expected in first.stdout
    (folder,) = (tmp_path / "out/tables").iterdir()
    assert re.match("ranknet_report_letor_.*rows-BCE", folder.name)  # what was asked beyond it
    assert f"kept in {folder} " in first.stdout
    runs = pd.read_csv(folder / "runs.csv")
    assert runs["row"].tolist() == ["BCE"]
    test = RunFolder(Path(runs["run"][0])).results["test"]["ndcg@15"]
    assert runs["paper ndcg@15"][0] == pytest.approx(test, abs=1e-12)
    assert f"{test:.4f}" in first.stdout
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.pt")}
    repeated = run(*small)
    assert "1 runs, 0 to do\n" in repeated.stderr
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert repeated.stdout == first.stdout


def test_table_command_continues_after_a_stop(small: list[str], tmp_path: Path) -> None:
    out = tmp_path / "o'neil & müller #1"  # signs that Hydra reads otherwise
    small = [*small, "epochs=60", f"output_dir={out}"]
    process = started(*small)
    runs = out / "runs"
    wait_for(lambda: list(runs.glob("bce*/last.pt")), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 143, err
    assert "repeat the command to continue" in err
    assert not list(runs.glob("bce*/results.json"))
    assert run(*small).returncode == 0
    (folder,) = runs.glob("bce*")
    assert "resumed at epoch" in (folder / "train.log").read_text()


_OWN = """
import os, pathlib, signal, time
HERE = pathlib.Path(__file__).parent

def loss(scores, labels, mask, *, relevant=1):
    if scores.requires_grad:  # in training; not where the config is tried
        {in_training}
    scores, labels = scores.masked_fill(~mask, 0), labels.masked_fill(~mask, 0)
    return ((scores - labels) ** 2).sum(-1)
"""


@pytest.fixture
def own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a loss that does something of its own in training; the override that names it."""

    def write(in_training: str) -> str:
        name = f"mine_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(_OWN.format(in_training=in_training))
        paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
        monkeypatch.syspath_prepend(str(tmp_path))
        return f"loss._target_={name}.loss"

    return write


def test_table_command_does_the_run_of_a_killed_worker_once(small, tmp_path, own_loss) -> None:
    loss = own_loss(
        "(HERE / 'killed').exists() or ((HERE / 'killed').touch(), os.kill(os.getpid(), 9))\n"
        "        (HERE / 'pid').write_text(str(os.getpid()))\n"
        "        while not (HERE / 'go').exists(): time.sleep(0.02)"
    )
    small = [*small, loss]
    pid = tmp_path / "pid"
    first = started(*in_parallel(small))
    try:
        wait_for(pid.is_file, first)
        assert (tmp_path / "killed").exists()
        first.kill()
        first.wait()
        (folder,) = (tmp_path / "out/runs").glob("bce*")
        with pytest.raises(Timeout):  # the run goes on
            FileLock(folder / ".lock").acquire(timeout=0)
        second = started(*small)
        assert "1 runs, 1 to do" in second.stderr.readline()
        (tmp_path / "go").touch()
        out, err = second.communicate()
        status = Path("/proc", pid.read_text(), "stat")
        while status.is_file() and ") Z " not in status.read_text():
            time.sleep(0.05)  # it ends by itself
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # what outlived it
        first.communicate()
    assert second.returncode == 0, out + err
    assert "1 of 1 runs" in out
    log = (folder / "train.log").read_text()
    assert log.count("kept in") == 1
    assert log.count("resumed") <= 1  # of the killed worker, before its first step


def test_execute_ends_after_two_launches_that_finish_nothing(tmp_path, monkeypatch) -> None:
    runs = planned(tmp_path, seeds=[1, 2])
    launched = []

    def killed(*_: object) -> None:
        launched.append(len(yaml.safe_load((tmp_path / "jobs.yaml").read_text())))
        train_here(runs[:1] if len(launched) == 2 else [])
        raise RuntimeError("a worker was killed")

    monkeypatch.setattr("ltr.lab.tables.launch.HydraApp.sweep", killed)
    failed = execute(runs, tmp_path / "jobs.yaml", Workers())
    assert failed == {runs[1].folder: "its process ended early: a worker was killed"}
    assert launched == [2, 2, 1, 1]


def test_execute_ignores_jobs_that_another_process_writes(tmp_path, monkeypatch) -> None:
    (run,) = planned(tmp_path)
    other_jobs = yaml.safe_dump([["epochs=0", "hydra.sweep.subdir=another"]])

    def overwritten(path: Path, text: str) -> None:
        path.write_text(other_jobs if path.name == "jobs.yaml" else text)

    monkeypatch.setattr("ltr.lab.tables.launch.atomic_write", overwritten)
    assert execute([run], tmp_path / "jobs.yaml", Workers()) == {}
    assert run.done


def test_table_command_names_a_failed_run_and_does_the_others(
    small: list[str], tmp_path: Path
) -> None:
    process = run(*small, "rows=BCE,untrained", "optimizer=sgd", "optimizer.lr=1e30", "epochs=3")
    assert process.returncode == 1
    assert "bce-letor" in process.stderr
    assert "not finite" in process.stderr
    assert "1 of 2  BCE, seed 1  failed: " in process.stderr
    assert "1 of 2 runs" in process.stdout


def planned(tmp_path: Path, *more: str, seeds: Sequence[int] = (1,)) -> list[Run]:
    overrides = [*write_data(tmp_path), "model.hidden_sizes=[4]", "epochs=1", *more]
    return plan(
        read_table("ranknet_report").select_rows(["BCE"]), overrides, seeds, tmp_path / "out"
    )


def test_execute_reports_changed_code_and_finds_the_run_again(tmp_path: Path, own_loss) -> None:
    loss = own_loss("pass")
    (run,) = planned(tmp_path, loss)
    own_loss("time.sleep(0)")
    ((folder, reason),) = execute([run], tmp_path / "jobs.yaml", Workers()).items()
    assert folder == run.folder
    assert "repeat the command" in reason
    (planned_later,) = planned(tmp_path, loss)
    assert planned_later.identity != run.identity
    assert (planned_later.folder, planned_later.done) == (run.folder, True)


def test_execute_resumes_a_run_whose_data_were_moved(tmp_path: Path, own_loss) -> None:
    overrides = [own_loss("pass"), "device=cpu", "threads=1"]
    (started_run,) = planned(tmp_path, *overrides)
    assert execute([started_run], tmp_path / "jobs.yaml", Workers()) == {}
    (started_run.folder / "results.json").unlink()
    moved = tmp_path / "other#place"
    moved.mkdir()
    (tmp_path / "mine").rename(moved / "mine")
    spec = read_table("ranknet_report").select_rows(["BCE"])
    settings = [item for item in started_run.overrides if not item.startswith("seed=")]
    (continued,) = plan(spec, [*settings, f"data_dir={moved}"], [1], tmp_path / "out")
    assert continued.folder == started_run.folder
    assert (
        execute([continued], tmp_path / "jobs.yaml", Workers(extra=["evaluation_items=99"])) == {}
    )
    assert "resumed" in (started_run.folder / "train.log").read_text()
    assert RunFolder(started_run.folder).results["seed"] == 1
