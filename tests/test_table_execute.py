"""The runs of a table: each is done once, whoever is stopped, killed, fails or changes the code."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import compose
from made_table import write_data
from test_table import run, runs_of, table

from ltr.experiment.job import resumed
from ltr.experiment.run import run as train
from ltr.experiment.table import execute as executing
from ltr.experiment.table.execute import CHANGED, command_of, execute
from ltr.experiment.table.order import parse_order
from ltr.experiment.table.plan import Run, plan
from ltr.experiment.table.spec import only


def test_a_killed_table_goes_on(small: list[str], tmp_path: Path) -> None:
    small = [*small, "epochs=60"]
    process = subprocess.Popen(table(*small), stdout=subprocess.DEVNULL, start_new_session=True)
    runs = tmp_path / "out/runs"
    waited = time.monotonic()
    while not list(runs.glob("bce*/last.pt")):
        assert time.monotonic() < waited + 60
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
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
    same = ["model.dropout=0", "optimizer.lr=0.01", *small[2:], "workers=2"]
    orders = [
        ["table=letor4_mq2007", "rows=ListNet,RankNet,BCE", *same],
        ["table=letor4_mq2008", "rows=BCE,RMSE,RankNet", *same],
    ]
    planned = []
    for order in map(parse_order, orders):
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


def test_a_run_outlives_its_table_and_is_not_done_twice(small: list[str], tmp_path: Path) -> None:
    small = [*small, "epochs=400"]
    first, runs = started(*small), tmp_path / "out/runs"
    try:
        wait_for(lambda: list(runs.glob("bce*/last.pt")))
    finally:
        first.kill()
    first.wait()
    (folder,) = runs.glob("bce*")
    assert not (folder / "results.json").exists()  # the run itself is alive, its table is not
    second = started(*small)
    out, err = second.communicate(timeout=120)
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
    """Three runs of one row with a loss of the user's own."""
    given = [*write_data(tmp_path), "model.hidden_sizes=[4]", "epochs=1"]
    return plan(only(runs_of("ranknet_report"), ["BCE"]), given, [1, 2, 3], tmp_path / "out")


def finish(run: Run) -> None:
    run.folder.mkdir(parents=True)
    (run.folder / "results.json").write_text("{}")


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


def overrides_of(command: Sequence[str]) -> list[str]:
    return list(command[2:])


def test_a_run_that_goes_on_has_the_users_trust_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_kept.py").write_text(
        "def squared(scores, labels, mask):\n"
        "    return ((scores - labels) ** 2).masked_fill(~mask, 0).sum(-1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "o'neil müller #1; a=b, c"
    given = [*write_data(tmp_path), "model.hidden_sizes=[4]", "epochs=1", "optimizer.lr=0.01"]
    given += ["loss._target_=mine_kept.squared", "trust=[mine_kept]", "device=cpu"]
    spec = only(runs_of("ranknet_report"), ["BCE"])
    (begun,) = plan(spec, given, [1], out)
    assert f"seed={begun.seed}" in overrides_of(command_of(begun))
    begun.folder.mkdir(parents=True)
    train(begun.config, begun.folder, {})

    moved = tmp_path / "other#place"
    (tmp_path / "mine").rename(moved.with_name("mine_"))
    moved.mkdir()
    moved.with_name("mine_").rename(moved / "mine")
    (again,) = plan(spec, [*given, f"data_dir={moved}", "threads=1"], [1], out)
    assert again.folder == begun.folder
    command = overrides_of(command_of(again, "evaluation_items=99"))
    cfg, _ = resumed(compose(*command), command)
    assert cfg.resume is None  # the run's own; train.py sets it
    assert (cfg.data_dir, cfg.dataset.data_dir) == (str(moved), str(moved))
    assert (cfg.trust, cfg.device, cfg.threads) == (["mine_kept"], "cpu", 1)
    assert (cfg.evaluation_items, cfg.optimizer.lr) == (99, 0.01)
