"""The runs of a table: each is done once, whoever is stopped, killed, fails or changes the code."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import folders
import pytest
from conftest import compose
from filelock import FileLock, Timeout
from hydra.core.override_parser.overrides_parser import OverridesParser
from made_table import write_data
from orders import table_of
from test_table import run, runs_of, table

from ltr.console.arguments import with_quotes
from ltr.experiment.job import resumed
from ltr.experiment.run import run as train
from ltr.tables import execute as executing
from ltr.tables.execute import CHANGED, command_of, execute
from ltr.tables.plan import Run, plan
from ltr.tables.spec import only


def test_a_killed_table_goes_on(small: list[str], tmp_path: Path) -> None:
    out = tmp_path / "o'neil & müller #1"  # signs that Hydra reads otherwise
    small = [*small, "epochs=60", f"output_dir={out}"]
    process = subprocess.Popen(table(*small), stdout=subprocess.DEVNULL, start_new_session=True)
    runs = out / "runs"
    waited = time.monotonic()
    while not list(runs.glob("bce*/last.pt")):
        assert time.monotonic() < waited + 60
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert not list(runs.glob("bce*/results.json"))
    assert run(*small).returncode == 0
    (folder,) = runs.glob("bce*")
    assert "resumed at epoch" in (folder / "train.log").read_text()
    alone = subprocess.run(
        [*table(*small), f"output_dir={tmp_path}/alone"], capture_output=True, text=True
    )
    assert alone.returncode == 0
    (other,) = (tmp_path / "alone/runs").glob("bce*")
    assert (other / "scores.csv").read_bytes() == (folder / "scores.csv").read_bytes()


def started(*arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(table(*arguments), stdout=pipe, stderr=pipe, text=True)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_two_tables_share_the_runs(small: list[str], tmp_path: Path) -> None:
    """The table of another data set has some of the same rows, and here the same settings."""
    same = ["model.dropout=0", "optimizer.lr=0.01", *small[2:]]  # one run at a time each
    orders = [
        ["table=letor4_mq2007", "rows=ListNet,RankNet,BCE", *same],
        ["table=letor4_mq2008", "rows=BCE,RMSE,RankNet", *same],
    ]
    planned = []
    for order in map(table_of, orders):
        spec = only(runs_of(order.table), order.rows)
        planned.append({one.folder for one in plan(spec, order.overrides, [1], tmp_path / "out")})
    assert len(planned[0] & planned[1]) == 2
    both = [started(*order) for order in orders]
    printed = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert all("3 of 3 runs" in out for out, _ in printed)
    logs = list((tmp_path / "out/runs").glob("*/train.log"))
    assert {log.parent for log in logs} == planned[0] | planned[1]
    for log in logs:
        assert log.read_text().count("kept in") == 1
        assert log.read_text().count("lists train") == 1  # begun once


_WAITS = """
import pathlib, time

def loss(scores, labels, mask, *, relevant=1):
    while scores.requires_grad and not (pathlib.Path(__file__).parent / "go").exists():
        time.sleep(0.02)  # in training; not where the config is tried
    scores, labels = scores.masked_fill(~mask, 0), labels.masked_fill(~mask, 0)
    return ((scores - labels) ** 2).sum(-1)
"""


def test_a_run_outlives_its_table_and_is_not_done_twice(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_waits.py").write_text(_WAITS)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    small, runs = [*small, "loss._target_=mine_waits.loss"], tmp_path / "out/runs"
    try:
        first = started(*small)
        try:
            wait_for(lambda: list(runs.glob("bce*/last.pt")))
        finally:
            first.kill()
            first.communicate()
        (folder,) = runs.glob("bce*")
        with pytest.raises(Timeout):  # the run holds the claim of its table
            FileLock(folder.with_name(f".{folder.name}.lock")).acquire(timeout=0)
        second = started(*small)
        assert second.stdout is not None
        assert "1 runs, 1 to do" in second.stdout.readline()
        time.sleep(0.5)  # it finds the run claimed, again and again
    finally:
        (tmp_path / "go").touch()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, out + err
    assert "1 of 1 runs" in out
    log = (folder / "train.log").read_text()
    assert log.count("kept in") == log.count("lists train") == 1
    assert "resumed" not in log


def test_a_failed_run_is_named_and_the_others_are_done(small: list[str], tmp_path: Path) -> None:
    done = run(*small, "rows=BCE,untrained", "optimizer=sgd", "optimizer.lr=1e30", "epochs=3")
    assert done.returncode == 1
    assert "bce-letor" in done.stdout
    assert "not finite" in done.stdout
    assert "1 of 2 runs" in done.stdout


@pytest.fixture
def three(tmp_path: Path) -> list[Run]:
    """Three runs of one row."""
    given = [*write_data(tmp_path), "model.hidden_sizes=[4]", "epochs=1"]
    return plan(only(runs_of("ranknet_report"), ["BCE"]), given, [1, 2, 3], tmp_path / "out")


def finish(run: Run) -> None:
    run.folder.mkdir(parents=True)
    folders.finish(run.folder, {})


def test_what_goes_wrong_around_a_run_is_its_reason_and_the_others_are_done(
    three: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(run: Run, *rest: object) -> None:
        if run.seed == 1:
            raise OSError(28, "No space left\non device")
        finish(run)

    monkeypatch.setattr(executing, "_train", fake)
    failed = execute(three, workers=1)
    assert failed == {three[0].folder: "OSError: [Errno 28] No space left on device"}
    assert [run.done for run in three] == [False, True, True]


def test_no_run_is_started_once_the_code_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine_edited.py"
    mine.write_text("power = 2")
    monkeypatch.syspath_prepend(str(tmp_path))
    given = [*write_data(tmp_path), "loss._target_=mine_edited.squared"]
    runs = plan(only(runs_of("ranknet_report"), ["BCE"]), given, [1, 2, 3], tmp_path / "out")
    assert {path.name for path in runs[0].sources} >= {mine.name, "train.yaml", "trainer.py"}

    def fake(run: Run, *rest: object) -> None:
        finish(run)
        mine.write_text("power = 3")

    monkeypatch.setattr(executing, "_train", fake)
    assert execute(runs, workers=1) == {run.folder: CHANGED for run in runs[1:]}
    assert "give the same command again" in CHANGED
    assert [run.done for run in runs] == [True, False, False]


def test_a_run_that_goes_on_has_the_users_trust_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_kept.py").write_text(
        "def squared(scores, labels, mask, *, relevant=1):\n"
        "    scores, labels = scores.masked_fill(~mask, 0), labels.masked_fill(~mask, 0)\n"
        "    return ((scores - labels) ** 2).sum(-1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    given = [*write_data(tmp_path), "model.hidden_sizes=[4]", "epochs=1", "optimizer.lr=0.01"]
    given += ["loss._target_=mine_kept.squared", "trust=[mine_kept]", "device=cpu"]
    spec, out = only(runs_of("ranknet_report"), ["BCE"]), tmp_path / "o'neil müller #1; a=b, c"
    (begun,) = plan(spec, given, [1], out)
    command = command_of(begun)
    assert "seed=1" in command
    folder = OverridesParser.create().parse_override(command[-1]).value()
    assert folder == str(begun.folder)
    begun.folder.mkdir(parents=True)
    train(begun.config, begun.folder, {})

    moved = tmp_path / "other#place"
    moved.mkdir()
    (tmp_path / "mine").rename(moved / "mine")
    (again,) = plan(spec, [*given, f"data_dir={moved}", "threads=1"], [1], out)
    assert again.folder == begun.folder
    command = [with_quotes(item) for item in command_of(again, "evaluation_items=99")[4:]]
    cfg, _ = resumed(compose(*command), command)  # refused where mine_kept is not trusted
    assert Path(cfg.resume) == begun.folder
    assert (cfg.data_dir, cfg.dataset.data_dir) == (str(moved), str(moved))
    assert (cfg.trust, cfg.device, cfg.threads) == (["mine_kept"], "cpu", 1)
    assert (cfg.evaluation_items, cfg.optimizer.lr) == (99, 0.01)
